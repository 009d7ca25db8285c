"""Runs of a graph over a domain: engine, wiring and folds are those of any run, only the words differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Array
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.lang.types import DType
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.engine.engine import Engine, compile_bodies

from ..execute.run import Externals, Run, State, Wiring, compile_places, wiring_of
from .data_values import TooMuchWork
from .domains import OWN_WORDS, Code, Constants, Domain, Log
from .rewrite import rewritten

KEPT_ENGINES = 8
"""A program is compared with one fold after the other."""


class EndedEarly(SimulationError):
    """A program that started but did not reach its end: it deadlocks, or leaves its arrays."""


class Side(Struct, frozen=True, dict=True):
    """One of the two programs that are compared: a graph, with stream depths where they differ from the declared."""

    vmg: VMG
    depths: Mapping[str, int]
    allow_reassociation: bool = False

    @cached_property
    def wiring(self) -> Wiring:
        return wiring_of(self.vmg, self.depths)

    def run(
        self,
        domain: Domain,
        tensors: list[IntArray],
        key: int,
        seconds: float | None,
        most_operations: int | None = None,
        log: Log | None = None,
        undefined: int = 0,
    ) -> tuple[int, int]:
        """Run over a domain; `tensors` are words, and written in place.

        Args:
            key: key of the hashes.
            undefined: seed of the values of memory that was never written.
            log: of the operations, in a domain that keeps one.
            most_operations: limit of the operations in a run over degrees.

        Returns:
            The sums of the tasks' own two words.

        Raises:
            TooMuchWork: if it exceeds the limit.
            EndedEarly: if it does not reach its end.
        """
        program = self.vmg.program
        state = _initial_state(
            self.vmg, log or domain, (key, 0, 0 if log is None else log.address, domain.mode), undefined
        )
        named = {t.name: words for t, words in zip(program.tensors, tensors, strict=True)}
        with compile_places(program):
            engine = _engine(program, domain.compiled, self.allow_reassociation)
        run = Run(self.vmg, engine, named | state.shared, self.wiring, state, Externals(program))
        own = [arrays[-1].reshape(-1, OWN_WORDS) for arrays in state.variables.values() if arrays[-1].size]

        def require_little_work(_finished: int = 0) -> None:
            if most_operations is not None and _counted(own)[0] > most_operations:
                raise TooMuchWork(f"more than {most_operations:,} operations")

        network, task_id = run.network()
        result = engine.run(network, seconds=seconds, progress=require_little_work)
        try:
            run.require_finished(result, task_id)
        except SimulationError as failure:
            raise EndedEarly(failure.message, hint=failure.hint) from None
        require_little_work()
        return _counted(own)


@lru_cache(KEPT_ENGINES)
def _engine(program: CompiledProgram, domain: Code, allow_reassociation: bool) -> Engine:
    classes = list(program.task_classes)
    bodies = rewritten(classes, domain, allow_reassociation=allow_reassociation)
    return compile_bodies(bodies, elements=program.elements_computed)


def _counted(own: Sequence[Array]) -> tuple[int, int]:
    """The sums of the first two words of all tasks."""
    first, second, *_ = np.concatenate(own).sum(axis=0, dtype=object).tolist()
    return first, second


def _initial_state(vmg: VMG, domain: Constants, words: tuple[int, ...], undefined: int) -> State:
    """Variables as they are before the first call, as words, and behind them each task's own words."""
    variables: dict[tuple[str, str], list[Array]] = {}
    rng, counts_degrees = np.random.default_rng([words[0], undefined]), bool(words[3])
    for kernel in vmg.program.kernels:
        for count, task_class in zip(kernel.class_sizes, kernel.classes, strict=True):
            rows = [words_of(np.asarray(v.initial), v.dtype, domain) for v in task_class.state]
            own = np.tile(np.array(words, np.int64), (count, 1))
            if not counts_degrees:
                own[:, 1] = rng.integers(1 << 62, size=count)
            variables[kernel.name, task_class.name] = [*(np.tile(row, (count, *(1,) * row.ndim)) for row in rows), own]
    shared = {
        one.tensor.name: words_of(np.asarray(one.initial), one.tensor.dtype, domain) for one in vmg.program.shared
    }
    return State(variables, dict(shared))


def words_of(values: Array, dtype: DType, domain: Constants) -> IntArray:
    """Numbers as words."""
    words = [domain.constant(_number(value, dtype)) for value in values.ravel().tolist()]
    return np.array(words, np.int64).reshape(values.shape)


def _number(value: float, dtype: DType) -> Fraction | float:
    if not isinstance(value, float):
        return Fraction(int(value))
    return Fraction(math.floor(value * 2**dtype.fraction_bits)) if dtype.is_fixed else value
