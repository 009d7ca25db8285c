"""Running programs: numbers and cycles in one run, of a program or of any fold of it.

    result = run_graph(program.vmg, A, B, C)          # every task on a node of its own
    result = run_graph(folded_vmg, A, B, C)           # the tasks of a node one after the other

Task bodies are compiled once and shared by all programs whose bodies have the same text; a fold is only data.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import field

from allo_dse.common.errors import CompileLimit, SimulationError
from allo_dse.common.records import Array, Frozen, Ints, replace
from allo_dse.compiler.model.arguments import Arguments
from allo_dse.compiler.program.compiled import CompiledProgram, ExternalCall, TaskClass
from allo_dse.compiler.program.tensors import IntArray, StreamArray
from allo_dse.lang.externals import External, external
from allo_dse.lang.storage import storage_dtype, stored
from allo_dse.lang.types import DType
from allo_dse.mapper.fold.node_edges import tokens_of
from allo_dse.mapper.graph.ports import ClassTasks
from allo_dse.simulator.codegen.signature import Body, Signature, Tiles
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.simulator.engine.frames import repeated
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Labels as NetworkLabels
from allo_dse.simulator.network.network import Network, NetworkBuilder, Tasks

if TYPE_CHECKING:
    from allo_dse.mapper.fold.vmg import VMG


class Folding(Frozen):
    """Assignment of tasks to processes and of streams to FIFOs.

    Attributes:
        nodes: per process the tasks it executes, one after the other, as task ids.
        fifo: per stream of the program, the number of its FIFO.
        depth: per FIFO, the tokens it holds.
        turn: per task, after how many others it comes; tiles of tensors that stay in DRAM move in this order.
    """

    nodes: tuple[Ints, ...]
    fifo: Ints
    depth: Ints
    turn: Ints


def folding_of(vmg: VMG, depths: Mapping[str, int] | None = None, *, whole: bool = False) -> Folding | None:
    """Return the groups of tasks that share a process; None if each task has its own.

    Args:
        whole: return groups of single tasks as well.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    if vmg.node_count == vmg.task_count and not whole:
        return None
    wiring = wiring_of(vmg, depths or {})
    nodes = tuple(tuple(row) for group in vmg.groups for row in group.leaves.tasks().tolist())
    return Folding(nodes, tuple(wiring.fifo.tolist()), tuple(wiring.depth.tolist()), tuple(vmg.uses.turns.tolist()))


class State(Frozen):
    """Values that persist from call to call.

    Attributes:
        variables: per kernel and class, one array for each of the class's variables: a row per task.
        shared: per shared tensor, its contents.
        before: the last run, if there was one.
    """

    variables: dict[tuple[str, str], list[Array]]
    shared: dict[str, Array]
    before: list[Before] = field(default_factory=list)


def initial_state(program: CompiledProgram) -> State:
    """Return the state before the first call."""
    result: dict[tuple[str, str], list[Array]] = {}
    for kernel in program.kernels:
        for count, task_class in zip(kernel.class_sizes, kernel.classes, strict=True):
            result[kernel.name, task_class.name] = [
                np.tile(stored(v.initial, v.dtype), (count, *(1,) * len(v.shape))).astype(storage_dtype(v.dtype))
                for v in task_class.state
            ]
    return State(result, {one.tensor.name: stored(one.initial, one.tensor.dtype) for one in program.shared})


class Wiring(Frozen):
    """The FIFOs of a folded graph with their depths.

    Attributes:
        fifo: per stream of the program, the number of the FIFO that carries it.
        array: per FIFO, the position of its stream array in `compiler.program.tensors`.
        depth: per FIFO, the tokens it holds.
        stream: per FIFO, one of the streams it carries (for names).
    """

    fifo: IntArray
    array: IntArray
    depth: IntArray
    stream: IntArray


