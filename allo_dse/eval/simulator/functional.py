"""Running programs: numbers and cycles in one run, of a program or of any fold of it.

    result = run_graph(program.vmg, A, B, C)          # every task on a node of its own
    result = run_graph(folded_vmg, A, B, C)           # the tasks of a node one after the other

Task bodies are compiled once and shared by all programs whose bodies have the same text; a fold is only data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...frontend.program import CompiledProgram, IntArray, StreamArray, TaskClass, TensorPort
from ...ir.signature import Body, Signature, Tiles
from ...mapper.vmg import VMG
from .arguments import Arguments
from .engine import Engine, compile_bodies
from .network import Network, NetworkBuilder
from .result import RunResult
from .wiring import Wiring, declared_depths, folded_wiring, one_fifo_each

Cost = Callable[[TaskClass], IntArray]


@dataclass(frozen=True)
class _Labels:
    """Names of tasks and streams for explanations."""

    program: CompiledProgram
    task_id: IntArray
    wiring: Wiring

    def task(self, task: int) -> str:
        return self.program.task_name(int(self.task_id[task]))

    def stream(self, stream: int) -> str:
        array = self.program.streams[int(self.wiring.array[stream])]
        if not array.shape:
            return array.name
        index = np.unravel_index(int(self.wiring.stream[stream]) - self.program.first_stream[array.name], array.shape)
        return f"{array.name}[{', '.join(str(int(i)) for i in index)}]"

    def operation(self, task: int, op: int) -> str:
        task_class = _class_of_task(self.program, int(self.task_id[task]))
        return str(task_class.stream_ops[op].location) if op < len(task_class.stream_ops) else f"operation {op}"


def _class_of_task(program: CompiledProgram, task: int) -> TaskClass:
    number = int(np.searchsorted(program.first_task, task, side="right")) - 1
    kernel = program.kernels[number]
    return kernel.classes[int(kernel.class_of(program.pids(number, np.array([task])))[0])]


def run_graph(
    vmg: VMG,
    *arrays: Any,
    depths: Mapping[str, int] | None = None,
    cost: Cost | None = None,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a mapping graph on arrays, which are written in place.

    Args:
        arrays: the region's arguments in order; scalars may be plain numbers.
        depths: stream depths by array name, where they differ from the declared ones.
        cost: cycles at each cost site of a task class; one cycle each by default.
        seconds: time limit.
        progress: called now and then with the number of nodes that have finished.

    Raises:
        DeadlockError: naming the tasks that wait for each other, with their places in the source.
        SimulationError: for arguments that do not fit the program, or when the time limit is reached.
    """
    arguments = Arguments(vmg.program, arrays)
    engine = compile_bodies(Body(c.body.symbol, c.body.mlir) for kernel in vmg.program.kernels for c in kernel.classes)
    wiring = _wiring(vmg, depths or {})
    network, task_id = _network(vmg, engine, arguments, wiring, cost or _one_cycle_each)
    result = engine.run(network, seconds=seconds, progress=progress)
    result.require_finished(_Labels(vmg.program, task_id, wiring))
    arguments.write_back()
    return result


def _one_cycle_each(task_class: TaskClass) -> IntArray:
    return np.ones(max(1, len(task_class.work)), np.int64)


def _wiring(vmg: VMG, depths: Mapping[str, int]) -> Wiring:
    """Streams of a body that computes their numbers itself keep their own; so does an unfolded graph's every stream."""
    program = vmg.program
    declared = declared_depths(program)
    for name, depth in depths.items():
        array = next(a for a in program.streams if a.name == name)
        first = program.first_stream[name]
        declared[first : first + array.count] = depth
    computed = any(isinstance(s, StreamArray) for k in program.kernels for c in k.classes for s in c.body.streams)
    if computed or vmg.node_count == vmg.task_count:
        return one_fifo_each(program, declared)
    return folded_wiring(vmg, declared)


def _network(vmg: VMG, engine: Engine, arguments: Arguments, wiring: Wiring, cost: Cost) -> tuple[Network, IntArray]:
    """The network, and the program's task id of each of its tasks."""
    program, builder = vmg.program, NetworkBuilder()
    token_bytes = _token_bytes(program, engine)
    builder.streams(wiring.depth, token_bytes=token_bytes[wiring.array])
    for array in arguments.by_name.values():
        builder.tensor(array)
    number = np.empty(program.task_count, np.int64)
    task_ids = []
    for position, kernel in enumerate(program.kernels):
        tasks = np.arange(program.first_task[position], program.first_task[position + 1])
        classes = kernel.class_of(program.pids(position, tasks))
        for c, task_class in enumerate(kernel.classes):
            members = tasks[classes == c]
            pids = program.pids(position, members)
            signature = engine.signatures[task_class.body.symbol]
            words = signature.words(
                len(members),
                _arguments(program, task_class, pids, arguments, wiring),
                cost_site=builder.costs(cost(task_class)),
            )
            number[members] = builder.tasks(task_class.body.symbol, words)
            task_ids.append(members)
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        builder.nodes(number[tasks].ravel(), np.full(len(tasks), group.leaves.leaf_count, np.int64))
    return builder.build(), np.concatenate(task_ids)


def _arguments(
    program: CompiledProgram, task_class: TaskClass, pids: IntArray, arguments: Arguments, wiring: Wiring
) -> list[Any]:
    """Pid, tiles and FIFOs of each task of a class, in the order of its body's parameters."""
    pid: list[Any] = [np.ascontiguousarray(pids[:, axis]) for axis in range(pids.shape[1])]
    tiles = [_tiles(port, pids, arguments) for port in sorted(task_class.tensor_ports, key=lambda port: port.arg)]
    streams: list[Any] = []
    for binding in task_class.body.streams:
        if isinstance(binding, StreamArray):
            streams.append(program.first_stream[binding.name])
        else:
            streams.append(wiring.fifo[program.first_stream[binding.stream.name] + binding.index.linear(pids)])
    return [*pid, *tiles, *streams]


def _tiles(port: TensorPort, pids: IntArray, arguments: Arguments) -> Tiles:
    """Where the tile of each task begins in the tensor's array."""
    base = arguments.by_name[port.tensor.name]
    strides = [stride // base.itemsize for stride in base.strides] if port.tensor.shape else []
    offset = np.zeros(len(pids), np.int64)
    if port.tile.grid:
        coordinates = np.unravel_index(port.tile.linear(pids), port.tile.grid)
        for coordinate, extent, stride in zip(coordinates, port.tile_shape, strides, strict=True):
            offset += coordinate * extent * stride
    return Tiles(base, offset, tuple(strides))


def _token_bytes(program: CompiledProgram, engine: Engine) -> IntArray:
    """Bytes of a token of each stream array in memory, as the bodies that use it store it."""
    found: dict[str, int] = {}
    for kernel in program.kernels:
        for task_class in kernel.classes:
            signature: Signature = engine.signatures[task_class.body.symbol]
            own = signature.parameters[len(signature.parameters) - len(task_class.body.streams) :]
            for binding, parameter in zip(task_class.body.streams, own, strict=True):
                array = binding if isinstance(binding, StreamArray) else binding.stream
                found[array.name] = max(found.get(array.name, 0), parameter.token_bytes)
    return np.array([found.get(array.name, 0) for array in program.streams], np.int64)
