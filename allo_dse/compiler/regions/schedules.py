"""Customizations of a program, checked against its arrays and loops."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Ints
from allo_dse.lang.schedule import Primitive

from ..model.source_file import did_you_mean, source_file
from ..program.compiled import CompiledProgram, Directive, Kernel, kernel_of

PARTITION_TYPES = {
    "complete": "complete",
    "block": "block",
    "cyclic": "cyclic",
    "0": "complete",
    "1": "block",
    "2": "cyclic",
}


def checked_schedule(program: CompiledProgram, primitives: Sequence[Primitive]) -> tuple[Directive, ...]:
    """The customizations as attributes of a program.

    Raises:
        ProgramError: for an array or loop that the program does not have, or options that do not suit it, at the line
            of the customization.
    """
    found = []
    for primitive in primitives:
        try:
            found.append(_directive(program, primitive))
        except ProgramError as error:
            file, line = primitive.line
            raise ProgramError(error.message, hint=error.hint, file=file, line=line) from None
    return tuple(found)


def _directive(program: CompiledProgram, primitive: Primitive) -> Directive:
    target = str(primitive.args[0]) if primitive.args else ""
    scope, colon, name = target.rpartition(":")
    if not colon:
        # A name without a scope is that of a tensor of the program, or of something in its only kernel.
        is_tensor = any(tensor.name == target for tensor in program.tensors)
        scope = program.name if is_tensor or len(program.kernels) != 1 else program.kernels[0].name
    known = _names(program, scope, primitive.name == "partition")
    if name not in known:
        what = "array" if primitive.name == "partition" else "loop"
        raise ProgramError(f"{primitive.name}: `{scope}` has no {what} `{name}`", hint=near_or_known(name, known))
    options = dict(primitive.options)
    if primitive.name == "partition":
        options = partition_options(target, known[name], options)
    require_numbers(primitive.name, target, options)
    return Directive(primitive.name, scope, name, options)


def require_numbers(kind: str, target: str, options: Mapping[str, object]) -> None:
    """Check the interval and the factor of a directive.

    Raises:
        ProgramError: if one of them is no such number.
    """
    for option, least in (("initiation_interval", 1), ("factor", 0)):
        value = options.get(option, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ProgramError(f"{kind}({target}): {option} must be an integer of at least {least}, not {value!r}")


def partition_options(target: str, shape: Ints | None, options: dict[str, object]) -> dict[str, object]:
    dim, factor = options.get("dim", 0), options.get("factor", 0)
    kind = str(options.get("partition_type", "complete")).rpartition(".")[2].lower()
    if kind not in PARTITION_TYPES:
        raise ProgramError(f"partition({target}): unknown partition_type {kind!r}", hint="complete, block or cyclic")
    if not isinstance(dim, int) or dim < 0 or (shape is not None and dim > len(shape)):
        rank = "" if shape is None else f"; `{target}` has {len(shape)} dimensions"
        raise ProgramError(f"partition({target}): there is no dimension {dim!r}{rank}", hint="dim=0 means all of them")
    if shape is not None and isinstance(factor, int):
        extents = shape if dim == 0 else (shape[dim - 1],)
        for extent in extents:
            if factor > extent:
                raise ProgramError(f"partition({target}): {factor} banks for {extent} elements")
    return {"dim": dim, "factor": factor, "partition_type": PARTITION_TYPES[kind]}


Shapes = Mapping[str, Ints | None]


def _names(program: CompiledProgram, scope: str, arrays: bool) -> Shapes:
    """The arrays (with their shapes, where known) or loops of a region, or of a kernel."""
    if scope == program.name or scope in _regions(program):
        whole: dict[str, Ints | None] = {t.name: t.shape for t in program.tensors} if arrays else {}
        whole |= {s.name: s.block for s in program.streams} if arrays else {}
        inner = [k for k in program.kernels if k.name == scope] or (program.kernels if not arrays else ())
        for kernel in inner:
            whole |= _of_kernel(kernel, arrays)
        return whole
    if (name := kernel_of(scope, program)) is not None:
        return _of_kernel(program.kernel(name), arrays)
    known = [*_regions(program), *(k.name for k in program.kernels)]
    raise ProgramError(f"schedule: the program has no region or kernel `{scope}`", hint=near_or_known(scope, known))


def _regions(program: CompiledProgram) -> list[str]:
    return list(dict.fromkeys([program.name, "top"]))


def _of_kernel(kernel: Kernel, arrays: bool) -> Shapes:
    node = _source_of(kernel)
    if node is None:
        return {}
    if not arrays:
        rewritten = (loop.name for task_class in kernel.classes for loop in task_class.loops)
        return dict.fromkeys([*_loops(node), *rewritten])
    found: dict[str, Ints | None] = {}
    for argument, tensor in zip(node.args.args, kernel.args, strict=False):
        found[argument.arg] = tensor.shape
    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            found[part.target.id] = None
    return found


def _loops(node: ast.FunctionDef) -> list[str]:
    """The variables of all loops, and the names given to grids."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.For):
            found += [name.id for name in ast.walk(part.target) if isinstance(name, ast.Name)]
            options = part.iter.keywords if isinstance(part.iter, ast.Call) else []
            found += [str(k.value.value) for k in options if k.arg == "name" and isinstance(k.value, ast.Constant)]
    return found


def _source_of(kernel: Kernel) -> ast.FunctionDef | None:
    location = kernel.location
    if location is None:
        return None
    functions = source_file(location.file).functions.values()
    return next((node for node in functions if node.lineno == location.line), None)


def near_or_known(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: one that is near it, or else all of them."""
    return did_you_mean(name, known) or f"known: {', '.join(known) or 'none'}"
