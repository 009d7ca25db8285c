"""Operators along a sequence: attention with several heads in one program, and recurrent layers.

Attention has grouped keys and values, causal masks and an online softmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen

from .execute import Expr, Work, tile_counts
from .expressions import HEAD, UNARY, Writer, indented, loaded_text, numpy_lines
from .products import MATRIX_ELEMENTS, UNIT

S = Layout.Shard
HIDDEN = -1.0e30
LEAST_CHUNK, MOST_CHUNK = 16, 64  # queries or keys of a task: more exceed a core's memory
Floats = NDArray[np.float32]


def attention(L=512, N=512, D=64, KV=8, G=1, Pq=32, Pk=32, causal=0, factor=0.125, valid=512, Ty=bfloat16):
    """L keys and values of KV heads, side by side in columns, each for N queries of G heads below each other.

    Keys from `valid` on are hidden: they are there only for tiles to divide the length.

    A head has D columns of keys, then D of values, as a core has two channels for what comes in. What passes from
    chunk to chunk of keys is the result so far, and of every query the largest score and the sum of the weights.
    Products are cut so that both have one shape where chunks are no longer than heads are wide: Allo has one kernel
    for products per program on XDNA2.
    """
    Tq, Tk = N // Pq, L // Pk
    part = math.gcd(Tk, D)
    LyQ, LyK = [S(1), S(0)], [S(2), S(0)]

    @df.region()
    def top(Q: Ty[G * N, KV * D], Pairs: Ty[L, KV * 2 * D], Out: Ty[G * N, KV * D]):
        results: Stream[float32[Tq, D], 2][KV, G * Pq, Pk]
        states: Stream[float32[2, Tq], 2][KV, G * Pq, Pk]

        @df.kernel(mapping=[KV, G * Pq, Pk], args=[Q, Pairs, Out])
        def attend(q: Ty[G * N, KV * D] @ LyQ, pair: Ty[L, KV * 2 * D] @ LyK, out: Ty[G * N, KV * D] @ LyQ):
            head, row, chunk = df.get_pid()
            result: float32[Tq, D]
            state: float32[2, Tq]
            with allo.meta_if(chunk > 0):
                result[:, :] = results[head, row, chunk - 1].get()
                state[:, :] = states[head, row, chunk - 1].get()
            with allo.meta_else():
                result[:, :] = 0.0
                for i0 in range(Tq):
                    state[0, i0] = HIDDEN
                    state[1, i0] = 0.0
            # One iteration, or none where the mask hides the whole chunk from all queries of the block.
            for _ in range(chunk * Tk, L - causal * (N - (row % Pq + 1) * Tq), L):
                score: Ty[Tq, Tk] = 0.0
                with allo.meta_for(D // part) as n:
                    product: Ty[Tq, Tk] = allo.matmul(
                        q[:, n * part : (n + 1) * part], pair[:, n * part : (n + 1) * part].T
                    )
                    score[:, :] = allo.add(score, product)
                weight: Ty[Tq, Tk] = 0.0
                scale: float32[Tq] = 0.0
                for i in range(Tq):
                    largest: float32 = state[0, i]
                    for j in range(Tk):
                        scaled: float32 = score[i, j] * factor
                        with allo.meta_if(causal == 1):
                            if chunk * Tk + j > L - N + row % Pq * Tq + i:
                                scaled = HIDDEN
                                score[i, j] = HIDDEN
                        with allo.meta_if(chunk * Tk + Tk > valid):
                            if chunk * Tk + j >= valid:
                                scaled = HIDDEN
                                score[i, j] = HIDDEN
                        if scaled > largest:
                            largest = scaled
                    scale[i] = allo.exp(state[0, i] - largest)
                    total: float32 = state[1, i] * scale[i]
                    for j2 in range(Tk):
                        weight[i, j2] = allo.exp(score[i, j2] * factor - largest)
                        total += weight[i, j2]
                    state[0, i] = largest
                    state[1, i] = total
                with allo.meta_for(D // part) as m:
                    values: Ty[Tq, part] = allo.matmul(weight, pair[:, D + m * part : D + (m + 1) * part])
                    for i1, d1 in allo.grid(Tq, part):
                        result[i1, m * part + d1] = result[i1, m * part + d1] * scale[i1] + values[i1, d1]
            with allo.meta_if(chunk == Pk - 1):
                for i2, d2 in allo.grid(Tq, D):
                    out[i2, d2] = result[i2, d2] / state[1, i2]
            with allo.meta_else():
                results[head, row, chunk].put(result)
                states[head, row, chunk].put(state)

    return top


def query_matrix(Q: Floats, kv_heads: int) -> Floats:
    """[heads, N, D] as the program takes it: [G * N, KV * D]."""
    heads, length, width = Q.shape
    grouped = Q.reshape(kv_heads, heads // kv_heads, length, width).transpose(1, 2, 0, 3)
    return grouped.reshape(-1, kv_heads * width)


def heads_of(matrix: Floats, kv_heads: int, length: int) -> Floats:
    """Reshape the result of the program to [heads, N, D]: the inverse of `query_matrix`."""
    groups, width = matrix.shape[0] // length, matrix.shape[1] // kv_heads
    return matrix.reshape(groups, length, kv_heads, width).transpose(2, 0, 1, 3).reshape(-1, length, width)


def pair_matrix(K: Floats, V: Floats) -> Floats:
    """[KV, L, D] of keys and of values as the program takes them: [L, KV * 2 * D]."""
    return np.concatenate([K, V], axis=2).transpose(1, 0, 2).reshape(K.shape[1], -1)


def fitting_chunks(length: int) -> int:
    """Return the length, from `length` on, that chunks divide which heads are multiples of.

    There are at most four chunks, as many as requests of a tile that may wait, unless more elements fit no core.
    """
    if length <= LEAST_CHUNK:
        return 1 << (length - 1).bit_length()
    unit = min(MOST_CHUNK, max(LEAST_CHUNK, 1 << (-(-length // 4) - 1).bit_length()))
    return -(-length // unit) * unit


def attend(Q: Floats, K: Floats, V: Floats, factor: float, causal: bool, valid: int | None = None) -> Floats:
    """softmax(Q @ K.T * factor) @ V for [heads, N, D] of queries, the last ones, and [KV, L, D] of keys and values.

    Args:
        valid: the number of keys that are not hidden.
    """
    whole, K, V = K.shape[1], K[:, :valid], V[:, :valid]
    groups = Q.shape[0] // K.shape[0]
    K, V = np.repeat(K, groups, axis=0), np.repeat(V, groups, axis=0)
    scores = Q @ K.transpose(0, 2, 1) * np.float32(factor)
    if causal:
        N, L = scores.shape[1:]
        shown = np.tri(N, L, whole - N, dtype=bool)
        scores = np.where(shown, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Floats = (weights / weights.sum(axis=-1, keepdims=True)) @ V
    return found


def attention_work(
    heads: int,
    kv_heads: int,
    length: int,
    width: int,
    factor: float,
    causal: bool,
    element: object,
    queries: int = 0,
    *,
    valid: int = 0,
) -> Work:
    """Queries of `query_matrix`, keys and values of `pair_matrix`.

    Args:
        length: of keys and values. queries: of a head, the last ones of that length; all where it is not given.
        valid: keys that are not hidden; all where it is not given.
    """
    valid = valid or length
    queries, groups = queries or length, heads // kv_heads
    one = queries == 1  # sees all keys, so a group's heads are like several queries of one head
    masked, per_pair = causal and not one, 1 if one else groups

    def reference(of_queries: Floats, pairs: Floats) -> Floats:
        K, V = pairs.reshape(len(pairs), kv_heads, 2, -1).transpose(2, 1, 0, 3)
        Q = heads_of(of_queries, kv_heads, len(of_queries) // per_pair)
        return query_matrix(attend(Q, K, V, factor, masked, valid), kv_heads)

    rows = groups if one else queries
    params = {
        "L": length,
        "N": rows,
        "D": width,
        "KV": kv_heads,
        "G": per_pair,
        "Pq": tile_counts(rows, LEAST_CHUNK, MOST_CHUNK),
        "Pk": tile_counts(length, math.gcd(LEAST_CHUNK, width), MOST_CHUNK),
        "causal": int(masked),
        "factor": factor,
        "valid": valid,
        "Ty": element,
    }
    return Work("attention", attention, params, reference, lambda p: _smaller(p, rows == length))


def _smaller(params: Mapping[str, int], square: bool) -> Mapping[str, int]:
    """Sizes with the same tasks: 4 queries and keys of each at least."""
    each = 4 * math.lcm(params["Pq"], params["Pk"])
    shown = each - (1 if params["valid"] < params["L"] else 0)
    return {"L": each, "N": each if square else 4 * params["Pq"], "D": 8, "valid": shown}


# Recurrent layers: a task has some time steps of a few sequences, and hands states on to the next one.

LOOPED = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""Operators that are a loop over time, and their activations by default."""
MOST_INPUTS = 3072
"""Most elements of a task's inputs, which a core holds beside the weights."""
TASKS = 16
"""Sequences that run at once, before a task has several: half of the cores of the largest NPU."""


