"""`from_torch`: a module of PyTorch as a network, by PyTorch's own exporter to ONNX.

    network = dse.from_torch(module, (torch.zeros(1, 128, 768),))                  # PyTorch is installed here
    network = dse.from_torch_file("block.py", settings={"length": 128})            # another interpreter has it

PyTorch from the registry of Python packages brings gigabytes of CUDA libraries. Debian has it for CPUs alone, for the
system's Python: `apt-get install python3-torch`.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import StudyError

from ..network import Network
from . import torch_export
from .convert import from_onnx
from .graph import load_model

if TYPE_CHECKING:
    import torch

PYTHON = "/usr/bin/python3"
"""The interpreter that Debian's packages are for."""

_INSTALL = (
    "apt-get install python3-torch, or python= an interpreter that imports torch and, for its exporter, onnxscript"
)


def from_torch(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], **options: Any) -> Network:
    """Convert a PyTorch module to a network, as it infers. Options and errors are those of `from_onnx`.

    Args:
        example_inputs: tensors to call it with; their shapes are the network's.

    Raises:
        StudyError: without PyTorch.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise StudyError(
            "from_torch needs PyTorch", hint=f"pip install torch, or dse.from_torch_file with {_INSTALL}"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        torch_export.write_model(module, example_inputs, str(model))
        return from_onnx(load_model(model, type(module).__name__), **options)


def from_torch_file(
    path: str | Path,
    function: str = "model",
    *,
    settings: Mapping[str, object] | None = None,
    python: str | Path = PYTHON,
    **options: Any,
) -> Network:
    """Convert a module that a Python file makes, in another interpreter that has PyTorch.

    Options and errors are those of `from_onnx`.

    Args:
        path: a file with `def model(**settings)` that returns the module and its example inputs. It imports neither
            this package nor packages that the interpreter lacks.
        function: name of that function.
        settings: its arguments: numbers, texts and lists of them.
        python: the interpreter.

    Raises:
        StudyError: if the interpreter, the file or the exporter fails, with its last message.
    """
    file = Path(path).resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        arguments = [str(file), function, json.dumps(dict(settings or {})), str(model)]
        _run([str(python), "-c", inspect.getsource(torch_export), *arguments], file)
        return from_onnx(load_model(model, file.stem), **options)


def _run(command: list[str], file: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent)
    except OSError as error:
        raise StudyError(f"{command[0]} does not run: {error.strerror}", hint=_INSTALL) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        hint = _INSTALL if "No module named 'torch'" in said else f"try it with {command[0]} alone"
        raise StudyError(f"{file}: {command[0]} exports no model of it: {said}", hint=hint)
