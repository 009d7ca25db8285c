"""A layer of Llama as a network, from a module of PyTorch: the one of `llama_layer_npu.py`, of Llama-3.2-1B.

allo-tune network studies/networks/llama_layer.py --set length=256 --device npu2 --target model

The module is in `llama_layer_torch.py`; the interpreter `python` exports it, as for `gpt2_block.py`.
"""

from pathlib import Path

import allo_dse as dse


def network(
    length: int = 2048,
    width: int = 2048,
    hidden: int = 8192,
    heads: int = 32,
    kv_heads: int = 8,
    element: str = "bf16",
    python: str = "/usr/bin/python3",
) -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`."""
    module = Path(__file__).with_name("llama_layer_torch.py")
    settings = {"length": length, "width": width, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    return dse.from_torch_file(module, settings=settings, python=python, element=element)
