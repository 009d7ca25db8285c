"""Arrays of a task function, and parts of them, as C++ lvalues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allo_dse.ir.bindings import ir

from ..cpp.elements import Element
from ..cpp.linear import Atom, Linear

Name = Callable[[Atom], str]


@dataclass(frozen=True, eq=False)
class Array:
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


@dataclass(frozen=True, eq=False)
class View:
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
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    offsets = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
    steps = list(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
    operands = iter(list(op.operands)[1:])
    starts = [form(next(operands)) if offset == dynamic else Linear(offset) for offset in offsets]
    rank = ir.MemRefType(op.results[0].type).rank
    dropped = len(sizes) - rank
    dims: list[int | None] = []
    for size in sizes:  # which of several extents of one is dropped makes no difference: their index is 0
        drop = dropped > 0 and size == 1
        dims.append(None if drop else sum(d is not None for d in dims))
        dropped -= drop
    begin, step, dim = [], [], []
    for start, stride, own in zip(source.starts, source.steps, source.dims, strict=True):
        begin.append(start if own is None else start + starts[own] * stride)
        step.append(stride if own is None else stride * steps[own])
        dim.append(None if own is None else dims[own])
    return View(source.array, tuple(begin), tuple(step), tuple(dim))
