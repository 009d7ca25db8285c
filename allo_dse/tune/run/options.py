"""Options of a run, defined once for `Study.run` and `allo-tune`."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from allo_dse.common.errors import StudyError, did_you_mean

from ..search.budget import Budget, parse_duration, parse_share
from ..search.objectives import Objective

P = ParamSpec("P")
S = TypeVar("S")
Options = TypeVar("Options")
R = TypeVar("R")
SEEDS = 1 << 31  # limit of all generators, with room to add the number of trials
MOST_WORKERS = 4096  # more than the processors of any cluster this was tried on
SEARCH_SHARE = 0.6  # of a time budget, if expensive evaluators follow


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    Args:
        trials: Designs to evaluate in all, those of earlier runs included.
        time: Time budget of this run: seconds, or 90s, 5m, 1h30m.
        target: Values that one design must reach to end the run, by objective; `--target latency_us=100`.
        patience: End the search after this number of trials without a better design.
        gap: End the search when no design can be better than the best by more than this share (5%), proven by bounds.
        workers: 1 evaluates in this process, more in worker processes. [default: 1; with a Ray cluster one per CPU]
        seed: Same seed and one worker: same trials. [default: the earlier run's, or 0]
        sampler: auto, exact, evolution, random, nsga2, tpe or exhaustive; from Python also an Optuna sampler.
        initial: Designs that "evolution" draws at random to begin with. [default: 12]
        population: Designs that "evolution" keeps as parents. [default: 8 with one objective, else 16]
        children: Designs that "evolution" proposes before it looks at their results. [default: 4]
        modelled: First designs that a model chooses among many children. [default: 64 with our simulators, else 256]
        warm_start: Run of the same program, also of another size or device, whose best designs are evaluated first.
        run_dir: Where log and results go. [default: runs/<study>]
        fresh: Discard an earlier run in that directory.
        verify: Run the designs of the final front and compare their numbers.
        export: Write the best design for each objective as a folder to build from.
        ray_address: Use the workers of a running Ray cluster.
        progress: auto, live, notebook, plain, json, quiet, or a `Reporter`.
        command: The command line, to be shown where a run can be resumed.
        cache: Results shared with other runs. [default: runs/.results, none with a run directory of its own]
        storage: Copy trials to an Optuna storage: postgresql://..., sqlite:///FILE, journal, journal:FILE.
        deadline: How long one design may take, at one evaluator or all, in a process of its own. [default: as the
            evaluators say]

    Raises:
        StudyError: for options that leave nothing to do.
    """

    trials: int | None = None
    _: KW_ONLY
    time: str | float | None = None
    target: Mapping[str, float] | None = None
    patience: int | None = None
    gap: str | float | None = None
    workers: int | None = None
    seed: int | None = None
    sampler: Any = "auto"
    initial: int | None = None
    population: int | None = None
    children: int | None = None
    modelled: int | None = None
    warm_start: str | Path | None = None
    run_dir: str | Path | None = None
    fresh: bool = False
    verify: bool = True
    export: bool = True
    ray_address: str | None = None
    progress: Any = "auto"
    command: Sequence[str] = ()
    cache: str | Path | Literal[False] | None = None
    storage: str | None = None
    deadline: str | float | Mapping[str, str | float] | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "workers", "seed", "patience"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
                raise StudyError(f"{name}={value!r} is not a whole number")
        if self.workers is not None and self.workers < 1:
            raise StudyError(f"{self.workers} workers cannot work", hint="--workers 1 evaluates in this process")
        if self.workers is not None and self.workers > MOST_WORKERS:
            raise StudyError(f"{self.workers:,} workers are too many", hint=f"at most {MOST_WORKERS:,}")
        if self.trials is not None and self.trials < 1:
            raise StudyError(f"a budget of {self.trials} trials leaves nothing to do")
        if self.patience is not None and self.patience < 1:
            raise StudyError(f"a patience of {self.patience} trials leaves nothing to do")
        if self.gap is not None:
            parse_share(self.gap)
        if self.seed is not None and not 0 <= self.seed < SEEDS:
            raise StudyError(f"seed {self.seed} cannot be used", hint=f"choose one from 0 to {SEEDS - 1}")
        from ..search.proposals import SAMPLERS

        own = hasattr(self.sampler, "sample_independent") and not isinstance(self.sampler, type)
        if not (self.sampler in SAMPLERS if isinstance(self.sampler, str) else own):
            raise StudyError(
                f"unknown sampler {self.sampler!r}",
                hint=f"{did_you_mean(str(self.sampler), SAMPLERS)}one of {', '.join(SAMPLERS)}, or an Optuna sampler "
                "object",
            )
        if self.sizes:
            from allo_dse.space.sampler.evolution import check_sizes

            check_sizes(self.sizes)
        if self.storage is not None:
            from .optuna_storage import check_address

            check_address(self.storage)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the sampler that were given."""
        return {
            name: size
            for name in ("initial", "population", "children", "modelled")
            if (size := getattr(self, name)) is not None
        }

    @property
    def inline(self) -> bool:
        """True if this process evaluates: then nothing depends on which worker is ready first."""
        return self.workers in (None, 1) and self.ray_address is None

    @property
    def deadlines(self) -> Mapping[str, str | float]:
        """Deadlines by an evaluator's name, or under "" for all."""
        if isinstance(self.deadline, Mapping):
            return self.deadline
        return {} if self.deadline is None else {"": self.deadline}

    def budget(self, trials: int, objectives: Sequence[Objective] = (), *, has_rungs: bool) -> Budget:
        """Return the budget of a run that starts now.

        Args:
            trials: limit of a run that sets neither trials nor time.
            has_rungs: whether to reserve some of the time for rungs above the first.

        Raises:
            StudyError: for a target of something else than an objective.
        """
        seconds = None if self.time is None else parse_duration(self.time)
        wanted = trials if self.trials is None and seconds is None else self.trials
        names = {objective.name: objective.sign for objective in objectives}
        for name in self.target or ():
            if name not in names:
                raise StudyError(f"target {name!r} is no objective of the study", hint=f"one of {', '.join(names)}")
        target = (
            [s * self.target[n] if n in self.target else math.inf for n, s in names.items()] if self.target else None
        )
        gap = None if self.gap is None else parse_share(self.gap)
        return Budget(wanted, seconds, SEARCH_SHARE if has_rungs else 1.0, target, self.patience, gap)

    @classmethod
    def help(cls) -> dict[str, str]:
        """Return the description of each option, by name, from the docstring above."""
        entries = inspect.cleandoc(cls.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
        found: dict[str, str] = {}
        for line in inspect.cleandoc(entries).splitlines():
            if line.startswith(" "):
                name, text = found.popitem()
                found[name] = f"{text} {line.strip()}"
            else:
                name, _, text = line.partition(": ")
                found[name] = text
        return found


def method(run: Callable[[S, Options], R], options: Callable[P, Options]) -> Callable[Concatenate[S, P], R]:
    """Turn a function of an object and its options into a method that takes the options one by one.

    Args:
        options: makes the options; the method gets the documentation of its arguments.
    """

    def taking(self: S, /, *args: P.args, **named: P.kwargs) -> R:
        return run(self, options(*args, **named))

    functools.update_wrapper(taking, run)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(run)
    taking.__signature__ = signature.replace(parameters=[own, *inspect.signature(options).parameters.values()])  # type: ignore[attr-defined]
    summary, _, rest = inspect.cleandoc(run.__doc__ or "").partition("\n\n")
    arguments = inspect.cleandoc(options.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    taking.__doc__ = f"{summary}\n\nArgs:\n{arguments}\n\n{rest}"
    return taking
