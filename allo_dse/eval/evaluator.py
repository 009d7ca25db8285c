"""What an evaluator is, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from ..space.design import Design


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
            raise AttributeError(f"no metric {name!r}; there are {', '.join(self._values)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("metrics are read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self._values),)

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def _rebuild(values: dict[str, Any]) -> Metrics:
    return Metrics(**values)


@runtime_checkable
class Evaluator(Protocol):
    """Something that measures designs.

    A study's own evaluator needs no base class: any object with these members will do. `evaluate` is called only with
    designs that passed the device checks; whatever it raises costs that one trial.
    """

    name: str
    version: str

    def evaluate(self, design: Design) -> Metrics:
        """Measure one design."""
        ...
