"""Loops and arrays by their names: in the whole program, in a function, or in a nest (a band) of a function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import Operation, Value
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.allo.ir_utils import MockBuffer
from allo_dse.lang.schedule import Array, Axis

from ..regions.schedules import near_or_known
from .body import Body, around, number_of


class Found(Frozen):
    """A loop of a body."""

    body: Body
    op: Operation

    @property
    def name(self) -> str:
        return self.body.source(self.op).name


def name_bands(body: Body) -> None:
    """Give every nest of a function a name: that of its grid, or `S_i_j_0` after its first loops and its number."""
    counts: Counter[tuple[str, int]] = Counter()
    for loop in body.loops():
        source, outer = body.source(loop), body.enclosing(loop)
        if outer is not None:
            band = outer.band
        else:
            key = (source.function, source.call)
            place = (source.location, *key)
            every = map(body.source, body.loops())
            names = [own.name for own in every if (own.location, own.function, own.call) == place]
            band = source.grid or "_".join(["S", *names, str(counts[key])])  # the variables that one `for` opens
            counts[key] += 1
        body.sources[number_of(loop)] = replace(source, band=band)


def functions(bodies: Iterable[Body]) -> list[str]:
    """The functions of a program: its kernels, and the helpers compiled in place."""
    found = {source.function: None for body in bodies for source in body.sources}
    found.update({function: None for body in bodies for function, _, _ in body.arrays})
    return list(found)


def loops(bodies: Sequence[Body], axis: object, top: str, *, several: bool = False) -> list[Found]:
    """The loops with a name, one per call of its function.

    Args:
        several: whether the name may refer to several loops in sequence in one nest.

    Raises:
        ProgramError: if there is none, or if a name refers to loops of several nests.
    """
    if isinstance(axis, Axis):
        function, band, name = axis.function, axis.band, axis.name
    elif isinstance(axis, str):
        function, _, name = axis.rpartition(":")
        function, band = function or top, ""
    else:
        raise ProgramError(f"a loop is meant by its name, not by {axis!r}", hint='s.pipeline("j"), or of s.get_loops()')
    every = [Found(body, op) for body in bodies for op in body.loops()]
    own = [one for one in every if one.body.source(one.op).function == function]
    if not own:
        known = functions(bodies)
        raise ProgramError(f"there is no function `{function}` with loops here", hint=near_or_known(function, known))
    found = [one for one in own if one.name == name and band in ("", one.body.source(one.op).band)]
    bands = {one.body.source(one.op).band for one in found}
    if not found:
        names = list(dict.fromkeys(one.name for one in own))
        raise ProgramError(f"`{function}` has no loop `{name}`", hint=near_or_known(name, names))
    if len(bands) > 1:
        raise ProgramError(
            f"`{function}` has a loop `{name}` in each of {', '.join(sorted(bands))}",
            hint=f"say which: s.get_loops()[{sorted(bands)[0]!r}][{name!r}]",
        )
    ops = [one.op for one in found]
    first = [one for one in found if not any(outer == op for outer in around(one.op) for op in ops)]
    if not several and len(first) != len({(id(one.body), one.body.source(one.op).call) for one in first}):
        raise ProgramError(f"`{function}` has several loops `{name}` in {bands.pop()}", hint="give them other names")
    return first


def band(bodies: Sequence[Body], name: str, top: str) -> list[list[Found]]:
    """The loops of a nest by its name, outermost first, without those that fill buffers; one list per call of its
    function."""
    function, _, name = name.rpartition(":")
    function = function or top
    found: dict[tuple[int, int], list[Found]] = {}
    for body in bodies:
        for op in body.loops():
            source = body.source(op)
            if (source.function, source.band) == (function, name):
                found.setdefault((id(body), source.call), []).append(Found(body, op))
    if not found:
        names = list(dict.fromkeys(s.band for body in bodies for s in body.sources if s.function == function))
        raise ProgramError(f"`{function}` has no nest of loops `{name}`", hint=near_or_known(name, names))
    return [[one for one in nest if not _is_added(one.name, {loop.name for loop in nest})] for nest in found.values()]


def _is_added(name: str, names: Container[str]) -> bool:
    """Return whether a loop fills a buffer of one of the loops with some names."""
    made = re.fullmatch(r"(.+)_(init|back|reuse)(_\d+)?", name)
    return made is not None and made[1] in names


def array(target: object, top: str) -> Array:
    """The function and the name of an array."""
    if isinstance(target, (Array, MockBuffer)):
        return Array(target.function, target.name)
    if not isinstance(target, str):
        raise ProgramError(f"an array is meant by its name, not by {target!r}", hint="s.partition(s.A, dim=1)")
    function, _, name = target.rpartition(":")
    return Array(function or top, name)


def arrays(bodies: Sequence[Body], target: object, top: str) -> list[tuple[Body, Value]]:
    """The memory of a name, one per call of its function.

    Raises:
        ProgramError: if there is none.
    """
    wanted = array(target, top)
    found = [
        (body, value)
        for body in bodies
        for (function, _, name), value in body.arrays.items()
        if (function, name) == (wanted.function, wanted.name)
    ]
    if not found:
        raise _no_array(wanted, bodies)
    return found


def array_of(body: Body, wanted: Array, call: int) -> Value:
    """The memory of a name in a call of its function, or in its only call.

    Raises:
        ProgramError: if there is none.
    """
    own = {
        number: v
        for (function, number, name), v in body.arrays.items()
        if (function, name) == (wanted.function, wanted.name)
    }
    if call in own:
        return own[call]
    if len(own) != 1:
        raise _no_array(wanted, [body])
    return next(iter(own.values()))


def _no_array(wanted: Array, bodies: Sequence[Body]) -> ProgramError:
    known = [name for body in bodies for function, _, name in body.arrays if function == wanted.function]
    return ProgramError(f"`{wanted.function}` has no array `{wanted.name}`", hint=near_or_known(wanted.name, known))
