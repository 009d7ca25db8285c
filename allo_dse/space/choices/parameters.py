"""Values of the program's parameters, and thereby the program: one per assignment of the parameters."""

from __future__ import annotations

import itertools
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from allo_dse.common.errors import AlloDseError, ProgramError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram, Watch
from allo_dse.mapper.program import Program, load_watched

from ..choice import Ask, Question, QuestionChoice
from ..design import Design, Draft
from ..genes import Genes
from ..params import Assignment, Parameter, ParameterSpace, plain_value
from ..space import Space

MOST_BYTES = 256 << 20  # of packed programs kept for sending; workers compile the rest themselves


def parameters_of(space: Space) -> ParameterChoice | None:
    """Return the choice of parameters of a space, if any."""
    return next((choice for choice in space.choices if isinstance(choice, ParameterChoice)), None)


def meanings(space: Space) -> list[Meaning]:
    """Return the programs found in this process since the last call."""
    choice = parameters_of(space)
    return [] if choice is None else choice.meanings()


def learn(space: Space, found: Iterable[Meaning]) -> None:
    """Take over programs found by other processes."""
    choice = parameters_of(space)
    if choice is not None:
        choice.learn(found)


class SharedPrograms:
    """The programs that this process has compiled, and those that each worker has.

    Args:
        space: the space of this process, whose programs are sent to the workers.
    """

    def __init__(self, space: Space) -> None:
        self._space, self._choice = space, parameters_of(space)
        self._meanings: dict[Positions, Meaning] = {}
        self._bytes = 0
        self._sent: dict[object, set[Positions]] = defaultdict(set)

    def needed(self, worker: object, designs: Iterable[Genes]) -> list[Meaning]:
        """Return the programs of designs that a worker has not been sent yet."""
        if self._choice is None:
            return []
        for meaning in meanings(self._space):
            if self._bytes + len(meaning.program) <= MOST_BYTES:
                self._meanings[meaning.wanted] = meaning
                self._bytes += len(meaning.program)
        found, sent = [], self._sent[worker]
        for genes in designs:
            wanted = self._choice.wanted(genes)
            if wanted in self._meanings and wanted not in sent:
                sent.add(wanted)
                found.append(self._meanings[wanted])
        return found

    def forget(self, worker: object) -> None:
        """Note that another process has taken a worker's place."""
        self._sent.pop(worker, None)


MOST_TRIED = 256
"""Most neighbours that are tried for an assignment that cannot be built."""


Positions = tuple[int, ...]
"""Positions in the values of all free parameters, in the order of the parameters."""


class Meaning(NamedTuple):
    """The program that genes stand for, passed to other processes to save them the work."""

    wanted: Positions
    found: Positions
    program: bytes


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


class Builder(Watch, Protocol):
    """The target that designs are built by. It may reject a program during compilation.

    Attributes:
        name: the name of the target whose rules it checks.
    """

    @property
    def name(self) -> str: ...

    def program(self, program: Program) -> None:
        """Check that a program has designs that can be built.

        Raises:
            Hopeless: when there is none.
        """
        ...

    def rewrites(self, program: Program) -> list[str]:
        """Return why a program has none, and what to write instead, one text per reason."""
        ...


class _Size(NamedTuple):
    """Stops the compilation of programs with too many tasks only."""

    builder: Builder

    def tasks(self, count: int) -> None:
        self.builder.tasks(count)

    def ports(self, ports: object) -> None: ...


