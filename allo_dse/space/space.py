"""The space of a study: every legal combination of program parameters, fold and buffering."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from allo_dse.errors import AlloDseError

from .encoding import Gene, KernelOptions, KernelPlan, Suggest, decode_folds, encode_folds, suggest_from
from .kernel_choice import KernelChoice
from .params import Assignment, Parameter, ParameterSpace
from .schedules import Decided, Question, Schedules, every
from .schedules import count as count_schedules


class Structures(Protocol):
    """Programs and their folds, as the search sees them. `MapperStructures` is the real one."""

    max_nodes: int

    def program(self, params: Assignment) -> Any:
        """The program of these parameters; cached."""
        ...

    def choices(self, program: Any) -> Sequence[KernelOptions]:
        """The legal folds of each kernel's axes; cached with the program."""
        ...

    def fold(self, program: Any, plans: Sequence[KernelPlan]) -> Any:
        """The fold of these plans in canonical form, or None when it is not legal as a whole."""
        ...

    def plans(self, fold: Any) -> list[KernelPlan]:
        """The inverse of `fold`."""
        ...

    def folds(self, program: Any) -> Iterator[Any]:
        """Every legal fold of the program."""
        ...

    def fold_count(self, program: Any) -> int:
        """How many folds `folds` yields."""
        ...

    def design(self, program: Any, fold: Any, output_depth: int) -> Any:
        """The design that folds the program this way."""
        ...

    def mapping_source(self, design: Any) -> str:
        """A Python module whose `mapping_primitives()` returns what Allo takes."""
        ...

    def digest(self, program: Any) -> str:
        """Hash of what the program computes and how."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A proposed design, beside the genes it was decoded from.

    Attributes:
        design: a `space.design.Design`.
    """

    genes: dict[str, int]
    params: Assignment
    design: Any

    @property
    def key(self) -> str:
        return str(self.design.key)


