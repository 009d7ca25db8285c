"""Texts that identify functions in every process, by their code and the values it uses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from allo_dse.common.errors import ProgramError, is_users
from allo_dse.common.records import collection_text
from allo_dse.compiler.model.source_file import function_source, names_of
from allo_dse.lang.externals import VliwKernel
from allo_dse.lang.region import Instance, Region


def identity_text(value: Any, known: list[FunctionType] | None = None) -> str:
    """Return a text that identifies a value in every process.

    Plain data appears as it is. A function, or an object made from one, appears as its code and the values it uses,
    without comments, docstrings and position. Anything else appears as its type.

    Args:
        known: functions that were described before; added to.
    """
    known = [] if known is None else known
    function = function_of(value)
    if function is not None:
        return (
            function.__qualname__ if function in known else f"{function.__qualname__}{_function_text(function, known)}"
        )
    if isinstance(value, partial):
        return identity_text([value.func, value.args, value.keywords], known)
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(identity_text(one, known) for one in value)) + "}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, Path, np.generic)):
        return repr(value)
    found = collection_text(value, lambda one: identity_text(one, known))
    return type(value).__qualname__ if found is None else found


def function_of(value: Any) -> FunctionType | None:
    """The function that a value is, or is made of, as a region or one that remembers its results."""
    inner = value.function if isinstance(value, Region | Instance | VliwKernel) else value
    inner = inspect.unwrap(inner) if callable(inner) else inner
    return inner if isinstance(inner, FunctionType) else None


def _function_text(function: FunctionType, known: list[FunctionType]) -> str:
    """Describe a function by its code and the values that it uses.

    Functions of installed packages count by their closures and defaults only.
    """
    own = not known or is_users(function.__code__.co_filename)
    known.append(function)
    text, names = _read(function) if own else ("", [])
    around = names_of(function, {})
    taken = {name: around[name] for name in (*function.__code__.co_freevars, *names) if name in around}
    for module in [one for one in taken.values() if isinstance(one, ModuleType)]:
        if is_users(getattr(module, "__file__", None) or ""):
            taken |= {f"{module.__name__}.{name}": vars(module)[name] for name in names if name in vars(module)}
    return text + identity_text([taken, function.__defaults__, function.__kwdefaults__], known)


def _read(function: FunctionType) -> tuple[str, Sequence[str]]:
    """Return a function's text and the names it looks up, with those of nested functions."""
    code = function.__code__
    try:
        _, node = function_source(function)
    except ProgramError:  # a lambda, or without source
        return _code_text(code), list(_names(code))
    # Compiled code does not contain annotations of variables.
    return _source_text(node), [*_names(code), *_names_in_annotations(node)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def annotation_names(function: FunctionType) -> list[str]:
    """Return the names in a function's annotations; compiled code lacks those of variables."""
    try:
        return list(_names_in_annotations(function_source(function)[1]))
    except ProgramError:  # a lambda, or without source
        return []


def _names_in_annotations(node: ast.FunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        for annotation in (getattr(part, "annotation", None), getattr(part, "returns", None)):
            for name in ast.walk(annotation) if isinstance(annotation, ast.AST) else ():
                if isinstance(name, ast.Name | ast.Attribute):
                    yield name.id if isinstance(name, ast.Name) else name.attr


def _source_text(node: ast.FunctionDef) -> str:
    """Without comments and docstrings."""
    bare = ast.parse(ast.unparse(node))  # a copy: the node belongs to the compiler
    for part in ast.walk(bare):
        if isinstance(part, ast.FunctionDef) and ast.get_docstring(part, clean=False) is not None:
            part.body[0] = ast.Pass()
    return ast.unparse(bare)


def _code_text(code: CodeType) -> str:
    inner = [_code_text(one) if isinstance(one, CodeType) else identity_text(one) for one in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{inner}"
