"""Access of tasks to their tensors, and the groups of tasks that are called together.

A tensor is in DRAM. Usually one process loads it and streams to every task its part, and another stores the parts that
tasks send; a task keeps its part in an array of its own. If several tasks write the same elements, or some read
elements that others write, all access DRAM directly. Tasks that share a process find their parts in its arrays, which
are filled before the first of them and sent after the last. If the schedule leaves the tensor in DRAM, the streams of
the two processes hold the next part instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.mlir.jit import run_passes
from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.program.compiled import STREAM, CompiledProgram, Directive, Kernel, TaskClass
from allo_dse.compiler.program.tensors import IntArray, Tensor

from ...footprint import Box, Part, overlap, parts_of
from ..cpp.expressions import element_of_dtype
from ..task.tokens import TAKE

Access = Literal["unused", "value", "stream", "tiles", "kept", "table", "shared", "onchip"]
"""Access of a task to a tensor, in this order: none; a scalar by value; through load and store processes; through
those, and streams that hold the whole part; in an array of its process, which is copied through them; in a table of
constants; element by element in DRAM; in on-chip memory outside of the kernel."""
NAME = "df.name"
TILE_STREAM_DEPTH = 2


class PortPlan(Part):
    """One tensor argument of a task class.

    Attributes:
        lanes: elements of a word that is moved: neighbours in the last dimension of the boxes of all tasks, which they
            divide.
    """

    access: Access = "unused"
    lanes: int = 1

    @property
    def is_moved(self) -> bool:
        """True if it moves to and from the task through streams."""
        return self.access in ("stream", "tiles")

    @property
    def is_kept(self) -> bool:
        """True if the process that runs the task keeps it for all of its tasks."""
        return self.access in ("kept", "table")

    @property
    def copies_in(self) -> bool:
        return self.access != "table" and super().copies_in

    @property
    def stream_depth(self) -> int:
        """Depth of the streams between the task and the processes that load and store, in words."""
        return math.prod(self.box.extents) // self.lanes if self.access == "tiles" else TILE_STREAM_DEPTH

    @property
    def word(self) -> str:
        """C++ type of the words that load and store processes move."""
        element = element_of_dtype(self.port.tensor.dtype)
        return f"hls::vector<{element}, {self.lanes}>" if self.lanes > 1 else str(element)

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that an array with the task's part has."""
        return tuple(dim for dim, extent in enumerate(self.box.extents) if extent > 1)

    @property
    def dims(self) -> str:
        """Dimensions of that array, as C++ declares them."""
        return "".join(f"[{self.box.extents[dim]}]" for dim in self.kept)

    def place(self, pid: tuple[int, ...]) -> int:
        """Return the row-major index in the tensor of the first element of a task's box."""
        corner = Box(self.corner, self.box.extents).corners(np.array([pid], np.int64))[0]
        return int(corner @ np.array(self.port.tensor.strides, np.int64))


class ClassPlan(Frozen, eq=False):
    """A task class with its body in MLIR, lowered to loops and scalar operations.

    Attributes:
        symbol: its C++ name.
        members: the pids of its tasks, (n, mesh rank), in row-major order.
    """

    kernel: Kernel
    task_class: TaskClass
    symbol: str
    module: ir.Module
    function: ir.Operation
    members: IntArray
    ports: tuple[PortPlan, ...]


class Group(Frozen):
    """Tasks of one class whose pids form a box: they are called in one nest of loops."""

    plan: ClassPlan
    start: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.extent)

    @property
    def axes(self) -> tuple[int, ...]:
        """The mesh axes along which it has several tasks."""
        return tuple(axis for axis, extent in enumerate(self.extent) if extent > 1)


def tensors_of(program: CompiledProgram) -> tuple[Tensor, ...]:
    """The region's arguments, and memory of the program's own that several tasks use: scratch buffers in DRAM."""
    return (*program.tensors, *(one.tensor for one in program.shared))


