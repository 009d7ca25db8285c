"""Modules of PyTorch as networks, checked against what PyTorch itself computes, by an interpreter that has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import allo_dse as dse
from allo_dse.common.records import Array
from allo_dse.networks.network import Arrange, Network
from allo_dse.networks.onnx import torch_export
from allo_dse.networks.onnx.torch import PYTHON

from . import models

GPT2_BLOCK = Path("studies/networks/gpt2_block_torch.py")
RESNET_STAGE = Path("studies/networks/resnet_stage_torch.py")
LLAMA_LAYER = Path("studies/networks/llama_layer_torch.py")
TOLERANCE = 0.02  # of the largest value, after a block in bfloat16

RUN = """
import json, runpy, sys, torch
found = []
write_model = runpy.run_path(sys.argv[3])["write_model"]
for file, settings, exported in json.loads(sys.argv[1]):
    module, examples = runpy.run_path(file)["model"](**settings)
    write_model(module, examples, exported)
    given = torch.randn(examples[0].shape, generator=torch.Generator().manual_seed(1))
    found.append([given.tolist(), module.eval()(given).tolist()])
json.dump(found, open(sys.argv[2], "w"))
"""
ENCODER = """
import torch
from torch import nn

def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
    return nn.Sequential(layer, nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)), (torch.zeros(1, 16, 32),)
