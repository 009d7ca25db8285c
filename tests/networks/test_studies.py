"""The studies of networks at reduced size: chosen designs, folded as they are, composed, and run in the simulator."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from allo_dse.networks.compose import compose
from allo_dse.networks.fronts import search_fronts
from allo_dse.networks.network import Network
from allo_dse.networks.onnx.convert import load_network
from allo_dse.networks.operators.execute import difference

STUDIES = Path("studies/networks")
HEADS = {"width": "32", "heads": "4", "kv_heads": "2"}
TOLERANCE = 0.02  # bfloat16, after as many operators as a block has


@cache
def _loaded(file: str, settings: tuple[tuple[str, str], ...]) -> Network:
    """A study's network, once for all devices: PyTorch, which exports some, takes seconds."""
    return load_network(STUDIES / file, dict(settings))


@pytest.mark.parametrize(
    ("file", "settings", "device"),
    [
        pytest.param("mlp_npu.py", {"rows": "64", "width": "32", "hidden": "64"}, "npu1_1col", id="mlp"),
        pytest.param("llama_layer_npu.py", {"length": "16", "hidden": "64", **HEADS}, "npu1_1col", id="prefill"),
        pytest.param(
            "llama_layer_npu.py", {"length": "1", "context": "32", "hidden": "64", **HEADS}, "npu1_1col", id="decode"
        ),
        pytest.param("gpt2_block.py", {"length": "16", "width": "32", "heads": "2"}, "npu1_1col", id="gpt2"),
        pytest.param("gpt2_block.py", {"length": "16", "width": "32", "heads": "2"}, "u280", id="gpt2_fpga"),
        pytest.param("resnet_stage.py", {"side": "4", "inside": "16", "blocks": "1"}, "npu1_1col", id="resnet"),
        pytest.param("resnet_stage.py", {"side": "4", "inside": "16", "blocks": "1"}, "u280", id="resnet_fpga"),
    ],
)
def test_the_composed_designs_compute_what_the_operators_do(
    file: str, settings: dict[str, str], device: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if file in {"gpt2_block.py", "resnet_stage.py"}:
        request.getfixturevalue("pytorch")
    network = deepcopy(_loaded(file, tuple(settings.items())))
    rng = np.random.default_rng(0)
    for name, array in network.constants.items():
        if not array.any():  # a study's own weights, on which designs do not depend
            network.constants[name] = rng.standard_normal(array.shape) / np.sqrt(array.shape[-1])
    given = {name: rng.standard_normal(network.shapes[name]).astype(np.float32) for name in network.inputs}
    found = compose(search_fronts(network, device, trials=2, cache=tmp_path)).run(given)
    exact = network.run(given, simulated=False)
    for name in network.outputs:
        assert difference(found[name], exact[name]) < TOLERANCE
