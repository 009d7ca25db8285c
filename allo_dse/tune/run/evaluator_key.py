"""What results of an evaluator are kept by, across runs."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from allo_dse.eval.evaluator import Evaluator, full_name

from ..declare.function_text import told

_PACKAGE = __name__.partition(".")[0]


def evaluator_key(evaluator: Evaluator) -> str:
    """Name, version, source code and, of an evaluator that is not of this package, the plain data it was made with: of
    an object its public attributes, of functions what they take from around them and their defaults."""
    function = getattr(evaluator, "function", None)
    made_of: Any = type(evaluator) if function is None else function
    around = "" if made_of.__module__.partition(".")[0] == _PACKAGE else _surroundings(evaluator, function)
    return f"{full_name(evaluator)} {_source_digest(made_of)}{around}"


def _surroundings(evaluator: Evaluator, function: Any) -> str:
    if function is not None:
        return told(function)
    public = {name: value for name, value in sorted(vars(evaluator).items()) if not name.startswith("_")}
    inherited = [one for kind in type(evaluator).__mro__ for one in vars(kind).values()]
    return told([public, *(one for one in inherited if isinstance(one, FunctionType))])


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
