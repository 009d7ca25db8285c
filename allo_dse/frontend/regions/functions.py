"""A plain typed function as a program: one task, whose results are extra arguments at the end.

def add(A: int32[M], B: int32[M]) -> int32[M]:          arguments A, B and return_0
    return allo.add(A, B)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType

from allo_dse.lang.diagnostics import ProgramError
from allo_dse.lang.memory import Memory
from allo_dse.lang.region import enclosing_names
from allo_dse.lang.types import DType, TensorType
from allo_dse.program.index_maps import IndexMap
from allo_dse.program.tensors import Tensor

from ..model.source_file import function_source, names_of
from .read_regions import bind_type_parameters, plain_arguments, tensor_type
from .region_sources import KernelSource, Parameter, Part, RegionSource

RESULT = "return_"


def is_typed(function: FunctionType) -> bool:
    """Whether a function is a program: all its parameters have types of the language (or strings, to be evaluated).

    One without parameters is a program if its result has such a type.
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
    function: FunctionType, arguments: Sequence[object] = (), around: Mapping[str, object] | None = None
) -> RegionSource:
    """A function as a region with one kernel of one task.

    Args:
        arguments: values for its type parameters.
        around: what names stand for that nothing else gives a meaning.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    file, node = function_source(function)
    enclosing = enclosing_names(function.__code__, sys._getframe(1))
    names = {**(around or {}), **names_of(function, enclosing)}
    source = RegionSource(node.name, file, names, enclosing=enclosing, around=around or {})
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
    """Per result the argument that every `return` names there: what is returned is its memory, as in Python."""
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
            yield from _statements([inner for inner in ast.iter_child_nodes(statement) if isinstance(inner, ast.stmt)])


def _whole(tensor: Tensor, node: ast.AST, memory: Memory | None) -> Parameter:
    rank = len(tensor.shape)
    tile = IndexMap((1,) * rank, ((0,),) * rank, (0,) * rank)
    return Parameter(tensor.name, tensor, (None,) * rank, tensor.shape, tile, node, memory)
