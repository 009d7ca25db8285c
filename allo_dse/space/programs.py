"""The programs of a study, one per assignment of its parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

from allo_dse.mapper.program import Program, load_program

from .params import Assignment, plain_value


class Programs(Protocol):
    """Makes programs and tells them apart."""

    def load(self, params: Assignment) -> Program:
        """The program of these parameters; cached."""
        ...

    def digest(self, program: Program) -> str:
        """Hash of what the program computes and how."""
        ...


class CompiledPrograms:
    """Compiles the program once per assignment of its parameters.

    Args:
        source: a region, or a function of the parameters that returns one.
        completed: adds to a program what is to be known of it, such as its runs on inputs.
    """

    def __init__(self, source: Any, completed: Callable[[Program, Assignment], Program] | None = None) -> None:
        self._source = source
        self._completed = completed
        self._programs: dict[tuple[tuple[str, str], ...], Program] = {}

    def load(self, params: Assignment) -> Program:
        """The compiled program of these parameters."""
        key = tuple((name, plain_value(value)) for name, value in params.items())
        if key not in self._programs:
            program = load_program(self._source, **params)
            self._programs[key] = program if self._completed is None else self._completed(program, params)
        return self._programs[key]

    def digest(self, program: Program) -> str:
        """Hash of the compiled program: its tensors, streams, meshes and the code of every task class."""
        parts = [
            repr((program.name, program.tensors)),
            repr([(s.name, s.dtype, s.block, s.shape) for s in program.streams]),
        ]
        for kernel in program.kernels:
            parts.append(repr((kernel.name, kernel.mesh, kernel.class_table.tolist())))
            parts += [cls.body.mlir for cls in kernel.classes]
        parts += [run.digest for run in program.runs]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
