"""Which tensor arguments a body reads only in another layout, so that whatever fetches them may arrange them.

A body that reads `local_B` in `allo.matmul(local_A, allo.transpose(local_B))` and nowhere else never needs the tile as
it lies in DRAM. Notes are taken while the body is compiled: every read and write of an array, and every operation
that does nothing but rearrange a whole array into another one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .program import LayoutStep, LayoutUse
from .values import Buffer, TileExpr, Value

_REARRANGING = ("transpose", "view")


@dataclass(frozen=True)
class _Note:
    """An operation that fills the array `target` with what is in `source`, arranged anew."""

    source: str
    target: str
    step: LayoutStep
    site: int


@dataclass
class LayoutNotes:
    """What a body does with its arrays, by the name of the array."""

    reads: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, int] = field(default_factory=dict)
    notes: list[_Note] = field(default_factory=list)

    def touch(self, buffer: Buffer, *, write: bool) -> None:
        """A read or write of an array, or of a part of it."""
        (self.writes if write else self.reads)[buffer.root] += 1
        if buffer.arg is not None:
            self.arguments[buffer.root] = buffer.arg

    def rearranged(self, expr: TileExpr, operand: Value, target: Buffer, site: int) -> None:
        """An operation on tiles, priced at `site` of the body's work."""
        if expr.op not in _REARRANGING or not isinstance(operand, Buffer) or operand.dtype != target.dtype:
            return
        if operand.ssa != operand.root or target.ssa != target.root or target.arg is not None:
            return
        argument = tuple(expr.options) if expr.op == "transpose" else expr.shape
        step = LayoutStep("transpose" if expr.op == "transpose" else "view", argument)
        self.notes.append(_Note(operand.root, target.root, step, site))

    def uses(self) -> tuple[LayoutUse, ...]:
        """The arguments of which all reads are the same rearrangement, and as many steps as that holds for."""
        result = []
        for root, arg in sorted(self.arguments.items(), key=lambda item: item[1]):
            steps: list[LayoutStep] = []
            sites: list[int] = []
            arrays = [root] if not self.writes[root] else []
            while arrays and (found := self._only_notes(arrays)):
                steps.append(found[0].step)
                sites += [note.site for note in found]
                arrays = [note.target for note in found]
            if steps:
                result.append(LayoutUse(arg, tuple(steps), tuple(sites)))
        return tuple(result)

    def _only_notes(self, arrays: list[str]) -> list[_Note]:
        """The rearrangements that are all that is done with some arrays; none if they differ or more is done."""
        found = [note for note in self.notes if note.source in arrays]
        reads = sum(self.reads[array] for array in arrays)
        alike = len({note.step for note in found}) == 1
        filled_once = all(self.writes[note.target] == 1 for note in found)
        return found if alike and filled_once and len(found) == reads else []
