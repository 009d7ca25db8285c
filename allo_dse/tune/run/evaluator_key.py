"""What results of an evaluator are kept by, across runs."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from allo_dse.common.plain_text import collection_text
from allo_dse.eval.evaluator import Evaluator, full_name

_PACKAGE = __name__.partition(".")[0]


def evaluator_key(evaluator: Evaluator) -> str:
    """Name, version, source code and, of an evaluator that is not of this package, the plain data it was made with: of
    an object its public attributes, of a function what it takes from around it and its defaults."""
    function = getattr(evaluator, "function", None)
    made_of: Any = type(evaluator) if function is None else function
    told = "" if made_of.__module__.partition(".")[0] == _PACKAGE else _surroundings(evaluator, function)
    return f"{full_name(evaluator)} {_source_digest(made_of)}{told}"


def _surroundings(evaluator: Evaluator, function: Any) -> str:
    if function is not None:
        return _told(function)
    return _told({name: value for name, value in sorted(vars(evaluator).items()) if not name.startswith("_")})


def _told(value: Any) -> str:
    """Plain data as a text that is the same in every process; anything else by its kind."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return f"{value.__qualname__}{_told([cells, value.__defaults__, value.__kwdefaults__])}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_told, value))) + "}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, Path, np.generic)):
        return repr(value)
    found = collection_text(value, _told)
    return type(value).__qualname__ if found is None else found


@cache
def _source_digest(kind: Any) -> str:
    """Of the code behind an evaluator: all of this package for one of ours, else the module that defines its class or
    function; of a function in a notebook, its own."""
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
        elif code := getattr(kind, "__code__", None):
            digest.update(_code_text(code).encode())
    return digest.hexdigest()[:16]


def _code_text(code: CodeType) -> str:
    """What a function does, with those that are defined in it."""
    inner = [_code_text(one) if isinstance(one, CodeType) else _told(one) for one in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{inner}"
