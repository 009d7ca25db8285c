"""What results of an evaluator are kept by, across runs."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from allo_dse.common.plain_text import collection_text
from allo_dse.eval.evaluator import Evaluator, full_name

_PACKAGE = __name__.partition(".")[0]


def evaluator_key(evaluator: Evaluator) -> str:
    """Name, version, source code and, of an evaluator that is not of this package, the plain data it was made with: of
    an object its public attributes, of functions what they take from around them and their defaults."""
    function = getattr(evaluator, "function", None)
    made_of: Any = type(evaluator) if function is None else function
    told = "" if made_of.__module__.partition(".")[0] == _PACKAGE else _surroundings(evaluator, function)
    return f"{full_name(evaluator)} {_source_digest(made_of)}{told}"


def _surroundings(evaluator: Evaluator, function: Any) -> str:
    if function is not None:
        return _told(function, [])
    public = {name: value for name, value in sorted(vars(evaluator).items()) if not name.startswith("_")}
    inherited = [one for kind in type(evaluator).__mro__ for one in vars(kind).values()]
    return _told([public, *(one for one in inherited if isinstance(one, FunctionType))], [])


def _told(value: Any, told: list[FunctionType]) -> str:
    """Plain data as a text that is the same in every process; a function by what it takes from around it and, in a
    notebook, by what it does; anything else by its kind.

    Args:
        told: functions that are told of already; added to.
    """
    if isinstance(value, FunctionType):
        return value.__qualname__ if value in told else f"{value.__qualname__}{_told_of(value, told)}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(_told(one, told) for one in value)) + "}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, Path, np.generic)):
        return repr(value)
    found = collection_text(value, partial(_told, told=told))
    return type(value).__qualname__ if found is None else found


def _told_of(function: FunctionType, told: list[FunctionType]) -> str:
    told.append(function)
    code, around = function.__code__, function.__globals__
    own = around is told[0].__globals__  # what functions of other modules count on is those modules' matter
    taken = {name: around[name] for name in _names(code) if name in around} if own else {}
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    text = _told([cells, function.__defaults__, function.__kwdefaults__, taken], told)
    return text if Path(code.co_filename).is_file() else f"{_code_text(code)}{text}"


def _names(code: CodeType) -> list[str]:
    """The names that code looks up, with those that functions which are defined in it do."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inner]


@cache
def _source_digest(kind: Any) -> str:
    """Of the code behind an evaluator: all of this package for one of ours, else the module that defines its class or
    function; nothing more than its name in a notebook."""
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode())
    if kind.__module__.partition(".")[0] == _PACKAGE:
        files = sorted(Path(__file__).parents[2].rglob("*.py"))
    else:
        try:
            files = [Path(inspect.getfile(kind))]
        except (TypeError, OSError):
            files = []
    for file in files:
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _code_text(code: CodeType) -> str:
    """What a function does, with those that are defined in it."""
    inner = [_code_text(one) if isinstance(one, CodeType) else _told(one, []) for one in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{inner}"
