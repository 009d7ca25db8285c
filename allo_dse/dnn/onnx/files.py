"""Networks from files: an ONNX model, or a Python file with a function that returns a `Network`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.tune.study_file import call, execute_file

from ..network import Network
from .convert import from_onnx


def load_network(path: str | Path, settings: Mapping[str, str] | None = None) -> Network:
    """The network of a file.

    Args:
        path: an ONNX model, or a Python file with `def network(...) -> dse.Network`.
        settings: arguments of that function as text; of a model `element`, and the sizes of its open dimensions.

    Raises:
        StudyError: when there is no network in it, no such setting, or it does not run.
    """
    file, given = Path(path), dict(settings or {})
    if file.suffix != ".py":
        element = given.pop("element", "bf16")
        return from_onnx(file, element=element, sizes={name: _size(name, text) for name, text in given.items()})
    function = getattr(execute_file(file), "network", None)
    if not inspect.isfunction(function):
        raise StudyError(f"{file} defines no network", hint="write `def network(...) -> dse.Network:` that returns one")
    parameters = inspect.signature(function).parameters
    for name in given:
        if name not in parameters:
            hint = f"{did_you_mean(name, parameters)}There are: {', '.join(parameters)}"
            raise StudyError(f"{file} has no setting {name!r}", hint=hint)
    made = call(function, file, given)
    if not isinstance(made, Network):
        raise StudyError(f"{file}: network() returned {type(made).__name__}, not a Network")
    return made


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):  # ONNX's integers
        raise StudyError(f"--set {name}={text}: not the size of a dimension", hint="a positive whole number")
    return int(text)
