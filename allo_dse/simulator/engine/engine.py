"""The run engine: networks of tasks over time-stamped FIFOs, executed by compiled code.

One run gives both the results of tasks and their times, by the rules of docs/timing.md. Engines are compiled once;
networks (wiring, depths, folds, costs) are only data.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError, TimeLimitError

from ..codegen.signature import ANY_TOKEN, Body, CompiledBodies, Signature
from ..network.memory_image import Arena
from ..network.network import UNKNOWN, IntArray, Network, Tasks, needed_registers, no_registers, stream_ends
from ..network.static_tables import as_tables, rounds_of_bodies
from ..run_time.fifo import PLAIN, Variant
from ..run_time.records import Header, Node, entry_words
from .recording import MAX_EVENTS, Recorder, Sampler, WindowRecorder
from .run_result import RunResult
from .steady import Extrapolator, can_repeat, is_long, rounds_of, without_logs

if TYPE_CHECKING:
    from allo_dse.common.mlir.jit import MachineCode

    from ..codegen.static_steps import Steps

# In a run that only needs times, the tasks whose times depend on values compute them, and so do all tasks that feed
# them: the nodes that put to their streams, directly or not, and the tasks that share an array with one of them.


BoolArray = NDArray[np.bool_]


def tasks_with_payload(network: Network, signatures: Mapping[str, Signature], needs: Mapping[str, bool]) -> BoolArray:
    """Return per task whether it must compute its values; `needs` has the bodies whose times depend on values."""
    found = np.zeros(network.task_count, bool)
    for first, group in network.numbered_groups:
        if isinstance(group, Tasks):
            found[first : first + len(group)] = needs[group.body]
    if not found.any():
        return found
    if _has_hidden_streams(network, signatures):
        return np.ones(network.task_count, bool)
    ends = stream_ends(network, signatures)
    joined = (ends.producer != UNKNOWN) & (ends.consumer != UNKNOWN)
    source, target = network.task_node[ends.producer[joined]], network.task_node[ends.consumer[joined]]
    task, array = _shared_arrays(network, signatures)
    # The set only grows, so this finds the least closed one. Tasks of a node may share one end of a stream, so all
    # tasks of a node are added together.
    while True:
        nodes = np.zeros(network.node_count, bool)
        nodes[network.task_node[found]] = True
        nodes[source[nodes[target]]] = True
        more = nodes[network.task_node]
        arrays = np.zeros(len(network.tensors) + 1, bool)
        arrays[array[more[task]]] = True
        more[task[arrays[array]]] = True
        if (more == found).all():
            return found
        found = more


def streams_with_payload(network: Network, signatures: Mapping[str, Signature], tasks: BoolArray) -> BoolArray:
    """Per stream whether its tokens carry bytes: those that a task with payload puts or gets."""
    if tasks.all() or not tasks.any():
        return np.full(network.stream_count, tasks.any())
    ends = stream_ends(network, signatures)
    result = np.zeros(network.stream_count, bool)
    for end in (ends.producer, ends.consumer):
        known = end != UNKNOWN
        result[known] |= tasks[end[known]]
    return result


def _has_hidden_streams(network: Network, signatures: Mapping[str, Signature]) -> bool:
    """Return whether bodies compute stream numbers, so that it is not known which task feeds which."""
    bodies = {g.body for g in network.groups if isinstance(g, Tasks)}
    return any(p.computed for body in bodies for p in signatures[body].parameters)


def _shared_arrays(network: Network, signatures: Mapping[str, Signature]) -> tuple[IntArray, IntArray]:
    """Pairs of a task and the position in `network.tensors` of an array that it is given (past the end if unknown)."""
    starts = np.array([t.ctypes.data for t in network.tensors], np.int64)
    ends = starts + np.array([t.nbytes for t in network.tensors], np.int64)
    order = np.argsort(starts)
    tasks, arrays = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first, group in network.numbered_groups:
        if isinstance(group, Tasks):
            signature = signatures[group.body]
            for column, parameter in zip(signature.columns, signature.parameters, strict=True):
                if parameter.kind != "tensor" or not len(group.words):
                    continue
                address = group.words[:, column]
                place = np.searchsorted(starts[order], address, side="right") - 1
                known = order[np.maximum(place, 0)] if len(order) else np.zeros(len(address), np.int64)
                inside = (place >= 0) & (address < ends[known]) if len(order) else np.zeros(len(address), bool)
                tasks.append(first + np.arange(len(address)))
                arrays.append(np.where(inside, known, len(starts)))
    return np.concatenate(tasks), np.concatenate(arrays)


CACHED_ENGINES = 64
FIRST_TURNS = 4_000
"""Turns before compiled code first returns to Python; then as many as its speed allows."""
FEW_ELEMENTS = 1 << 22
"""Code that is not optimized takes about 10 ms longer for so many; a program's bodies are compiled 50 ms sooner."""
SLICE_SECONDS = 0.05
"""Compiled code returns to Python about this often, for Ctrl-C, time limits and progress."""


