"""The protocol of evaluators, and the metrics that they return."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from allo_dse.common.errors import did_you_mean
from allo_dse.common.records import Frozen

if TYPE_CHECKING:
    from allo_dse.mapper.fold.fold_space import Layout
    from allo_dse.space.design import Design, Draft


class Metrics(Mapping[str, Any]):
    """Metrics of one design: a read-only mapping whose entries are also attributes.

    Units are part of the names: `latency_cycles`, `latency_us`, `throughput_gops`, `pe_count`, `utilization` (0 to 1),
    `local_memory_bytes`, `dram_bytes`. `bound` maps a resource to the share of the run time it was busy, `bottleneck`
    names the one with the largest share, and `evaluator` names the evaluator.

        >>> m = Metrics(latency_us=12.5, pe_count=4)
        >>> m.latency_us, m["pe_count"]
        (12.5, 4)
    """

    __slots__ = ("_values",)

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(no_metric(name, self._values)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("metrics are read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Metrics, **self._values), ()

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def no_metric(name: str, metrics: Iterable[str]) -> str:
    """Return the error message for a metric that an evaluator does not report."""
    known = list(metrics)
    return f"no metric {name!r}; {did_you_mean(name, known)}there are {', '.join(known)}"


_COSTS = re.compile(
    r"(?:latency|interval|time|area|power|energy)(?:_\w+)?|\w+_(?:cycles|count|bytes|bits|nj|pj|mw|um2)|lut|ff|dsp|bram18|uram"
)
COST_DIGITS = 9
"""Decimals of a cost that count: the order of a sum must not decide."""


def is_cost(metric: str) -> bool:
    """Return whether a metric is a time or a resource, by its name or unit: less of it is better."""
    return _COSTS.fullmatch(metric) is not None


def total_cost(metrics: Mapping[str, Any]) -> float:
    """Return the sum of the logarithms of all times and resources, to compare designs with equal objective values.

    A design with less of one metric and no more of any other has a smaller total cost.
    """
    values = (value for name, value in metrics.items() if is_cost(name))
    numbers = (value for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    # `log` takes integers that no float can hold, `log1p` does not
    logs = (math.log1p(value) if isinstance(value, float) else math.log(1 + value) for value in numbers if value > 0)
    return round(sum(logs), COST_DIGITS)


@runtime_checkable
class Evaluator(Protocol):
    """Something that measures designs.

    A study's own evaluator needs no base class: any object with these members will do. `evaluate` is called only with
    designs that passed the device checks; whatever it raises costs that one trial.

    Optional members, each with a default for evaluators that lack it (see `needs` and `why_unavailable`):

    * `resource: str | None`: the Ray custom resource a worker must have, such as "npu", "vitis" or "rtl";
    * `deadline_s: float | None`: how long one design may take; implies `isolate`. An isolated evaluator without
      one has a generous one derived from what its designs take; infinity for none;
    * `memory_bytes: int | None`: how much memory one design may use; implies `isolate`;
    * `isolate: bool`: run in a process of its own, so that a crash or `exit` costs that one trial;
    * `quick: bool`: takes milliseconds, so that the search better spends less on each proposal;
    * `noisy: bool`: two measurements of a design differ, so that designs near the best are measured again;
    * `metrics: Collection[str]`: names of all metrics that it may report; a study with others is then rejected at once;
    * `bind(reference)`: is told the study's reference (None if it has none) before the first design;
    * `unavailable() -> str | None`: why it cannot run here and what to install; None when it can.
    """

    name: str
    version: str

    def evaluate(self, design: Design) -> Metrics:
        """Measure one design."""


class Needs(Frozen):
    """The optional members of an evaluator, with defaults for those that it lacks."""

    resource: str | None = None
    deadline_s: float | None = None
    memory_bytes: int | None = None
    isolate: bool = False
    quick: bool = False


def needs(evaluator: Evaluator) -> Needs:
    """Return the requirements of an evaluator on the place where it runs."""
    deadline = getattr(evaluator, "deadline_s", None)
    memory = getattr(evaluator, "memory_bytes", None)
    isolate = bool(getattr(evaluator, "isolate", False)) or deadline is not None or memory is not None
    quick = bool(getattr(evaluator, "quick", False)) and not isolate
    return Needs(getattr(evaluator, "resource", None), deadline, memory, isolate, quick)


def why_unavailable(evaluator: Evaluator) -> str | None:
    """Return the reason why an evaluator cannot run on this machine, and what to install; None if it can."""
    ask = getattr(evaluator, "unavailable", None)
    return ask() if callable(ask) else None


def reported_metrics(evaluator: Evaluator) -> frozenset[str] | None:
    """Return the names of all metrics that an evaluator may report; None if it does not say.

    A class that replaces `evaluate` does not inherit the list.
    """
    kinds = list(type(evaluator).__mro__)
    own = next((kind for kind in kinds if "evaluate" in vars(kind)), object)
    if "evaluate" in getattr(evaluator, "__dict__", {}):
        return None
    stated = next((vars(kind)["metrics"] for kind in kinds[: kinds.index(own) + 1] if "metrics" in vars(kind)), None)
    return frozenset(stated) if isinstance(stated, Collection) else None


def full_name(evaluator: Evaluator) -> str:
    """Return name and version, which identify a result."""
    return f"{evaluator.name} {evaluator.version}"


def versioned(version: str, **options: bool) -> str:
    """Return a version with the names of the active options, because they change results."""
    return " ".join([version, *(name for name, counts in options.items() if counts)])


# Bounds of metrics before evaluation, for searches that prove that no better design exists.


Interval = tuple[float, float]
"""The smallest and the largest possible value of a metric."""

Bounds = Mapping[str, Interval]
"""Intervals by metric; missing metrics have no bounds."""


class Bounding(Protocol):
    """Bounds metrics of designs that have not been evaluated.

    Attributes:
        levels: number of methods, each tighter and more expensive than the one before.
        metrics: the metrics that it bounds.
    """

    levels: int
    metrics: frozenset[str]

    def __call__(self, design: Design, level: int) -> Bounds:
        """Return bounds that hold for the evaluator's metrics of a design.

        Raises:
            AlloDseError: when the design has no bounds.
        """


class RegionBounding(Bounding, Protocol):
    """Bounds metrics of single designs, and of many at once."""

    def of_region(self, draft: Draft, nodes: int, layout: Layout | None) -> Bounds:
        """Return bounds for every design that completes a draft with a fold onto this number of nodes.

        Args:
            layout: number of nodes along each axis; None for any.
        """


def bounding_of(evaluator: Any) -> Bounding | None:
    """Return the bounds that an evaluator declares by its member `bounding()`; None if it declares none.

    Bounds describe the results of `evaluate`, so they hold only for the class that defines both. A subclass, a wrapper,
    an instance with replaced members and a class whose functions were replaced later have no bounds, unless their own
    class defines `bounding`.
    """
    kind = type(evaluator)
    stated = vars(kind)
    own = getattr(evaluator, "__dict__", {})
    if stated.get("bounding") is None or any(callable(getattr(kind, name, None)) for name in own):
        return None
    if any(_is_replaced(kind, name, member) for name, member in stated.items()):
        return None
    found: Bounding | None = evaluator.bounding()
    return found


def _is_replaced(kind: type, name: str, member: Any) -> bool:
    """Return whether a class's function is another one than the class body defines.

    Code keeps the name that it was compiled with, even if a decorator copies names.
    """
    if name == "bounding" or (name.startswith("__") and name != "__init__"):
        return False
    return isinstance(member, FunctionType) and (
        member.__code__.co_qualname != f"{kind.__qualname__}.{name}" or member.__module__ != kind.__module__
    )


class FunctionEvaluator:
    """Measures designs by calling a function.

    Args:
        function: takes a design; returns metrics as a mapping, or one number, which is a metric of the function's name.
            Its attributes `version`, `isolate`, `deadline_s`, `memory_bytes` and `resource` count as an evaluator's.
    """

    def __init__(self, function: Callable[[Design], Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.version = str(getattr(function, "version", "1"))
        self.isolate = bool(getattr(function, "isolate", False))
        self.deadline_s: float | None = getattr(function, "deadline_s", None)
        self.memory_bytes: int | None = getattr(function, "memory_bytes", None)
        self.resource: str | None = getattr(function, "resource", None)

    def evaluate(self, design: Design) -> Metrics:
        """Call the function."""
        found = self.function(design)
        return Metrics(**(found if isinstance(found, Mapping) else {self.name: found}))


def takes_a_design(given: Any) -> bool:
    """Return whether a value is a function of a design, rather than a factory of evaluators."""
    return inspect.isfunction(given) and needed_arguments(given) == 1


def needs_arguments(given: Any) -> bool:
    """Return whether a value is callable, but not without arguments."""
    return callable(given) and needed_arguments(given) > 0


def needed_arguments(given: Callable[..., Any]) -> int:
    """Return the number of positional arguments that a function requires."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # some C functions have no signature
        return 0
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