def wiring_of(vmg: VMG, depths: Mapping[str, int]) -> Wiring:
    """The FIFOs of a graph; `depths` by array name, where they differ from the declared ones.

    Streams of a body that computes their numbers itself keep their own.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    program = vmg.program
    wanted = stream_depths(program, depths)
    computed = any(isinstance(s, StreamArray) for c in program.task_classes for s in c.body.streams)
    if computed:
        numbers = np.arange(program.stream_count)
        if vmg.node_count != vmg.task_count:  # a FIFO inside a node holds all tokens of a task
            edges = vmg.graph.edges
            streams = edges.stream[vmg.node_of_task[edges.source] == vmg.node_of_task[edges.target]]
            np.maximum.at(wanted, streams, tokens_of(program)[streams])
        return Wiring(numbers, array_of_stream(program), wanted, numbers)
    fifos = vmg.uses.fifos
    depth = np.where(fifos.held > 0, fifos.held, wanted[fifos.stream])
    return Wiring(fifos.fifo, array_of_stream(program)[fifos.stream], depth, fifos.stream)


def stream_depths(program: CompiledProgram, depths: Mapping[str, int]) -> IntArray:
    """The depth of every stream: as declared, but `depths` of those arrays.

    Raises:
        SimulationError: as `wiring_of`.
    """
    return np.repeat(list(program.depths_with(depths).values()), [array.count for array in program.streams])


def array_of_stream(program: CompiledProgram) -> IntArray:
    """Per stream the position of its array in `compiler.program.tensors`."""
    return np.repeat(np.arange(len(program.streams)), [array.count for array in program.streams])


# Vendor kernels in a run: compiled code calls back into the study's definitions.


def cycles_of(task_class: TaskClass) -> IntArray:
    """Return one cycle per cost site; at vendor kernels, the cycles that the study gives."""
    cycles = np.ones(max(1, len(task_class.work)), np.int64)
    sites = [site for site, op in enumerate(task_class.work) if op.kind == "external"]
    for site, call in zip(sites, task_class.externals, strict=True):
        found = external(call.top)
        known = None if found is None else found.cycles_for(tuple(shape for _, shape in call.operands))
        if known is not None:
            cycles[site] = known
    return cycles


class Externals:
    """The C functions that the bodies of a program call; they live as long as this object."""

    def __init__(
        self,
        program: CompiledProgram,
        element: Callable[[DType], np.dtype[Any]] = storage_dtype,
        apply: Callable[[External, ExternalCall, list[Array]], None] | None = None,
    ) -> None:
        """Make the functions.

        Args:
            element: the NumPy type of elements in memory.
            apply: writes the results of a kernel's definition.
        """
        self._element, self._apply = element, apply or apply_meaning
        self._functions: dict[int, Any] = {}
        self._failed: list[tuple[ExternalCall, Exception]] = []
        for task_class in program.task_classes:
            for call in task_class.externals:
                self._functions[id(call)] = self._function(call)

    def __len__(self) -> int:
        return len(self._functions)

    def addresses(self, task_class: TaskClass) -> list[int]:
        """The addresses that the body takes as arguments."""
        return [ctypes.cast(self._functions[id(call)], ctypes.c_void_p).value or 0 for call in task_class.externals]

    def require_success(self) -> None:
        """Raise the error of a vendor kernel's definition during the run, if any.

        Raises:
            SimulationError: with the vendor kernel and the place of its call.
        """
        if self._failed:
            call, error = self._failed[0]
            raise SimulationError(
                f"{call.location}: the meaning of external kernel `{call.top}` failed: {type(error).__name__}: {error}"
            ) from error

    def _function(self, call: ExternalCall) -> Any:
        known = external(call.top)
        if known is None:
            raise SimulationError(
                f"{call.location}: external kernel `{call.top}` has no meaning here",
                hint=f"say what it computes: allo_dse.lang.define_external({call.top!r}, lambda ...: ..., cycles=...)",
            )

        def run(*addresses: int) -> None:
            try:
                if not self._failed:
                    self._apply(
                        known,
                        call,
                        [
                            _array(a, shape, self._element(dtype))
                            for a, (dtype, shape) in zip(addresses, call.operands, strict=True)
                        ],
                    )
            except Exception as error:  # an exception cannot pass through compiled code
                self._failed.append((call, error))

        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(call.operands))(run)


def apply_meaning(known: External, call: ExternalCall, arrays: list[Array]) -> None:
    results = known.meaning(*(arrays[position].copy() for position in call.inputs))
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(call.outputs):
        raise ValueError(f"{len(results)} arrays are returned, {len(call.outputs)} are written")
    for position, result in zip(call.outputs, results, strict=True):
        array, value = arrays[position], np.asarray(result)
        if value.shape != array.shape:
            raise ValueError(f"argument {position} has shape {array.shape}, but {value.shape} is returned")
        array[...] = value.astype(array.dtype)


def _array(address: int, shape: tuple[int, ...], element: np.dtype[Any]) -> Array:
    """The memory at an address as an array."""
    size = element.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = memoryview((ctypes.c_uint8 * size).from_address(address))
    return np.frombuffer(memory, np.uint8).view(element).reshape(shape)


RESTART = -1
"""In place of a task's number: the pause before a node's next frame."""


@contextmanager
def compile_places(program: CompiledProgram) -> Iterator[None]:
    """Have task bodies of a program that exceed the limits of compilation named as the kernels of its source."""
    try:
        yield
    except CompileLimit as failure:
        classes = [c for c in program.task_classes if c.body.symbol in failure.symbols]
        kernels = {c.kernel: c.location or program.kernel(c.kernel).location for c in classes}
        if not kernels:
            raise
        names = ", ".join(f"`{name}`" for name in kernels)
        places = ", ".join(dict.fromkeys(str(place) for place in kernels.values() if place is not None))
        what = f"{places}: {failure.what}" if places else failure.what
        raise CompileLimit(what, failure.hint, (f"kernel{'s' if len(kernels) > 1 else ''} {names}",)) from None


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
        task_class = class_of_task(self.program, int(self.task_id[task]))
        return str(task_class.stream_ops[op].location) if op < len(task_class.stream_ops) else f"operation {op}"

    def index_check(self, task: int, check: int) -> str:
        found = class_of_task(self.program, int(self.task_id[task])).index_checks[check]
        return f"{found.location}: index `{found.text}` into {found.of}"


def class_of_task(program: CompiledProgram, task: int) -> TaskClass:
    """Return the class of a task, by its number in the program."""
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
        state: variables that persist from call to call, from `initial_state`; updated. Without it they start anew.
        record: keep every event, for the result's `timeline`, `explain()` and `save_perfetto()`; some ten times slower.
        values: compute values. Otherwise times are the same, arrays are undefined afterwards, and programs that repeat
            themselves take no longer with more repetitions.
        frames: number of calls of the region; each task begins its next frame a cycle after it has finished the last.

    Raises:
        DeadlockError: with the tasks that wait for each other, and their places in the source.
        SimulationError: for arguments that do not fit the program, or when the time limit is reached.
    """
    arguments = Arguments(vmg.program, arrays)
    externals = Externals(vmg.program)
    bodies = (Body(c.body.symbol, c.body.mlir) for c in vmg.program.task_classes)
    elements = vmg.program.elements_computed
    own = state or initial_state(vmg.program)
    known = (one for one in own.before if one.run.vmg is vmg and one.depths == depths and not externals)
    before, tensors = next(known, None), arguments.by_name | own.shared
    with compile_places(vmg.program):
        if before is not None:
            run = replace(before.run, tensors=tensors)
            engine, network, task_id = run.engine, run.network_as(before), before.task_id
        else:
            elements = None if elements is None else frames * elements
            engine = compile_bodies(bodies, elements=elements, record=record)
            run = Run(vmg, engine, tensors, wiring_of(vmg, depths or {}), own, externals)
            network, task_id = run.network()
        own.before[:] = [Before(run, network, task_id, depths)]
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
    run.require_finished(result, task_id)
    result.leave_memory()
    arguments.write_back()
    return result


