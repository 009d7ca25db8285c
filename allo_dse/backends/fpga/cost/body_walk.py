"""Walks over the operations and loops of a body: its control conditions, and its uses of streams and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import Linear, forms_of
from allo_dse.compiler.ir.nest import Access, Branch, Loop, Op, ops_of, outermost, walk
from allo_dse.eval.execute.observed_control import matters

from .memory import Split, Storage
from .plan import Item, Planned


def control_forms(nodes: Iterable[object]) -> Iterator[Linear]:
    """The forms that decide which operations of a body happen: bounds of loops, and conditions."""
    for node in walk(nodes):
        if isinstance(node, Branch) and matters(node):
            yield from forms_of(node.test)
        elif isinstance(node, Loop):
            yield from (form for form in (node.lower, node.upper) if form is not None)
        elif isinstance(node, Planned):
            yield from node.bounds or ()


def asks_data(items: Iterable[Item]) -> bool:
    """Return whether the control flow of a body depends on data."""
    return any(
        item.test is None and matters(item)
        if isinstance(item, Branch)
        else isinstance(item, Planned) and item.site >= 0
        for item in walk(items)
    )


def has_loops(item: Item) -> bool:
    """Return whether a condition has loops, or blocks that move element by element, inside."""
    loops = isinstance(item, Branch) and any(loop.mode != "unroll" for loop in outermost((item,)))
    return loops or (isinstance(item, Branch) and any(op.block for op in ops_of((item,))))


def stream_ops(item: Item) -> Iterator[Op]:
    """The stream operations in an item, in order."""
    return (op for op in ops_of((item,)) if op.direction is not None)


def accesses(items: Iterable[Item], values: Mapping[int, range]) -> Iterator[tuple[Access, Mapping[int, range]]]:
    """All accesses, and the values of the loops around each."""
    for item in items:
        if isinstance(item, Op):
            if item.access is not None:
                yield item.access, values
        elif isinstance(item, Planned):
            yield from accesses(item.body, values if item.varies else {**values, item.variable: item.values})
        else:
            for side in item.sides:
                yield from accesses(side, values)  # type: ignore[arg-type]


def partitioned(items: Sequence[Item], storages: Mapping[str, Storage]) -> Mapping[str, Storage]:
    """Return arrays with the banks that the tool makes by itself.

    An array of the task is split along a dimension in which every access has a constant index, once loops are unrolled.
    """
    unrolled = {item.variable for item in walk(items) if isinstance(item, Planned) and item.mode == "unroll"}
    whole: dict[str, list[bool]] = {}
    for op in ops_of(items):
        if op.access is not None:
            index = (None,) * len(op.access.index) if op.block else op.access.index
            constant = [form is not None and form.variables <= unrolled for form in index]
            known = whole.setdefault(op.access.array, constant)
            whole[op.access.array] = [a and b for a, b in zip(known, constant, strict=True)]
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