class Cell(Frozen):
    """A time step as expressions.

    Inputs are the gates of the layer's input, those of the product of the state, the states, and the last gate of a
    second product.

    Attributes:
        gates: their number.
        states: the next ones; the first is the result.
        reset: the state that the second product reads; None without one.
    """

    gates: int
    states: tuple[Expr, ...]
    reset: Expr | None = None

    def inputs(self, x: str, product: str, state: str, last: str) -> list[str]:
        """The texts of all inputs, from texts with the number of a gate or state in braces."""
        gates = [one.format(at) for one in (x, product) for at in range(self.gates)]
        return [*gates, *(state.format(at) for at in range(len(self.states))), last]


def cell_of(op: str, activations: Sequence[str], resets_after: bool) -> Cell:
    """Return the time step of an operator of ONNX, with gates in its order.

    Args:
        activations: by ONNX's names, of `UNARY`.
        resets_after: a GRU resets the product of the state, not the state.
    """

    def act(at: int, x: Expr) -> Expr:
        return UNARY[activations[at]](x, lambda _, default: default)

    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x, product = ([("in", first + at) for at in range(gates)] for first in (0, gates))
    sums: list[Expr] = [("add", *pair) for pair in zip(x, product, strict=True)]
    h, c = ("in", 2 * gates), ("in", 2 * gates + 1)
    if op == "RNN":
        return Cell(gates, (act(0, sums[0]),))
    if op == "GRU":
        update, reset = act(0, sums[0]), act(0, sums[1])
        new = act(1, ("add", x[2], ("mul", reset, product[2]) if resets_after else c))
        kept: Expr = ("add", new, ("mul", update, ("sub", h, new)))
        return Cell(gates, (kept,), None if resets_after else ("mul", reset, h))
    after: Expr = ("add", ("mul", act(0, sums[2]), c), ("mul", act(0, sums[0]), act(1, sums[3])))
    return Cell(gates, (("mul", act(0, sums[1]), act(2, after)), after))