def class_plans(
    program: CompiledProgram,
    symbols: dict[str, str],
    directives: Sequence[Directive],
    regions: frozenset[str],
    tables: Collection[str],
    *,
    folded: bool,
) -> list[ClassPlan]:
    """All task classes, within the current MLIR context.

    Args:
        symbols: C++ names of bodies, by symbol.
        directives: of the schedule, some about the tensors of `regions`.
        tables: names of the tensors that are tables of constants.
        folded: whether nodes execute several tasks.
    """
    found = []
    fifos = frozenset(d.name for d in directives if d.kind == STREAM)  # tasks' own arrays
    for kernel in program.kernels:
        pids = np.argwhere(np.ones(kernel.mesh, bool)).astype(np.int64)
        numbers = kernel.class_of(pids)
        for position, task_class in enumerate(kernel.classes):
            found.append(_lowered(kernel, task_class, symbols, pids[numbers == position], fifos))
    said = {(d.name, d.kind): d.options for d in directives if d.scope in regions}
    access, lanes = dict[str, Access](), dict[str, int]()
    for tensor in program.tensors:
        place = said.get((tensor.name, "place"), {}).get("memory")
        access[tensor.name] = "table" if tensor.name in tables else _access(tensor, found, place, folded)
        lanes[tensor.name] = _lanes(tensor, found, int(said.get((tensor.name, "pack"), {}).get("bits", 0)))
    access |= {one.tensor.name: "shared" for one in program.shared}
    planned = []
    for plan in found:
        ports = []
        for port in plan.ports:
            name = port.port.tensor.name
            used: Access = access[name] if port.footprint.box is not None else "unused"
            ports.append(replace(port, access=used, lanes=lanes.get(name, 1)))
        planned.append(replace(plan, ports=tuple(ports)))
    return planned


_PASSES = "builtin.module(func.func(convert-linalg-to-loops,lower-affine),canonicalize,cse)"


def _lowered(
    kernel: Kernel,
    task_class: TaskClass,
    symbols: dict[str, str],
    members: IntArray,
    fifos: frozenset[str],
) -> ClassPlan:
    module = ir.Module.parse(task_class.body.mlir)
    _take_from(fifos, module)
    run_passes(module, _PASSES)
    function = next(op for op in module.body.operations if op.operation.name == "func.func").operation
    planned = (PortPlan(part.port, part.footprint, part.origin) for part in parts_of(task_class, members))
    return ClassPlan(kernel, task_class, symbols[task_class.body.symbol], module, function, members, tuple(planned))


def _take_from(fifos: frozenset[str], module: ir.Module) -> None:
    """Replace loads from FIFOs by operations that no pass removes or merges: each takes an element away."""
    module.context.allow_unregistered_dialects = True
    for op in nested_ops(module) if fifos else ():
        if op.name != "memref.load":
            continue
        array = op.operands[0]
        while not isinstance(array, ir.BlockArgument) and array.owner.name in ("memref.subview", "memref.cast"):
            array = array.owner.operands[0]
        attributes = {} if isinstance(array, ir.BlockArgument) else array.owner.attributes
        if NAME in attributes and ir.StringAttr(attributes[NAME]).value in fifos:
            with op.location, ir.InsertionPoint(op):
                taken = ir.Operation.create(TAKE, [op.results[0].type], list(op.operands))
            op.results[0].replace_all_uses_with(taken.results[0])
            op.erase()


def _lanes(tensor: Tensor, plans: Sequence[ClassPlan], word_bits: int) -> int:
    lanes, rest = divmod(word_bits, tensor.dtype.bits)
    boxes = (port.footprint.box for plan in plans for port in plan.ports if port.port.tensor == tensor)
    return math.gcd(lanes, *(box.extents[-1] for box in boxes if box and box.extents)) if lanes and not rest else 1


def _access(tensor: Tensor, plans: Sequence[ClassPlan], place: object, folded: bool) -> Access:
    if place == "onchip":
        return "onchip"
    users = [
        (plan.kernel.name, plan.members, port) for plan in plans for port in plan.ports if port.port.tensor == tensor
    ]
    if not tensor.shape:
        return "shared" if any(part.footprint.writes for *_, part in users) else "value"
    if overlap(users):
        return "shared"
    if place == "dram":
        return "tiles"
    return "kept" if folded else "stream"


def groups_of(plan: ClassPlan) -> list[Group]:
    """The tasks of a class as few boxes of pids, in row-major order of their first tasks."""
    if not len(plan.members):
        return []
    left = np.zeros(plan.kernel.mesh, bool)
    left[tuple(plan.members.T)] = True
    groups = []
    while left.any():
        # Grow a box from the first remaining task over equal ones, the last axis first. The boxes are not always the
        # fewest, but meshes whose classes differ at their borders are split along these.
        start = tuple(int(i) for i in np.argwhere(left)[0])
        extent = [1] * len(start)
        for axis in reversed(range(len(start))):
            while _fits(left, start, extent, axis):
                extent[axis] += 1
        left[tuple(slice(s, s + n) for s, n in zip(start, extent, strict=True))] = False
        groups.append(Group(plan, start, tuple(extent)))
    return groups


def _fits(left: NDArray[np.bool_], start: tuple[int, ...], extent: list[int], axis: int) -> bool:
    """Return whether a box can grow by one along an axis."""
    position = start[axis] + extent[axis]
    if position >= left.shape[axis]:
        return False
    sides = [slice(s, s + n) for s, n in zip(start, extent, strict=True)]
    sides[axis] = slice(position, position + 1)
    return bool(left[tuple(sides)].all())