class Engine:
    """Compiled task bodies together with the scheduler and the table process. Safe to use from several threads."""

    def __init__(self, bodies: Sequence[Body], *, optimize: bool) -> None:
        self._texts, self._optimize = tuple(bodies), optimize
        self._codes: dict[Variant, _Code] = {}
        self._steps: dict[tuple[str, tuple[tuple[int, ...], ...]], list[Steps] | None] = {}
        self._checked: WeakSet[Network] = WeakSet()
        self._lock = threading.Lock()

    def require_code(self, variant: Variant) -> None:
        """Compile a variant unless there is one already: any tells the signatures."""
        if not self._codes:
            self._code(variant)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """By the bodies' symbols."""
        return {s.symbol: s for s in next(iter(self._codes.values())).compiled.signatures}

    @property
    def _has_pipelines(self) -> bool:
        return any(s.pipelines for s in self.signatures.values())

    def _code(self, variant: Variant) -> _Code:
        """Machine code of a variant, compiled when first asked for."""
        from allo_dse.common.mlir.jit import MachineCode  # neither reads logs nor shows results needs a compiler

        from ..codegen.compile_server import compiled_bodies, run_time

        with self._lock:
            if variant not in self._codes:
                runs = run_time(variant)
                compiled = compiled_bodies(self._texts, variant, optimize=self._optimize)
                bodies = MachineCode(compiled.object_file) if self._texts else None
                start = 0 if bodies is None else bodies.address("df_start_body")
                run, destroy = runs.function("df_run"), runs.function("df_destroy")
                self._codes[variant] = _Code(run, destroy, bodies, start, compiled)
            return self._codes[variant]

    def run(
        self,
        network: Network,
        *,
        payload: bool = True,
        record: bool | int = False,
        window: tuple[int, int] | None = None,
        samples: int = 0,
        seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
        extrapolate: bool = False,
    ) -> RunResult:
        """Execute a network until no task can run.

        Args:
            payload: compute values. Without, cycles are the same and come sooner, but arrays hold nothing of use after
                the run; only tasks whose control flow depends on values, and those that feed them, compute them.
            record: keep every operation, for `RunResult.timeline` and `explain`; a number: at most so many, 29 bytes
                each (`MAX_EVENTS` for True). The first recorded run compiles the task bodies once more; others are not
                slowed down.
            window: of a recorded run, the cycles from which and up to which to keep operations. The run ends there; its
                result has not finished, and its timeline and critical path are those of that time. Where there are
                more operations than may be kept, the window ends earlier, which its timeline says.
            samples: note now and then, about so often, how far each node has come, for `RunResult.samples`.
            seconds: time limit.
            progress: called about twenty times a second with the number of nodes that have finished.
            extrapolate: skip repeated periods if the steps of tasks are known; times and counts are the same.
                Only of runs without payload, or of table processes; of those that are recorded only what comes before
                a window, and of table processes.

        Raises:
            TimeLimitError: at the time limit.
            SimulationError: if the network names a body this engine does not have.
        """
        most = None if record is False else MAX_EVENTS if record is True else record
        watch = _Watch(most, window, samples, seconds, progress)
        return self._watched(network, payload, watch, extrapolate=extrapolate)

    def _watched(self, network: Network, payload: bool, watch: _Watch, *, extrapolate: bool) -> RunResult:
        self._require_fitting(network)
        record = watch.max_events is not None
        if extrapolate and (not record or (watch.window is not None and can_repeat(network))):
            tables = self._long_tables(network, payload=payload)
            if tables is not None:
                result = self._run(without_logs(tables), payload, watch, extrapolate=True)
                if result.finished or tables is network:
                    return result
        return self._run(network, payload, watch)

    def _long_tables(self, network: Network, *, payload: bool) -> Network | None:
        """The network as tables, if that is possible and it runs longer than detecting a period takes."""
        if can_repeat(network):
            return network if is_long(network, rounds_of(network)) else None
        if payload:
            return None
        # Tables can take a token after a later operation; pipelines of bodies cannot.
        rounds = None if self._has_pipelines else rounds_of_bodies(network, self._steps_of)
        # The threshold is twice as high: tables have to be made first, and bodies run faster than tables.
        return self.as_tables(network) if rounds is None or is_long(network, rounds / 2) else None

    def _run(self, network: Network, payload: bool, watch: _Watch, *, extrapolate: bool = False) -> RunResult:
        registers = needed_registers(network, self.signatures) if self._has_pipelines else no_registers(network)
        code = self._code(Variant(watch.max_events is not None, payload, registers.any))
        arena = Arena(network, *self._versions(network, code.compiled, payload), registers)
        arena.header[Header.START_BODY] = code.start_body
        recorder, sampler = watch.recorder(network, arena), watch.sampler(arena)
        until = None if watch.window is None else watch.window[0] - 1  # operations that end at its start count
        extrapolator = Extrapolator(network, arena, until) if extrapolate else None
        try:
            turns = _drive(code, arena, recorder, sampler, extrapolator, watch)
        finally:
            if arena.header[Header.FINISHED] != network.node_count:
                _free_frames(code, arena)
        recorded = None if recorder is None else (recorder.events(), recorder.window())
        skipped = extrapolator.skipped if extrapolator else 0
        noted = None if sampler is None else sampler.samples()
        result = RunResult(network, arena, self.signatures, self.limited, recorded, skipped, noted)
        result.turns = turns
        return result

    def as_tables(self, network: Network) -> Network | None:
        """The network with all bodies as operation tables, which compute nothing; None if their steps are unknown."""
        return as_tables(network, self._steps_of, self.signatures)

    def _steps_of(self, symbol: str, tasks: Sequence[Mapping[int, int]]) -> Sequence[Steps] | None:
        """Return the steps of tasks of a body, by the values of their whole-number parameters; cached."""
        from ..codegen.static_steps import static_steps

        key = symbol, tuple(tuple(task.values()) for task in tasks)
        with self._lock:
            if key not in self._steps:
                text = next(body for body in self._texts if body.symbol == symbol)
                self._steps[key] = static_steps(text, tasks)
            return self._steps[key]

    def limited(self, network: Network, turns: int) -> RunResult:
        """Time a network within so many turns of the scheduler, a limit that is the same on every machine.

        Raises:
            TimeLimitError: if it takes more.
        """
        return self._watched(network, False, _Watch(turns=turns), extrapolate=True)

    def _versions(self, network: Network, compiled: CompiledBodies, payload: bool) -> tuple[IntArray, IntArray]:
        """Per task the number of its body's version, per stream the bytes of its tokens."""
        position = {symbol: i for i, symbol in enumerate(self.signatures)}
        body = network.body_positions(position)
        if payload:
            return body + 1, network.token_bytes
        needs = {symbol: compiled.needs_payload[i] for symbol, i in position.items()}
        full = tasks_with_payload(network, self.signatures, needs)
        carries = streams_with_payload(network, self.signatures, full)
        # Table processes have position -1, which indexes the last entry: their number 0.
        number, full_number = np.array([*compiled.number, 0]), np.array([*compiled.full_number, 0])
        return np.where(full, full_number[body], number[body]), np.where(carries, network.token_bytes, 0)

    def _require_fitting(self, network: Network) -> None:
        """Compiled code trusts its arguments, so they are checked when a network is first run."""
        if network in self._checked:
            return
        words = entry_words(network.token_bytes)
        uniform = int(words[0]) if len(words) and (words == words[0]).all() else None
        for group in network.groups:
            if isinstance(group, Tasks):
                self._check(network, group, uniform)
        self._checked.add(network)

    def _check(self, network: Network, tasks: Tasks, uniform: int | None) -> None:
        """Check the arguments of some tasks; `uniform` are the words of an entry of all streams, if they are equal."""
        signature = self.signatures.get(tasks.body)
        if signature is None:
            raise SimulationError(f"this engine was compiled without the task body {tasks.body!r}")
        if tasks.words.shape[1] != signature.width:
            raise SimulationError(
                f"task body {tasks.body!r} takes {signature.width} words per task, given {tasks.words.shape[1]}"
            )
        sites = tasks.words[:, 0]
        if sites.size and not 0 <= sites.min() <= sites.max() <= len(network.costs) - signature.cost_sites:
            raise SimulationError(
                f"task body {tasks.body!r} has {signature.cost_sites} cost sites, "
                f"the network only {len(network.costs) - int(sites.max())} from number {sites.max()} on"
            )
        for column, parameter in zip(signature.columns, signature.parameters, strict=True):
            if not parameter.is_stream:
                continue
            streams = tasks.words[:, column]
            if streams.size and not 0 <= streams.min() <= streams.max() < network.stream_count:
                raise SimulationError(f"task body {tasks.body!r} is given a stream that does not exist")
            if parameter.token_bytes == ANY_TOKEN or entry_words(parameter.token_bytes) == uniform:
                continue
            sizes = network.token_bytes[streams]
            wrong = entry_words(sizes) != entry_words(parameter.token_bytes)
            if wrong.any():
                raise SimulationError(
                    f"task body {tasks.body!r} moves tokens of {parameter.token_bytes} bytes, "
                    f"stream {streams[wrong][0]} carries {sizes[wrong][0]}"
                )