def _cell_text(cell: Cell) -> str:
    """The text of a file with a recurrent layer, and the reference in NumPy.

    Below the weights of the state are a row of biases, and the first states of each sequence. Rows of the matrix
    kernel are states, with a one for the biases.
    """
    count, writer, lines = len(cell.states), Writer(), list[str]()
    names = cell.inputs(
        "x[t, (b * G + {}) * H + i]", "sums[b, {} * H + i]", "state[{} * B + b, i]", "again[b, (G - 1) * H + i]"
    )
    arrays = cell.inputs("x[t, :, :, {}]", "product[:, :, {}]", "states[{}]", "again[:, :, -1]")
    again, known = list[str](), dict[Expr, str]((("in", at), name) for at, name in enumerate(arrays))
    numpy = list[str]()
    if cell.reset:
        value = writer.scalars(cell.reset, {}, names.__getitem__, again)
        again = ["for b, i in allo.grid(B, H):", *(f"    {one}" for one in (*again, f"rows[b, i] = {value}"))]
        again.append(f"again: Ty[{UNIT}, G * H] = allo.matmul(rows, w)")
        numpy = numpy_lines(cell.reset, known, "r")
        numpy.append(f"again = product_of({known[cell.reset]})")
    shared: dict[Expr, str] = {}
    values = [writer.scalars(one, shared, names.__getitem__, lines) for one in cell.states]
    for at, value in enumerate(values):
        lines.append(f"state[{at} * B + b, i] = {value}")
        lines.append(f"y[t, (b * {count} + {at}) * H + i] = {value}")
        numpy += numpy_lines(cell.states[at], known, f"s{at}_")
    return f'''"""A recurrent layer."""

{HEAD}def program(P=1, T=16, B=1, H=32, Pt=1, Ty=bfloat16):
    G, K, Tt = {cell.gates}, (H + B) // {UNIT} * {UNIT} + {UNIT}, T // Pt
    every = max(2, {count} * B)  # Allo drops dimensions of a single element

    @df.region()
    def top(X: Ty[T, P * B * G * H], W: Ty[K, P * G * H], Y: Ty[T, P * B * {count} * H]):
        states: Stream[float32[every, H], 2][P, Pt]

        @df.kernel(mapping=[P, Pt], args=[X, W, Y])
        def layer(
            x: Ty[T, P * B * G * H] @ [S(1), S(0)],
            w: Ty[K, P * G * H] @ [R, S(0)],
            y: Ty[T, P * B * {count} * H] @ [S(1), S(0)],
        ):
            p, part = df.get_pid()
            state: float32[every, H] = 0.0
            rows: Ty[{UNIT}, K] = 0.0
            with allo.meta_if(part > 0):
                state[:, :] = states[p, part - 1].get()
            with allo.meta_else():
                for s, b, i in allo.grid({count}, B, H):
                    state[s * B + b, i] = w[H + 1 + b, s * H + i]
            for b in range(B):
                rows[b, H] = 1.0
            for t in range(Tt):
                for b, i in allo.grid(B, H):
                    rows[b, i] = state[b, i]
                sums: Ty[{UNIT}, G * H] = allo.matmul(rows, w)
{indented(4, again)}                for b, i in allo.grid(B, H):
{indented(5, lines)}            with allo.meta_if(part < Pt - 1):
                states[p, part].put(state)

    return top


def reference(X, W, P, B):
    T, G = len(X), {cell.gates}
    H = X.shape[1] // (P * B * G)
    x, w = X.reshape(T, P, B, G, H), W.reshape(-1, P, G, H)
    states = [w[H + 1 : H + 1 + B, :, at].swapaxes(0, 1) for at in range({count})]

    def product_of(state):
        return np.einsum("pbk,kpgh->pbgh", state, w[:H]) + w[H][:, None]

    found = np.zeros((T, P, B, {count}, H), np.float32)
    for t in range(T):
        with np.errstate(over="ignore"):
            product = product_of(states[0])
{indented(3, numpy)}            states = [{", ".join(known[one] for one in cell.states)}]
            found[t] = np.stack(states, axis=2)
    return found.reshape(T, -1)
'''


