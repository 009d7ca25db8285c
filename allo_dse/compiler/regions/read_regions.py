"""Reading a region: from its source to tensors, streams and kernels. Nothing is compiled yet."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, MappingProxyType

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Ints
from allo_dse.lang.memory import Layout, Memory
from allo_dse.lang.region import Region, enclosing_names, kernel, rules_of
from allo_dse.lang.types import ConstExprType, DType, StreamType, TensorType

from ..model.source_file import SourceFile, function_source, names_of, statements_in
from ..program.tensors import IndexMap, StreamArray, Tensor
from .region_sources import KernelSource, Parameter, Part, RegionSource, is_text


def read_region(region: Region, prefix: str = "", actual: Sequence[Part] | None = None) -> RegionSource:
    """Read a region's declarations.

    Args:
        prefix: put before the names of its streams and kernels.
        actual: the values of its arguments, when another region's task calls it.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    file, node = function_source(region.function)
    source = RegionSource(region.name, file, names_of(region.function, region.enclosing), prefix)
    source.enclosing = region.enclosing
    source.rules = rules_of(region)
    source.scope = region.function.__qualname__.removesuffix(region.function.__name__)
    bind_type_parameters(source, node, region.arguments)
    arguments = plain_arguments(file, node)
    if actual is not None and len(actual) != len(arguments):
        file.fail(node, f"region `{region.name}` takes {len(arguments)} arguments, {len(actual)} are given")
    for position, argument in enumerate(arguments):
        type_ = tensor_type(source, argument)
        part = Part.whole(Tensor(argument.arg, type_.dtype, type_.shape))
        if actual is not None:
            _check_same(file, argument, type_, actual[position])
            part = actual[position]
        source.parts[argument.arg] = part
        source.tensor_nodes[argument.arg] = argument
    for statement in node.body:
        _read_statement(source, statement)
    if not source.kernels:
        file.fail(node, f"region `{region.name}` has no kernel", "define one inside it with @df.kernel(mapping=[...])")
    return source


def _check_same(file: SourceFile, argument: ast.arg, formal: TensorType, actual: Part) -> None:
    if (formal.dtype, formal.shape) != (actual.tensor.dtype, actual.shape):
        what = (
            f"`{actual.tensor.name}`" if actual.shape == actual.tensor.shape else f"the tile of `{actual.tensor.name}`"
        )
        file.fail(
            argument,
            f"`{argument.arg}` is declared as {formal}, but {what} is {TensorType(actual.tensor.dtype, actual.shape)}",
        )


def bind_type_parameters(
    source: RegionSource, node: ast.FunctionDef, values: Sequence[object], caller: Mapping[str, object] | None = None
) -> None:
    """Give type parameters their values; without any, those that the caller has under the same names."""
    parameters = [p.name for p in getattr(node, "type_params", [])]
    if not values and caller is not None and all(name in caller for name in parameters):
        values = [caller[name] for name in parameters]
    if not parameters and caller is None:  # of a function that is scheduled: as in Allo, they have no effect
        values = []
    if len(parameters) != len(values):
        source.file.fail(
            node,
            f"`{node.name}` has {len(parameters)} type parameters, {len(values)} are given",
            f"instantiate it: {node.name}[{', '.join(parameters)}]" if parameters else "",
        )
    source.names.update(zip(parameters, values, strict=True))
    source.parts = {name: part for name, part in source.parts.items() if name not in parameters}


def plain_arguments(file: SourceFile, node: ast.FunctionDef) -> list[ast.arg]:
    """The parameters of a region or kernel."""
    rest = [a for a in (node.args.vararg, node.args.kwarg, *node.args.kwonlyargs) if a is not None]
    if rest or node.args.defaults:
        file.fail(
            rest[0] if rest else node.args.defaults[0], "regions and kernels take plain positional arguments only"
        )
    return [*node.args.posonlyargs, *node.args.args]


def tensor_type(source: RegionSource, argument: ast.arg) -> TensorType:
    """The declared type of a parameter; a scalar has rank 0."""
    if argument.annotation is None:
        source.file.fail(argument, f"argument `{argument.arg}` needs a type", f"write {argument.arg}: int32[M, N]")
    type_ = source.file.evaluate_annotation(argument.annotation, source.names)
    if isinstance(type_, DType):
        type_ = TensorType(type_, ())
    if not isinstance(type_, TensorType):
        source.file.fail(argument.annotation, f"`{argument.arg}` must have an element or tensor type, not {type_!r}")
    if 0 in type_.shape:
        source.file.fail(argument.annotation, f"`{argument.arg}` has an empty dimension: {type_}")
    return type_


def _read_statement(source: RegionSource, statement: ast.stmt) -> None:
    if is_text(statement):
        return
    if isinstance(statement, ast.FunctionDef):
        _read_kernel(source, statement)
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        _read_declaration(source, statement, statement.target.id)
    elif isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
        value = source.file.evaluate(statement.value, source.names)
        for name in (target.id for target in statement.targets if isinstance(target, ast.Name)):
            if isinstance(value, StreamType):  # the older spelling `pipe = df.pipe(dtype=..., shape=..., depth=...)`
                _declare_stream(source, statement, name, value)
            else:
                source.names[name] = value
    else:
        source.file.fail(
            statement,
            "a region contains only stream declarations and kernels",
            "move computations into a function decorated with @df.kernel",
        )


