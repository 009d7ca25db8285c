"""Rules of Allo about programs, however they are folded. Sources: github.com/cornell-zhang/allo, commit a098603."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.violation import Violation

from .rule import AlloRule, Subject, rule

MOST_TASKS = 262_144
"""Allo folds task by task in Python. With the export's `allo_folding.py` its time is linear: 20 s for 32,768 tasks, so
about three minutes here. Without it, time grows with the square: 10 s for 8,192 tasks, 190 s for 32,768."""
MOST_HOST_BUFFERS = 4
"""`allo.backend.aie.utils.Config.MAX_IO_BUFFER`."""
MOST_DIMENSIONS = 2

CONSTRUCTS: Mapping[str, str] = {
    "stream index": "Allo has to know which stream it is when it compiles: with allo.meta_for(n) as i: ...",
    "call": "Allo compiles no functions for the AI engine: write the body in its place",
    "region call": "Allo builds no regions that tasks call for the AI engine: declare their kernels in this region",
    "max": "there is no such operation in Allo for the AI engine: assign inside of `if a > b:`",
    "min": "there is no such operation in Allo for the AI engine: assign inside of `if a < b:`",
    "abs": "there is no such operation in Allo for the AI engine: assign inside of `if a < 0:`",
    "choice": "there is no such operation in Allo for the AI engine: use an `if` statement",
    "bits": "Allo takes shifts and bits of no operand that it meets there: use *, // or %",
    "**": "Allo takes no powers: multiply, or use allo.power on floats",
    "@": "write allo.matmul(a, b)",
    "floor division": "Allo divides only integers with //: use /",
    "half comparison": "Allo compares no bfloat16: declare `x: float32 = ...` and compare that",
    "float beside a tile": "Allo takes a float beside a tile by function only: allo.add(tile, 1.5)",
    "broadcast of one": "Allo repeats whole vectors, no dimension of a single element: write it as a loop",
    "function of integers": "Allo's functions are of floats: declare `x: float32 = ...` and use that",
    "number first": "the tile comes first: allo.add(tile, 1)",
    "negated tile": "write allo.mul(tile, -1)",
    "slice": "Allo takes slices whose bounds are known when it compiles: with allo.meta_for(n) as i: ...",
    "index beside a slice": "beside a slice Allo takes a name or a number: give the index a name with allo.meta_for",
    "slice of one": "Allo drops dimensions of a single element: write the index, or loop over the elements",
    "chained comparison": "write `a < b and b < c`",
    "scalar relu": "Allo takes tiles only: assign inside of `if a < 0:`",
    "type call": "declare a variable of that type: `x: float32 = ...`",
    "tiles of two types": "Allo's functions take tiles of one type, and its operators mix integers only: write a loop",
    "tile of another type": "Allo's compiler aborts: convert element by element",
    ".copy()": "write allo.copy(tile)",
    "view": "write it as a loop over the elements",
    "ones": "declare a tile with that value: `x: T[M, N] = 1`",
    "zeros": "declare a tile with that value: `x: T[M, N] = 0`",
    "range": "Allo's loops run forwards: turn the index around",
    "break": "put what follows into an `if`",
    "continue": "put what follows into an `if`",
}
"""Constructs that Allo's front end rejects for the AI engine, and their replacements."""

OPERATIONS: Mapping[str, str] = {
    "gelu": "write it with allo.exp, or element by element",
    "layernorm": "write it element by element",
    "tril": "write it element by element",
    "sum": "add up in a loop",
    **dict.fromkeys(("tanh", "sin", "cos", "sqrt", "power"), "write it element by element, or with allo.exp"),
}
"""Tile operations without code for the AI engine."""


@rule(
    "allo_source",
    'allo.ir.infer, allo.ir.builder with typing rules "cpp-style"; allo.dataflow.move_stream_to_interface',
    folded=False,
)
def constructs(subject: Subject) -> Iterator[Violation]:
    """Constructs that Allo's front end rejects, with their place and a replacement."""
    for one in subject.program.constructs:
        if one.kind in CONSTRUCTS:
            yield Violation("allo_source", f"{one.location}", 1, 0, f"`{one.text}`: {CONSTRUCTS[one.kind]}")


@rule("allo_source", "allo.backend.aie.utils.inject_external_kernels", folded=False)
def operations(subject: Subject) -> Iterator[Violation]:
    """Tile operations that have no code for the AI engine."""
    found: dict[tuple[str, str], str] = {}
    for kernel in subject.program.kernels:
        for cls in kernel.classes:
            for op in cls.work:
                if op.kind in OPERATIONS:
                    found[op.kind, str(op.location or kernel.name)] = OPERATIONS[op.kind]
    for (kind, where), hint in found.items():
        yield Violation("allo_source", where, 1, 0, f"`allo.{kind}` has no code for the AI engine in Allo: {hint}")


ELEMENTS = frozenset(
    {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32)} | {"float16", "float32", "bfloat16"}
)
"""Element types of object FIFOs; tensors of int4 are packed in pairs."""


