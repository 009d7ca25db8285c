"""Writes a module of PyTorch as an ONNX model. Other interpreters run this text, too: it imports nothing of ours.

python -c TEXT FILE FUNCTION SETTINGS MODEL: what FUNCTION of FILE returns for SETTINGS, in JSON, as MODEL.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def write_model(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], path: str) -> None:
    """The module as it infers, by PyTorch's own exporter with its own defaults; if that fails, by its older one."""
    import torch

    was_training = module.training
    module.eval()
    try:
        try:
            torch.onnx.export(module, tuple(example_inputs), path)
        except Exception as newer:
            try:
                torch.onnx.export(module, tuple(example_inputs), path, dynamo=False)
            except Exception:
                raise newer from None
    finally:
        module.train(was_training)


if __name__ == "__main__":
    file, function, settings, model = sys.argv[1:]
    made, examples = runpy.run_path(file)[function](**json.loads(settings))
    write_model(made, examples, model)
