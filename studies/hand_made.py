"""Mappings as experts write them by hand, one per study, to compare what the search finds with.

    hand_made("attention_npu").design(study())

Sources: Allo's library maps the split-K GEMM onto 4x4 cores, and attention onto four pipelines of four cores each,
with `send_q` and the scores on one core; the talk's ResNet layer has a core for each 1x1 convolution and two for the
3x3 one, and its fastest version twice that. The others give each kernel as many cores as there are columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allo_dse import AxisFold, Buffering, Design, KernelFold, MeshFold, Study

ALL = AxisFold(1)
CHAINED = AxisFold(1, "block", "chain")


def spread(nodes: int) -> AxisFold:
    """Every `nodes`-th task on one node."""
    return AxisFold(nodes, "cyclic")


@dataclass(frozen=True)
class HandMade:
    """A mapping by hand.

    Attributes:
        axes: per kernel how each mesh axis is folded.
        params: the parameters it is meant for, where the study leaves a choice.
        chains: kernels that share their cores.
    """

    axes: Mapping[str, tuple[AxisFold, ...]]
    params: Mapping[str, Any] = field(default_factory=dict)
    chains: tuple[tuple[str, ...], ...] = ()

    def design(self, study: Study) -> Design:
        """The mapping as a design of a study."""
        params = next(p for p in study.parameters.assignments() if all(p[name] == n for name, n in self.params.items()))
        program = study.programs.load(params)
        fold = MeshFold(tuple(KernelFold(name, axes) for name, axes in self.axes.items()), self.chains)
        return Design(program, fold.normalised(program.vmg.graph), Buffering(), study.device)


def attention(columns: int = 4) -> HandMade:
    row = spread(columns)
    axes = {"send_q": (row,), "cal_attn_score": (row, ALL), "cal_softmax": (row,), "attn": (row, ALL), "acc": (row,)}
    return HandMade(axes, chains=(("send_q", "cal_attn_score"),))


HAND_MADE = {
    "gemm_npu": HandMade({"gemm": (CHAINED, spread(4), spread(4))}, {"Pm": 32, "Pn": 32, "Pk": 32}),
    "attention_npu": attention(),
    "ffn_npu": HandMade({"up": (ALL, spread(4)), "down": (ALL, spread(4)), "acc": (ALL,)}, {"Pm": 32, "Ph": 16}),
    "mlp_npu": HandMade({"gemm0": (ALL, spread(4)), "gemm1": (ALL, spread(4)), "acc": (ALL,)}, {"Pm": 8, "P": 8}),
    "vector_add_npu": HandMade({"core": (spread(4),)}, {"P": 1024}),
    "reduction_npu": HandMade({"add_up": (CHAINED, spread(4))}, {"Pm": 16, "Pn": 32}),
    "elementwise_npu": HandMade({"core": (spread(8),)}, {"P": 512}),
    "norm_npu": HandMade({"core": (spread(8),)}, {"P": 1024}),
    "rope_npu": HandMade({"core": (spread(8),)}, {"P": 1024}),
    "gemv_npu": HandMade({"core": (spread(8),)}, {"P": 1024}),
    "gemm_two_level_npu": HandMade({"gemm": (CHAINED, spread(8), spread(4))}, {"Pm": 16, "Pn": 16, "Pk": 8}),
    "multihead_attention_npu": HandMade({"attend": (ALL, spread(4), AxisFold(8, "block", "chain"))}),
    "resnet_npu": HandMade(
        {"conv1": (spread(2), ALL), "conv2": (spread(2), AxisFold(2)), "conv3": (spread(2), ALL)},
        {"P": 4, "Q": 4},
    ),
}
