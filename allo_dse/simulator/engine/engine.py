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

from allo_dse.common.errors import SimulationError, TimeLimitError
from allo_dse.common.records import Frozen

from ..codegen.signature import ANY_TOKEN, Body, CompiledBodies, Signature
from ..network.memory_image import Arena
from ..network.network import Network, Tasks
from ..network.static_tables import as_tables
from ..run_time.records import Header, Node, entry_words
from .recording import MAX_EVENTS, Recorder, Sampler, WindowRecorder
from .run_result import RunResult
from .steady import Extrapolator, can_repeat, is_long, without_logs

if TYPE_CHECKING:
    from allo_dse.common.mlir.jit import MachineCode

    from ..codegen.static_steps import Steps

CACHED_ENGINES = 64
FIRST_TURNS = 4_000
"""Turns before compiled code first returns to Python; then as many as its speed allows."""
FEW_ELEMENTS = 1 << 22
"""Elements that unoptimized code takes about 10 ms longer for; bodies are compiled 50 ms sooner."""
SLICE_SECONDS = 0.05
"""Compiled code returns to Python about this often, for Ctrl-C, time limits and progress."""


class Engine:
    """Compiled task bodies together with the scheduler and the table process. Safe to use from several threads."""

    def __init__(self, bodies: Sequence[Body], *, optimize: bool) -> None:
        self._texts, self._optimize = tuple(bodies), optimize
        self._codes: dict[bool, _Code] = {}
        self._steps: dict[tuple[str, tuple[tuple[int, ...], ...]], list[Steps] | None] = {}
        self._lock = threading.Lock()

    def require_code(self, record: bool) -> None:
        """Compile code that records, or does not, unless there is any already: either tells the signatures."""
        if not self._codes:
            self._code(record)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """By the bodies' symbols."""
        return {s.symbol: s for s in next(iter(self._codes.values())).compiled.signatures}

    def _code(self, record: bool) -> _Code:
        """Machine code that records or does not, compiled when first asked for."""
        from allo_dse.common.mlir.jit import MachineCode  # neither reads logs nor shows results needs a compiler

        from ..codegen.compile_server import compiled_bodies, run_time

        with self._lock:
            if record not in self._codes:
                runs = run_time(record)
                compiled = compiled_bodies(self._texts, record, optimize=self._optimize)
                bodies = MachineCode(compiled.object_file) if self._texts else None
                start = 0 if bodies is None else bodies.address("df_start_body")
                run, destroy = runs.function("df_run"), runs.function("df_destroy")
                self._codes[record] = _Code(run, destroy, bodies, start, compiled)
            return self._codes[record]

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
            payload: compute values. Without, cycles are the same, but arrays hold nothing of use after the run: where
                the steps of all tasks are known, they run as operation tables.
            record: keep every operation, for `RunResult.timeline` and `explain`; a number limits them, at
                29 bytes each (`MAX_EVENTS` for True). The first recorded run compiles the task bodies once more.
            window: of a recorded run, the cycles from which and up to which to keep operations. The run ends there; its
                result has not finished, and its timeline and critical path are those of that time. Where there are
                more operations than may be kept, the window ends earlier, which its timeline says.
            samples: note now and then, about so often, how far each node has come, for `RunResult.samples`.
            seconds: time limit.
            progress: called about twenty times a second with the number of nodes that have finished.
            extrapolate: skip repeated periods of operation tables; times and counts are the same. Of recorded runs only
                what comes before a window.

        Raises:
            TimeLimitError: at the time limit.
            SimulationError: if the network names a body this engine does not have.
        """
        most = None if record is False else MAX_EVENTS if record is True else record
        watch = _Watch(most, window, samples, seconds, progress)
        return self._watched(network, payload, watch, extrapolate=extrapolate)

    def rerun(self, network: Network, over: RunResult | None) -> RunResult:
        """Time table processes in the memory of an earlier result at other depths (`Network.at`), which is lost."""
        return self._watched(network, False, _Watch(over=over), extrapolate=True)

    def _watched(self, network: Network, payload: bool, watch: _Watch, *, extrapolate: bool) -> RunResult:
        self._require_fitting(network)
        record = watch.max_events is not None
        if can_repeat(network):
            return self._run(network, watch, extrapolate=extrapolate and (not record or watch.window is not None))
        if not payload and not record and (tables := self.as_tables(network)) is not None:
            result = self._run(tables, watch, extrapolate=extrapolate)
            if result.finished:  # bodies know the places of their operations
                return result
        return self._run(network, watch)

    def _run(self, network: Network, watch: _Watch, *, extrapolate: bool = False) -> RunResult:
        extrapolate = extrapolate and is_long(network)
        if extrapolate:
            network = without_logs(network)
        code = self._code(watch.max_events is not None)
        over = watch.over
        left = vars(network).pop("memory", None)  # by an earlier run, and taken by one of several threads
        arena = over.restarted(network) if over else left.again(network) if left else None
        arena = arena or Arena(network, network.body_numbers(self.signatures))
        arena.header[Header.START_BODY] = code.start_body
        recorder, sampler = watch.recorder(network, arena), watch.sampler(arena)
        until = None if watch.window is None else watch.window[0] - 1  # operations that end at its start count
        extrapolator = Extrapolator(network, arena, until) if extrapolate else None
        try:
            turns = _drive(code, arena, recorder, sampler, extrapolator, watch)
        finally:
            if arena.header[Header.FINISHED] != network.node_count:
                started = arena.nodes[:, Node.ACTIVE] > 1  # coroutines of tasks that will not end
                for frame in arena.nodes[started, Node.HANDLE].tolist():
                    code.destroy(frame)
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
        """Time a network within `turns` of the scheduler, a limit that is the same on every machine.

        Raises:
            TimeLimitError: if it takes more.
        """
        return self._watched(network, False, _Watch(turns=turns), extrapolate=True)

    def _require_fitting(self, network: Network) -> None:
        """Compiled code trusts its arguments, so they are checked when a network is first run."""
        if self in (fitting := network.once.setdefault("fitting", set())):
            return
        words = entry_words(network.token_bytes)
        uniform = int(words[0]) if len(words) and (words == words[0]).all() else None
        for group in network.groups:
            if isinstance(group, Tasks):
                self._check(network, group, uniform)
        fitting.add(self)

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


class _Code(Frozen):
    """Machine code of the run time, and of task bodies, where there are any, with the function that starts them."""

    run: Callable[[int], None]
    destroy: Callable[[int], None]
    bodies: MachineCode | None
    start_body: int
    compiled: CompiledBodies


class _Watch(Frozen):
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
    over: RunResult | None = None

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


_LOCK = threading.Lock()


_compiled = lru_cache(maxsize=CACHED_ENGINES)(Engine)


def compile_bodies(bodies: Iterable[Body], *, elements: int | None = None, record: bool = False) -> Engine:
    """The engine for these task bodies, compiled unless this Python process has it already (20 to 50 ms per body).

    Bodies with equal symbol and text count once.

    Args:
        elements: that a run computes, see `CompiledProgram.elements_computed`; with few, code is not optimized, which
            would take longer than it saves. None: not known.
        record: whether the first run is recorded; code of the other kind is compiled when first asked for.

    Raises:
        SimulationError: with MLIR's message if a text is not valid; or if two texts have the same symbol.
    """
    unique = sorted(set(bodies), key=lambda b: (b.symbol, b.mlir))
    for a, b in pairwise(unique):
        if a.symbol == b.symbol:
            raise SimulationError(f"two different task bodies are called {a.symbol!r}")
    with _LOCK:
        engine = _compiled(tuple(unique), optimize=elements is None or elements > FEW_ELEMENTS)
    engine.require_code(record)
    return engine


def table_engine() -> Engine:
    """The engine for networks of table processes only; compiled at the first call."""
    return compile_bodies(())
