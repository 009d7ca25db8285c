"""Sums of integers, which the tool adds as a tree, regardless of how they are written, or in the DSPs of products.

Early operands are added first, so a chain of equal operands is a balanced tree, and a value from an earlier round
passes one adder. A sum is part of the next one if nothing else uses it: within one expression, or passed on through an
element of an array (`acc += x`) that a later sum replaces.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.nest import Op
from allo_dse.device.device import FpgaDevice

from ..operators import FREE, multiply_add
from ..plan import WIDTHS, Item, Planned
from .effects import Element

Time: TypeAlias = tuple[int, float]
_KINDS = {"arith.addi": "sum", "arith.subi": "sum", "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor"}


class Sum(Frozen):
    """Operands that are added up, or joined by another operation whose order does not matter.

    Attributes:
        leaves: when they are there, with how many are there then.
        time: when their sum is.
        after: when an adder is done whose operands are there at a time.
    """

    kind: str
    leaves: Mapping[Time, int]
    time: Time
    after: Callable[[Time], Time]

    @staticmethod
    def of(kind: str, leaves: Mapping[Time, int], after: Callable[[Time], Time]) -> Sum:
        counts, waiting = dict(leaves), list(leaves)
        heapq.heapify(waiting)
        while True:
            time = heapq.heappop(waiting)
            pairs, odd = divmod(counts.pop(time), 2)
            if not pairs and not waiting:
                return Sum(kind, leaves, time, after)
            sums = Counter({after(time): pairs}) if pairs else Counter[Time]()
            if odd and waiting:
                later = waiting[0]
                counts[later] -= 1
                if not counts[later]:
                    counts.pop(heapq.heappop(waiting))
                sums[after(later)] += 1
            elif odd:
                sums[time] += 1
            for done, count in sums.items():
                if done not in counts:
                    heapq.heappush(waiting, done)
                counts[done] = counts.get(done, 0) + count

    def repeated(self, earlier: Sequence[Sum], copies: int) -> Sum | None:
        """Extrapolate the sum over more copies of an unrolled loop.

        Each copy must add as much as the one before, whole cycles later; otherwise the result is None.

        Args:
            earlier: what it was after the two copies before.
        """
        first, second, third = (Counter(part.leaves) for part in (*earlier, self))
        before, added = second - first, third - second
        if len({part.kind for part in (*earlier, self)}) > 1 or first - second or second - third or not before:
            return None
        step = max(added)[0] - max(before)[0] if added else 0
        if added != _later(before, step):
            return None
        for number in range(1, copies + 1):
            third += _later(added, number * step)
        return Sum.of(self.kind, third, self.after)


def _later(leaves: Mapping[Time, int], cycles: int) -> Counter[Time]:
    return Counter({(cycle + cycles, ns): count for (cycle, ns), count in leaves.items()})


def kind_of(op: Op) -> str | None:
    """Return the kind of reduction that an operation belongs to; None if its order matters."""
    return _KINDS.get(op.name)


def multiply_adds(items: Iterable[Item], device: FpgaDevice) -> dict[int, Op]:
    """Products of a block that are fused with the one addition that uses them, by value number; of two the wider."""
    ops = [item for item in items if isinstance(item, Op)]
    uses: dict[int, list[Op]] = {}
    for op in ops:
        for value in op.inputs:
            uses.setdefault(value, []).append(op)
    found: dict[int, Op] = {}
    for op in sorted(ops, key=lambda op: sorted(op.operand_bits, reverse=True), reverse=True):
        if op.name != "arith.muli" or multiply_add(op, device) is None:
            continue
        value, chain = op.outputs[0], [op.outputs[0]]
        while len(uses.get(value, ())) == 1 and uses[value][0].name in FREE and uses[value][0].outputs:
            value = uses[value][0].outputs[0]
            chain.append(value)
        users = uses.get(value, [])
        taken = any(v in found for user in users for v in user.inputs)
        if len(users) == 1 and users[0].name == "arith.addi" and not taken:
            found.update(dict.fromkeys(chain, op))
    return found


def used_once(items: Iterable[Item]) -> frozenset[int]:
    """The values that one operation uses."""
    return frozenset(value for value, count in _uses(items).items() if count == 1)


def _uses(items: Iterable[Item]) -> Counter[int]:
    """Count the operations that use each value. Copies of an unrolled loop have separate values with equal numbers."""
    found, inside = Counter[int](), Counter[int]()
    for item in items:
        if isinstance(item, Op):
            found.update(item.inputs)
        elif isinstance(item, Planned):
            inside |= _uses(item.body)
        else:
            found.update((item.condition, *item.results[0], *item.results[1]))
            found += _uses((*item.sides[0], *item.sides[1]))  # type: ignore[arg-type]
    return found + inside


def replaced_by_sums(items: Iterable[Item], once: Set[int]) -> frozenset[int]:
    """Return the loads of a block from elements that it then replaces by sums of them.

    Only the sum may use the old value; `once` are values with one use.
    """
    sources: dict[int, dict[int, Element]] = {}
    loads, found = Counter[Element](), set[int]()
    for op in items:
        if not isinstance(op, Op):
            continue
        element = op.access and (op.access.array, op.access.index)
        if op.name == "load" and element:
            loads[element] += 1
            sources[op.outputs[0]] = {op.outputs[0]: element}
        elif op.name == "store" and element:
            parts = sources.get(op.inputs[0], {}) if op.inputs[0] in once and loads.pop(element, 0) == 1 else {}
            found.update(value for value, loaded in parts.items() if loaded == element)
        elif kind_of(op) or op.name in WIDTHS:
            summed = [sources.get(value, {}) for value in op.inputs if value in once]
            sources[op.outputs[0]] = {value: loaded for part in summed for value, loaded in part.items()}
    return frozenset(found)