"""
MODELS: dict[Path, dict[str, object]] = {
    GPT2_BLOCK: {"length": 16, "width": 32, "heads": 2},
    LLAMA_LAYER: {"length": 16, "width": 32, "hidden": 48, "heads": 4, "kv_heads": 2},
    RESNET_STAGE: {"side": 4, "inside": 8, "blocks": 2},
}


@dataclass(frozen=True)
class Computed:
    """What PyTorch makes of a model: the ONNX file, and what it computes of what it is given."""

    exported: Path
    given: Array
    result: Array


Numbers = dict[Path, Computed]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "encoder.py"
    file.write_text(ENCODER)
    return file


@pytest.fixture(scope="module")
def computed(pytorch: None, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """What PyTorch exports, is given and computes, by model: one process for all, as importing it takes a second."""
    models, folder = {**MODELS, encoder: {}}, tmp_path_factory.mktemp("computed")
    path, exported = folder / "numbers.json", [folder / f"{file.stem}.onnx" for file in models]
    asked = [(str(file), settings, str(to)) for (file, settings), to in zip(models.items(), exported, strict=True)]
    command = [PYTHON, "-c", RUN, json.dumps(asked), str(path), torch_export.__file__]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads(path.read_text())
    return {
        file: Computed(to, np.array(given, np.float32), np.array(got, np.float32))
        for file, to, (given, got) in zip(models, exported, found, strict=True)
    }


def _difference(network: Network, computed: Computed) -> float:
    """Between the network in the simulator and PyTorch, over the largest value."""
    found = network.check({network.inputs[0]: computed.given}, {network.outputs[0]: computed.result})
    assert [one for one in found if not one.ok] == []
    return found[-1].largest


def _kinds(network: Network) -> list[str]:
    return [step.work.kind for step in network.steps if not (isinstance(step.work, Arrange) and step.work.free)]


def test_a_block_of_gpt2(computed: Numbers) -> None:
    """Exported as users have it done, which the other models are not."""
    network = dse.from_torch_file(GPT2_BLOCK, settings=MODELS[GPT2_BLOCK])
    assert network.name == "gpt2_block_torch"
    assert _kinds(network) == [
        *("norm", "gemm", "add", "layout", "layout", "attention", "gemm", "add_row", "add"),
        *("norm", "gemm", "add_gelu", "gemm", "add", "add"),
    ]
    assert _difference(network, computed[GPT2_BLOCK]) < TOLERANCE


def test_a_layer_of_llama_keeps_its_groups_of_heads_and_turns_halves(computed: Numbers) -> None:
    network = dse.from_onnx(computed[LLAMA_LAYER].exported)
    assert _kinds(network) == [
        *("norm", "gemm", "rope", "gemm", "rope", "gemm", "layout", "layout", "attention", "layout", "gemm", "add"),
        *("norm", "gemm", "gemm", "sigmoid_mul", "gemm", "add"),
    ]
    attention = next(work for _, work in network.worked if work.kind == "attention")
    assert (attention.params["KV"], attention.params["G"], attention.params["causal"]) == (2, 2, 1)
    assert _difference(network, computed[LLAMA_LAYER]) < TOLERANCE


def test_bottlenecks_of_resnet(computed: Numbers) -> None:
    network = dse.from_onnx(computed[RESNET_STAGE].exported)
    block = ["gemm", "add_row", "relu", "layout", "gemm", "add_row", "relu", "gemm", "add_row"]
    assert _kinds(network) == ["layout", *block, "gemm", "add_row", "add_relu", *block, "add_relu", "layout"]
    assert _difference(network, computed[RESNET_STAGE]) < TOLERANCE


def test_an_encoder_and_a_perceptron_of_pytorch_itself(computed: Numbers, encoder: Path) -> None:
    network = dse.from_onnx(computed[encoder].exported)
    assert _kinds(network)[-4:] == ["gemm", "add_relu", "gemm", "add"]
    assert _difference(network, computed[encoder]) < TOLERANCE


@pytest.mark.usefixtures("pytorch")
def test_a_file_that_fails_says_how(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def model(rows):\n    return 1 / rows, ()\n")
    with pytest.raises(dse.StudyError, match=r"broken.py: .* exports no model of it: ZeroDivisionError"):
        dse.from_torch_file(file, settings={"rows": 0})


def test_an_interpreter_without_pytorch_is_told_what_to_install(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch_is_not_here\n")
    with pytest.raises(dse.StudyError, match="No module named 'torch_is_not_here'"):
        dse.from_torch_file(file, python=sys.executable)
    with pytest.raises(dse.StudyError, match="does not run") as error:
        dse.from_torch_file(file, python=tmp_path / "python")
    assert error.value.hint is not None
    assert "apt-get install python3-torch" in error.value.hint


class Exporter(ModuleType):
    """In the place of PyTorch, which tests have for another interpreter only: exports a model that is there already."""

    def __init__(self, model: Path) -> None:
        super().__init__("torch")
        self.onnx, self.ops = SimpleNamespace(export=self.export), SimpleNamespace(transformers=SimpleNamespace())
        self.model, self.training, self.options = model, True, dict[str, Any]()

    def export(self, module: Exporter, inputs: Sequence[object], path: str, **options: Any) -> None:
        assert not module.training
        assert inputs == (1,)
        self.options = options
        shutil.copy(self.model, path)

    def train(self, mode: bool) -> None:
        self.training = mode

    def eval(self) -> None:
        self.training = False


def test_a_module_of_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(models.mlp(), str(tmp_path / "mlp.onnx"))
    exporter = Exporter(tmp_path / "mlp.onnx")
    monkeypatch.setitem(sys.modules, "torch", exporter)
    network = dse.from_torch(exporter, [1])
    assert network.name == "Exporter"
    assert exporter.training
    assert exporter.options == {}
    assert _kinds(network) == _kinds(dse.from_onnx(models.mlp()))
    # Transformers registers an operator for experts, which PyTorch's exporter does not know.
    exporter.ops.transformers.grouped_mm_fallback = SimpleNamespace(default="grouped")
    network = dse.from_torch(exporter, [1], element="bf16,w8a8", calibration={"x": np.full((8, 16), 127.0)})
    assert any(one.rounded for step in network.steps for one in step.others)
    assert list(exporter.options["custom_translation_table"]) == ["grouped"]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(dse.StudyError, match="from_torch needs PyTorch") as error:
        dse.from_torch(exporter, [1])
    assert "from_torch_file" in str(error.value.hint)
