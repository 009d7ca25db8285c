"""Arrays of a task function, and parts of them, as C++ lvalues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from allo_dse.ir.bindings import ir

from ..cpp.elements import Element
from ..cpp.linear import Atom, Linear

Name = Callable[[Atom], str]


class Array(Struct, frozen=True, eq=False):
    """A variable (no dimensions kept), an array, or memory behind a pointer.

    Attributes:
        extents: per dimension of the memref.
        origin: per dimension the index in the memref of the first element that is kept.
        kept: the dimensions that the C++ array has.
        pointer: for memory behind a pointer, where the memref's first element lies and its strides, in elements.
        element: as C++ declares it.
    """

    name: str
    element: Element
    extents: tuple[int, ...]
    origin: tuple[Linear, ...] = ()
    kept: tuple[int, ...] | None = None
    pointer: tuple[Linear, tuple[int, ...]] | None = None

    def at(self, indices: Sequence[Linear], name: Name) -> str:
        """One element."""
        if self.pointer is not None:
            place, strides = self.pointer
            for index, stride in zip(indices, strides, strict=True):
                place = place + index * stride
            return f"{self.name}[{place.text(name)}]"
        dims = range(len(self.extents)) if self.kept is None else self.kept
        own = [indices[d] - self.origin[d] if self.origin else indices[d] for d in dims]
        return self.name + "".join(f"[{index.text(name)}]" for index in own)


class View(Struct, frozen=True, eq=False):
    """Part of an array: per dimension of the array where it begins, its step, and which dimension of the view it is."""

    array: Array
    starts: tuple[Linear, ...]
    steps: tuple[int, ...]
    dims: tuple[int | None, ...]

    def at(self, indices: Sequence[Linear], name: Name) -> str:
        return self.array.at(self.indices(indices), name)

    def indices(self, own: Sequence[Linear]) -> list[Linear]:
        """Indices into the array."""
        return [
            start if dim is None else start + own[dim] * step
            for start, step, dim in zip(self.starts, self.steps, self.dims, strict=True)
        ]


def whole(array: Array) -> View:
    rank = len(array.extents)
    return View(array, (Linear(),) * rank, (1,) * rank, tuple(range(rank)))


def subview(source: View, op: ir.Operation, form: Callable[[ir.Value], Linear]) -> View:
    """The view that a `memref.subview` of a view is."""
    parts = subview_parts(op, form)
    begin, step, dim = [], [], []
    for start, stride, own in zip(source.starts, source.steps, source.dims, strict=True):
        first, pace, place = (Linear(), 1, None) if own is None else parts[own]
        begin.append(start + first * stride)
        step.append(stride * pace)
        dim.append(place)
    return View(source.array, tuple(begin), tuple(step), tuple(dim))


def subview_parts(op: ir.Operation, form: Callable[[ir.Value], Linear]) -> list[tuple[Linear, int, int | None]]:
    """Per dimension that a `memref.subview` is taken of: where it begins, its step, and its dimension in the result."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    operands = iter(list(op.operands)[1:])
    dropped = len(sizes) - ir.MemRefType(op.results[0].type).rank
    parts: list[tuple[Linear, int, int | None]] = []
    kept = 0
    for offset, size, step in zip(offsets, sizes, steps, strict=True):
        start = form(next(operands)) if offset == dynamic else Linear(offset)
        drop = dropped > 0 and size == 1  # any extent of one may be dropped: its index is 0
        parts.append((start, step, None if drop else kept))
        dropped, kept = dropped - drop, kept + (not drop)
    return parts
