"""A region before compilation, as data: its tensors, streams and kernels, and the source that they stand in."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import FunctionType
from typing import Any

import numpy as np
from msgspec import Struct, field

from allo_dse.common.records import Array, Frozen, Ints, replace
from allo_dse.lang.memory import Memory
from allo_dse.lang.rules import Rules, current_rules
from allo_dse.lang.types import DType

from ..model.source_file import SourceFile, names_of
from ..program.tensors import IndexMap, IntArray, SourceLocation, StreamArray, Tensor


class Part(Frozen):
    """The value of a region's argument: a tensor, or one tile of it when a task passes its tile on.

    Attributes:
        shape: of the tile.
        grid: the number of tiles along each dimension.
        position: the tile's index in the grid.
    """

    tensor: Tensor
    shape: Ints
    grid: Ints
    position: Ints

    @staticmethod
    def whole(tensor: Tensor) -> Part:
        rank = len(tensor.shape)
        return Part(tensor, tensor.shape, (1,) * rank, (0,) * rank)


class Parameter(Frozen):
    """A kernel's parameter: the region's tensor it stands for, and the tile of it that each task sees."""

    name: str
    tensor: Tensor
    layout: tuple[int | None, ...]
    tile_shape: Ints
    tile: IndexMap
    node: ast.AST
    memory: Memory | None = None

    def part(self, pid: IntArray) -> Part:
        """The tile that the task with a pid has."""
        linear = int(self.tile.linear(pid[None, :])[0]) if self.tile.grid else 0
        position = tuple(map(int, np.unravel_index(linear, self.tile.grid))) if self.tile.grid else ()
        return Part(self.tensor, self.tile_shape, self.tile.grid, position)


class SharedArray(Frozen):
    """A local array of a task that regions called by it work on as well: a tensor that is no argument of the program.

    Attributes:
        parameter: each task's part of the tensor, which has the arrays of all tasks end to end along dimension 0.
        initial: its contents before the first run.
    """

    parameter: Parameter
    initial: Array

    @staticmethod
    def of_kernel(kernel: KernelSource, name: str, dtype: DType, initial: Array, node: ast.AST) -> SharedArray:
        """The arrays of shape and contents `initial` of all tasks of a kernel."""
        shape, tasks = initial.shape, kernel.task_count
        strides = tuple(math.prod(kernel.mesh[axis + 1 :]) for axis in range(len(kernel.mesh)))
        rows = (strides, *((0,) * len(strides) for _ in shape[1:]))
        tile = IndexMap((tasks, *(1,) * (len(shape) - 1)), rows, (0,) * len(shape))
        tensor = Tensor(name, dtype, (tasks * shape[0], *shape[1:]))
        parameter = Parameter(name, tensor, (None,) * len(shape), shape, tile, node)
        return SharedArray(parameter, np.tile(initial, (tasks, *(1,) * (len(shape) - 1))))


class Sync(Frozen):
    """The streams that start the tasks of a called region and report their end.

    Attributes:
        start, done: arrays of streams, for the start and the end.
        repeated: whether there may be any number of calls; a false token ends them.
        node: the call.
        pid: of the calling task, the leading indices into the arrays.
        first: the position of the kernel's first task among those of the region, the last index.
    """

    start: StreamArray
    done: StreamArray
    repeated: bool
    node: ast.AST
    pid: Ints = ()
    first: int = 0


class KernelSource(Frozen, eq=False):
    """A kernel before compilation.

    Attributes:
        results: of the parameters at the end that stand for what the function returns (plain functions only), the name
            of the parameter that is returned there, if it is one.
        sync: the streams that start its tasks, if a task calls the region in the middle of other work.
    """

    name: str
    node: ast.FunctionDef
    mesh: Ints
    parameters: tuple[Parameter, ...]
    location: SourceLocation
    results: tuple[str | None, ...] = ()
    sync: Sync | None = None

    @property
    def task_count(self) -> int:
        return math.prod(self.mesh)


class RegionSource(Struct, eq=False):
    """A region before compilation.

    Attributes:
        names: the values of its free names.
        prefix: of the names of streams and kernels of a region that is called by a task.
        parts: the value of each argument: for a region called by a task, a tensor of the outermost region or a tile.
        stream_nodes: the declaration of each stream.
        enclosing: local variables of the functions around the region, as they were when it was defined.
        around: what names stand for that nothing else gives a meaning (see `Instance`).
        scope: how qualified names of functions defined beside the region begin; empty for regions of a module.
        rules: how strictly it is checked.
    """

    name: str
    file: SourceFile
    names: dict[str, Any]
    prefix: str = ""
    parts: dict[str, Part] = {}
    tensor_nodes: dict[str, ast.arg] = {}
    streams: dict[str, StreamArray] = {}
    stream_nodes: dict[str, ast.AST] = {}
    kernels: list[KernelSource] = []
    enclosing: Mapping[str, object] = {}
    around: Mapping[str, object] = {}
    scope: str = ""
    rules: Rules = field(default_factory=current_rules)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensor behind each argument."""
        return {name: part.tensor for name, part in self.parts.items()}

    @property
    def task_count(self) -> int:
        """The number of tasks of its own kernels, without called regions."""
        return sum(kernel.task_count for kernel in self.kernels)

    def names_of(self, function: FunctionType) -> dict[str, object]:
        """Return the values of a helper function's free names.

        A helper defined beside the region, in the same function, sees the variables that the region sees.
        """
        beside = self.scope != "" and function.__qualname__.startswith(self.scope)
        return {**self.around, **names_of(function, self.enclosing if beside else {})}


