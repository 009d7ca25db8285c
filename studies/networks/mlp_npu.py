"""A perceptron of two layers as a network: relu(X @ W1) @ W2, on a Ryzen AI NPU.

allo-tune network studies/networks/mlp_npu.py                       # 256 x 256 x 1024 x 256, bfloat16
allo-tune network studies/networks/mlp_npu.py --set rows=1024 --device npu1_4col
allo-tune network studies/networks/mlp_npu.py --set element=bf16,f32 --tolerance 0.005    # types operator by operator
allo-tune network studies/networks/mlp_npu.py --set element=bf16,w8a8 --tolerance 0.03    # activations of 8 bits too
"""

import numpy as np

import allo_dse as dse
from allo_dse.networks.accuracy import add_codes
from allo_dse.networks.operators import element_type, gemm_work, unary_work


def network(rows: int = 256, width: int = 256, hidden: int = 1024, element: str = "bf16") -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`."""
    of, rng = element_type(element), np.random.default_rng(0)
    net = dse.Network("mlp")
    x = net.input("x", (rows, width))
    up = net.constant("up", rng.standard_normal((width, hidden)).astype(np.float32))
    down = net.constant("down", rng.standard_normal((hidden, width)).astype(np.float32))
    hidden_sums = net.add(gemm_work(rows, hidden, width, of), x, up, name="up_projection")
    active = net.add(unary_work("relu", rows * hidden, of), hidden_sums, name="relu")
    net.output(net.add(gemm_work(rows, width, hidden, of), active, down, name="down_projection"))
    if "w8a8" in element:
        add_codes(net)
    return net
