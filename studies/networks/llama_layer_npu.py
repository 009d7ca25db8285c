"""A layer of Llama as a network: RMSNorm, attention of grouped heads with RoPE, and a gated feed-forward network.

allo-tune network studies/networks/llama_layer_npu.py                     # Llama-3.2-1B, 2,048 tokens, on npu2
allo-tune network studies/networks/llama_layer_npu.py --set part=output   # or qkv, attention: the launches of mlir-air
allo-tune network studies/networks/llama_layer_npu.py --set length=1 --set context=2048     # one token more: decoding
allo-tune network studies/networks/llama_layer_npu.py --set length=256 --device npu1_4col

Weights are zeros: designs do not depend on them. mlir-air maps each of the three parts by hand to one call.
With a longer context than is new, keys and values before it are an input, with room for the new ones at its end.
"""

import numpy as np

import allo_dse as dse
from allo_dse.networks.network import Arrange
from allo_dse.networks.operators import (
    attention_work,
    binary_work,
    element_type,
    gemm_work,
    gemv_work,
    heads_of,
    pair_matrix,
    query_matrix,
    rms_norm_work,
    rope_work,
)

PARTS = ("qkv", "attention", "output")


class Layer:
    """A layer's sizes, and its three parts as operators of a network."""

    def __init__(
        self, length: int, context: int, width: int, hidden: int, heads: int, kv_heads: int, element: str
    ) -> None:
        self.net, self.element, self.context = dse.Network("llama_layer"), element_type(element), context
        self.length, self.width, self.hidden, self.heads, self.kv_heads = length, width, hidden, heads, kv_heads
        self.head = width // heads

    def product(self, x: str, name: str, columns: int, depth: int) -> str:
        if self.length == 1:
            weights = self.net.constant(f"{name}.weights", np.zeros((columns, depth), np.float32))
            return self.net.add(gemv_work(columns, depth, self.element), weights, x, name=name)
        weights = self.net.constant(f"{name}.weights", np.zeros((depth, columns), np.float32))
        return self.net.add(gemm_work(self.length, columns, depth, self.element), x, weights, name=name)

    def norm(self, x: str, name: str) -> str:
        weight = self.net.constant(f"{name}.weight", np.ones(self.width, np.float32))
        return self.net.add(rms_norm_work(self.length, self.width, 1e-5, self.element), x, weight, name=name)

    def rope(self, x: str, name: str, heads: int) -> str:
        rows = self.length * heads
        table = self.net.constant(f"{name}.table", np.zeros((rows, self.head), np.float32))
        work = rope_work(rows, self.head, self.element)
        return self.net.add(work, x, table, name=name, shape=(self.length, heads * self.head))

    def qkv(self, x: str) -> tuple[str, str, str]:
        normed, shared = self.norm(x, "norm"), self.kv_heads * self.head
        q = self.product(normed, "q", self.width, self.width)
        k, v = (self.product(normed, name, shared, self.width) for name in ("k", "v"))
        return self.rope(q, "rope_q", self.heads), self.rope(k, "rope_k", self.kv_heads), v

    def attention(self, q: str, k: str, v: str) -> str:
        length, context, kv_heads = self.length, self.context, self.kv_heads

        def by_head(matrix):
            return matrix.reshape(length, -1, self.head).transpose(1, 0, 2)

        queries = self.net.add(Arrange(lambda one: query_matrix(by_head(one), kv_heads), False), q)
        pairs = self.net.add(Arrange(lambda one, two: pair_matrix(by_head(one), by_head(two)), False), k, v)
        if context > length:
            cache = self.net.input("cache", (context, 2 * kv_heads * self.head))
            size = 2 * length * kv_heads * self.head
            append = Arrange(lambda old, new: np.concatenate([old[:-length], new]), False, written=size)
            pairs = self.net.add(append, cache, pairs)
        work = attention_work(self.heads, kv_heads, context, self.head, self.head**-0.5, True, self.element, length)
        attended = self.net.add(work, queries, pairs, name="attention")
        back = Arrange(lambda one: heads_of(one, kv_heads, length).transpose(1, 0, 2).reshape(length, -1), False)
        return self.net.add(back, attended)

    def add(self, a: str, b: str, name: str) -> str:
        return self.net.add(binary_work("add", self.length * self.width, self.element), a, b, name=name)

    def output(self, x: str, attended: str) -> str:
        x = self.add(x, self.product(attended, "o", self.width, self.width), "add")
        normed = self.norm(x, "norm_2")
        gate, up = (self.product(normed, name, self.hidden, self.width) for name in ("gate", "up"))
        gated = self.net.add(binary_work("silu_mul", self.length * self.hidden, self.element), gate, up, name="gated")
        return self.add(x, self.product(gated, "down", self.width, self.hidden), "add_2")


def network(
    length: int = 2048,
    context: int = 0,
    width: int = 2048,
    hidden: int = 8192,
    heads: int = 32,
    kv_heads: int = 8,
    part: str = "",
    element: str = "bf16",
) -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`."""
    layer = Layer(length, max(context, length), width, hidden, heads, kv_heads, element)
    net, wide, narrow = layer.net, (length, width), (length, kv_heads * (width // heads))
    if part not in ("", *PARTS):
        raise dse.StudyError(f"no part {part!r} of a layer", hint=f"one of {', '.join(PARTS)}, or nothing for all")
    if part == "attention":
        q, k, v = net.input("q", wide), net.input("k", narrow), net.input("v", narrow)
    else:
        x = net.input("x", wide)
    if part in ("", "qkv"):
        q, k, v = layer.qkv(x)
    if part == "qkv":
        net.output(q, k, v)
    if part in ("", "attention"):
        attended = layer.attention(q, k, v)
    if part == "attention":
        net.output(attended)
    if part == "output":
        attended = net.input("attended", wide)
    if part in ("", "output"):
        net.output(layer.output(x, attended))
    return net
