"""Walks over the operations and loops of a body: its control conditions, and its uses of streams and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import Linear, forms_of
from allo_dse.compiler.ir.nest import Access, Branch, Loop, Op
from allo_dse.eval.execute.decided import matters

from .memory import Split, Storage
from .plan import Item, Planned


def control_forms(nodes: Iterable[object]) -> Iterator[Linear]:
    """The forms that decide which operations of a body happen: bounds of loops, and conditions."""
    for node in nodes:
        if isinstance(node, Branch):
            if matters(node):
                yield from forms_of(node.test)
            yield from control_forms(itertools.chain(*node.sides))
        elif isinstance(node, Loop):
            yield from (form for form in (node.lower, node.upper) if form is not None)
            yield from control_forms(node.body)
        elif isinstance(node, Planned):
            yield from node.bounds or ()
            yield from control_forms(node.body)


def asks_data(items: Iterable[Item]) -> bool:
    """Return whether the control flow of a body depends on data."""
    for item in items:
        if isinstance(item, Planned) and (item.site >= 0 or asks_data(item.body)):
            return True
        if isinstance(item, Branch):
            is_asked = item.test is None and matters(item)
            if is_asked or any(asks_data(side) for side in item.sides):  # type: ignore[arg-type]
                return True
    return False


def has_loops(item: Item) -> bool:
    if isinstance(item, Branch):
        return any(
            (isinstance(inner, Planned) and inner.mode != "unroll")
            or (isinstance(inner, Op) and inner.block > 0)
            or (isinstance(inner, Branch) and has_loops(inner))
            for side in item.sides
            for inner in side
        )
    return False


def stream_ops(item: Item) -> Iterator[Op]:
    """The stream operations in an item, in order."""
    if isinstance(item, Op):
        if item.direction is not None:
            yield item
        return
    inside = item.body if isinstance(item, Planned) else itertools.chain(*item.sides)
    for inner in inside:
        yield from stream_ops(inner)  # type: ignore[arg-type]


def accesses(items: Iterable[Item], values: Mapping[int, range]) -> Iterator[tuple[Access, Mapping[int, range]]]:
    """All accesses, and the values of the loops around each."""
    for item in items:
        if isinstance(item, Op):
            if item.access is not None:
                yield item.access, values
        elif isinstance(item, Planned):
            own = range(item.first, item.first + item.trips * item.step, item.step)
            yield from accesses(item.body, values if item.varies else {**values, item.variable: own})
        else:
            for side in item.sides:
                yield from accesses(side, values)  # type: ignore[arg-type]


def partitioned(items: Sequence[Item], storages: Mapping[str, Storage]) -> Mapping[str, Storage]:
    """Return arrays with the banks that the tool makes by itself.

    An array of the task is split along a dimension in which every access has a constant index, once loops are unrolled.
    """
    whole: dict[str, list[bool]] = {}
    for access, unrolled in unrolled_accesses(items, {}):
        constant = [form is not None and form.variables <= unrolled.keys() for form in access.index]
        known = whole.setdefault(access.array, constant)
        whole[access.array] = [a and b for a, b in zip(known, constant, strict=True)]
    found = dict(storages)
    for name, constant in whole.items():
        storage = storages[name]
        cut = [alone and split is None for alone, split in zip(constant, storage.splits, strict=True)]
        if storage.array.argument is None and storage.place == "auto" and any(cut):
            sizes = zip(storage.splits, cut, storage.array.shape, strict=True)
            found[name] = replace(
                storage, splits=tuple(Split("cyclic", n) if own else split for split, own, n in sizes)
            )
    return found


def unrolled_accesses(
    items: Iterable[Item], unrolled: Mapping[int, range]
) -> Iterator[tuple[Access, Mapping[int, range]]]:
    """Yield all accesses, each with the values of the unrolled loops around it."""
    for item in items:
        if isinstance(item, Op):
            if item.access is not None:
                whole = (None,) * len(item.access.index) if item.block else item.access.index
                yield replace(item.access, index=whole), unrolled
        elif isinstance(item, Planned):
            own = {item.variable: range(item.first, item.first + item.trips * item.step, item.step)}
            inside = {**unrolled, **own} if item.mode == "unroll" else unrolled
            yield from unrolled_accesses(item.body, inside)
        else:
            yield from unrolled_accesses(itertools.chain(*item.sides), unrolled)  # type: ignore[arg-type]