class Space:
    """Generates designs; knows how many there are when they are few; reads and writes them as genes.

    Args:
        parameters: the program's parameters.
        structures: compiles programs and folds them.
        output_depths: object FIFO depths of output ports to choose from (1: single buffer, 2: double buffer).
        schedules: decides the schedules of FPGA designs.
        kernels: the kernel libraries of NPU designs to choose from.
    """

    def __init__(
        self,
        parameters: ParameterSpace,
        structures: Structures,
        *,
        output_depths: Sequence[int] = (1, 2),
        schedules: Schedules | None = None,
        kernels: KernelChoice | None = None,
    ) -> None:
        self.parameters = parameters
        self.structures = structures
        self.output_depths = tuple(output_depths)
        self.schedules = schedules
        self.kernels = kernels
        self.genes: dict[str, Gene] = {}  # the range of every gene met so far

    def decode(self, suggest: Suggest) -> Candidate | None:
        """The design the genes describe, or None where a condition of the study or the folding rules forbid it."""
        genes: dict[str, int] = {}

        def ask(name: str, gene: Gene) -> int:
            self.genes[name] = gene
            genes[name] = suggest(name, gene)
            return genes[name]

        def pick(name: str, parameter: Parameter) -> int:
            kind = "ordinal" if parameter.ordered else "categorical"
            return ask(f"param.{name}", Gene(0, len(parameter.values) - 1, kind))

        params = self.parameters.assign(pick)
        if not self.parameters.allows(params):
            return None
        program = self.structures.program(params)
        plans = decode_folds(self.structures.choices(program), ask, self.structures.max_nodes)
        depth = self.output_depths[0]
        if len(self.output_depths) > 1:
            depth = self.output_depths[ask("output_depth", Gene(0, len(self.output_depths) - 1, "categorical"))]
        decided = self._schedule(program, ask)
        library = self._library(program, ask)
        fold = self.structures.fold(program, plans)
        if fold is None:
            return None
        design = self._with_kernels(self.structures.design(program, fold, depth), library)
        return Candidate(genes, params, _scheduled(design, decided))

    def _library(self, program: Any, ask: Suggest) -> str | None:
        if self.kernels is None:
            return None
        return self.kernels.nearest(program, ask("kernels", Gene(0, len(self.kernels.names) - 1, "categorical")))

    def _with_kernels(self, design: Any, library: str | None) -> Any:
        return design if self.kernels is None or library is None else self.kernels.applied(design, library)

    def _libraries(self, program: Any) -> tuple[str | None, ...]:
        """The kernel libraries to choose from; None where there is no choice."""
        return (None,) if self.kernels is None else self.kernels.offered(program)

    def _schedule(self, program: Any, ask: Suggest) -> Decided:
        if self.schedules is None:
            return (), ()

        def answer(question: Question) -> int | str:
            return question.nearest(ask(question.name, question.gene))

        return self.schedules.decide(program, answer)

    def _schedules(self, program: Any) -> Iterator[tuple[Decided, dict[str, int]]]:
        """All schedules of a program, with their genes."""
        return iter([(((), ()), {})]) if self.schedules is None else every(self.schedules, program)

    def decode_genes(self, genes: dict[str, int]) -> Candidate | None:
        """The design of stored genes."""
        return self.decode(suggest_from(genes))

    def encode(self, params: Assignment, fold: Any, output_depth: int, library: str | None = None) -> dict[str, int]:
        """Genes that decode to this design; with the device's own kernels where no library is named."""
        genes = {f"param.{name}": position for name, position in self.parameters.positions(params).items()}
        choices = self.structures.choices(self.structures.program(params))
        genes.update(encode_folds(choices, self.structures.plans(fold)))
        if len(self.output_depths) > 1:
            genes["output_depth"] = self.output_depths.index(output_depth)
        if self.kernels is not None:
            genes["kernels"] = 0 if library is None else self.kernels.names.index(library)
        return genes

    def count(self, limit: int) -> int | None:
        """How many designs the space generates, or None when there are more than `limit`."""
        total = 0
        for programs, params in enumerate(self.parameters.assignments()):
            if programs >= max(1, limit):
                return None
            program = self._compiled(params)
            if program is not None:
                schedules = 1 if self.schedules is None else count_schedules(self.schedules, program, limit)
                total += (
                    self.structures.fold_count(program)
                    * len(self.output_depths)
                    * schedules
                    * len(self._libraries(program))
                )
            if total > limit:
                return None
        return total

    def designs(self) -> Iterator[Candidate]:
        """Every design, program by program; parameters for which the program does not compile have none."""
        for params in self.parameters.assignments():
            program = self._compiled(params)
            for fold in self.structures.folds(program) if program is not None else ():
                for depth, library in itertools.product(self.output_depths, self._libraries(program)):
                    design = self._with_kernels(self.structures.design(program, fold, depth), library)
                    genes = self.encode(params, fold, depth, library)
                    for decided, more in self._schedules(program):
                        yield Candidate({**genes, **more}, params, _scheduled(design, decided))

    def _compiled(self, params: Assignment) -> Any | None:
        try:
            return self.structures.program(params)
        except AlloDseError:
            return None

    @cached_property
    def first_params(self) -> Assignment | None:
        """The first legal assignment, or None when the conditions leave none."""
        return next(self.parameters.assignments(), None)

    def describe(self) -> dict[str, Any]:
        """What decides the meaning of genes, as plain data: runs can only be resumed when it is the same."""
        described: dict[str, Any] = {
            "params": {name: p.describe() for name, p in self.parameters.parameters.items()},
            "output_depths": list(self.output_depths),
            "max_nodes": self.structures.max_nodes,
        }
        if self.schedules is not None:
            described["schedules"] = self.schedules.describe()
        if self.kernels is not None:
            described["kernels"] = list(self.kernels.names)
        return described

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]


def _scheduled(design: Any, decided: Decided) -> Any:
    """The design with a schedule and stream depths; as it is when nothing was decided."""
    schedule, depths = decided
    return replace(design, schedule=schedule, depths=depths) if schedule or depths else design