@rule("allo_source", "allo.backend.aie.utils.get_aie_mlir_dtype_from_str", folded=False)
def tensor_types(subject: Subject) -> Iterator[Violation]:
    """Tensors pass through object FIFOs, and fixed-point numbers have no code for the AI engine."""
    for tensor in subject.program.tensors:
        if str(tensor.dtype) not in ELEMENTS | {"int4"}:
            yield Violation("allo_source", f"tensor {tensor.name}", 1, 0, no_fifo(str(tensor.dtype)))
    fixed = [op for cls in subject.program.task_classes for op in cls.work if any(t.is_fixed for t in op.dtypes)]
    for where in dict.fromkeys(str(op.location) for op in fixed if op.location):
        yield Violation("allo_source", where, 1, 0, "Allo has no fixed-point numbers on the AI engine: scale integers")


def no_fifo(dtype: str) -> str:
    """Return why a tensor or stream of an element type is refused."""
    return f"Allo has no FIFOs of {dtype}: use integers of 8, 16 or 32 bits, float16, float32 or bfloat16"


@rule("allo_tasks", "allo.backend.aie.mapping.ComputationGraph: bundle_multi, chain", folded=False)
def task_count(subject: Subject) -> Iterator[Violation]:
    """Folding takes time for every task."""
    if subject.vmg.task_count > MOST_TASKS:
        detail = "Allo folds task by task, for minutes; use larger tiles"
        yield Violation("allo_tasks", subject.program.name, subject.vmg.task_count, MOST_TASKS, detail)


def buffer_kinds(program: CompiledProgram) -> dict[str, tuple[str, str]]:
    """Return the element type and the direction of each tensor that is used, in the order of the arguments."""
    ports = [port for cls in program.task_classes for port in cls.used_ports]
    written = {port.tensor.name: port.writes for port in sorted(ports, key=lambda port: port.writes)}
    used = (tensor for tensor in program.tensors if tensor.name in written)
    return {tensor.name: (str(tensor.dtype), "out" if written[tensor.name] else "in") for tensor in used}


@rule("host_buffers", "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, runtime sequence", folded=False)
def host_buffers(subject: Subject) -> Iterator[Violation]:
    """Tensors of one element type and direction are packed into one buffer, or several while there are any left.

    Buffers go to the kinds by turns. Allo leaves out those that no tensor is packed into, and counts them nevertheless.
    """
    kinds = Counter(buffer_kinds(subject.program).values())
    said = ", ".join(f"{dtype} {way}" for dtype, way in kinds)
    if len(kinds) > MOST_HOST_BUFFERS:
        detail = f"one per element type and direction: {said}"
        yield Violation("host_buffers", "the host", len(kinds), MOST_HOST_BUFFERS, detail)
        return
    buffers = [range(first, MOST_HOST_BUFFERS, len(kinds)) for first in range(len(kinds))]
    used = {slot for own, count in zip(buffers, kinds.values(), strict=True) for slot in own[:count]}
    if used and max(used) >= len(used):
        detail = f"Allo leaves one of them empty, and miscounts: those with more tensors come first, of {said}"
        yield Violation("host_buffers", "the host", max(used) + 1, len(used), detail)


@rule(
    "allo_tensor_rank",
    "allo.memory.DTensor.set_access_pattern; CodeGenerator.aie_codegen, runtime sequence",
    folded=False,
)
def tensors(subject: Subject) -> Iterator[Violation]:
    """Descriptors are made for vectors and matrices, and every tensor of the region has one."""
    used = {port.tensor.name for cls in subject.program.task_classes for port in cls.used_ports}
    for tensor in subject.program.tensors:
        if len(tensor.shape) > MOST_DIMENSIONS:
            yield Violation("allo_tensor_rank", f"tensor {tensor.name}", len(tensor.shape), MOST_DIMENSIONS)
        if not tensor.shape:
            detail = "a single value: give the region a vector of one element"
            yield Violation("allo_tensor_rank", f"tensor {tensor.name}", 1, 0, detail)
        if tensor.name not in used:
            detail = (
                "no kernel reads or writes it, and Allo needs a use of each: leave it out of the region's arguments"
            )
            yield Violation("allo_unused_tensor", f"tensor {tensor.name}", 1, 0, detail)


@rule("allo_kernel_shapes", "allo.backend.aie.utils.inject_external_kernels", folded=False)
def kernel_shapes(subject: Subject) -> Iterator[Violation]:
    """A kernel that is not named by its shape takes one shape in the whole program.

    So it is with sums and products of tiles, and for XDNA2 with matrix products; for XDNA1 Allo has kernels by shape
    (ALLO_EXTERNAL_KERNEL_DIR).
    """
    kinds = {"add", "mul"} if subject.device.architecture == "xdna1" else {"add", "mul", "matmul"}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for cls in subject.program.task_classes:
        for op in cls.work:
            if op.kind in kinds:
                types = "->".join(dict.fromkeys((str(op.dtypes[0]), str(op.dtypes[-1]))))
                shapes.setdefault(f"allo.{op.kind} of {types}", set()).add(op.shape)
    for kernel_name, different in shapes.items():
        if len(different) > 1:
            detail = ", ".join("x".join(map(str, shape)) for shape in sorted(different))
            yield Violation("allo_kernel_shapes", kernel_name, len(different), 1, detail)


PROGRAM_RULES: tuple[AlloRule, ...] = (
    constructs,
    operations,
    tensor_types,
    tensors,
    host_buffers,
    kernel_shapes,
    task_count,
)