def _read_declaration(source: RegionSource, statement: ast.AnnAssign, name: str) -> None:
    type_ = source.file.evaluate_annotation(statement.annotation, source.names)
    if isinstance(type_, ConstExprType) and statement.value is not None:
        source.names[name] = source.file.evaluate(statement.value, source.names)
        return
    if not isinstance(type_, StreamType):
        source.file.fail(
            statement.annotation, f"only streams can be declared in a region; `{name}` is {type_!r}",
            "declare arrays inside kernels, or make them arguments of the region",
        )  # fmt: skip
    if statement.value is not None:
        source.file.fail(statement.value, "a stream declaration has no value")
    _declare_stream(source, statement, name, type_)


def _declare_stream(source: RegionSource, statement: ast.stmt, name: str, type_: StreamType) -> None:
    if name in source.streams or name in source.parts:
        source.file.fail(statement, f"`{name}` is declared twice")
    location = source.file.location(statement)
    source.streams[name] = StreamArray(
        source.prefix + name, type_.dtype, type_.block, type_.depth, type_.shape, location
    )
    source.stream_nodes[name] = statement


def _read_kernel(source: RegionSource, node: ast.FunctionDef) -> None:
    file = source.file
    call = _kernel_decorator(source, node)
    options = {k.arg: k.value for k in call.keywords}
    if "mapping" not in options:
        file.fail(call, f"kernel `{node.name}` needs mapping=[...]", "mapping=[1] is a single task")
    name = source.prefix + node.name
    if any(k.name == name for k in source.kernels):
        file.fail(node, f"kernel `{node.name}` is defined twice")
    mesh = _mesh(source, options["mapping"])
    arguments = plain_arguments(file, node)
    if "args" in options:
        listed = options["args"]
        if not isinstance(listed, (ast.List, ast.Tuple)):
            file.fail(listed, "args must be a list of the region's arguments")
        tensors = []
        for item in listed.elts:
            if not isinstance(item, ast.Name) or item.id not in source.parts:
                known = ", ".join(source.parts) or "none"
                file.fail(item, "args may only name arguments of the region", f"its arguments are: {known}")
            tensors.append(source.parts[item.id])
    else:  # its own parameters become arguments of the region, those with the same name one
        for argument in arguments:
            type_ = tensor_type(source, argument)
            if argument.arg not in source.parts:
                source.parts[argument.arg] = Part.whole(Tensor(argument.arg, type_.dtype, type_.shape))
                source.tensor_nodes[argument.arg] = argument
        tensors = [source.parts[argument.arg] for argument in arguments]
    if len(arguments) != len(tensors):
        file.fail(
            node,
            f"kernel `{node.name}` has {len(arguments)} parameters, but args lists {len(tensors)} arguments",
            "the i-th entry of args is passed as the i-th parameter",
        )
    parameters = tuple(_parameter(source, a, t, mesh) for a, t in zip(arguments, tensors, strict=True))
    source.kernels.append(KernelSource(name, node, mesh, parameters, file.location(node)))


def _kernel_decorator(source: RegionSource, node: ast.FunctionDef) -> ast.Call:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            function = source.file.evaluate(decorator.func, source.names)
            if function is kernel or getattr(function, "__name__", None) == "kernel":
                return decorator
    source.file.fail(node, f"function `{node.name}` inside a region must be a kernel", "add @df.kernel(mapping=[...])")


def _mesh(source: RegionSource, node: ast.expr) -> Ints:
    value = source.file.evaluate(node, source.names)
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= 3:
        source.file.fail(node, f"a mapping lists one to three extents, not {value!r}", "for example mapping=[4, 4]")
    for extent in value:
        if isinstance(extent, (bool, float)) or not isinstance(extent, (int, np.integer)) or extent < 1:
            source.file.fail(node, f"the extents of a mapping are positive integers, not {extent!r}")
    mesh = tuple(int(extent) for extent in value)
    try:
        source.rules.allow("tasks", math.prod(mesh), "a kernel")
    except ProgramError as error:
        source.file.fail(node, error.message, error.hint)
    return mesh


