"""Networks: operators with tensors between them.

    net = Network()
    x = net.input("x", (128, 64))
    w = net.constant("w", weights)                                     # an array
    y = net.add(gemm_work(128, 256, 64, bfloat16), x, w)
    net.output(y)

A step's work is a program of ours, a rearrangement of elements (`Arrange`), or something the host does (`Host`). A
program may have several element types (`Ty=dse.choices([bfloat16, float32])`), and a step several programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.eval.execute.rounding import Analysed, exactly
from allo_dse.eval.reference import as_computable
from allo_dse.eval.tolerances import tolerances_of
from allo_dse.lang.types import DType
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from .operators.elementwise import binary_work
from .operators.execute import (
    Deviation,
    Work,
    analysed_result,
    apart,
    compared,
    deviation,
    interface,
    loaded,
    moved_result,
    output_limits,
    reference_of,
    run_program,
)
from .operators.products import fused_work, gemm_work

Array = NDArray[np.generic]
Arrays = dict[str, Array]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Arrange:
    """A rearrangement: elements of tensors in another order or shape; nothing is computed.

    Attributes:
        function: from the arrays, of whatever type, to one array.
        free: the elements stay where they are; at most the shape changes.
        written: number of elements of the result that are not in their places in the first array; -1 for all.
    """

    function: Callable[..., Array]
    free: bool
    kind: str = "layout"
    written: int = -1


def arrange(function: Callable[..., Array], shapes: Sequence[Shape]) -> Arrange:
    """Return a rearrangement of tensors of some shapes.

    It is tried on their numbers. It is free if every element stays in its place; of a tensor that only grows or shrinks
    at its end, the new elements are written.
    """
    if len(shapes) != 1:
        return Arrange(function, False)
    numbers = np.arange(1, 1 + math.prod(shapes[0]), dtype=np.int32)
    found = function(numbers.reshape(shapes[0])).ravel()
    same = min(len(numbers), len(found))
    if not np.array_equal(found[:same], numbers[:same]):
        return Arrange(function, False)
    return Arrange(function, len(found) == len(numbers), written=len(found) - same)


@dataclass(frozen=True)
class Convert(Arrange):
    """A conversion of one tensor's elements to another type, in their order."""

    dtype: DType = field(kw_only=True)

    @classmethod
    def to(cls, dtype: DType) -> Convert:
        return cls(lambda array: as_computable(array.astype(numpy_dtype(dtype))), False, "convert", dtype=dtype)


class Host(Frozen):
    """A computation of the host, between launches.

    Attributes:
        kind: name of the operator.
        function: from arrays to one array.
        below: by input, the exclusive upper bound of its whole numbers; None for an input of others. Empty if not
            known.
        flops, bytes: its operations, and what it reads and writes in the host's memory; 0 where only its result counts.
        why: the reason why no program of the device does it.
    """

    kind: str
    function: Callable[..., Array]
    below: tuple[int | None, ...] = ()
    flops: float = 0.0
    bytes: int = 0
    why: str = ""


class Step(Frozen):
    """An operator of a network: the names of the tensors it reads and of the one it writes.

    Attributes:
        others: alternatives, which write the same tensor; its work is then a program, as theirs.
        rounded: what is rounded for it, such as "int8 weights"; empty if its operands are as they were.
    """

    name: str
    work: Work | Arrange | Host
    inputs: tuple[str, ...]
    output: str
    others: tuple[Step, ...] = ()
    rounded: str = ""

    @property
    def title(self) -> str:
        """The name without repetitions: /a/Conv.product+/a/Conv+/a/Relu is /a/Conv+Relu."""
        first, *others = self.name.split("+")
        if others and first == f"{others[0]}.product":
            first, *others = others
        return "+".join([first, *(one.rpartition("/")[2] or one for one in others)])

    def given(self, known: Mapping[str, Array]) -> list[Array]:
        """The arrays that it reads."""
        return [known[name] for name in self.inputs]

    def shaped(self, made: Array, shapes: Mapping[str, Shape]) -> Array:
        """Its result in its shape; the shape of what the host computes may depend on elements."""
        shape = shapes[self.output]
        return made.reshape(shape) if made.size == math.prod(shape) or not isinstance(self.work, Host) else made

    @property
    def ways(self) -> tuple[Step, ...]:
        """The step with each program that may do it, in one element type; empty for other steps."""
        return tuple(
            replace(one, work=variant, others=())
            for one in (self, *self.others)
            if isinstance(one.work, Work)
            for variant in one.work.variants
        )

    @property
    def reads(self) -> tuple[DType, ...]:
        """The element types that its program reads."""
        return tuple(tensor.dtype for tensor in interface(loaded(self.work))[0])  # type: ignore[arg-type]

    @property
    def writes(self) -> DType:
        return interface(loaded(self.work))[1][0].dtype  # type: ignore[arg-type]

    @property
    def type(self) -> str:
        """The element type of its result, and of weights that are rounded for it, in words."""
        return f"{self.writes.name} with {self.rounded}" if self.rounded else self.writes.name

    @property
    def works(self) -> tuple[Work, ...]:
        """The programs that may do it."""
        return tuple(one.work for one in self.ways if isinstance(one.work, Work))