class ParameterChoice(QuestionChoice):
    """Values of all active parameters. Genes: `param.<name>`, the position in the parameter's values.

    Genes of a program that cannot be built stand for the nearest one that can. Distance counts steps of positions; any
    other value of an unordered parameter is one step away.

    Args:
        parameters: those to choose, with their conditions.
        builder: rejects programs without designs that can be built; None when all may have some.
    """

    writes = frozenset({"params", "program"})

    def __init__(
        self,
        parameters: ParameterSpace,
        programs: Programs,
        builder: Builder | None = None,
    ) -> None:
        self.parameters = parameters
        self._programs = programs
        self._builder = builder
        self._refused: dict[tuple[tuple[str, int], ...], AlloDseError] = {}
        self._free = tuple(parameters.free)
        self._questions = {
            name: Question.position(_gene(name), parameter.values, ordered=parameter.ordered)
            for name, parameter in parameters.free.items()
        }
        self._repaired: dict[Positions, Draft | None] = {}
        self._made: dict[Positions, Draft] = {}  # since the last call of `meanings`
        self._known: set[Positions] = set()
        self._shared: dict[Positions, Meaning] = {}

    def decide(self, draft: Draft, ask: Ask) -> Draft | None:
        """Return the draft with its program, or None if a condition of the study forbids the values.

        Raises:
            AlloDseError: when the program does not compile with them.
        """
        params, wanted = self._asked(ask)
        key = tuple(wanted.values())
        return self._noted(key, self._meant(draft, params, wanted, key))

    def _asked(self, ask: Ask) -> tuple[Assignment, dict[str, int]]:
        wanted = dict.fromkeys(self._free, 0)

        def pick(name: str, parameter: Parameter) -> int:
            wanted[name] = int(ask(self._questions[name]))
            return wanted[name]

        return self.parameters.assign(pick), wanted

    def _probed(self, draft: Draft, ask: Ask) -> Draft | None:
        params, _ = self._asked(ask)
        return self._decided(draft, params) if self.parameters.allows(params) else None

    def _noted(self, key: Positions, decided: Draft | None) -> Draft | None:
        if decided is not None and key not in self._known:
            self._known.add(key)
            self._made[key] = decided
        return decided

    def _meant(self, draft: Draft, params: Assignment, wanted: Mapping[str, int], key: Positions) -> Draft | None:
        shared = self._shared.pop(key, None)
        if shared is not None:
            params = self._params_at(dict(zip(self._free, shared.found, strict=True)))
            self._programs.unpack(params, shared.program)
            self._repaired[key] = replace(draft, params=params, program=self._programs.load(params))
        if self._builder is not None and key not in self._repaired:
            self._repaired[key] = self._nearest(draft, wanted)
        found = self._repaired.get(key)
        if found is not None:
            return replace(draft, params=found.params, program=found.program)
        if not self.parameters.allows(params):
            return None
        size = None if self._builder is None else _Size(self._builder)
        return replace(draft, params=params, program=self._programs.load(params, size))

    def _params_at(self, positions: Mapping[str, int]) -> Assignment:
        return self.parameters.assign(lambda name, _: positions[name])

    def wanted(self, genes: Genes) -> Positions:
        """Return the positions that the genes of a design ask for."""
        return tuple(genes.get(_gene(name), 0) for name in self._free)

    def meanings(self) -> list[Meaning]:
        """Return the programs found since the last call, as far as they can be sent to others."""
        made, self._made = self._made, {}
        found = []
        for wanted, draft in made.items():
            packed = self._programs.pack(draft.compiled)
            if packed is not None:
                found.append(Meaning(wanted, self.wanted(self._genes(dict(draft.params))), packed))
        return found

    def learn(self, meanings: Iterable[Meaning]) -> None:
        """Take over the findings of other processes, for genes not yet decoded here."""
        for meaning in meanings:
            if meaning.wanted not in self._known:
                self._known.add(meaning.wanted)
                self._shared[meaning.wanted] = meaning

    def _nearest(self, draft: Draft, wanted: Mapping[str, int]) -> Draft | None:
        """Return the nearest program that can be built, or None when there is none near."""
        for positions in itertools.islice(nearest_first(wanted, self.parameters.free), MOST_TRIED):
            params = self._params_at(positions)
            found = self._decided(draft, params) if self.parameters.allows(params) else None
            if found is not None:
                return found
        return None

    def _decided(self, draft: Draft, params: Assignment) -> Draft | None:
        """Return the draft with these parameters, or None if its program cannot be compiled or built."""
        key = tuple(self.parameters.positions(params).items())
        if key in self._refused:
            return None
        try:
            program = self._programs.load(params, self._builder)
            if self._builder is not None:
                self._builder.program(program)
        except AlloDseError as error:
            self._refused[key] = error
            return None
        return replace(draft, params=params, program=program)

    @property
    def none_built(self) -> bool:
        """No genes have led to a program so far."""
        return bool(self._repaired) and not any(self._repaired.values())

    @property
    def refused(self) -> list[list[str]]:
        """Reasons why programs were left out, the most frequent first.

        Reasons that differ in numbers only are grouped.
        """
        return _alike(error.message for error in self._refused.values())

    def rewrites(self) -> tuple[dict[str, object], list[str]]:
        """Return what to rewrite of the program with the fewest reasons against it, and its free parameters.

        The first and the last program that each kind of reason refused are compared; without any, both are empty.
        """
        kinds: dict[str, list[tuple[tuple[str, int], ...]]] = {}
        for key, error in self._refused.items():
            kinds.setdefault(_kind(error.message), []).append(key)
        found = []
        for key in dict.fromkeys(key for alike in kinds.values() for key in (alike[0], alike[-1])):
            params = self._params_at(dict(key))
            assert self._builder is not None  # or nothing is refused
            with suppress(AlloDseError):
                reasons = self._builder.rewrites(self._programs.load(params, _Size(self._builder)))
                found.append(({name: params[name] for name in self._free if name in params}, reasons))
        return min(found, key=lambda one: len(one[1]), default=({}, []))

    @property
    def wrong(self) -> list[list[str]]:
        """Reasons why programs do not compile, grouped likewise."""
        return _alike(e.message for e in self._refused.values() if isinstance(e, ProgramError))

    def options(self, draft: Draft) -> Iterator[tuple[Draft | None, Genes]]:
        """Yield all options, None for parameters whose program does not compile or cannot be built."""
        for params in self.parameters.assignments():
            genes = self._genes(dict(params))
            yield self._noted(self.wanted(genes), self._decided(draft, params)), genes

    def encode(self, draft: Draft, design: Design) -> Genes:
        return self._genes(dict(design.program.params))

    def recorded(self, logged: Mapping[str, object]) -> Genes | None:
        """Return the genes of logged parameters; None if they are no longer legal."""
        params = self.parameters.recorded(logged)
        return None if params is None else self._genes(dict(params))

    def _genes(self, params: dict[str, object]) -> Genes:
        return {_gene(name): value for name, value in self.parameters.positions(params).items()}

    def describe(self) -> dict[str, object]:
        found: dict[str, object] = {"params": {name: p.describe() for name, p in self.parameters.parameters.items()}}
        return found if self._builder is None else {**found, "builder": self._builder.name}


def _alike(reasons: Iterable[str]) -> list[list[str]]:
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault(_kind(reason), []).append(reason)
    return sorted(kinds.values(), key=len, reverse=True)


def _kind(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "", reason)


def _gene(parameter: str) -> str:
    return f"param.{parameter}"


def nearest_first(start: Mapping[str, int], parameters: Mapping[str, Parameter]) -> Iterator[dict[str, int]]:
    """Yield all positions of parameters, those fewest steps away first.

    A step moves an ordered parameter one value up or down, and any other parameter to any value.
    """
    seen, ring = {tuple(start.values())}, [dict(start)]
    while ring:
        yield from ring
        following = []
        for positions in ring:
            for name, parameter in parameters.items():
                own, last = positions[name], len(parameter.values) - 1
                others = (own - 1, own + 1) if parameter.ordered else range(last + 1)
                for other in others:
                    moved = {**positions, name: other}
                    if 0 <= other <= last and (key := tuple(moved.values())) not in seen:
                        seen.add(key)
                        following.append(moved)
        ring = following