def weight_rows(hidden: int, sequences: int) -> int:
    """Return the rows of the matrix of weights, biases and first states."""
    return (hidden + sequences) // UNIT * UNIT + UNIT


def recurrent_work(cell: Cell, tasks: int, steps: int, sequences: int, hidden: int, element: object) -> Work:
    """All time steps of a recurrent layer, whose input is [steps, tasks * sequences * gates * hidden].

    Args:
        tasks: sets of sequences, each with weights of its own.
        sequences: of a task.
        hidden: elements of a state, a multiple of UNIT.

    Raises:
        StudyError: for weights that no core holds.
    """
    weights, held = weight_rows(hidden, sequences) * cell.gates * hidden, MATRIX_ELEMENTS // (1 + (element is float32))
    if weights > held:
        raise StudyError(f"{weights:,} weights of a recurrent layer; a core holds {held:,}")
    program, reference = loaded_text("recurrent", _cell_text(cell))
    most = max(2, MOST_INPUTS // (sequences * cell.gates * hidden))
    params = {"P": tasks, "T": steps, "B": sequences, "H": hidden, "Pt": tile_counts(steps, 2, most), "Ty": element}
    return Work(
        "recurrent", program, params, lambda X, W: reference(X, W, tasks, sequences),
        lambda p: {"T": 2 * p["Pt"], "H": UNIT},
    )  # fmt: skip
