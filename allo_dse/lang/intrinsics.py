"""Functions of the language.

In a kernel the front end recognises them by name. Outside they compute the same with NumPy, so that a function can also
run as plain Python: programs are compared with their references this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Array


def _windows(image: Array, shape: tuple[int, ...]) -> Array:
    """The windows of the last two dimensions of an image: [n, c, y, x, kh, kw]."""
    return np.lib.stride_tricks.sliding_window_view(image, shape, axis=(2, 3))


def _softmax(x: Array) -> Array:
    exponents = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(exponents / np.sum(exponents, axis=-1, keepdims=True))


def _layernorm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + eps) * gamma + beta)


def _linear(x: Array, weights: Array, bias: Array | None = None) -> Array:
    product = np.matmul(x, weights.T)
    return product if bias is None else np.asarray(product + bias)


MEANINGS: dict[str, Callable[..., Any]] = {
    "grid": np.ndindex,
    "reduction": np.ndindex,
    "matmul": np.matmul,
    "bmm": np.matmul,
    "linear": _linear,
    "conv2d": lambda image, window: np.einsum("fcpq,ncyxpq->nfyx", window, _windows(image, window.shape[2:])),
    "maxpool": lambda image, window: _windows(image, window.shape).max(axis=(4, 5)),
    "sumpool": lambda image, window: _windows(image, window.shape).sum(axis=(4, 5)),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "transpose": np.transpose,
    "view": np.reshape,
    "concat": lambda x, y, axis=0: np.concatenate((x, y), axis),
    "constant": np.asarray,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_ARRAYS = ("copy", "ones", "zeros", "tril")
_ELEMENTWISE = ("exp", "log", "log2", "log10", "abs", "sqrt", "sin", "cos", "tan", "tanh", "power")
MEANINGS.update({name: getattr(np, name) for name in (*_ARRAYS, *_ELEMENTWISE)})


class Intrinsic:
    """A function of the language, such as `allo.grid` or `df.get_pid`.

    Attributes:
        name: its name in the front end.
    """

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    def __call__(self, *args: object, **options: object) -> Any:
        if self.name not in MEANINGS:
            hint = "put it into a @df.kernel function"
            raise ProgramError(f"{self.name}() can only be used inside a kernel", hint=hint)
        for option in ("name", "pipeline", "unroll"):  # only schedules read them
            options.pop(option, None)
        return MEANINGS[self.name](*args, **options)

    def __repr__(self) -> str:
        return f"<{self.name}>"


STRUCTURE = ("get_pid", "meta_if", "meta_elif", "meta_else", "meta_for", "grid", "reduction")
STREAMS = ("gather", "scatter")
MATRIX = ("matmul", "bmm", "linear", "conv2d", "maxpool", "sumpool")
BINARY = ("add", "sub", "mul", "div", "max", "min")
UNARY = ("exp", "log", "log2", "log10", "abs", "sqrt", "sin", "cos", "tan", "tanh", "power", "relu", "gelu")
ROWS = ("softmax", "layernorm")
SHAPES = ("copy", "transpose", "view", "concat", "ones", "zeros", "tril", "constant")

NAMES = (*STRUCTURE, *STREAMS, *MATRIX, *BINARY, *UNARY, *ROWS, *SHAPES)
INTRINSICS = {name: Intrinsic(name) for name in NAMES}


def intrinsic_of(value: object) -> str | None:
    """Return the name of the language function that `value` is, from this package or an installed `allo`; else None."""
    if isinstance(value, Intrinsic):
        return value.name
    module = getattr(value, "__module__", None)
    name = getattr(value, "__name__", None)
    if isinstance(module, str) and module.split(".")[0] == "allo" and name in INTRINSICS:
        return str(name)
    return None
