"""Declaration of a study: program, parameters, device, objectives and constraints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, update_wrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.records import keep, replace
from allo_dse.eval.backend import Asked, Buildable, Placement, backend_of, target
from allo_dse.eval.evaluator import (
    Evaluator,
    FunctionEvaluator,
    Metrics,
    bounding_of,
    needs_arguments,
    reported_metrics,
    takes_a_design,
)
from allo_dse.space.choices.parameters import parameters_of
from allo_dse.space.params import Condition, ParameterSpace
from allo_dse.space.sampler.evolution import check_sizes
from allo_dse.space.space import Candidate, Space

from ..search.lower_bounds import LowerBounds
from ..search.objectives import Constraint, Measure, MetricError, Objective, as_constraint, as_objective
from ..search.promotion import Rung, as_rung
from ..store.record import Record, Verification
from ..store.run_info import error_text, valid_text

if TYPE_CHECKING:
    from allo_dse.device.device import Device
    from allo_dse.eval.target import Target
    from allo_dse.mapper.program import Program
    from allo_dse.space.choice import Choice
    from allo_dse.space.choices.folds import FoldChoice
    from allo_dse.space.choices.parameters import Programs
    from allo_dse.space.design import Design
    from allo_dse.space.genes import Genes

MOST_REBUILT = 64
"""Designs of a log that a study keeps rebuilt: more than fronts usually have."""


@dataclass(frozen=True)
class StudySource:
    """Origin of a loaded study, so that worker processes can load it too.

    Attributes:
        file: path of the study file.
        function: name of the function that returned it, or of the variable that holds it.
        settings: the function's arguments, as text.
    """

    file: str
    function: str
    settings: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the file's full path."""
        return {**vars(self), "file": str(Path(self.file).resolve()), "settings": dict(self.settings)}


