"""Schedules: the results of `allo.customize(function)` and `df.customize(region)`.

A schedule is a program and the primitives applied to it. Each is applied at once, so that an illegal one is an error
at its own line. The language does not carry out primitives itself: a session does, which an upper layer registers
(see `targets`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Protocol

from allo_dse.common.errors import (
    ProgramError,
    ProgramStop,
    SimulationError,
    UnknownArray,
    UnknownFunction,
    running_line,
)
from allo_dse.common.plugins import TARGETS

from .region import Instance, variables_around
from .rules import rules


def known_targets() -> tuple[str, ...]:
    """Return the registered target names, sorted."""
    return tuple(sorted(TARGETS))


def builder_of(name: str) -> Callable[..., object]:
    """Return the builder of target `name`; it also takes `strict` and `check` (see `rules.py`).

    Raises:
        ProgramError: when no such target is registered.
    """
    if name not in TARGETS:
        raise ProgramError(f"unknown target {name!r}", hint=f"known targets: {', '.join(known_targets()) or 'none'}")
    module, function = TARGETS[name].split(":")
    builder: Callable[..., object] = getattr(importlib.import_module(module), function)

    def build(region: object, *, strict: bool | None = None, check: str | None = None, **options: object) -> object:
        with rules(strict=strict, check=check):
            return builder(region, **options)

    return build


# Primitives of schedules, and names of their operands: loops, nests of loops and arrays.


class Partition:
    """Ways to split an array into banks."""

    Complete = "complete"
    Block = "block"
    Cyclic = "cyclic"


@dataclass(frozen=True)
class Primitive:
    """One customization: its name, its arguments as given, and its line in the program."""

    name: str
    args: tuple[object, ...]
    options: tuple[tuple[str, object], ...]
    line: tuple[str, int] | tuple[None, None] = field(default_factory=running_line, compare=False, repr=False)

    def in_function(self, function: str) -> Primitive:
        """Return the primitive with its names taken as those of a function."""
        own = {"to": 1, "dataflow": 0, "inline": 0}.get(self.name, len(self.args))  # the others name functions
        args = tuple(_in_function(arg, function) if n < own else arg for n, arg in enumerate(self.args))
        options = tuple((k, _in_function(v, function) if k == "axis" else v) for k, v in self.options)
        return Primitive(self.name, args, options)

    def for_call(self, function: str, suffix: str) -> Primitive:
        """Return the primitive for one of several calls of its function, which has its own name."""

        def renamed(arg: object) -> object:
            if isinstance(arg, (Axis, Array)) and arg.function == function:
                return replace(arg, function=function + suffix)
            if isinstance(arg, str) and (arg == function or arg.startswith(f"{function}:")):
                return function + suffix + arg.removeprefix(function)
            return arg

        args = tuple(renamed(arg) for arg in self.args)
        return Primitive(self.name, args, tuple((k, renamed(v) if k == "axis" else v) for k, v in self.options))


def _in_function(arg: object, function: str) -> object:
    return f"{function}:{arg}" if isinstance(arg, str) and ":" not in arg and arg != function else arg


@dataclass(frozen=True)
class Axis:
    """A loop: its name, and the function and the nest that contain it."""

    function: str
    band: str
    name: str

    def __str__(self) -> str:
        return f"{self.function}:{self.band}.{self.name}"


@dataclass(frozen=True)
class Array:
    """An array: its name, and the function that contains it."""

    function: str
    name: str

    def __str__(self) -> str:
        return f"{self.function}:{self.name}"


class Bands:
    """Loops by name, or nests (bands) of loops by name: `loops["S_i_j_0"]["j"]` or `loops.S_i_j_0.j`."""

    def __init__(self, loops: dict[str, Any]) -> None:
        self.loops = loops

    def __getitem__(self, name: str) -> Any:
        if name not in self.loops:
            raise ProgramError(f"there is no loop or nest {name!r}", hint=f"known: {', '.join(self.loops)}")
        return self.loops[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.loops.items())

    def __repr__(self) -> str:
        return f"LoopBand({list(self.loops)})"


DEFAULT_TARGET = "llvm"
DIRECTIVES = ("partition", "pipeline", "unroll")
"""Primitives that do not change a program: code generators and cost models read them."""


class Session(Protocol):
    """A program while it is being rewritten."""

    top: str

    def apply(self, primitive: Primitive) -> Any:
        """Apply a primitive; raises ProgramError if it cannot be applied."""

    def loops(self, function: str) -> dict[str, list[str]]:
        """Return the nests of a function and the names of their loops."""

    def has_array(self, name: str) -> bool:
        """Return whether the outermost function has an array of this name."""

    @property
    def program(self) -> Any:
        """Return the program with the applied primitives."""

    @property
    def module(self) -> Any:
        """The program as MLIR."""


_COMPARE = (("allo_dse.mapper.program", "load_program"), ("allo_dse.eval.equivalence.compare", "equivalent"))
_SESSION = ["allo_dse.compiler.schedule.session", "Session"]


def _open_session(program: object) -> Session:
    opener: Callable[..., Session] = getattr(importlib.import_module(_SESSION[0]), _SESSION[1])
    return opener(program)


@dataclass
class Schedule:
    """A program and the customizations applied to it, in order; they do not change results.

    Attributes:
        region: the region or function.
        arguments: values of its type parameters (`instantiate=`).
        primitives: the applied primitives, which cost models and code generators read.
    """

    region: Any
    arguments: tuple[object, ...] = ()
    primitives: list[Primitive] = field(default_factory=list)
    _session: Session | None = field(default=None, repr=False)

    # -- loops -------------------------------------------------------------------------------------------------------

    def split(self, axis: object, factor: int) -> None:
        """Split the loop `i` into `i.outer` and, inside it, `i.inner` of `factor` iterations."""
        self._apply("split", axis, factor=factor)

    def reorder(self, *axes: object) -> None:
        """Nest loops in this order, outermost first; loops that are not named stay where they are."""
        self._apply("reorder", *axes)

    def fuse(self, *axes: object) -> Any:
        """Fuse directly nested loops into one, `i_j_fused`, and return it."""
        return self._apply("fuse", *axes)

    def tile(self, *axes_and_factors: object) -> None:
        """Split each loop by its factor, and nest the outer loops outside the inner ones: `tile("i", "j", 8, 4)`."""
        self._apply("tile", *axes_and_factors)

    def compute_at(self, from_loop: object, target_loop: object) -> None:
        """Run the nest of `from_loop` inside another nest, in the iterations of its loop `target_loop`."""
        self._apply("compute_at", from_loop, target_loop)

    # -- arrays ------------------------------------------------------------------------------------------------------

    def buffer_at(self, target: object, axis: object) -> Any:
        """Buffer the elements of an array that an iteration of `axis` writes, and write them back at its end."""
        return self._apply("buffer_at", target, axis=axis)

    def reuse_at(self, target: object, axis: object) -> Any:
        """Buffer the elements of an array that the next iterations of `axis` read again; returns the buffer."""
        return self._apply("reuse_at", target, axis=axis)

    def reshape(self, target: object, shape: Sequence[int]) -> None:
        """Give an array another shape with the same number and order of elements."""
        self._apply("reshape", target, shape=tuple(shape))

    def partition(
        self, target: object, partition_type: object = Partition.Complete, dim: int = 0, factor: int = 0
    ) -> None:
        """Split an array into banks along dimension `dim` (1-based; 0: all dimensions)."""
        self._apply("partition", target, dim=dim, factor=factor, partition_type=str(partition_type))

    # -- hardware ----------------------------------------------------------------------------------------------------

    def pipeline(self, axis: object, initiation_interval: int = 1, rewind: bool = False) -> None:
        """Pipeline the loop `axis`."""
        self._apply("pipeline", axis, initiation_interval=initiation_interval, rewind=rewind)

    def unroll(self, axis: object, factor: int = 0) -> None:
        """Unroll the loop `axis` (factor 0: completely)."""
        self._apply("unroll", axis, factor=factor)

    def parallel(self, axis: object) -> None:
        """Run the iterations of the loop `axis` in parallel."""
        self._apply("parallel", axis)

    def unfold(self, band_name: str, axes: Sequence[int]) -> Any:
        """Make separate hardware for every iteration of loops of a nest, given by their positions in it."""
        return self._apply("unfold", band_name, axes=tuple(axes))

    def dataflow(self, axis: object) -> None:
        """Run the sequential parts of a function or a loop concurrently, connected by streams."""
        self._apply("dataflow", axis)

    def to(self, target: object, dst: object, axis: object = None, depth: int = -1) -> None:
        """Pass an array to the function that reads it as a stream."""
        self._apply("to", target, dst, axis=axis, depth=depth)

    # -- functions ---------------------------------------------------------------------------------------------------

    def inline(self, axis: str | None = None) -> None:
        """Compile a function in place, as all helper functions are here."""
        self._apply("inline", *([] if axis is None else [axis]))

    def outline(self, axis: object, name: str | None = None) -> Any:
        """Move a loop into a function of its own, and return the function's name."""
        return self._apply("outline", axis, function=name)

    def compose(self, schs: Any, id: object = None, instantiate: Sequence[object] | None = None) -> None:
        """Apply the schedules of functions that this one calls.

        Args:
            schs: a schedule, or several; or a function with a registered schedule.
            id: of the call, if a function is called with several (`f[T, N, "id"]`).
            instantiate: type parameters of a function.
        """
        for given in schs if isinstance(schs, (list, tuple)) else [schs]:
            inner = given if isinstance(given, Schedule) else _registered(given, instantiate)
            for primitive in inner.primitives:
                own = primitive.in_function(inner.top_func_name)
                self._record(own if id is None else own.for_call(inner.top_func_name, f"_{id}"))

    # -- looking at it -----------------------------------------------------------------------------------------------

    def get_loops(self, func: object = None) -> Bands:
        """Return the nests of a function (by default the outermost one), and their loops."""
        name = self.top_func_name if func is None else _name(func)
        try:
            found = self.session.loops(name)
        except ProgramError as error:
            raise UnknownFunction.of(error) from None
        return Bands({b: Bands({n: Axis(name, b, n) for n in names}) for b, names in found.items()})

    @property
    def top_func_name(self) -> str:
        """The name of the outermost function."""
        return _name(self.region)

    @property
    def primitive_sequences(self) -> list[tuple[str, list[object], dict[str, object]]]:
        """The applied primitives: names, positional and named arguments."""
        return [(one.name, list(one.args), dict(one.options)) for one in self.primitives]

    @property
    def module(self) -> Any:
        """The program as MLIR, with the schedule applied."""
        return self.session.module

    @property
    def session(self) -> Session:
        """The program while it is being rewritten."""
        if self._session is None:
            self._session = _open_session(self.region)
        return self._session

    @property
    def is_function(self) -> bool:
        """Return whether it schedules a plain function."""
        return isinstance(self.region, FunctionType)

    @property
    def is_rewritten(self) -> bool:
        """Return whether a session rewrites the program, beyond directives."""
        return self._session is not None

    def build(self, target: str | None = None, **options: Any) -> Any:
        """Build for `target`; see `df.build`."""
        return build(self, target or DEFAULT_TARGET, **options)

    def _apply(self, name: str, *args: object, **options: object) -> Any:
        return self._record(Primitive(name, args, tuple(sorted(options.items()))))

    def _record(self, primitive: Primitive) -> Any:
        if not self.is_function and primitive.name in DIRECTIVES:
            self.primitives.append(primitive)  # checked when the region is built
            return None
        found = self.session.apply(primitive)
        self.primitives.append(primitive)
        return found

    def __getattr__(self, name: str) -> Array:
        """`s.A` is the array `A` of the outermost function, as in `s.partition(s.A, dim=1)`."""
        if name.startswith("_"):
            raise AttributeError(name)
        code = getattr(self.region, "function", self.region).__code__
        if name in code.co_varnames[: code.co_argcount] or self.session.has_array(name):
            return Array(self.top_func_name, name)
        raise UnknownArray(
            f"`{self.top_func_name}` has no array `{name}`, and there is no schedule primitive of that name",
            hint=f"primitives: {', '.join(_PRIMITIVES)}",
        )


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that its arguments are checked against its signature."""
    signature = inspect.signature(method)
    taken = ", ".join(str(one.replace(annotation=one.empty)) for one in list(signature.parameters.values())[1:])

    @functools.wraps(method)
    def call(*args: object, **options: object) -> Any:
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise ProgramError(f"{method.__name__}: {error}", hint=f"s.{method.__name__}({taken})") from None
        return method(*args, **options)

    return call


_PRIMITIVES = [name for name, value in vars(Schedule).items() if not name.startswith("_") and callable(value)]
for _method in _PRIMITIVES:
    setattr(Schedule, _method, _checked(getattr(Schedule, _method)))
REGISTERED: dict[object, Callable[[Schedule], Schedule]] = {}
"""Schedules of library functions, for `compose(function)`."""


def _registered(function: object, arguments: Sequence[object] | None) -> Schedule:
    if not isinstance(function, FunctionType):
        raise ProgramError(f"compose takes schedules, not {function!r}", hint="s.compose(allo.customize(f))")
    schedule = customize(function, instantiate=arguments)
    make = REGISTERED.get(function)
    return schedule if make is None else make(schedule)


def _name(value: object) -> str:
    function = getattr(value, "function", value)
    return value if isinstance(value, str) else str(getattr(function, "__name__", value))


def customize(region: Any, verbose: bool = False, instantiate: Sequence[object] | None = None, **_: object) -> Schedule:
    """Return a schedule of a region or of a plain function, without any customization yet.

    Args:
        instantiate: values of the function's type parameters, in order.

    Raises:
        ProgramStop: when a plain function does not compile.
    """
    schedule = Schedule(region, tuple(instantiate or ()))
    if isinstance(region, FunctionType):
        instance = Instance(region, schedule.arguments, variables_around(region))
        try:
            schedule._session = _open_session(instance)
        except ProgramError as error:
            raise ProgramStop.of(error) from None
    return schedule


def verify(schedule_a: Any, schedule_b: Any) -> bool:
    """Return whether two schedules (or functions) compute the same from all inputs; print any difference.

    Sums of floating-point numbers may be in another order.
    """
    load, equivalent = (getattr(importlib.import_module(module), name) for module, name in _COMPARE)
    try:
        found = equivalent(load(schedule_a), load(schedule_b), allow_reassociation=True)
    except SimulationError as error:
        if type(error) is not SimulationError:  # undecidable
            raise
        found = error  # their arguments differ
    if isinstance(found, SimulationError) or not found:
        print(found)
        return False
    return True


def build(region: object, target: str = DEFAULT_TARGET, **options: Any) -> Any:
    """Build `region` for `target`.

    Args:
        target: a registered name, such as "simulator", "llvm" or "aie".
        options: passed to the target: `mapping_primitives`, `project`, `mode`, ...

    Returns:
        A module to call with the region's arguments (NumPy arrays, written in place).

    Raises:
        ProgramStop: when the target is unknown, or the program is wrong.
    """
    try:
        return builder_of(target)(region, **options)
    except ProgramError as error:
        raise ProgramStop.of(error) from None
