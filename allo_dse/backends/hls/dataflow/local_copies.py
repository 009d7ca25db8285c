"""Arrays of a task's own that hold its parts of tensors, filled at its begin and sent at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from allo_dse.ir.bindings import ir

from ..cpp.elements import element_of_dtype, interface_type
from ..cpp.linear import Linear, atom
from ..task.arrays import Array, whole
from ..task.body import Body
from .tensor_plan import ClassPlan, PortPlan


class Parameter(Struct, frozen=True):
    """What a task function is called with.

    Attributes:
        number: the pid's axis, the position of the tensor port, or that of the stream among the body's streams.
    """

    kind: Literal["pid", "value", "in", "out", "pointer", "stream"]
    number: int
    text: str


class Frame(Struct, frozen=True):
    """What is common to the parts of a function under construction."""

    plan: ClassPlan
    body: Body
    pids: tuple[ir.Value, ...]

    def over_pids(self, form: Linear) -> Linear:
        """A form over mesh axes as one over the function's arguments."""
        return form.replaced({axis: atom(pid) for axis, pid in enumerate(self.pids)})


def bind_copy(frame: Frame, position: int, argument: ir.Value, name: str) -> list[Parameter]:
    """An array of the task's own for a tensor argument, filled here."""
    port, body = frame.plan.ports[position], frame.body
    element = element_of_dtype(port.port.tensor.dtype)
    box = port.box
    kept = tuple(dim for dim, extent in enumerate(box.extents) if extent > 1)
    array = Array(name, element, port.port.tile_shape, tuple(map(frame.over_pids, box.starts)), kept)
    body.views[argument] = whole(array)
    body.line(f"{element} {name}{''.join(f'[{box.extents[d]}]' for d in kept)};")
    names = dict.fromkeys((name, port.port.tensor.name))
    for text in (text for known in names for text in body.pragmas.array(known, name, kept)):
        body.pragma(text)
    parameters = []
    if port.access == "own":
        const = "" if port.copies_out else "const "
        source = body.names.new(port.port.tensor.name)
        body.pointers[argument] = source
        parameters.append(Parameter("pointer", position, f"{const}{interface_type(port.port.tensor.dtype)} *{source}"))
        if port.copies_in:
            _copy(frame, port, array, "in", lambda mine, there: f"{mine} = {_raw(port, f'{source}[{there}]')};")
        return parameters
    if port.copies_in:
        stream = body.names.new(f"{name}_in")
        parameters.append(Parameter("in", position, f"hls::stream< {port.word} > &{stream}"))
        _copy(frame, port, array, "in", lambda mine, there: f"{mine} = {stream}.read();", stream)
    if port.copies_out:
        stream = body.names.new(f"{name}_out")
        body.pointers[argument] = stream
        parameters.append(Parameter("out", position, f"hls::stream< {port.word} > &{stream}"))
    return parameters


def copy_out(frame: Frame, port: PortPlan, argument: ir.Value) -> None:
    """Send results at the end of the task."""
    if not (port.is_moved or port.access == "own") or not port.copies_out:
        return
    target = frame.body.pointers[argument]
    array = frame.body.views[argument].array
    if port.is_moved:
        _copy(frame, port, array, "out", lambda mine, there: f"{target}.write({mine});", target)
        return

    def store(mine: str, there: str) -> str:
        return f"{_raw(port, f'{target}[{there}]', write=True)} = {mine};"

    _copy(frame, port, array, "out", store)


def _raw(port: PortPlan, text: str, *, write: bool = False) -> str:
    """The bits of an element of a top-level argument."""
    dtype = port.port.tensor.dtype
    if not dtype.is_fixed:
        return text
    return f"{text}.range()" if write else f"({element_of_dtype(dtype)}){text}.range()"


def _copy(
    frame: Frame, port: PortPlan, array: Array, direction: str, statement: Callable[[str, str], str], stream: str = ""
) -> None:
    """Loops over the elements of a box, row-major; from or to a stream, over words."""
    body = frame.body
    strides = port.port.tensor.strides
    counters: list[str] = []
    opened = 0
    with body.names.scope():
        for extent in port.box.extents:
            if extent == 1:
                counters.append("0")
                continue
            counter = body.names.new("ijklmn"[min(len(counters), 5)])
            label = f"{body.labels.new(f'copy_{direction}_{array.name}')}: " if not opened else ""
            last = len(counters) == len(port.box.extents) - 1
            step = f"{counter} += {port.lanes}" if stream and last and port.lanes > 1 else f"{counter}++"
            body.line(f"{label}for (int {counter} = 0; {counter} < {extent}; {step}) {{")
            body.depth += 1
            opened += 1
            counters.append(counter)
        if opened:
            body.pragma("pipeline II=1")
        if not stream and port.lanes > 1:
            body.pragma(f"unroll factor={port.lanes}")
        own = [Linear(0, {c: 1}) if c != "0" else Linear() for c in counters]
        corner = tuple(map(frame.over_pids, port.corner))
        there = sum(((c + i) * s for c, i, s in zip(corner, own, strides, strict=True)), Linear())
        mine = array.name + "".join(f"[{counters[d]}]" for d in array.kept or ())
        if stream and port.lanes > 1:
            _word(body, port, mine, stream, direction)
        else:
            body.line(statement(mine, there.text(body.atom_text)))
        for _ in range(opened):
            body.depth -= 1
            body.line("}")


def _word(body: Body, port: PortPlan, mine: str, stream: str, direction: str) -> None:
    """Move a word between a stream and neighbours in the last dimension of an array; `mine` is the first of them."""
    word, lane = body.names.new("word"), body.names.new("lane")
    place = f"{mine[:-1]} + {lane}]"
    body.line(f"const {port.word} {word} = {stream}.read();" if direction == "in" else f"{port.word} {word};")
    body.line(f"for (int {lane} = 0; {lane} < {port.lanes}; {lane}++) {{")
    body.pragma("unroll")
    moved = f"{place} = {word}[{lane}];" if direction == "in" else f"{word}[{lane}] = {place};"
    body.line(f"  {moved}")
    body.line("}")
    if direction == "out":
        body.line(f"{stream}.write({word});")