class StudySpec:
    """Declaration of a study, without the means to run it; see `Study` for the arguments."""

    def __init__(  # noqa: PLR0913 (a public constructor)
        self,
        name: str,
        *,
        program: Any,
        objectives: Sequence[Objective | Measure],
        params: Mapping[str, Any] | None = None,
        where: Condition | Sequence[Condition] | None = None,
        device: str | Device = "npu1_4col",
        constraints: Sequence[Constraint | Measure] = (),
        reference: Callable[..., Any] | None = None,
        verify_with: Callable[[Any], Mapping[str, Any]] | None = None,
        output_depths: Sequence[int] = (1, 2),
        schedules: str | Sequence[Any] | None = None,
        kernels: Sequence[str] = (),
        evaluator: Evaluator | Callable[[], Evaluator] | Callable[[Design], Any] | None = None,
        check: Callable[[Design], Sequence[Any]] | None = None,
        verifier: Callable[[Design], Verification] | None = None,
        folds: Literal["kernels", "tasks"] | FoldChoice = "kernels",
        extra_choices: Sequence[Choice] = (),
        programs: Programs | None = None,
        trials: int = 500,
        rungs: Sequence[Rung | Evaluator | Callable[[], Evaluator] | Callable[[Design], Any]] = (),
        target: str | None = None,
        sizes: Mapping[str, int] | None = None,
        inputs: Any = None,
        noise: Literal["auto"] | bool = "auto",
    ) -> None:
        self.name = name
        self.program = program
        self.objectives = [as_objective(one) for one in _listed("objectives", objectives)]
        self.constraints = [as_constraint(one) for one in _listed("constraints", constraints)]
        self.parameters = ParameterSpace(params or {}, [where] if callable(where) else _listed("where", where or ()))
        self.reference = _hashable(reference)
        self.inputs = _hashable(inputs)
        self.noise = noise
        self.verify_with = _hashable(verify_with)
        self.output_depths = tuple(output_depths)
        self.schedules = schedules
        self.kernels = tuple(kernels)
        self.trials = trials
        self.rungs = [as_rung(rung) for rung in _listed("rungs", rungs)]
        self.source: StudySource | None = None
        self.reload: Callable[[], StudySpec] | None = None  # loads the study again, in a worker process
        self.target_name = target
        self.sizes = dict(sizes or {})
        check_sizes(self.sizes)
        self.enqueued: list[Genes] = []
        self.attached: dict[str, dict[str, Any] | None] = {}  # metrics by a design's key; None if it failed
        self._device = device
        self._evaluator = evaluator
        self._check = check
        self._verifier = verifier
        self._folds = folds
        self._extra_choices = tuple(extra_choices)
        self._programs = programs
        self._validate()

    def _validate(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise StudyError(f"a study needs a name, not {self.name!r}")
        if not self.objectives:
            raise StudyError(f"study {self.name!r} has no objective", hint='add for example minimize("latency_us")')
        for kind, items, expected in (
            ("objectives", self.objectives, Objective),
            ("constraints", self.constraints, Constraint),
        ):
            for item in items:
                if not isinstance(item, expected):
                    raise StudyError(
                        f"study {self.name!r}: {kind}: {item!r} is none",
                        hint='use minimize("latency_us") or maximize(...) for objectives, require(...) for constraints',
                    )
            names = [item.name for item in items]
            for name in names:
                if names.count(name) > 1:
                    raise StudyError(
                        f"study {self.name!r}: two {kind} are named {name!r}", hint="tell them apart with name="
                    )

    @cached_property
    def device(self) -> Device:
        if not isinstance(self._device, str | Path) and hasattr(self._device, "family"):
            return self._device
        from allo_dse.device.device import Device

        return Device.of(self._device)

    @cached_property
    def programs(self) -> Programs:
        """The programs of all parameters."""
        from allo_dse.space.choices.parameters import CompiledPrograms

        if self._programs is not None:
            return self._programs
        observes = self.inputs is not None or backend_of(self.device).times_control
        return CompiledPrograms(self.program, self._observed if observes else None)

    def _observed(self, program: Program) -> Program:
        """Return a program with its decisions on the study's inputs, or on any if data does not decide."""
        from allo_dse.eval.execute.observation import observed, sets_of

        return observed(program, None if self.inputs is None else sets_of(self.inputs, program))

    @property
    def folds(self) -> FoldChoice:
        """Choice of legal folds of a program.

        Raises:
            StudyError: for an unknown name.
        """
        if not isinstance(self._folds, str):
            return self._folds
        from allo_dse.space.choices.folds import TaskFolds
        from allo_dse.space.choices.kernel_folds import KernelFolds

        if self._folds == "tasks":
            return TaskFolds(self.device)
        if self._folds != "kernels":
            raise StudyError(f"study {self.name!r}: folds={self._folds!r}", hint="one of kernels, tasks")
        return KernelFolds(self.device, None if self._check else self.target.respell)

    @cached_property
    def target(self) -> Target:
        """Target that builds the winner.

        Raises:
            AlloDseError: when there is no such target for the device.
        """
        return target(self.target_name, self.device)

    @property
    def asked(self) -> Asked:
        """The choices beside parameters and folds."""
        # An evaluator of the study's own need not look at schedules: they would be genes without effect.
        schedules = () if self.schedules is None and self._evaluator else self.schedules
        return Asked(self.output_depths, schedules, self.kernels)

    def advice(self, program: Program) -> str:
        """Return a hint about choices that the study leaves out; empty if there is none."""
        return backend_of(self.device).advice(self.asked, program)

    @cached_property
    def space(self) -> Space:
        """All designs the study may choose from."""
        from allo_dse.space.choices.parameters import ParameterChoice
        from allo_dse.space.design import Draft

        offered = backend_of(self.device).choices(self.asked, self.target, self.device)
        builder = None if self._check else Buildable(self.target, self.device, offered.buffering)
        parameters = ParameterChoice(self.parameters, self.programs, builder)
        choices: list[Choice] = [parameters, *offered.before, self.folds, *offered.after]
        for one in self._extra_choices:
            if not hasattr(one, "decode"):
                raise StudyError(f"extra_choices: {one!r} is not a choice", hint="docs/architecture.md has an example")
        return Space(Draft(self.device), [*choices, *self._extra_choices])

    def candidate(self, record: Record) -> Candidate:
        """Rebuild a design from a log. The latest ones are cached with all values derived from them.

        Raises:
            StudyError: when it is not in the study's space any more.
        """
        if (known := self._rebuilt.get(record.key)) is not None:
            return known
        # If conditions have changed, genes may mean another design. Then try the recorded parameters as well.
        parameters = parameters_of(self.space)
        logged = parameters.recorded(record.params) if parameters else None
        for genes in (record.genes, {**record.genes, **(logged or {})}):
            found = self.space.decode_genes(genes)
            if found is not None and found.key == record.key:
                return keep(self._rebuilt, record.key, found, MOST_REBUILT)
        hint = "conditions on its parameters (`where=`, `when=`) have changed, or its program: begin anew (fresh)"
        raise StudyError(f"design {record.key} is not in the study's space any more", hint=hint)

    @cached_property
    def _rebuilt(self) -> dict[str, Candidate]:
        return {}

    @cached_property
    def answers(self) -> Callable[..., object] | None:
        """The reference, with a cache of its latest results."""
        from allo_dse.eval.golden_data import remembered

        return None if self.reference is None else remembered(self.reference)

    def make_evaluator(self) -> Evaluator:
        """Return the first rung's evaluator, a new one if the study has a function that makes it."""
        if self._evaluator is None:
            return backend_of(self.device).evaluator(self.device)
        return self._made(self._evaluator)

    def make_evaluators(self) -> list[Evaluator]:
        """The evaluators of all rungs, the cheapest first; noisy ones repeat measurements."""
        from ..search.repeats import Repeating

        made = [self.make_evaluator(), *(self._made(rung.evaluator) for rung in self.rungs)]
        noisy = [getattr(one, "noisy", False) if self.noise == "auto" else self.noise for one in made]
        return [
            Repeating(one, self.objectives, self.constraints) if repeats else one
            for one, repeats in zip(made, noisy, strict=True)
        ]

    def check_metric_names(self, evaluators: Sequence[Evaluator]) -> None:
        """Compare the metrics that objectives and constraints read with those that evaluators report, if they say.

        Raises:
            StudyError: for a metric that no evaluator reports.
        """
        reported = [reported_metrics(evaluator) for evaluator in evaluators]
        names = frozenset[str]().union(*(found for found in reported if found is not None))
        if None in reported:
            return
        any_values = Metrics(**dict.fromkeys(sorted(names), 1.0))
        for compute in (*(o.value for o in self.objectives), *(c.violation for c in self.constraints)):
            try:
                compute(any_values)
            except MetricError as error:  # other errors may come from the value
                if ": no metric " in str(error):
                    raise StudyError(f"study {self.name!r}: {error}") from error

    def measured_by(self, evaluator: Evaluator | Callable[[], Evaluator] | Callable[[Design], Any]) -> None:
        """Take another evaluator of every design than was declared."""
        self._evaluator = evaluator

    def _made(self, given: Any) -> Evaluator:
        """Return an evaluator, bound to the study's reference if it has a method `bind`."""
        if takes_a_design(given):
            return FunctionEvaluator(given)
        ready = hasattr(given, "evaluate") and not isinstance(given, type)
        if not ready and needs_arguments(given):
            hint = "lambda design: ... for what takes a design; lambda: ... for what makes an evaluator with arguments"
            raise StudyError(f"evaluator={given!r} needs arguments", hint=hint)
        made: Any = given if ready or not callable(given) else given()
        if not all(hasattr(made, member) for member in ("name", "version", "evaluate")):
            hint = "a function of a design, or an object with name, version and evaluate(design)"
            raise StudyError(f"{made!r} is not an evaluator", hint=hint)
        if callable(bind := getattr(made, "bind", None)):
            bind(self.reference)
        evaluator: Evaluator = made
        return evaluator

    def lower_bounds(self, evaluator: Evaluator | None) -> LowerBounds:
        """Return lower bounds of the objectives, as an evaluator of every design will find them.

        Nothing is known without an evaluator. With rungs above the first nothing is known either, because their
        measurements change the predictions.
        """
        bounding = None if self.rungs or evaluator is None else bounding_of(evaluator)
        return LowerBounds(self.objectives, self.constraints, bounding)

    def check(self, design: Design) -> Sequence[Any]:
        """Return the device limits that a design breaks."""
        if self._check is not None:
            return self._check(design)
        return self.target.check(design.mapping)

    def check_soon(self, design: Design) -> Sequence[Any]:
        """Return the broken limits that are cheapest to check."""
        return () if self._check is not None else self.target.check_soon(design.mapping)

    def verify(self, design: Design, seed: int = 0) -> Verification:
        """Run a design and compare its numbers with the reference, and its function with that of its program.

        Raises:
            StudyError: when the reference fails for every design.
        """
        from allo_dse.eval.verify import verify_and_prove

        try:
            if self._verifier is not None:
                result = self._verifier(design)
            else:
                found = verify_and_prove(
                    design, reference=self.reference, verify_with=self.verify_with, inputs=self.inputs, seed=seed
                )
                result, most = Verification(found.ok, found.message, found.seconds, kind=found.kind), found.largest
                if most is not None:
                    result = replace(result, error=most.error, tolerance=most.bound, place=most.place)
        except (KeyboardInterrupt, StudyError):
            raise
        except BaseException as error:  # a design that cannot be run is not verified
            result = Verification(False, error_text(error), 0.0, kind="not run")
        return replace(result, message=valid_text(result.message), against=self.against)

    def prove(self, design: Design, seed: int = 0, exported: Path | None = None) -> Verification:
        """Decide whether a design and its program are `allo_dse.equivalent` for all inputs.

        Args:
            exported: folder of an exported design; its program and mapping are compared instead.

        Raises:
            Undecidable: if data decides on more than values.
        """
        from allo_dse.eval.verify import prove_design

        found = prove_design(
            design, verify_with=self.verify_with, inputs=self.inputs, seed=seed, always=True, exported=exported
        )
        return Verification(found.ok, found.message, found.seconds)

    def place(self, design: Design) -> Placement | None:
        """Return the places of a design's nodes, or why there are none; None when its device has no places."""
        backend = backend_of(design.device)
        return backend.place(design.mapping) if backend.has_places else None

    def fingerprint(self) -> tuple[str, str]:
        """Return digests of the program and of the device.

        The program is identified by its compiled form for the first parameters and by its function, which determines
        it for all others.

        Raises:
            StudyError: when no parameters are legal.
            AlloDseError: when the program does not compile.
        """
        source = self._program_digest  # read before the program runs
        return f"{self.first_program().digest} {source}", f"{self.device.name} {self.device.key}"

    @cached_property
    def _program_digest(self) -> str:
        """Digest of the program's function, computed once: its execution may change values that it refers to."""
        return _digest(self.program)

    @cached_property
    def against(self) -> str:
        """Digest of the functions and inputs that decide whether a design is right, computed once."""
        return _digest([self.reference, self.verify_with, self.inputs, self._verifier])

    def first_program(self) -> Program:
        """The program of the first parameters with which it compiles.

        Raises:
            StudyError: when no parameters are legal.
            AlloDseError: when the program compiles with none of the first parameters; the error of the very first.
        """
        problem: AlloDseError = StudyError(
            f"study {self.name!r}: no parameters satisfy its conditions", hint="loosen `where=`"
        )
        for number, params in enumerate(islice(self.parameters.assignments(), _MOST_COMPILED)):
            try:
                return self.programs.load(params)
            except AlloDseError as error:
                problem = problem if number else error
        raise problem

    def __getstate__(self) -> dict[str, Any]:
        """Return the declaration for workers, without compiled programs."""
        return {name: value for name, value in self.__dict__.items() if name not in _DERIVED}


_MOST_COMPILED = 64
"""Parameters that are compiled until one is legal for the program."""
_DERIVED = ("space", "device", "programs", "folds", "target", "_rebuilt", "answers")
"""Attributes derived on demand, and anew in each worker."""


def _listed(name: str, given: Any) -> Sequence[Any]:
    """Return an argument as a list; reject a single element."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise StudyError(f"Study(..., {name}={given!r}) is not a list", hint=f"{name}=[...], also of one")
    return list(given)


def _digest(value: Any) -> str:
    from .function_text import identity_text  # imported late: it imports the front end

    return hashlib.sha256(identity_text(value).encode()).hexdigest()[:16]


def _hashable(given: Any) -> Any:
    """Return a function that can be the key of a cache: itself, or one that calls it."""
    if not callable(given) or type(given).__hash__ is not None:
        return given
    return update_wrapper(partial(given), given)
