"""The first stage of bottleneck blocks of ResNet-50 (conv2_x) as a network, from a module of PyTorch, in bfloat16.

allo-tune network studies/networks/resnet_stage.py --device npu1_4col        # 3 blocks, 56 x 56, 64 channels inside
allo-tune network studies/networks/resnet_stage.py --set blocks=1 --device npu2

The module is in `resnet_stage_torch.py`; the interpreter `python` exports it, as for `gpt2_block.py`.
"""

from pathlib import Path

import allo_dse as dse


def network(
    side: int = 56, inside: int = 64, blocks: int = 3, element: str = "bf16", python: str = "/usr/bin/python3"
) -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`."""
    module, settings = (
        Path(__file__).with_name("resnet_stage_torch.py"),
        {"side": side, "inside": inside, "blocks": blocks},
    )
    return dse.from_torch_file(module, settings=settings, python=python, element=element)