class _Code(Struct, frozen=True):
    """Machine code of one variant: of the run time, and of task bodies, where there are any, with the address of the
    function that starts them.
    """

    run: Callable[[int], None]
    destroy: Callable[[int], None]
    bodies: MachineCode | None
    start_body: int
    compiled: CompiledBodies


class _Watch(Struct, frozen=True):
    """Recording options and limits of a run.

    Attributes:
        max_events: the most events to record; None if the run is not recorded.
        seconds: limit of time.
        turns: limit of work, which is the same on every machine.
    """

    max_events: int | None = None
    window: tuple[int, int] | None = None
    samples: int = 0
    seconds: float | None = None
    progress: Callable[[int], None] | None = None
    turns: int | None = None

    def recorder(self, network: Network, arena: Arena) -> Recorder | None:
        if self.max_events is None:
            return None
        if self.window is None:
            return Recorder(network, arena, self.max_events)
        return WindowRecorder(network, arena, self.max_events, *self.window)

    def sampler(self, arena: Arena) -> Sampler | None:
        return Sampler(arena, self.samples) if self.samples else None

    def tell(self, arena: Arena, turns: int, started: float, now: float) -> None:
        """Call `progress`; raises TimeLimitError at the limit of turns or of time."""
        if self.turns is not None and turns >= self.turns:
            raise TimeLimitError(f"the simulation was stopped after {turns:,} turns of its scheduler")
        if self.seconds is not None and now - started > self.seconds:
            raise TimeLimitError(
                f"the simulation was stopped after its time limit of {self.seconds:g} s",
                hint="raise the limit, or simulate a smaller problem",
            )
        if self.progress is not None:
            self.progress(int(arena.header[Header.FINISHED]))


