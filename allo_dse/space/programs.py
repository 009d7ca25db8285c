"""The programs of a study, one per assignment of its parameters."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

from allo_dse.compiler.program.compiled import CompiledProgram, Watch
from allo_dse.mapper.program import Program, load_watched

from .params import Assignment, plain_value

_Key = tuple[tuple[str, str], ...]


def _key(params: Assignment) -> _Key:
    return tuple((name, plain_value(value)) for name, value in params.items())


class Programs(Protocol):
    """Makes programs."""

    def load(self, params: Assignment, watch: Watch | None = None) -> Program:
        """Return the program of these parameters; cached.

        Args:
            watch: inspects it while it is compiled, and may stop the compilation.

        Raises:
            ProgramError: when it is wrong.
            Hopeless: when `watch` stops its compilation.
        """
        ...

    def pack(self, program: Program) -> bytes | None:
        """Return a program for another process of the same run; None if that process must make it itself."""
        ...

    def unpack(self, params: Assignment, packed: bytes) -> None:
        """Take over the program of these parameters, once it is asked for."""
        ...


class CompiledPrograms:
    """Compiles the program once per assignment of its parameters.

    Args:
        source: a region, or a function of the parameters that returns one.
        completed: adds further facts to a program, such as its runs on inputs.
    """

    def __init__(self, source: Any, completed: Callable[[Program], Program] | None = None) -> None:
        self._source = source
        self._completed = completed
        self._programs: dict[_Key, Program] = {}
        self._packed: dict[_Key, bytes] = {}

    def load(self, params: Assignment, watch: Watch | None = None) -> Program:
        """The compiled program of these parameters."""
        key = _key(params)
        if key not in self._programs:
            packed = self._packed.pop(key, None)
            known = None if packed is None else Program.of(pickle.loads(packed), self._source)
            self._programs[key] = known or self._compiled(params, watch)
        return self._programs[key]

    def _compiled(self, params: Assignment, watch: Watch | None) -> Program:
        program = load_watched(self._source, params, watch)
        return program if self._completed is None else self._completed(program)

    def pack(self, program: Program) -> bytes | None:
        """Return the compiled program without its source; None if parameters are objects that cannot be sent."""
        try:
            return pickle.dumps(CompiledProgram(**program.compiled_fields), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError):
            return None

    def unpack(self, params: Assignment, packed: bytes) -> None:
        """Take over a program compiled by another process, which is ten times as fast as compiling it."""
        key = _key(params)
        if key not in self._programs:
            self._packed[key] = packed
