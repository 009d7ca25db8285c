"""Schedules: what `df.customize(region)` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .diagnostics import ProgramError
from .targets import builder_of

DEFAULT_TARGET = "llvm"


@dataclass(frozen=True)
class Primitive:
    """One customization: its name and arguments as the program gave them."""

    name: str
    args: tuple[object, ...]
    options: tuple[tuple[str, object], ...]


@dataclass
class Schedule:
    """A region and the customizations applied to it, in order.

    They do not change results; the cost model and the code generators read them.
    """

    region: object
    primitives: list[Primitive] = field(default_factory=list)

    def partition(self, target: str, dim: int = 0, factor: int = 0, partition_type: object = "complete") -> None:
        """Split an array `"region:name"` into banks along dimension `dim` (1-based; 0: all dimensions)."""
        self._record("partition", target, dim=dim, factor=factor, partition_type=str(partition_type))

    def pipeline(self, axis: str, initiation_interval: int = 1, rewind: bool = False) -> None:
        """Pipeline the loop `axis`."""
        self._record("pipeline", axis, initiation_interval=initiation_interval, rewind=rewind)

    def unroll(self, axis: str, factor: int = 0) -> None:
        """Unroll the loop `axis` (factor 0: completely)."""
        self._record("unroll", axis, factor=factor)

    def build(self, target: str = DEFAULT_TARGET, **options: Any) -> Any:
        """Build for `target`; see `df.build`."""
        return builder_of(target)(self.region, schedule=self, **options)

    def _record(self, name: str, *args: object, **options: object) -> None:
        self.primitives.append(Primitive(name, args, tuple(sorted(options.items()))))

    def __getattr__(self, name: str) -> str:
        """`s.A` names the argument `A` of the region, as in `s.partition(s.A, dim=1)`."""
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(self.region, "function", self.region)
        code = getattr(function, "__code__", None)
        if code is not None and name in code.co_varnames[: code.co_argcount]:
            return f"{getattr(function, '__name__', code.co_name)}:{name}"
        raise ProgramError(f"unknown schedule primitive {name!r}", hint="known: partition, pipeline, unroll, build")


def customize(region: object, **_options: object) -> Schedule:
    """A schedule of `region` without any customization yet."""
    return Schedule(region)


def build(region: object, target: str = DEFAULT_TARGET, **options: Any) -> Any:
    """Build `region` for `target`.

    Args:
        target: a registered name, such as "simulator", "llvm" or "aie".
        options: passed to the target: `mapping_primitives`, `project`, `mode`, ...

    Returns:
        A module that is called with the region's arguments (NumPy arrays, written in place).

    Raises:
        ProgramError: when the target is unknown, or the program is wrong.
    """
    return builder_of(target)(region, **options)