# Independent statements of a kernel become separate kernels that run at once.
#
#   before:  k { s = A' r; q = A p }                      one task computes one product after the other
#   after:   k_part0 { s = A' r }, k_part1 { q = A p }
#
# Two statements belong together if both use a local array or variable, a stream, or a tensor that either may write. So
# streams and tensors keep the order of their uses, and values that no part writes are read in each part. A part waits
# for nothing that the whole kernel would not have waited for. Results are the same, and there are no new deadlocks.


PID = "get_pid"


def split_kernels(source: RegionSource) -> bool:
    """Replace each kernel by its parts; returns whether any has several."""
    found = [_parts(source, kernel) for kernel in source.kernels]
    source.kernels[:] = [part for parts in found for part in parts]
    return any(len(parts) > 1 for parts in found)


def _parts(source: RegionSource, kernel: KernelSource) -> list[KernelSource]:
    statements = [s for s in kernel.node.body if not is_text(s)]
    common = [s for s in statements if _is_pid(s)]
    own = [s for s in statements if not _is_pid(s)]
    if kernel.results or kernel.sync is not None or any(isinstance(s, ast.Return) for s in own):
        return [kernel]
    # Unused declarations do not form a part.
    groups = [
        g for g in _together(own, _ties(source, kernel, own)) if len(g) > 1 or not isinstance(g[0], ast.AnnAssign)
    ]
    if len(groups) < 2:
        return [kernel]
    return [_part(kernel, number, common, group) for number, group in enumerate(groups)]


def _part(
    kernel: KernelSource, number: int, common: Sequence[ast.stmt], statements: Sequence[ast.stmt]
) -> KernelSource:
    used = {name for statement in statements for name in _names(statement)}
    parameters = tuple(p for p in kernel.parameters if p.name in used)
    node = copy(kernel.node)
    node.body = [*common, *statements]
    node.args = copy(kernel.node.args)
    node.args.posonlyargs = []
    node.args.args = [a for a in (*kernel.node.args.posonlyargs, *kernel.node.args.args) if a.arg in used]
    return replace(kernel, name=f"{kernel.name}_part{number}", node=node, parameters=parameters)


def _together(statements: Sequence[ast.stmt], ties: Sequence[set[str]]) -> list[list[ast.stmt]]:
    """Statements that hang together by names, in the order of the first of each group."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[int]] = {}
    for position, names in enumerate(ties):
        members = sorted({group_of[name] for name in names if name in group_of})
        merged = [m for group in members for m in groups.pop(group)]
        first = min(members, default=position)
        groups[first] = sorted([*merged, position])
        group_of.update((name, first) for member in groups[first] for name in ties[member])
    return [[statements[m] for m in groups[first]] for first in sorted(groups)]


def _ties(source: RegionSource, kernel: KernelSource, statements: Sequence[ast.stmt]) -> list[set[str]]:
    """Per statement the names that tie it to others."""
    tensor = {p.name: p.tensor.name for p in kernel.parameters}
    written = {tensor[name] for s in statements for name in _names(s) - _only_read(s) if name in tensor}
    shared = {name for name in tensor if tensor[name] in written}
    local = {name for statement in statements for name in _declared(statement)} - tensor.keys()
    ties = []
    for statement in statements:
        names = _names(statement)
        ties.append({f"tensor {tensor[n]}" for n in names & shared} | (names & (local | source.streams.keys())))
    return ties


def _declared(statement: ast.stmt) -> Iterable[str]:
    """Yield the names that a statement of the kernel itself assigns; blocks inside it do not count."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _only_read(statement: ast.stmt) -> set[str]:
    """Names whose elements a statement only reads."""
    elements = [n for n in ast.walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]
    read = [n.value for n in elements if isinstance(n.ctx, ast.Load)]
    others = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and not any(n is one for one in read)}
    return {n.id for n in read if isinstance(n, ast.Name)} - others


def _is_pid(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == PID


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing: `pass`, a docstring or another constant."""
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
