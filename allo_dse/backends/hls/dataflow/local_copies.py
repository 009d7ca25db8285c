"""Arrays that hold a task's parts of tensors: its own, filled at its begin and sent at its end, or its process's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from allo_dse.ir.bindings import ir

from ..cpp.elements import Element, element_of_dtype
from ..cpp.linear import Linear, atom
from ..task.arrays import Array, whole
from ..task.body import Body
from ..task.pragmas import LoopPragmas
from .tensor_movers import Copiers, over_part
from .tensor_plan import ClassPlan, PortPlan


class Parameter(Struct, frozen=True):
    """One parameter of a task function.

    Attributes:
        kind: a tensor is "in" or "out" by a stream, an "array" of the process, or behind a "pointer".
        number: the pid's axis, the position of the tensor port, or that of the stream among the body's streams.
    """

    kind: Literal["pid", "value", "in", "out", "array", "pointer", "stream"]
    number: int
    text: str


class Frame(Struct, frozen=True):
    """Context common to the parts of a function under construction."""

    plan: ClassPlan
    body: Body
    pids: tuple[ir.Value, ...]
    copiers: Copiers

    def over_pids(self, form: Linear) -> Linear:
        """A form over mesh axes as one over the function's arguments."""
        return form.replaced({axis: atom(pid) for axis, pid in enumerate(self.pids)})


def bind_copy(frame: Frame, position: int, argument: ir.Value, name: str) -> list[Parameter]:
    """An array for a tensor argument: of the task's own and filled here, or of the process that runs it."""
    port, body = frame.plan.ports[position], frame.body
    element, kept = element_of_dtype(port.port.tensor.dtype), port.kept
    array = Array(name, element, port.port.tile_shape, tuple(map(frame.over_pids, port.box.starts)), kept)
    body.views[argument] = whole(array)
    parameters: list[Parameter] = []
    if port.is_moved:
        body.line(f"{element} {name}{port.dims};")
    else:
        parameters.append(Parameter("array", position, by_reference(element, name, port.dims)))
    for text in array_pragmas_of(body.pragmas, frame.plan, port, name, kept):
        body.pragma(text)
    if port.is_moved and port.copies_in:
        stream = body.names.new(f"{name}_in")
        parameters.append(Parameter("in", position, f"hls::stream< {port.word} > &{stream}"))
        body.line(_copy(frame, port, array, stream, load=True))
    if port.is_moved and port.copies_out:
        stream = body.names.new(f"{name}_out")
        body.results[argument] = _copy(frame, port, array, stream, load=False)
        parameters.append(Parameter("out", position, f"hls::stream< {port.word} > &{stream}"))
    return parameters


def by_reference(element: Element, name: str, dims: str) -> str:
    """A parameter that is an array, or a variable where it has no dimensions."""
    return f"{element} {name}{dims}" if dims else f"{element} &{name}"


def tensor_names(plan: ClassPlan) -> list[str]:
    """Return the source's names of the tensor arguments."""
    (head,) = re.findall(r"^func\.func @\S*?\((.*)\) \{$", plan.task_class.body.mlir, re.MULTILINE)
    rank = len(plan.kernel.mesh)
    return re.findall(r"%([^\s:,]+): (?:memref|index)", head)[rank : rank + len(plan.ports)]


def array_pragmas_of(
    pragmas: LoopPragmas, plan: ClassPlan, port: PortPlan, variable: str, dims: Iterable[int]
) -> tuple[str, ...]:
    """Pragmas of an array that has some dimensions of a tensor: those of the tensor, and those of the argument that it
    is for the kernel."""
    known = dict.fromkeys((tensor_names(plan)[plan.ports.index(port)], port.port.tensor.name))
    return tuple(text for name in known for text in pragmas.array(name, variable, dims))


def copy_out(frame: Frame, argument: ir.Value) -> None:
    """Send results at the end of the task."""
    if argument in frame.body.results:
        frame.body.line(frame.body.results[argument])


def _copy(frame: Frame, port: PortPlan, array: Array, stream: str, *, load: bool) -> str:
    """The call of a function that fills an array from a stream, or sends what it holds."""
    parameters = by_reference(array.element, "part", port.dims), f"hls::stream< {port.word} > &words"
    lines = over_part(port, "part", "words", 1, load=load)
    function = frame.copiers.function(f"{'fill' if load else 'send'}_{array.name}", parameters, lines)
    frame.body.names.new(function)  # reserve the name: no variable of the task may have it
    return f"{function}({array.name}, {stream});"
