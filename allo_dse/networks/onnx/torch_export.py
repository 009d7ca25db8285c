"""Writes a module of PyTorch as an ONNX model. Other interpreters run this text, too: it imports nothing of ours.

python -c TEXT FILE FUNCTION SETTINGS MODEL: what FUNCTION of FILE returns for SETTINGS, in JSON, as MODEL.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def write_model(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], path: str) -> None:
    """The module as it infers, by PyTorch's own exporter with its own defaults; if that fails, by its older one."""
    import torch

    was_training = module.training
    module.eval()
    try:
        try:
            torch.onnx.export(module, tuple(example_inputs), path, **_translations())
        except Exception as newer:
            try:
                torch.onnx.export(module, tuple(example_inputs), path, dynamo=False)
            except Exception:
                raise newer from None
    finally:
        module.train(was_training)


def _translations() -> dict[str, Any]:
    """The exporter's option for products in groups, as of experts: each row times the matrix of its group."""
    import torch

    def grouped(rows: Any, matrices: Any, ends: Any) -> Any:
        from onnxscript import opset18 as op  # type: ignore[import-not-found]

        number = op.Range(0, op.Squeeze(op.Shape(rows, start=0, end=1)), 1)
        after = op.GreaterOrEqual(op.Unsqueeze(number, [1]), op.Cast(ends, to=7))
        group = op.ReduceSum(op.Cast(after, to=7), [1], keepdims=0)
        return op.Squeeze(op.MatMul(op.Unsqueeze(rows, [1]), op.Gather(matrices, group)), [1])

    own = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {"custom_translation_table": {own.default: grouped}} if own else {}


if __name__ == "__main__":
    file, function, settings, model = sys.argv[1:]
    made, examples = runpy.run_path(file)[function](**json.loads(settings))
    write_model(made, examples, model)
