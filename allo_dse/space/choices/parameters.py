"""The program's parameters: which values, and so which program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from allo_dse.errors import AlloDseError

from ..choice import Ask, Question, QuestionChoice
from ..design import Design
from ..draft import Draft
from ..gene import Genes
from ..params import Parameter, ParameterSpace
from ..programs import Programs


class ParameterChoice(QuestionChoice):
    """Values of all parameters that are active. Genes: `param.<name>`, the position in the parameter's values."""

    writes = frozenset({"params", "program"})

    def __init__(self, parameters: ParameterSpace, programs: Programs) -> None:
        self._parameters = parameters
        self._programs = programs

    def decide(self, draft: Draft, ask: Ask) -> Draft | None:
        """None where a condition of the study forbids the values.

        Raises:
            AlloDseError: when the program does not compile with them.
        """

        def pick(name: str, parameter: Parameter) -> int:
            return int(ask(Question.position(_gene(name), len(parameter.values), ordered=parameter.ordered)))

        params = self._parameters.assign(pick)
        if not self._parameters.allows(params):
            return None
        return replace(draft, params=params, program=self._programs.load(params))

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        """Parameters for which the program does not compile have none."""
        for params in self._parameters.assignments():
            genes = self._genes(dict(params))
            try:
                yield replace(draft, params=params, program=self._programs.load(params)), genes
            except AlloDseError:
                yield None, genes

    def encode(self, draft: Draft, design: Design) -> Genes:
        return self._genes(dict(design.program.params))

    def _genes(self, params: dict[str, object]) -> Genes:
        return {_gene(name): value for name, value in self._parameters.positions(params).items()}

    def describe(self) -> dict[str, object]:
        return {"params": {name: p.describe() for name, p in self._parameters.parameters.items()}}


def _gene(parameter: str) -> str:
    return f"param.{parameter}"
