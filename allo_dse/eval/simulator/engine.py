"""The run engine: networks of tasks over time-stamped FIFOs, executed by compiled code.

One run gives both what the tasks compute and when, by the clock rules of DESIGN.md §5. Engines are compiled once;
networks (wiring, depths, folds, costs) are only data.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ...errors import SimulationError
from ...ir.layout import Header, Node, entry_words
from ...ir.signature import Body, Signature
from .arena import Arena
from .network import Network, Tasks
from .result import RunResult

if TYPE_CHECKING:
    from ...ir.jit import CompiledModule

CACHED_ENGINES = 64
FIRST_TURNS = 4_000
"""Turns before compiled code first returns to Python; then as many as its speed allows."""
SLICE_SECONDS = 0.05
"""Compiled code returns to Python about this often, for Ctrl-C, time limits and progress."""


class Engine:
    """Compiled task bodies together with the scheduler and the table process. Safe to use from several threads."""

    def __init__(self, code: CompiledModule, signatures: Sequence[Signature] = ()) -> None:
        self._run = code.function("df_run")
        self._destroy = code.function("df_destroy")
        self.signatures = {s.symbol: s for s in signatures}
        self._bodies = {s.symbol: number for number, s in enumerate(signatures, 1)}

    def run(
        self,
        network: Network,
        *,
        seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> RunResult:
        """Execute a network until no task can run.

        Args:
            seconds: time limit.
            progress: called about twenty times a second with the number of nodes that have finished.

        Raises:
            SimulationError: if the time limit is reached, or the network names a body this engine does not have.
        """
        for group in network.groups:
            if isinstance(group, Tasks):
                self._check(network, group)
        arena = Arena(network, self._bodies)
        try:
            self._drive(arena, seconds, progress)
        finally:
            if arena.header[Header.FINISHED] != network.node_count:
                self._free_frames(arena)
        return RunResult(network, arena, self.signatures)

    def _check(self, network: Network, tasks: Tasks) -> None:
        """Compiled code trusts its arguments, so they are checked here."""
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
        for column, parameter in zip(signature.columns(), signature.parameters, strict=True):
            if not (parameter.gets or parameter.puts):
                continue
            streams = tasks.words[:, column]
            if streams.size and not 0 <= streams.min() <= streams.max() < network.stream_count:
                raise SimulationError(f"task body {tasks.body!r} is given a stream that does not exist")
            sizes = network.token_bytes[streams]
            wrong = entry_words(sizes) != entry_words(parameter.token_bytes)
            if wrong.any():
                raise SimulationError(
                    f"task body {tasks.body!r} moves tokens of {parameter.token_bytes} bytes, "
                    f"stream {streams[wrong][0]} carries {sizes[wrong][0]}"
                )

    def _drive(self, arena: Arena, seconds: float | None, progress: Callable[[int], None] | None) -> None:
        started = now = time.perf_counter()
        budget = FIRST_TURNS
        header = arena.header
        while True:
            header[Header.BUDGET] = budget
            self._run(arena.base)
            if header[Header.STATUS] == 0:
                return
            before, now = now, time.perf_counter()
            if seconds is not None and now - started > seconds:
                raise SimulationError(
                    f"the simulation was stopped after its time limit of {seconds:g} s",
                    hint="raise the limit, or simulate a smaller problem",
                )
            if progress is not None:
                progress(int(header[Header.FINISHED]))
            budget = max(1, int(budget * min(4.0, SLICE_SECONDS / max(now - before, 1e-6))))

    def _free_frames(self, arena: Arena) -> None:
        """Free the coroutines of tasks that have started and will not end."""
        compiled = arena.nodes[:, Node.ACTIVE] > 1
        for frame in arena.nodes[compiled, Node.HANDLE].tolist():
            self._destroy(frame)


_LOCK = threading.Lock()


@lru_cache(maxsize=CACHED_ENGINES)
def _compiled(bodies: tuple[Body, ...]) -> Engine:
    from ...ir.bodies import compile_bodies as compile_

    compiled = compile_(bodies)
    return Engine(compiled.code, compiled.signatures)


def compile_bodies(bodies: Iterable[Body]) -> Engine:
    """The engine for these task bodies, compiled unless this Python process has it already (20 to 50 ms per body).

    Bodies with equal symbol and text count once.

    Raises:
        SimulationError: with MLIR's message if a text is not valid; or if two texts have the same symbol.
    """
    unique = sorted(set(bodies), key=lambda b: (b.symbol, b.mlir))
    for a, b in pairwise(unique):
        if a.symbol == b.symbol:
            raise SimulationError(f"two different task bodies are called {a.symbol!r}")
    with _LOCK:
        return _compiled(tuple(unique))


def table_engine() -> Engine:
    """The engine for networks of table processes only; compiled at the first call."""
    return compile_bodies(())
