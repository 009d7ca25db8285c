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
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.aliases import Array
from allo_dse.frontend.model.arguments import Arguments
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.class_tasks import ClassTasks
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray
from allo_dse.program.tasks import TaskClass
from allo_dse.simulator.codegen.lowering.signature import Body, Signature, Tiles
from allo_dse.simulator.codegen.run_time.variant import Variant
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.labels import Labels as NetworkLabels
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.steady.repeated_frames import repeated

from .compile_places import compile_places
from .persistent_state import State, initial_state
from .stream_wiring import Wiring, wiring_of
from .vendor_kernels import Externals, cycles_of

RESTART = -1
"""In place of a task's number: the pause before a node's next frame."""


@dataclass(frozen=True)
class Labels(NetworkLabels):
    """Names of tasks and streams for explanations."""

    program: CompiledProgram
    task_id: IntArray
    wiring: Wiring

    def task(self, task: int) -> str:
        number = int(self.task_id[task])
        return "start of the next frame" if number == RESTART else self.program.task_name(number)

    def stream(self, stream: int) -> str:
        return self.program.stream_name(int(self.wiring.stream[stream]))

    def array(self, stream: int) -> str:
        """The array whose declaration gives the stream its depth."""
        return self.program.streams[int(self.wiring.array[stream])].name

    def operation(self, task: int, op: int) -> str:
        task_class = _class_of_task(self.program, int(self.task_id[task]))
        return str(task_class.stream_ops[op].location) if op < len(task_class.stream_ops) else f"operation {op}"

    def index_check(self, task: int, check: int) -> str:
        found = _class_of_task(self.program, int(self.task_id[task])).index_checks[check]
        return f"{found.location}: index `{found.text}` into {found.of}"


def _class_of_task(program: CompiledProgram, task: int) -> TaskClass:
    number = int(np.searchsorted(program.first_task, task, side="right")) - 1
    kernel = program.kernels[number]
    return kernel.classes[int(kernel.class_of(program.pids(number, np.array([task])))[0])]


def run_graph(
    vmg: VMG,
    *arrays: object,
    depths: Mapping[str, int] | None = None,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
    state: State | None = None,
    record: bool = False,
    values: bool = True,
    frames: int = 1,
) -> RunResult:
    """Run a mapping graph on arrays, which are written in place.

    Args:
        arrays: the region's arguments in order; scalars may be plain numbers.
        depths: stream depths by array name, where they differ from the declared ones.
        seconds: time limit.
        progress: called now and then with the number of nodes that have finished.
        state: variables that live from call to call, from `initial_state`; updated. Without it they begin anew.
        record: keep every event, for the result's `timeline`, `explain()` and `save_perfetto()`; some ten times slower.
        values: compute them. Without, the result says the same about times, arrays hold nothing of use afterwards, and
            programs that repeat themselves take no longer the more often they do.
        frames: how often the region is called, each task beginning its next frame a cycle after it has done the last.

    Raises:
        DeadlockError: naming the tasks that wait for each other, with their places in the source.
        SimulationError: for arguments that do not fit the program, or when the time limit is reached.
    """
    arguments = Arguments(vmg.program, arrays)
    externals = Externals(vmg.program)
    bodies = (Body(c.body.symbol, c.body.mlir) for c in vmg.program.task_classes)
    elements = vmg.program.elements_computed
    first = Variant(record=record, payload=values)
    with compile_places(vmg.program):
        engine = compile_bodies(bodies, elements=None if elements is None else frames * elements, first=first)
        wiring = wiring_of(vmg, depths or {})
        own = state or initial_state(vmg.program)
        run = Run(engine, arguments.by_name | own.shared, wiring, own, externals)
        network, task_id = network_of(vmg, run)
        tables = engine.as_tables(network) if frames > 1 and not values else None
        result = engine.run(
            repeated(tables or network, frames),
            payload=values, extrapolate=not values, seconds=seconds, progress=progress, record=record,
        )  # fmt: skip
        if tables is not None and not result.finished:
            # Operations of tables have no place in the source.
            result = engine.run(repeated(network, frames), payload=False, seconds=seconds, record=record)
    if result.network.task_count > len(task_id):
        task_id = np.append(np.tile(task_id, frames), np.full((frames - 1) * network.node_count, RESTART))
    externals.require_success()
    result.labels, result.name = Labels(vmg.program, task_id, wiring), vmg.program.name
    result.require_finished()
    arguments.write_back()
    return result


class Run(Struct, frozen=True):
    """What a run needs beside the graph.

    Attributes:
        tensors: arguments and shared memory, by name.
    """

    engine: Engine
    tensors: Mapping[str, Array]
    wiring: Wiring
    state: State
    externals: Externals


def network_of(vmg: VMG, run: Run) -> tuple[Network, IntArray]:
    """The network, and the program's task id of each of its tasks."""
    program, builder = vmg.program, NetworkBuilder()
    engine, wiring = run.engine, run.wiring
    token_bytes = _token_bytes(program, engine)
    builder.streams(wiring.depth, token_bytes=token_bytes[wiring.array])
    for array in run.tensors.values():
        builder.tensor(array)
    number = np.empty(program.task_count, np.int64)
    groups = vmg.graph.class_tasks
    for group in groups:
        symbol = group.task_class.body.symbol
        words = engine.signatures[symbol].words(
            len(group.tasks), _arguments(group, run), cost_site=builder.costs(cycles_of(group.task_class))
        )
        number[group.tasks] = builder.tasks(symbol, words)
    for nodes in vmg.groups:
        tasks = nodes.leaves.tasks()
        builder.nodes(number[tasks].ravel(), np.full(len(tasks), nodes.leaves.leaf_count, np.int64))
    return builder.build(), np.concatenate([group.tasks for group in groups])


def _arguments(group: ClassTasks, run: Run) -> list[Any]:
    """Pid, tiles, state, vendor kernels and FIFOs of each task of a class, in the order of its body's parameters."""
    tiles = [Tiles(run.tensors[name], offset, strides) for name, offset, strides in group.tiles]
    task_class = group.task_class
    state = [_own_rows(array) for array in run.state.variables[task_class.kernel, task_class.name]]
    streams = [
        number if isinstance(binding, StreamArray) else run.wiring.fifo[number]
        for binding, number in zip(task_class.body.streams, group.streams, strict=True)
    ]
    return [*group.pid, *tiles, *state, *run.externals.addresses(task_class), *streams]


def _own_rows(array: NDArray[np.generic]) -> Tiles:
    """One row per task of an array of rows."""
    size = array[0].size
    strides = tuple(int(np.prod(array.shape[axis + 2 :])) for axis in range(array.ndim - 1))
    return Tiles(array, np.arange(len(array)) * size, strides)


def _token_bytes(program: CompiledProgram, engine: Engine) -> IntArray:
    """Bytes of a token of each stream array in memory, as the bodies that use it store it."""
    found: dict[str, int] = {}
    for task_class in program.task_classes:
        signature: Signature = engine.signatures[task_class.body.symbol]
        own = signature.parameters[len(signature.parameters) - len(task_class.body.streams) :]
        for binding, parameter in zip(task_class.body.streams, own, strict=True):
            array = binding if isinstance(binding, StreamArray) else binding.stream
            found[array.name] = max(found.get(array.name, 0), parameter.token_bytes)
    return np.array([found.get(array.name, 0) for array in program.streams], np.int64)