def _drive(
    code: _Code,
    arena: Arena,
    recorder: Recorder | None,
    sampler: Sampler | None,
    extrapolator: Extrapolator | None,
    watch: _Watch,
) -> int:
    """Run to the end; returns the turns that it took."""
    started = now = time.perf_counter()
    turns = 0
    budget = extrapolator.first_budget() if extrapolator else FIRST_TURNS
    header = arena.header
    while True:
        # An interruption changes the order of execution, which hides that states repeat.
        waits = extrapolator is not None and extrapolator.is_waiting
        if watch.turns is not None:
            budget = min(budget, watch.turns - turns)
        _spend(code, arena, budget, None if waits else sampler)
        turns += budget - int(header[Header.BUDGET])
        if sampler is not None:
            sampler.take()
        if header[Header.STATUS] == 0 or header[Header.FAULT]:
            return turns
        log_was_full = recorder is not None and recorder.drain()
        if recorder is not None and recorder.is_done():
            return turns
        before, now = now, time.perf_counter()
        watch.tell(arena, turns, started, now)
        if log_was_full and header[Header.ANCHOR] and header[Header.BUDGET] > 0:
            budget = int(header[Header.BUDGET])
        elif extrapolator is not None:
            budget = extrapolator.look()
            if sampler is not None:
                sampler.take()
        elif not log_was_full:
            budget = max(1, int(budget * min(4.0, SLICE_SECONDS / max(now - before, 1e-6))))


