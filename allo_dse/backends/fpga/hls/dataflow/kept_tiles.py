"""Arrays of a process that hold the parts of tensors that its tasks use, from before the first to after the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from allo_dse.compiler.program.tensors import Tensor

from ..cpp.expressions import Names, element_of_dtype
from .functions import array_pragmas_of, by_reference
from .movers import loop, over_part
from .tensor_plan import ClassPlan, PortPlan
from .top import Top


class Slot(NamedTuple):
    """One part in an array of several, as an argument."""

    array: str
    number: int


@dataclass
class _Array:
    """The parts of one tensor that have the same extents.

    Attributes:
        ports: of the task classes that use it.
        number: of each part, by the place of its first element in the tensor; in ascending order.
        loaded, stored: places of those that come, and that go.
    """

    name: str
    tensor: Tensor
    ports: list[tuple[ClassPlan, PortPlan]] = field(default_factory=list)
    number: dict[int, int] = field(default_factory=dict)
    loaded: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)

    @property
    def port(self) -> PortPlan:
        return self.ports[0][1]

    @property
    def has_several(self) -> bool:
        return len(self.number) > 1

    def argument(self, place: int) -> str | Slot:
        return Slot(self.name, self.number[place]) if self.has_several else self.name

    @property
    def dims(self) -> str:
        return f"[{len(self.number)}]{self.port.dims}" if self.has_several else self.port.dims

    @property
    def parameter(self) -> str:
        return by_reference(element_of_dtype(self.tensor.dtype), self.name, self.dims)

    def declared(self, top: Top) -> Iterator[str]:
        """Its declaration with its pragmas."""
        yield f"  {element_of_dtype(self.tensor.dtype)} {self.name}{self.dims};"
        own = (-1, *self.port.kept) if self.has_several else self.port.kept
        said = (array_pragmas_of(top.pragmas(plan.task_class), plan, p, self.name, own) for plan, p in self.ports)
        yield from dict.fromkeys(f"#pragma HLS {text}" for texts in said for text in texts)

    def moved(self, first: int, count: int, stream: str, *, load: bool) -> list[str]:
        """Loops over the words of some of its parts, which come from a stream or go to it."""
        tile = "tile" if not first else f"{first} + tile"
        part = f"{self.name}[{tile if count > 1 else first}]" if self.has_several else self.name
        inner = over_part(self.port, part, stream, 2 if count > 1 else 1, load=load)
        return [loop(1, "tile", count), *inner, "  }"] if count > 1 else inner


class KeptTiles:
    """Parts of tensors that one process keeps for its tasks.

    Args:
        used: the task classes' ports that it keeps, with the places of the parts that its tasks use.
    """

    def __init__(self, names: Names, used: Iterable[tuple[ClassPlan, PortPlan, int]], top: Top) -> None:
        self._top = top
        self._arrays: dict[tuple[str, tuple[int, ...]], _Array] = {}
        # In the order of the region's tensors, so that no two processes that load them can wait for each other.
        position = {tensor.name: number for number, tensor in enumerate(top.program.tensors)}
        for plan, port, place in sorted(used, key=lambda one: (position[one[1].port.tensor.name], one[2])):
            key = port.port.tensor.name, port.box.extents
            if key not in self._arrays:
                self._arrays[key] = _Array(names.new(key[0]), port.port.tensor)
            array = self._arrays[key]
            array.number.setdefault(place, len(array.number))
            if (plan, port) not in array.ports:
                array.ports.append((plan, port))
            array.loaded.update([place] * port.copies_in)
            array.stored.update([place] * port.copies_out)

    def argument(self, port: PortPlan, place: int) -> str | Slot:
        """A part as the argument of a task's call."""
        return self._arrays[port.port.tensor.name, port.box.extents].argument(place)

    def filled(self, streams: Mapping[tuple[str, str], str]) -> list[str]:
        """The arrays, and the statements that fill them.

        Args:
            streams: by tensor and "in" or "out".
        """
        declared = [line for array in self._arrays.values() for line in array.declared(self._top)]
        return [*declared, *self._moved(streams, load=True)]

    def sent(self, streams: Mapping[tuple[str, str], str]) -> list[str]:
        """Return the code that sends the parts that tasks have written."""
        return self._moved(streams, load=False)

    def _moved(self, streams: Mapping[tuple[str, str], str], *, load: bool) -> list[str]:
        calls = []
        for name, group in groupby(self._arrays.values(), key=lambda array: array.tensor.name):
            arrays = list(group)
            # In order of arrival: by place, then by extents.
            parts = sorted(
                (place, array.port.box.extents, array.number[place], array)
                for array in arrays
                for place in (array.loaded if load else array.stored)
            )
            if not parts:
                continue
            stream, lines = streams[name, "in" if load else "out"], list[str]()
            for _, run in groupby(enumerate(parts), key=lambda one: (one[1][1], one[1][2] - one[0])):
                (_, (_, _, first, array)), *rest = run
                lines += array.moved(first, 1 + len(rest), stream, load=load)
            parameters = *(array.parameter for array in arrays), f"hls::stream< {arrays[0].port.word} > &{stream}"
            function = self._top.copiers.function(f"{'fill' if load else 'send'}_{name}", parameters, lines)
            calls.append(f"  {function}({', '.join([*(array.name for array in arrays), stream])});")
        return calls