@dataclass
class Network:
    """A graph of steps, in an order in which they can run.

    Attributes:
        shapes: of all tensors. constants: arrays that are known. inputs, outputs: names of tensors.
        widened: nodes of the model whose operands have more bits here.
    """

    name: str = "network"
    steps: list[Step] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    constants: Arrays = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input tensor; return its name.

        Raises:
            StudyError: if a size is not a positive whole number.
        """
        if not all(isinstance(size, int | np.integer) and size > 0 for size in shape):
            raise StudyError(f"input {name!r} of {tuple(shape)}: sizes are positive whole numbers")
        self.inputs.append(self._new(name, tuple(shape)))
        return name

    def constant(self, name: str, array: Array) -> str:
        """Add a constant tensor; return its name.

        Raises:
            StudyError: if elements are not numbers.
        """
        array = np.asarray(array)
        if array.dtype.kind not in "biufV":  # the last has the narrow floats of ml_dtypes
            raise StudyError(f"constant {name!r} has elements of type {array.dtype}, not numbers")
        self.constants[self._new(name, array.shape)] = array
        return name

    def output(self, *names: str) -> None:
        """Mark tensors as outputs."""
        self.outputs += [self._known(name) for name in names]

    def add(
        self,
        work: Work | Arrange | Host | Callable[..., object] | Sequence[Work],
        *inputs: str,
        name: str = "",
        output: str = "",
        params: Mapping[str, object] | None = None,
        shape: Sequence[int] | None = None,
    ) -> str:
        """Add a step that reads `inputs`; return the name of the tensor that it writes.

        Args:
            work: what the step does. A program of your own is a function of `params` that returns a region; it reads as
                many tensors as there are inputs and writes one. Of several works, one is chosen for each operator.
            name: of the step.
            output: name of the tensor.
            shape: of the tensor, if it differs from the program's; the number of elements must be equal.

        Raises:
            StudyError: for an unknown tensor, one that does not fit the program, or a name that another step has.
        """
        others: Sequence[Work] = ()
        if isinstance(work, Sequence):
            work, *others = work
        made = (
            work
            if isinstance(work, Work | Arrange | Host)
            else Work(getattr(work, "__name__", "program"), work, dict(params or {}))
        )
        taken = {step.name for step in self.steps}
        name = name or next(n for number in count(len(taken)) if (n := f"{made.kind}_{number}") not in taken)
        output = output or f"{name}.result"
        if name in taken:
            raise StudyError(f"network {self.name!r} has two steps named {name!r}", hint="each needs its own name")
        for tensor in inputs:
            self._known(tensor)
        if isinstance(made, Work):
            shape = _checked(self, name, loaded(made), inputs, shape)
        elif shape is None:
            shape = made.function(*(np.zeros(self.shapes[tensor], np.float32) for tensor in inputs)).shape
        assert shape is not None
        self.steps.append(Step(name, made, inputs, self._new(output, tuple(shape))))
        for one in others:
            self.alternative(output, one, *inputs)
        return output

    def alternative(self, output: str, work: Work, *inputs: str, rounded: str = "") -> None:
        """Give the step that writes a tensor another program, which may read other tensors.

        Args:
            rounded: as of `Step`.

        Raises:
            StudyError: if the program does not fit its tensors.
        """
        step = self.steps[-1]
        _checked(self, step.name, loaded(work), inputs, self.shapes[output])
        other = replace(step, work=work, inputs=inputs, others=(), rounded=rounded)
        self.steps[-1] = replace(step, others=(*step.others, other))

    def _new(self, name: str, shape: Shape) -> str:
        if name in self.shapes:
            raise StudyError(f"network {self.name!r} has two tensors named {name!r}", hint="each needs its own name")
        self.shapes[name] = shape
        return name

    def _known(self, name: str) -> str:
        if name not in self.shapes:
            raise StudyError(
                f"network {self.name!r} has no tensor {name!r}",
                hint=f"{did_you_mean(name, self.shapes)}add what writes it first",
            )
        return name

    @property
    def readers(self) -> dict[str, list[Step]]:
        """The steps that read each tensor."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            for name in dict.fromkeys(step.inputs):
                found.setdefault(name, []).append(step)
        return found

    @property
    def worked(self) -> list[tuple[Step, Work]]:
        """The steps that programs do, with their work."""
        return [(step, step.work) for step in self.steps if isinstance(step.work, Work)]

    def run(
        self, inputs: Mapping[str, Array], *, simulated: bool = True, designs: Mapping[str, Design] | None = None
    ) -> Arrays:
        """Compute all tensors, by name.

        Args:
            inputs: an array for each input.
            simulated: run programs, with the first value of each parameter; otherwise compute their references in
                float32.
            designs: run these instead, by the tensor that they write.

        Raises:
            StudyError: if an input is missing, or of another shape.
        """
        known: Arrays = {**self.constants, **self.given(inputs)}
        for step in self.steps:
            known[step.output] = self._result(step, step.given(known), simulated, (designs or {}).get(step.output))
        return known

    def changed(self, exact: Mapping[str, Array], name: str, array: Array) -> Arrays:
        """Compute in float32 the tensors that change if one of them does.

        Args:
            exact: all tensors.
            name, array: the changed tensor and its new value.
        """
        found: Arrays = {name: array}
        for step in self.steps:
            if step.output != name and any(one in found for one in step.inputs):
                found[step.output] = self._result(step, step.given({**exact, **found}), False)
        return found

    def check(self, inputs: Mapping[str, Array], expected: Mapping[str, Array] | None = None) -> list[Deviation]:
        """Compare the programs' results with what is expected.

        Each step is run on its expected inputs; at the end come the outputs of the whole network.

        Args:
            inputs: an array for each input.
            expected: tensors by name, as another evaluator computes them. Other steps, or all by default, are compared
                with their NumPy references.
        """
        given: Arrays = {**self.constants, **self.given(inputs)}
        exact: Arrays = {**self.run(inputs, simulated=False), **(expected or {})}
        # Another evaluator's result is that of its own inputs: from ours it is as far as roundings before the step are.
        known = {*given, *(expected or {})}
        found = []
        for step, one in ((own, way) for own in self.steps for way in own.ways):
            taken = [exact[n] for n in one.inputs]
            comparable = known.issuperset([*one.inputs, one.output]) and not one.rounded
            own = step if one.inputs == step.inputs else one  # in the widest type
            wanted = exact[one.output] if comparable else self._result(own, taken, False)
            found.append(deviation(one.name, one.work, taken, wanted))  # type: ignore[arg-type]
        whole = self.analysed(inputs)
        return found + [_whole(name, whole[name], exact[name]) for name in self.outputs]

    def analysed(
        self, inputs: Mapping[str, Array], programs: Mapping[str, Program] | None = None
    ) -> dict[str, Analysed]:
        """Return all tensors with the roundings of the steps before them.

        Args:
            programs: those that run, by the tensor that they write; of the first value of each parameter by default.
        """
        known = {name: exactly(array) for name, array in {**self.constants, **self.given(inputs)}.items()}
        for step in self.steps:
            given = [known[name] for name in step.inputs]
            if isinstance(step.work, Work):
                made = analysed_result(programs[step.output] if programs else loaded(step.work), given)
            elif isinstance(step.work, Host):
                made = moved_result(step.work.function, given)
            else:
                made = _arranged(step.work, given)
            known[step.output] = _each(partial(step.shaped, shapes=self.shapes), made)
        return known

    @property
    def tolerance(self) -> float:
        """The allowed deviation of outputs, relative to their largest value.

        Deviations are assumed to add up as a random walk over all steps.
        """
        works = (work for step in self.steps for work in step.works)
        widest = max((one.largest for work in works for one in tolerances_of(loaded(work)).values()), default=0.0)
        return widest * math.sqrt(max(1, len(self.worked)))

    def given(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the arrays of the inputs.

        Raises:
            StudyError: if one is missing, or of another shape.
        """
        for name in self.inputs:
            if name not in inputs or inputs[name].shape != self.shapes[name]:
                got = inputs[name].shape if name in inputs else "nothing"
                raise StudyError(f"input {name!r} needs an array of {self.shapes[name]}, got {got}")
        return {name: inputs[name] for name in self.inputs}

    def _result(self, step: Step, given: list[Array], simulated: bool, design: Design | None = None) -> Array:
        if not isinstance(step.work, Work):
            made = step.work.function(*given)
        elif design is not None:
            made = run_program(design.program, given, design.vmg)
        elif simulated:
            made = run_program(loaded(step.work), given)
        elif step.work.reference is None:  # in its widest type
            made = run_program(max(map(loaded, step.works), key=lambda one: interface(one)[1][0].dtype.bits), given)
        else:
            made = reference_of(step.work, given)
        return step.shaped(made, self.shapes)


def _each(function: Callable[..., Any], *given: Analysed) -> Analysed:
    """Apply a function to each part of what is known of some tensors."""
    return Analysed(*(function(*parts) for parts in zip(*map(astuple, given), strict=True)))


def _arranged(work: Arrange, given: Sequence[Analysed]) -> Analysed:
    if not isinstance(work, Convert):
        return _each(work.function, *given)
    (one,) = given
    rounded = work.function(one.rounded)
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(rounded.astype(np.float64) - one.rounded.astype(np.float64)))
    return replace(one, rounded=rounded, bound=one.bound + off, variance=one.variance + off**2)


def _whole(name: str, one: Analysed, wanted: Array) -> Deviation:
    """Compare an output with the expected values: each element within the roundings behind it."""
    limits = output_limits(one)
    wrong = int(np.count_nonzero(~(apart(one.rounded, wanted) <= limits)))
    return compared(name, "whole", one.rounded, wanted, limits, wrong)


def _checked(
    network: Network, name: str, program: Program, inputs: Sequence[str], shape: Sequence[int] | None
) -> Shape:
    """Return the shape of a step's result.

    Raises:
        StudyError: if the program does not fit the step's tensors.
    """
    reads, writes = interface(program)
    if len(reads) != len(inputs) or len(writes) != 1:
        raise StudyError(
            f"step {name!r}: its program reads {', '.join(t.name for t in reads)} and writes "
            f"{', '.join(t.name for t in writes)}; the step reads {', '.join(inputs)}",
            hint="a step's program reads one tensor per input of the step and writes one",
        )
    for tensor, one in zip(reads, inputs, strict=True):
        if math.prod(tensor.shape) != math.prod(network.shapes[one]):
            raise StudyError(f"step {name!r}: {one} of {network.shapes[one]} is not {tensor.name} of {tensor.shape}")
    written = writes[0].shape
    if shape is not None and math.prod(shape) != math.prod(written):
        raise StudyError(f"step {name!r} writes {writes[0].name} of {written}, not of {tuple(shape)}")
    return written if shape is None else tuple(shape)


@dataclass(frozen=True)
class Reference:
    """A work's reference, from arrays of as many elements as its program reads."""

    work: Work

    def __call__(self, *arrays: Array) -> Array:
        return reference_of(self.work, arrays)


def with_hosts(network: Network, why: Mapping[str, str]) -> Network:
    """Return the network in which the host does some steps, given with the reason, as their references compute them."""
    steps = []
    for step in network.steps:
        if step.name in why and isinstance(step.work, Work):
            reads, writes = interface(loaded(step.work))
            elements = sum(math.prod(tensor.shape) for tensor in (*reads, *writes))
            depth = step.work.params.get("K", 1)  # of products
            flops = 2.0 * math.prod(writes[0].shape) * depth if isinstance(depth, int) else float(elements)
            work = Host(step.work.kind, Reference(step.work), flops=flops, bytes=4 * elements, why=why[step.name])
            step = replace(step, work=work, others=())
        steps.append(step)
    return replace(network, steps=steps)


BLOCKS = 16, 8, 4, 1  # of the columns of a known matrix; the first that divides it and fits the ports is taken
LEAST_PART = 1 << 18
"""Elements of a part of a matrix: in bfloat16, 16 channels of HBM take ten times as long for it as for a request."""


def with_rows(network: Network, ports: int, bits: int) -> Network:
    """Return the network in which known matrices are turned for products with vectors, and cut into blocks of columns.

    A row times the turned matrix sums neighbours in DRAM at once, which a matrix times a vector does not. Each block
    comes through a port of its own. Products of different sizes share the ports. But if the bitstream cannot have all
    matrices, they are cut into parts of one size, and one piece of hardware with all ports does them one by one.

    Args:
        ports: to the device's memory.
        bits: of memory that the bitstream can fill.
    """
    # By loops: here the kernel of matrices would multiply zeros.
    known = {s.name: replace(work, params={**work.params, "W": 1}) for s, work in network.worked if work.kind == "gemv"}
    plain = {
        step.name: matrix
        for step in network.steps
        if step.name in known and step.inputs[0] in network.constants
        for matrix in interface(loaded(known[step.name]))[0][:1]
        if matrix.shape[1] == known[step.name].params["K"]  # packed weights stay as they are
    }
    part = tuple(np.gcd.reduce([one.shape for one in plain.values()] or [(0, 0)]).tolist())
    is_cut = math.prod(part) >= LEAST_PART and 8 * sum(one.bytes for one in plain.values()) > bits
    # The vector and the result have a port each as well.
    most = ports // (1 if is_cut else max(1, len({str(work.params) for work in known.values()}))) - 2
    made = replace(network, steps=[], constants=dict(network.constants), shapes=dict(network.shapes))
    for step in network.steps:
        step = replace(step, work=known.get(step.name, step.work))
        if matrix := plain.get(step.name):
            cut = is_cut and not step.others and matrix.dtype.bits > 8  # sums of whole numbers are wider
            step = _in_rows(made, step, matrix.shape, part if cut else matrix.shape, most)
        made.steps.append(step)
    return made


def _in_rows(network: Network, step: Step, size: Shape, part: Shape, most: int) -> Step:
    """Add products of a row with parts of a turned matrix; return the step that writes the result.

    Args:
        most: blocks that a part may have.
    """
    (matrix, vector), element, (rows, depth) = step.inputs, step.work.params["Ty"], part  # type: ignore[union-attr]
    for blocks in BLOCKS:
        with suppress(StudyError):  # of sizes without tiles
            if blocks <= max(1, most) and rows % blocks == 0:
                work = gemm_work(1, rows, depth, element, blocks=blocks)
                break
    else:
        return step
    sums: list[str] = []
    for k, across in enumerate(np.split(network.constants[matrix].reshape(size), size[1] // depth, 1)):
        products = []
        for at, own in enumerate(np.split(across, size[0] // rows)):
            name = f"{step.name}.{at}.{k}"
            cut = [np.ascontiguousarray(one.T) for one in np.split(own, blocks)]
            weights = [network.constant(f"{name}.turned{n}", one) for n, one in enumerate(cut)]
            if part == size:
                return replace(step, work=work, inputs=(vector, *weights))
            row = arrange(lambda x, k=k: x.reshape(-1, depth)[k], [network.shapes[vector]])
            own_row = network.add(row, vector, name=f"{name}.row")
            products.append(network.add(work, own_row, *weights, name=name))
        joined = Arrange(lambda *every: np.concatenate(every, axis=None), False)
        sums.append(network.add(joined, *products, name=f"{step.name}.sum{k}"))
    while len(sums) > 1:
        first, second = sums.pop(0), sums.pop(0)
        sums.append(network.add(binary_work("add", size[0], element), first, second, name=f"{first}.{len(sums)}"))
    return replace(step, work=Arrange(np.ravel, True), inputs=(sums[0],))


# Fusion of neighbouring steps into one program, which keeps the tensors between them out of DRAM.


class Operator(Frozen):
    """A unit that designs are searched for: one step of the network, or several fused into one.

    Attributes:
        step: reads the external inputs and writes the result of the last step.
        names: of the network's steps.
        skips: names of steps whose results only other ways to do its steps read.
        key: of its work, shared by equal operators.
        copy: number of its hardware, where equal operators may have more than one.
        tables: positions of the operands that the bitstream may have.
    """

    step: Step
    work: Work
    names: tuple[str, ...]
    key: str = ""
    copy: int = 0
    tables: tuple[int, ...] = ()
    skips: tuple[str, ...] = ()

    @property
    def covers(self) -> tuple[str, ...]:
        """The names of the steps that no other operator may do if this one runs."""
        return self.skips + self.names


def single_operators(network: Network) -> Iterator[Operator]:
    """Yield every step that programs do as operators of its own: one per program and element type."""
    skipped = optional_steps(network)
    for step in network.steps:
        used = skipped.keys() & {name for one in step.ways for name in one.inputs}
        for one in step.ways:
            skips = tuple(skipped[name] for name in sorted(used.difference(one.inputs)))
            yield Operator(one, one.work, (step.name,), skips=skips)  # type: ignore[arg-type]


def optional_steps(network: Network) -> dict[str, str]:
    """Map the tensors that only alternatives of steps read to the names of the steps that write them."""
    read = {*network.outputs, *(name for step in network.steps for name in step.inputs)}
    others = {name for step in network.steps for one in step.others for name in one.inputs}
    return {step.output: step.name for step, _ in network.worked if step.output in others - read}


def without(network: Network, names: Collection[str]) -> Network:
    """Return the network without optional steps, and without the alternatives that read their results."""
    lost = {tensor for tensor, name in optional_steps(network).items() if name in names}
    kept = (step for step in network.steps if step.output not in lost)
    steps = [replace(s, others=tuple(one for one in s.others if lost.isdisjoint(one.inputs))) for s in kept]
    return replace(network, steps=steps)


def fused_operators(network: Network) -> Iterator[Operator]:
    """Yield fusions of steps with the steps after them.

    A step is fused with what reads its result, if nothing else that may run reads it too.
    """
    singles, steps = list(single_operators(network)), network.readers
    readers: dict[str, list[Operator]] = {}
    for one in singles:
        for name in dict.fromkeys(one.step.inputs):
            readers.setdefault(name, []).append(one)
    waiting = singles[::-1]
    while waiting:
        one = waiting.pop()
        result = _as_read(network, steps, one.step.output)
        found = readers.get(result, []) if one.work.reference else []
        for after in found:
            read = after.step.inputs
            if read.count(result) > 1 or any(set(after.covers).isdisjoint(other.covers) for other in found):
                continue
            others = tuple(name for name in read if name != result)
            work = fused_work(one.work, after.work, read.index(result))
            if work is not None:  # there is a program for both
                names, skips = one.names + after.names, one.skips + after.skips
                step = replace(one.step, name="+".join(names), work=work, inputs=one.step.inputs + others)
                waiting.append(Operator(replace(step, output=after.step.output), work, names, skips=skips))
                yield waiting[-1]


def _as_read(network: Network, readers: Mapping[str, list[Step]], name: str) -> str:
    """Return the name by which programs alone read a tensor, if at most its shape changes before; empty otherwise."""
    match [step for step in readers.get(name, []) if not isinstance(step.work, Work)]:
        case _ if name in network.outputs:
            return ""
        case []:
            return name
        case [Step(work=Arrange(free=True), inputs=(_,), output=output)] if len(readers[name]) == 1:
            return _as_read(network, readers, output)
        case _:
            return ""
