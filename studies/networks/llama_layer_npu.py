"""Llama as a network: RMSNorm, attention of grouped heads with RoPE, and a gated feed-forward network, layer by layer.

allo-tune network studies/networks/llama_layer_npu.py                     # Llama-3.2-1B, 2,048 tokens, on npu2
allo-tune network studies/networks/llama_layer_npu.py --set part=output   # or qkv, attention: the launches of mlir-air
allo-tune network studies/networks/llama_layer_npu.py --set length=1 --set context=2048     # one token more: decoding
allo-tune network studies/networks/llama_layer_npu.py --set length=256 --device npu1_4col
allo-tune network studies/networks/llama_layer_npu.py --set length=1 --set context=2048 \\
    --set layers=16 --set words=128256

The last is a token of the whole model; `--set bits=4` gives its weights four bits in blocks of 32. Weights are zeros:
designs do not depend on them. mlir-air maps each of the three parts of a layer by hand to one call. With a longer
context than is new, keys and values before it are an input, with room for the new ones at its end.
"""

import numpy as np

import allo_dse as dse
from allo_dse.networks.edges import simplified
from allo_dse.networks.network import Arrange, arrange
from allo_dse.networks.operators import (
    Work,
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
from allo_dse.networks.operators.packed import Packed

PARTS = ("qkv", "attention", "output")
BLOCK = 32  # weights of few bits with one scale


class Layer:
    """A layer's sizes, and its three parts as operators of a network.

    Args:
        name: begins the names of its steps.
        sizes: length, context, width, hidden, heads and heads of keys and values.
        bits: of weights in decoding; 0 for those of the element type.
    """

    def __init__(self, net: dse.Network, name: str, sizes: tuple[int, ...], element: str, bits: int = 0) -> None:
        length, context, width, hidden, heads, kv_heads = sizes
        self.net, self.name, self.element, self.context = net, name, element_type(element), context
        self.packed = Packed(bits, BLOCK, 2, zeros=False) if bits else None
        self.length, self.width, self.hidden, self.heads, self.kv_heads = length, width, hidden, heads, kv_heads
        self.head = width // heads

    def step(self, work: Work, *inputs: str, name: str, shape: tuple[int, ...] | None = None) -> str:
        return self.net.add(work, *inputs, name=self.name + name, shape=shape)

    def product(self, x: str, name: str, columns: int, depth: int) -> str:
        weights = f"{self.name}{name}.weights"
        if self.length > 1:
            self.net.constant(weights, np.zeros((depth, columns), np.float32))
            return self.step(gemm_work(self.length, columns, depth, self.element), x, weights, name=name)
        if self.packed:
            self.net.constant(weights, np.zeros((columns, depth // BLOCK * self.packed.bytes), np.int8))
        else:
            self.net.constant(weights, np.zeros((columns, depth), np.float32))
        return self.step(gemv_work(columns, depth, self.element, self.packed), weights, x, name=name)

    def norm(self, x: str, name: str) -> str:
        weight = self.net.constant(f"{self.name}{name}.weight", np.ones(self.width, np.float32))
        return self.step(rms_norm_work(self.length, self.width, 1e-5, self.element), x, weight, name=name)

    def rope(self, x: str, name: str, heads: int) -> str:
        rows = self.length * heads
        table = self.net.constant(f"{self.name}{name}.table", np.zeros((rows, self.head), np.float32))
        work = rope_work(rows, self.head, self.element)
        return self.step(work, x, table, name=name, shape=(self.length, heads * self.head))

    def qkv(self, x: str) -> tuple[str, str, str]:
        normed, shared = self.norm(x, "norm"), self.kv_heads * self.head
        if self.length == 1:  # known matrices of one vector below each other: fewer programs, and as many bytes
            turned = self.width + shared
            whole = self.product(normed, "qkv", turned + shared, self.width)
            rotated = self.rope(self.part(whole, 0, turned), "rope", self.heads + self.kv_heads)
            parts = (rotated, 0, self.width), (rotated, self.width, turned), (whole, turned, turned + shared)
            return tuple(self.part(*one) for one in parts)
        q = self.product(normed, "q", self.width, self.width)
        k, v = (self.product(normed, name, shared, self.width) for name in ("k", "v"))
        return self.rope(q, "rope_q", self.heads), self.rope(k, "rope_k", self.kv_heads), v

    def part(self, row: str, first: int, last: int) -> str:
        return self.net.add(arrange(lambda one: one.reshape(1, -1)[:, first:last], [self.net.shapes[row]]), row)

    def attention(self, q: str, k: str, v: str) -> str:
        length, context, kv_heads = self.length, self.context, self.kv_heads

        def by_head(matrix):
            return matrix.reshape(length, -1, self.head).transpose(1, 0, 2)

        def grouped(matrix):
            # One position: its heads are in the order of the program, as rows of weights can have any.
            return matrix.reshape(-1, kv_heads * self.head) if length == 1 else query_matrix(by_head(matrix), kv_heads)

        queries = self.net.add(arrange(grouped, [self.net.shapes[q]]), q)
        pairs = self.net.add(Arrange(lambda one, two: pair_matrix(by_head(one), by_head(two)), False), k, v)
        if context > length:
            cache = self.net.input(f"{self.name}cache", (context, 2 * kv_heads * self.head))
            size = 2 * length * kv_heads * self.head
            append = Arrange(lambda old, new: np.concatenate([old[:-length], new]), False, written=size)
            pairs = self.net.add(append, cache, pairs)
        work = attention_work(self.heads, kv_heads, context, self.head, self.head**-0.5, True, self.element, length)
        attended = self.step(work, queries, pairs, name="attention")

        def back(one):
            heads = one if length == 1 else heads_of(one, kv_heads, length).transpose(1, 0, 2)
            return heads.reshape(length, -1)

        return self.net.add(arrange(back, [self.net.shapes[attended]]), attended)

    def add(self, a: str, b: str, name: str) -> str:
        return self.step(binary_work("add", self.length * self.width, self.element), a, b, name=name)

    def output(self, x: str, attended: str) -> str:
        x = self.add(x, self.product(attended, "o", self.width, self.width), "add")
        normed = self.norm(x, "norm_2")
        gate, up = (self.product(normed, name, self.hidden, self.width) for name in ("gate", "up"))
        gated = self.step(binary_work("silu_mul", self.length * self.hidden, self.element), gate, up, name="gated")
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
    layers: int = 1,
    words: int = 0,
    bits: int = 0,
) -> dse.Network:
    """The network that `allo-tune network` maps; its arguments can be set with `--set name=value`.

    Args:
        layers: one after another, all with every part.
        words: that the last norm and product tell apart; 0 for a network without them.
        bits: as of `Layer`.
    """
    sizes = length, max(context, length), width, hidden, heads, kv_heads
    net, wide, narrow = dse.Network("llama_layer"), (length, width), (length, kv_heads * (width // heads))
    layer = Layer(net, "", sizes, element, bits)
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
        x = layer.output(x, attended)
        for number in range(1, layers):
            layer = Layer(net, f"{number}.", sizes, element, bits)
            q, k, v = layer.qkv(x)
            x = layer.output(x, layer.attention(q, k, v))
        net.output(layer.product(layer.norm(x, "last_norm"), "words", words, width) if words else x)
    return simplified(net)