class Run(Frozen):
    """A graph and everything that a run of it needs.

    Attributes:
        tensors: arguments and shared memory, by name.
    """

    vmg: VMG
    engine: Engine
    tensors: Mapping[str, Array]
    wiring: Wiring
    state: State
    externals: Externals

    def network(self) -> tuple[Network, IntArray]:
        """The network, and the program's task id of each of its tasks."""
        program, builder = self.vmg.program, NetworkBuilder()
        engine, wiring = self.engine, self.wiring
        token_bytes = _token_bytes(program, engine)
        builder.streams(wiring.depth, token_bytes=token_bytes[wiring.array])
        for array in self.tensors.values():
            builder.tensor(array)
        number = np.empty(program.task_count, np.int64)
        groups = self.vmg.graph.class_tasks
        for group in groups:
            symbol = group.task_class.body.symbol
            words = engine.signatures[symbol].words(
                len(group.tasks), _arguments(group, self), cost_site=builder.costs(cycles_of(group.task_class))
            )
            number[group.tasks] = builder.tasks(symbol, words)
        for nodes in self.vmg.groups:
            tasks = nodes.leaves.tasks()
            builder.nodes(number[tasks].ravel(), np.full(len(tasks), nodes.leaves.leaf_count, np.int64))
        return builder.build(), np.concatenate([group.tasks for group in groups])

    def network_as(self, before: Before) -> Network:
        """The network of an earlier run of the same graph, with the arrays of this one."""
        moved = {name: new.ctypes.data - before.run.tensors[name].ctypes.data for name, new in self.tensors.items()}
        if not any(moved.values()):
            return before.network
        shifted = []  # variables of the state stay where they are
        for own, tasks in zip(self.vmg.graph.class_tasks, before.network.groups, strict=True):
            assert isinstance(tasks, Tasks)
            words, signature = tasks.words.copy(), self.engine.signatures[tasks.body]
            columns = (c for c, p in zip(signature.columns, signature.parameters, strict=True) if p.kind == "tensor")
            for column, (name, *_) in zip(columns, own.tiles, strict=False):
                words[:, column] += moved[name]
            shifted.append(Tasks(tasks.body, words))
        return before.network.like(groups=tuple(shifted), tensors=tuple(self.tensors.values()))

    def arrays(self, group: ClassTasks) -> list[Array]:
        """The arrays that the tasks of a class work on, in the order of its body's parameters."""
        own = group.task_class
        return [*(self.tensors[name] for name, *_ in group.tiles), *self.state.variables[own.kernel, own.name]]

    def finish(self, seconds: float | None = None) -> None:
        """Run it to its end, with the errors of `run_graph`."""
        network, task_id = self.network()
        self.require_finished(self.engine.run(network, seconds=seconds), task_id)

    def require_finished(self, result: RunResult, task_id: IntArray) -> None:
        """Name tasks and streams of a result, and check that it has finished."""
        self.externals.require_success()
        result.labels, result.name = Labels(self.vmg.program, task_id, self.wiring), self.vmg.program.name
        result.require_finished()


class Before(Frozen):
    """The last run with a state: whatever does not depend on arrays is used again."""

    run: Run
    network: Network
    task_id: IntArray
    depths: Mapping[str, int] | None


def _arguments(group: ClassTasks, run: Run) -> list[Any]:
    """Pid, tiles, state, vendor kernels and FIFOs of each task of a class, in the order of its body's parameters."""
    tiles = [Tiles(run.tensors[name], offset, strides) for name, offset, strides in group.tiles]
    task_class = group.task_class
    state = []
    for array in run.state.variables[task_class.kernel, task_class.name]:  # a row per task
        strides = tuple(math.prod(array.shape[axis + 2 :]) for axis in range(array.ndim - 1))
        state.append(Tiles(array, np.arange(len(array)) * array[0].size, strides))
    streams = [
        number if isinstance(binding, StreamArray) else run.wiring.fifo[number]
        for binding, number in zip(task_class.body.streams, group.streams, strict=True)
    ]
    return [*group.pid, *tiles, *state, *run.externals.addresses(task_class), *streams]


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
