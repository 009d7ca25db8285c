"""A block of GPT-2 as a network, from a module of PyTorch: layer norms, causal attention, and a GELU between products.

allo-tune network studies/networks/gpt2_block.py --device npu1_4col      # 128 tokens, 768 wide, 12 heads, bfloat16
allo-tune network studies/networks/gpt2_block.py --set length=1024 --device npu2

The module is in `gpt2_block_torch.py`; the interpreter `python` exports it: `apt-get install python3-torch`, or one of
your own with PyTorch.
"""

from pathlib import Path

import allo_dse as dse


def network(
    length: int = 128, width: int = 768, heads: int = 12, element: str = "bf16", python: str = "/usr/bin/python3"
) -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`."""
    module, settings = (
        Path(__file__).with_name("gpt2_block_torch.py"),
        {"length": length, "width": width, "heads": heads},
    )
    return dse.from_torch_file(module, settings=settings, python=python, element=element)
