"""What an evaluator is, and what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from allo_dse.common.errors import did_you_mean

if TYPE_CHECKING:
    from allo_dse.space.design import Design


class Metrics(Mapping[str, Any]):
    """What an evaluator found out about one design: a read-only mapping whose entries are also attributes.

    Units are part of the names: `latency_cycles`, `latency_us`, `throughput_gops`, `pe_count`, `utilization` (0 to 1),
    `local_memory_bytes`, `dram_bytes`. `bound` maps a resource to the share of the run time it was busy, `bottleneck`
    names the one with the largest share, `evaluator` says who measured.

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
        return _rebuild, (dict(self._values),)

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def no_metric(name: str, metrics: Iterable[str]) -> str:
    """What to say of a metric that an evaluator does not give."""
    known = list(metrics)
    return f"no metric {name!r}; {did_you_mean(name, known)}there are {', '.join(known)}"


def _rebuild(values: dict[str, Any]) -> Metrics:
    return Metrics(**values)


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
    * `bind(reference)`: is told the study's reference (None if it has none) before the first design;
    * `unavailable() -> str | None`: why it cannot run here and what to install; None when it can.
    """

    name: str
    version: str

    def evaluate(self, design: Design) -> Metrics:
        """Measure one design."""
        ...


class Needs(Struct, frozen=True):
    """The optional members of an evaluator, with defaults for those that it lacks."""

    resource: str | None = None
    deadline_s: float | None = None
    memory_bytes: int | None = None
    isolate: bool = False
    quick: bool = False


def needs(evaluator: Evaluator) -> Needs:
    """What an evaluator asks of the place it runs in."""
    deadline = getattr(evaluator, "deadline_s", None)
    memory = getattr(evaluator, "memory_bytes", None)
    isolate = bool(getattr(evaluator, "isolate", False)) or deadline is not None or memory is not None
    quick = bool(getattr(evaluator, "quick", False)) and not isolate
    return Needs(getattr(evaluator, "resource", None), deadline, memory, isolate, quick)


def why_unavailable(evaluator: Evaluator) -> str | None:
    """Why an evaluator cannot run on this machine, with what to install; None when it can."""
    ask = getattr(evaluator, "unavailable", None)
    return ask() if callable(ask) else None


def full_name(evaluator: Evaluator) -> str:
    """Name and version: what a result is known by."""
    return f"{evaluator.name} {evaluator.version}"


def versioned(version: str, **options: bool) -> str:
    """A version that says which options count: results with others are other results."""
    return " ".join([version, *(name for name, counts in options.items() if counts)])
