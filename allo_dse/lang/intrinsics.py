"""Functions of the language.

In a kernel the front end recognises them by their name; outside they compute with NumPy.
"""

from __future__ import annotations

from typing import Any

from .diagnostics import ProgramError
from .numerics import MEANINGS, outside


class Intrinsic:
    """A function of the language, such as `allo.grid` or `df.get_pid`.

    Attributes:
        name: what the front end knows it by.
    """

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    def __call__(self, *args: object, **options: object) -> Any:
        if self.name not in MEANINGS:
            hint = "put it into a @df.kernel function"
            raise ProgramError(f"{self.name}() can only be used inside a kernel", hint=hint)
        return outside(self.name, *args, **options)

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
    """The name of the language function that `value` is, be it ours or that of an installed `allo`; else None."""
    if isinstance(value, Intrinsic):
        return value.name
    module = getattr(value, "__module__", None)
    name = getattr(value, "__name__", None)
    if isinstance(module, str) and module.split(".")[0] == "allo" and name in INTRINSICS:
        return str(name)
    return None