def _parameter(source: RegionSource, argument: ast.arg, part: Part, mesh: Ints) -> Parameter:
    type_ = tensor_type(source, argument)
    _check_same(source.file, argument, type_, part)
    layout = _layout(source, argument, type_.layout, len(part.shape), len(mesh))
    counts = [1 if axis is None else mesh[axis] for axis in layout]
    for dimension, (extent, count, axis) in enumerate(zip(part.shape, counts, layout, strict=True)):
        if extent % count:
            source.file.fail(
                argument,
                f"dimension {dimension} of {part.tensor.name} is {extent}, "
                f"not divisible by mesh axis {axis} of size {count}",
            )
    tile_shape = tuple(extent // count for extent, count in zip(part.shape, counts, strict=True))
    matrix = tuple(tuple(int(axis == a) for a in range(len(mesh))) for axis in layout)
    grid = tuple(outer * inner for outer, inner in zip(part.grid, counts, strict=True))
    first = tuple(outer * inner for outer, inner in zip(part.position, counts, strict=True))
    tile = IndexMap(grid, matrix, first)
    return Parameter(argument.arg, part.tensor, layout, tile_shape, tile, argument, type_.memory)


def _layout(
    source: RegionSource, argument: ast.arg, layout: Layout | None, rank: int, mesh_rank: int
) -> tuple[int | None, ...]:
    if layout is None:
        return (None,) * rank
    if len(layout) != rank:
        source.file.fail(
            argument, f"layout {layout} of `{argument.arg}` has {len(layout)} entries for {rank} dimensions"
        )
    try:
        return layout.axes(mesh_rank)
    except ProgramError as error:
        source.file.fail(argument, error.message, error.hint)


# A plain typed function is a program of one task, whose results are extra arguments at the end.
#
#   def add(A: int32[M], B: int32[M]) -> int32[M]:      arguments A, B and return_0
#       return allo.add(A, B)


RESULT = "return_"


def is_typed(function: FunctionType) -> bool:
    """Return whether a function is a program: all its parameters have types of the language.

    Types may be strings, which are evaluated. A function without parameters is a program if its result has such a type.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount] or ("return",)
    annotations = [function.__annotations__.get(name) for name in names]
    if not all(_may_be_type(a) for a in annotations):
        return False
    try:
        file, node = function_source(function)
        written = [a.annotation for a in node.args.args] if code.co_argcount else [node.returns]
        values = [
            file.evaluate_annotation(a, names_of(function, enclosing_names(function.__code__, sys._getframe(1))))
            for a in written
            if a is not None
        ]
    except ProgramError:
        return not any(isinstance(a, str) for a in annotations)
    return all(_may_be_type(v) and not isinstance(v, str) for v in values)


def _may_be_type(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_may_be_type, value))
    return isinstance(value, (DType, TensorType, str))


def read_function(
    function: FunctionType,
    arguments: Sequence[object] = (),
    around: Mapping[str, object] = MappingProxyType({}),
    enclosing: Mapping[str, object] = MappingProxyType({}),
) -> RegionSource:
    """A function as a region with one kernel of one task.

    Args:
        arguments: values for its type parameters.
        around: what names stand for that nothing else gives a meaning.
        enclosing: variables of the functions around it that have returned.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    file, node = function_source(function)
    enclosing = {**enclosing, **enclosing_names(function.__code__, sys._getframe(1))}
    names = {**around, **names_of(function, enclosing)}
    source = RegionSource(node.name, file, names, enclosing=enclosing, around=around)
    source.scope = function.__qualname__.removesuffix(function.__name__)
    bind_type_parameters(source, node, arguments)
    parameters = []
    for argument in plain_arguments(file, node):
        type_ = tensor_type(source, argument)
        parameters.append(_whole(Tensor(argument.arg, type_.dtype, type_.shape), argument, type_.memory))
        source.tensor_nodes[argument.arg] = argument
    results = _results(source, node)
    for position, type_ in enumerate(results):
        parameters.append(_whole(Tensor(f"{RESULT}{position}", type_.dtype, type_.shape), node, type_.memory))
    source.parts = {p.name: Part.whole(p.tensor) for p in parameters}
    returned = _returned_arguments(node, len(results))
    kernel = KernelSource(node.name, node, (1,), tuple(parameters), file.location(node), returned)
    source.kernels.append(kernel)
    return source


def _results(source: RegionSource, node: ast.FunctionDef) -> list[TensorType]:
    if node.returns is None:
        return []
    value = source.file.evaluate_annotation(node.returns, source.names)
    types = list(value) if isinstance(value, tuple) else [] if value is None else [value]
    for type_ in types:
        if not isinstance(type_, (DType, TensorType)):
            source.file.fail(node.returns, f"a result must have an element or tensor type, not {type_!r}")
    return [TensorType(t, ()) if isinstance(t, DType) else t for t in types]


def _returned_arguments(node: ast.FunctionDef, results: int) -> tuple[str | None, ...]:
    """Per result the argument that every `return` names there: its memory is returned, as in Python."""
    arguments = {argument.arg for argument in node.args.args}
    returns = [one.value for one in _statements(node.body) if isinstance(one, ast.Return)]
    values = [value.elts if isinstance(value, ast.Tuple) else [value] for value in returns]
    names = [[item.id if isinstance(item, ast.Name) else None for item in items] for items in values]
    places = [{items[k] if len(items) == results else None for items in names} for k in range(results)]
    return tuple(found.pop() if len(found) == 1 and found <= arguments else None for found in places)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements and those inside them, without those of local functions."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef):
            yield from _statements([*statements_in(statement)])


def _whole(tensor: Tensor, node: ast.AST, memory: Memory | None) -> Parameter:
    rank = len(tensor.shape)
    tile = IndexMap((1,) * rank, ((0,),) * rank, (0,) * rank)
    return Parameter(tensor.name, tensor, (None,) * rank, tensor.shape, tile, node, memory)
