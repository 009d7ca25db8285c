"""Errors and warnings about programs, and the functions of the language."""

from __future__ import annotations

import linecache
import math
import sys
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Array

_OTHERS = (
    str(Path(__file__).resolve().parents[1]), "<frozen", "<string>",
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
)  # fmt: skip
"""Prefixes of the names of files that are not the user's; that of a dataclass's own methods is <string>."""


class ProgramWarning(UserWarning):
    """A construct in a program that is legal, but probably not intended."""


class ProgramError(AlloDseError):
    """A program that does not compile.

    Attributes:
        is_placed: whether the place itself is wrong; else it is the line of the user's program that was running.
        file, line, column: the place in the user's source (1-based), or None if there is none.
        source_line: the text of that line.
        width: number of characters that the caret underlines; without a column, the whole line.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source_line: str = "",
        width: int = 1,
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_placed = file is not None
        if file is None:
            file, line = running_line()
        if file is not None and line is not None and column is None:
            source_line = linecache.getline(file, line).rstrip()
            column, width = len(source_line) - len(source_line.lstrip()) + 1, max(1, len(source_line.strip()))
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line
        self.width = width

    @property
    def report(self) -> str:
        if self.file is None or self.line is None or self.column is None:
            return super().report
        margin = f"{self.line:>5} | "
        lines = [f"{self.file}:{self.line}:{self.column}: error: {self.message}"]
        if self.source_line:
            lines.append(margin + self.source_line)
            pad = "".join("\t" if c == "\t" else " " for c in self.source_line[: self.column - 1])
            lines.append(" " * 5 + " | " + pad + "^" + "~" * (self.width - 1))
        return "\n".join(lines)

    @property
    def place(self) -> dict[str, str | int]:
        if self.file is None or self.line is None or self.column is None:
            return {}
        where: dict[str, str | int] = {"file": self.file, "line": self.line, "column": self.column}
        return {**where, "source_line": self.source_line, "width": self.width}

    def __str__(self) -> str:
        if not self.place:
            return super().__str__()
        return f"{self.report}\n  hint: {self.hint}" if self.hint else self.report

    @classmethod
    def of(cls, error: ProgramError) -> Self:
        """Return the error as an instance of this class."""
        if isinstance(error, cls):
            return error
        return cls(
            error.message, hint=error.hint, file=error.file, line=error.line, column=error.column,
            source_line=error.source_line, width=error.width,
        )  # fmt: skip


def is_users(file: str) -> bool:
    """Return whether a file is the user's: not of this package, an installed one, or Python itself."""
    return not file.startswith(_OTHERS)


def running_line() -> tuple[str, int] | tuple[None, None]:
    """Return the file and the line of the user's program that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (None, None) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(message: str) -> None:
    """Issue a warning at the line of the user's program that is running."""
    file, line = running_line()
    warnings.warn_explicit(message, ProgramWarning, file or "allo-dse", line or 1)


class ProgramStop(ProgramError, SystemExit):
    """The error of `customize` and `build` for a program that does not compile.

    As in Allo, it ends a program that does not catch it, with the error on standard error and no traceback.
    """

    @property
    def code(self) -> str:  # type: ignore[override]
        return str(self)


class UnknownArray(ProgramError, AttributeError):
    """A schedule names an array that the program does not have, as an attribute."""


class UnknownFunction(ProgramError, RuntimeError):
    """A schedule names a function that the program does not have."""


class UnknownModule(ProgramError, ModuleNotFoundError):
    """A program imports a module of Allo that is not here."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"allo-dse has no {name}", hint=hint)
        self.name = name


# Functions of the language. In a kernel the front end recognises them by name. Outside they compute the same with
# NumPy, so that a function can also run as plain Python: programs are compared with their references this way.


def _windows(image: Array, shape: tuple[int, ...]) -> Array:
    """The windows of the last two dimensions of an image: [n, c, y, x, kh, kw]."""
    return np.lib.stride_tricks.sliding_window_view(image, shape, axis=(2, 3))


def _softmax(x: Array) -> Array:
    exponents = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(exponents / np.sum(exponents, axis=-1, keepdims=True))


def _layernorm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + eps) * gamma + beta)


def _gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))))


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
    "gelu": _gelu,
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
