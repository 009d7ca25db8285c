"""Tensor arguments that a body reads or writes only in another layout, so that the data movement can rearrange them.

A body that reads `local_B` in `allo.matmul(local_A, allo.transpose(local_B))` and nowhere else never needs the tile in
its DRAM layout. Notes are taken while the body is compiled: every read and write of an array, and every operation
that only rearranges a whole array into another one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from ..model.values import Buffer, TileExpr, Value
from ..program.tensors import LayoutStep, LayoutUse

_REARRANGING = ("transpose", "view")


class _Note(Struct, frozen=True):
    """An operation that fills the array `target` with a rearrangement of `source` (of `shape`)."""

    source: str
    target: str
    shape: tuple[int, ...]
    step: LayoutStep
    site: int


@dataclass
class LayoutNotes:
    """Accesses and rearrangements of a body's arrays, by the name of the array."""

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
        if operand.ssa != operand.root or target.ssa != target.root:
            return
        argument = tuple(expr.options) if expr.op == "transpose" else expr.shape
        step = LayoutStep("transpose" if expr.op == "transpose" else "view", argument)
        self.notes.append(_Note(operand.root, target.root, operand.shape, step, site))

    def uses(self) -> tuple[LayoutUse, ...]:
        """The arguments all of whose reads, or whose only write, are one rearrangement."""
        arguments = sorted(self.arguments.items(), key=lambda item: item[1])
        found = [use for root, arg in arguments for use in (self._read(root, arg), self._written(root, arg))]
        return tuple(use for use in found if use is not None)

    def _read(self, root: str, arg: int) -> LayoutUse | None:
        """As many steps from an argument on as are all that is done with what they start from."""
        passed: list[list[_Note]] = []
        arrays = [root] if not self.writes[root] else []
        while arrays and (found := self._only_notes(arrays)):
            passed.append(found)
            arrays = [note.target for note in found]
        if not passed:
            return None
        steps = tuple(found[0].step for found in passed)
        return LayoutUse(arg, "in", passed[0][0].shape, steps, tuple(note.site for found in passed for note in found))

    def _written(self, root: str, arg: int) -> LayoutUse | None:
        """As many steps back from an argument's only write as begin with an array that is used for nothing else."""
        passed: list[_Note] = []
        array = root if not self.reads[root] else ""
        while self.writes[array] == 1 and (found := [note for note in self.notes if note.target == array]):
            if found[0].source in self.arguments or self.reads[found[0].source] != 1:
                break
            passed.insert(0, found[0])
            array = found[0].source
        if not passed:
            return None
        steps, sites = tuple(note.step for note in passed), tuple(note.site for note in passed)
        return LayoutUse(arg, "out", passed[0].shape, steps, sites)

    def _only_notes(self, arrays: list[str]) -> list[_Note]:
        """The rearrangements that are all that is done with some arrays; none if they differ or more is done."""
        found = [note for note in self.notes if note.source in arrays]
        reads = sum(self.reads[array] for array in arrays)
        alike = len({note.step for note in found}) == 1
        filled_once = all(self.writes[note.target] == 1 and note.target not in self.arguments for note in found)
        return found if alike and filled_once and len(found) == reads else []