def _spend(code: _Code, arena: Arena, budget: int, sampler: Sampler | None) -> None:
    """Let compiled code run until it has spent its budget, or returns for another reason."""
    header = arena.header
    while True:
        piece = budget if sampler is None else min(budget, sampler.take())
        header[Header.BUDGET] = piece
        code.run(arena.base)
        budget -= piece - int(header[Header.BUDGET])
        if header[Header.BUDGET] > 0 or budget <= 0 or header[Header.STATUS] == 0 or not header[Header.ANCHOR]:
            header[Header.BUDGET] = budget
            return


def _free_frames(code: _Code, arena: Arena) -> None:
    """Free the coroutines of tasks that have started and will not end."""
    compiled = arena.nodes[:, Node.ACTIVE] > 1
    for frame in arena.nodes[compiled, Node.HANDLE].tolist():
        code.destroy(frame)


_LOCK = threading.Lock()


@lru_cache(maxsize=CACHED_ENGINES)
def _compiled(bodies: tuple[Body, ...], *, optimize: bool) -> Engine:
    return Engine(bodies, optimize=optimize)


def compile_bodies(bodies: Iterable[Body], *, elements: int | None = None, first: Variant = PLAIN) -> Engine:
    """The engine for these task bodies, compiled unless this Python process has it already (20 to 50 ms per body).

    Bodies with equal symbol and text count once.

    Args:
        elements: that a run computes, see `CompiledProgram.elements_computed`; with few, code is not optimized, which
            would take longer than it saves. None: not known.
        first: what the first run does; others are compiled when first asked for.

    Raises:
        SimulationError: with MLIR's message if a text is not valid; or if two texts have the same symbol.
    """
    unique = sorted(set(bodies), key=lambda b: (b.symbol, b.mlir))
    for a, b in pairwise(unique):
        if a.symbol == b.symbol:
            raise SimulationError(f"two different task bodies are called {a.symbol!r}")
    with _LOCK:
        engine = _compiled(tuple(unique), optimize=elements is None or elements > FEW_ELEMENTS)
    engine.require_code(first)
    return engine


def table_engine() -> Engine:
    """The engine for networks of table processes only; compiled at the first call."""
    return compile_bodies(())
