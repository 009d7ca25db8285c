"""Layouts: the distribution of a tensor over a kernel's mesh, and its memory."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from allo_dse.common.errors import ProgramError


@dataclass(frozen=True)
class Sharded:
    """A tensor dimension that is cut into one part per position of the mesh axis `axis`."""

    axis: int

    def __repr__(self) -> str:
        return f"S({self.axis})"


@dataclass(frozen=True)
class Replicated:
    """A tensor dimension that every task sees in full."""

    def __repr__(self) -> str:
        return "R"


Dims = tuple[Sharded | Replicated, ...]


class Layout:
    """One `Shard` or `Replicate` per tensor dimension.

    In a list, `[Layout.Shard(0), Layout.Replicate]`, mesh axes count from the first one of the mapping. In the older
    string form, `Layout("S0R")`, they count from the last one; the mesh decides which axis that is.
    """

    Replicate: ClassVar[Replicated] = Replicated()

    @staticmethod
    def Shard(axis: int) -> Sharded:
        """Cut the dimension into one part per position of mesh axis `axis`."""
        return Sharded(operator.index(axis))

    def __init__(self, dims: object = ()) -> None:
        self.from_last = isinstance(dims, str)
        self.dims: Dims = _parse(dims) if isinstance(dims, str) else _check(dims)

    def axes(self, mesh_rank: int) -> tuple[int | None, ...]:
        """Return the mesh axis that shards each tensor dimension, or None.

        Raises:
            ProgramError: when an axis does not exist or shards two dimensions.
        """
        axes: list[int | None] = []
        for dim in self.dims:
            if isinstance(dim, Replicated):
                axes.append(None)
                continue
            if not 0 <= dim.axis < mesh_rank:
                raise ProgramError(f"layout {self} shards on mesh axis {dim.axis}, but the mesh has {mesh_rank} axes")
            axis = mesh_rank - 1 - dim.axis if self.from_last else dim.axis
            if axis in axes:
                raise ProgramError(f"layout {self} shards two dimensions on mesh axis {axis}")
            axes.append(axis)
        return tuple(axes)

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[Sharded | Replicated]:
        return iter(self.dims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.dims, self.from_last) == (other.dims, other.from_last)

    def __hash__(self) -> int:
        return hash((self.dims, self.from_last))

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.dims))}]"


def as_layout(value: object) -> Layout:
    """Return the layout given after `@`: a `Layout`, a list of shards, or a string."""
    return value if isinstance(value, Layout) else Layout(value)


def _parse(text: str) -> Dims:
    parts = re.findall(r"S\d+|R", text)
    if "".join(parts) != text:
        raise ProgramError(f"cannot read layout {text!r}", hint="write one S<axis> or R per dimension, such as 'S0R'")
    return tuple(Replicated() if part == "R" else Sharded(int(part[1:])) for part in parts)


def _check(dims: object) -> Dims:
    if not isinstance(dims, (list, tuple)):
        raise ProgramError(f"a layout is a list of Layout.Shard(axis) and Layout.Replicate, not {dims!r}")
    for dim in dims:
        if not isinstance(dim, (Sharded, Replicated)):
            raise ProgramError(f"a layout is a list of Layout.Shard(axis) and Layout.Replicate; it has {dim!r}")
    return tuple(dims)


RESOURCES = ("AUTO", "BRAM", "URAM", "LUTRAM", "SRL")
STORAGE_TYPES = ("RAM_1P", "RAM_2P", "RAM_T2P", "RAM_1WNR", "RAM_S2P", "ROM_1P", "ROM_2P", "ROM_NP")


@dataclass(frozen=True)
class Memory:
    """The memory of a tensor on a device; recorded for code generators, without effect on results.

    Raises:
        ValueError: for an unknown resource or storage type (case is ignored).
    """

    resource: str = "AUTO"
    storage_type: str | None = None
    latency: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("resource", RESOURCES), ("storage_type", STORAGE_TYPES)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, value.upper())
                if value.upper() not in known:
                    raise ValueError(f"Invalid {name} {value!r}: known are {', '.join(known)}")

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in ("resource", "storage_type", "latency", "depth"))
        shown = (f'{name}="{v}"' if isinstance(v, str) else f"{name}={v}" for name, v in given if v is not None)
        return f"Memory({', '.join(shown)})"


@dataclass
class DTensor:
    """A tensor distributed over a mesh, as a program declares it with `@`.

    Attributes:
        mapping: the extents of the mesh.
        spec: a layout, or a memory.
    """

    rank: int | None
    mapping: Sequence[int] | None
    shape: tuple[int, ...]
    dtype: object
    spec: Layout | Memory | None
    name: str | None = None
    top_name: str | None = None

    @property
    def memory(self) -> Memory | None:
        return self.spec if isinstance(self.spec, Memory) else None

    def __str__(self) -> str:
        return f"DTensor(name={self.name}, shape={self.shape}, dtype={self.dtype}, memory={self.memory})"
