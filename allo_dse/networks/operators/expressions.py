"""Programs made from expressions: functions of elements with broadcasting, and reductions of the rows of a matrix.

    ("max", ("in", 0), ("number", 0.0))                          # ReLU
    ("mul", ("in", 0), ("in", 1))                                # a scale: a matrix, a row or a column
    ("div", e := ("exp", x), ("row_sum", e))                     # a softmax without its maximum

An expression is a tuple of an operation and its operands. `program_text` writes a program and its reference in NumPy
into one file. The file is kept beside other caches, and is exported with a design.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from allo_dse.common.errors import StudyError
from allo_dse.common.files import write_whole
from allo_dse.common.mlir.jit import directory
from allo_dse.lang.types import float32

from .execute import Expr, Made, Operand, Work, tile_counts

LEAST_ELEMENTS, MOST_ELEMENTS = 128, 4096
"""Fewest and most elements of a task: its start dominates smaller ones, and no core holds three larger tiles."""
LEAST_WIDTH = 16
"""Fewest elements of a row that is a task by itself."""
MOST_WIDTH = 8192
"""Elements of the longest row that a core holds with its result."""

ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Abramowitz and Stegun, 7.1.26: erf to 1.5e-7 from an exponential and a polynomial."""
ERF_SLOPE = 0.3275911

TILED = {"add", "sub", "mul", "div", "exp"}
"""Operations that Allo has vector kernels for."""
REDUCTIONS = ("row_sum", "row_max", "row_min")
LOWEST, HIGHEST = "-3.4028234663852886e38", "3.4028234663852886e38"  # of float32

_SCALARS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "exp": "allo.exp({0})", "log": "allo.log({0})", "sqrt": "allo.sqrt({0})", "sin": "allo.sin({0})",
    "cos": "allo.cos({0})",
    "round": "{0} + 12582912.0 - 12582912.0",  # 1.5 * 2**23: float32 has no fractions there
}  # fmt: skip
_CHOICES = {
    "max": ("{0}", "{1} > {0}", "{1}"), "min": ("{0}", "{1} < {0}", "{1}"), "where": ("{2}", "{0} > 0.5", "{1}"),
    "gt": ("0.0", "{0} > {1}", "1.0"), "ge": ("0.0", "{0} >= {1}", "1.0"), "eq": ("0.0", "{0} == {1}", "1.0"),
}  # fmt: skip
"""The value, a condition, and the value if that is true."""
_NUMPY = {
    **{name: text.replace("allo", "np") for name, text in _SCALARS.items()},
    "round": "np.rint({0})",
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "where": "np.where({0} > 0.5, {1}, {2})",
    **{name: f"np.float32(1) * ({{0}} {sign} {{1}})" for name, sign in (("gt", ">"), ("ge", ">="), ("eq", "=="))},
    **{f"row_{name}": f"{{0}}.{name}(axis=1, keepdims=True)" for name in ("sum", "max", "min")},
}


WIDTH: Expr = ("width",)
"""The number of a row's elements."""


def number(value: float) -> Expr:
    """A number as an expression."""
    return ("number", float(value))


def composed(expr: Expr, given: Sequence[Expr]) -> Expr:
    """Return an expression with others in place of its inputs."""
    if expr[0] == "in":
        return given[input_of(expr)]
    if not operands(expr):
        return expr
    op, *own = (expr[0], *(composed(one, given) for one in operands(expr)))
    for x, y in (own, own[::-1]) if op == "mul" else ():
        if y[0] == "div" and y[1] == number(1):
            return ("div", x, y[2])
    return (op, *own)


def input_of(expr: Expr) -> int:
    """The number of an input."""
    assert isinstance(expr[1], int)
    return expr[1]


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an operation; none of an input or a number."""
    return () if expr[0] in ("in", "number", "width") else expr[1:]  # type: ignore[return-value]


def inside(expr: Expr, known: Collection[Expr] = ()) -> Iterator[Expr]:
    """Yield an expression and all expressions in it once, operands first.

    Args:
        known: expressions to leave out, with all in them.
    """
    seen = set(known)
    waiting: list[tuple[Expr, bool]] = [(expr, False)]
    while waiting:
        one, ready = waiting.pop()
        if one in seen:
            continue
        if ready:
            seen.add(one)
            yield one
        else:
            waiting.append((one, True))
            waiting += [(own, False) for own in reversed(operands(one))]


def fits(given: Sequence[Operand]) -> bool:
    """Return whether a core has channels for these tensors: it has two for inputs."""
    return len(given) <= 2


def _inputs(given: Sequence[Operand]) -> list[tuple[int, int]]:
    """Return the tensor of each input of an expression, and its row or column there."""
    return [(at, own) for at, one in enumerate(given) for own in range(one.count)]


def reductions(expr: Expr) -> list[Expr]:
    """Return the reductions of rows in an expression, innermost first."""
    return [one for one in inside(expr) if one[0] in REDUCTIONS]


def is_flat(expr: Expr, given: Sequence[Operand]) -> bool:
    """Return whether only the number of elements counts, not the shape of the matrix."""
    return all(one.kind == "full" for one in given) and not reductions(expr)


def of_rows(expr: Expr, given: Sequence[Operand]) -> bool:
    """Return whether an expression has one value for each row."""

    def varies(one: Expr) -> bool:
        if one[0] == "in":
            return given[places[int(one[1])][0]].kind != "column"  # type: ignore[call-overload]
        return one[0] not in REDUCTIONS and any(map(varies, operands(one)))

    places = _inputs(given)
    return bool(reductions(expr)) and not varies(expr)


def by_reciprocals(expr: Expr, given: Sequence[Operand]) -> Expr:
    """Return an expression whose quotients by what a row shares are products with its reciprocal."""
    op, *own = (expr[0], *(by_reciprocals(one, given) for one in operands(expr)))
    if op == "div" and own[0] != number(1) and of_rows(own[1], given):
        return ("mul", own[0], ("div", number(1), own[1]))
    return (op, *own) if own else expr


class Writer:
    """The text that computes expressions, with names that are used once.

    Attributes:
        prefix: of all names.
    """

    def __init__(self, prefix: str = "t") -> None:
        self.prefix, self._names = prefix, 0

    def scalars(self, expr: Expr, known: dict[Expr, str], element: Callable[[int], str], lines: list[str]) -> str:
        """Add the lines that compute an expression at an element; return the name of its value.

        Args:
            known: names of values, to which it adds.
            element: from the number of an input to the text that reads its element.
        """

        def named(text: str) -> str:
            name = self._new()
            lines.append(f"{name}: float32 = {text}")
            return name

        for one in inside(expr, known):
            if one[0] == "number":
                known[one] = repr(one[1]).replace("inf", "1e39")  # beyond float32's largest number
            elif one == WIDTH:
                known[one] = "N"
            elif one[0] == "in":
                known[one] = named(element(input_of(one)))
            elif one[0] in _SCALARS:
                own = [known[own] for own in operands(one)]
                if all(part[0] == "number" for part in operands(one)):
                    own[0] = named(own[0])
                known[one] = named(_SCALARS[str(one[0])].format(*own))
            else:
                own = [known[own] for own in operands(one)]
                first, condition, second = (part.format(*own) for part in _CHOICES[str(one[0])])
                known[one] = name = named(first)
                lines += [f"if {condition}:", f"    {name} = {second}"]
        return known[expr]

    def tiles(self, expr: Expr, names: Sequence[str], tile: str, lines: list[str]) -> str | None:
        """Add the lines that compute an expression of whole tiles; return its text, None if Allo has no kernels for it.

        Args:
            names: of the tiles that are its inputs.
            tile: type of a tile.
        """
        uses = [own for one in inside(expr) for own in operands(one)]
        known: dict[Expr, str] = {}
        for one in inside(expr):
            text = self._tile(one, names, known, tile, lines)
            if text is None:
                return None
            if uses.count(one) > 1 and operands(one):
                name = self._new()
                lines.append(f"{name}: {tile} = {text}")
                text = name
            known[one] = text
        return known[expr]

    def _tile(
        self, expr: Expr, names: Sequence[str], known: Mapping[Expr, str], tile: str, lines: list[str]
    ) -> str | None:
        op, own = str(expr[0]), operands(expr)
        if op == "in":
            return names[input_of(expr)]
        if op == "number":
            return repr(expr[1])
        if op == "max" and own[1] == number(0):
            return f"allo.relu({known[own[0]]})"
        if op not in TILED:
            return None
        if op in ("add", "mul") and own[0][0] == "number":
            own = own[::-1]
        first = known[own[0]]
        if own[0][0] == "number":
            first = self._new()
            lines.append(f"{first}: {tile} = {known[own[0]]}")
        if op == "sub" and own[1][0] == "number":
            return f"allo.add({first}, {-float(own[1][1])!r})"  # type: ignore[arg-type]
        return f"allo.{op}({', '.join([first, *(known[one] for one in own[1:])])})"

    def _new(self) -> str:
        self._names += 1
        return f"{self.prefix}{self._names}"


def numpy_lines(expr: Expr, known: dict[Expr, str], prefix: str = "t") -> list[str]:
    """Return the lines that compute an expression in NumPy; adds the names of values to those known."""
    lines: list[str] = []
    for one in inside(expr, known):
        if one[0] == "number":
            known[one] = f"np.float32('{one[1]!r}')"
            continue
        if one == WIDTH:
            known[one] = f"np.float32({known['in', 0]}.shape[1])"
            continue
        known[one] = f"{prefix}{len(lines)}"
        lines.append(f"{known[one]} = " + _NUMPY[str(one[0])].format(*(known[own] for own in operands(one))))
    return lines


def operand_names(given: Sequence[Operand], names: Sequence[str], *, flat: bool = False) -> dict[Expr, str]:
    """Return the inputs of an expression as arrays of NumPy that broadcast."""
    found: dict[Expr, str] = {}
    for number_, (at, own) in enumerate(_inputs(given)):
        one = f"{names[at]}[{own}]" if given[at].count > 1 else names[at]
        found["in", number_] = f"{one}[:, None]" if given[at].kind == "column" and not flat else one
    return found


def tensor_of(one: Operand, rows: str, columns: str, axes: tuple[str, str]) -> tuple[str, str]:
    """Return the shape and the layout of a tensor, as text.

    Args:
        rows, columns: of the matrix. axes: layouts of these.
    """
    many = one.count > 1
    if one.kind == "full":
        return f"{rows}, {columns}", ", ".join(axes)
    size, axis = (columns, axes[1]) if one.kind == "row" else (rows, axes[0])
    return (f"{one.count}, {size}", f"R, {axis}") if many else (size, axis)


def element_of(given: Sequence[Operand], names: Sequence[str], row: str, column: str) -> Callable[[int], str]:
    """Return how an input of an expression is read at a row and a column, as text."""
    places = _inputs(given)

    def element(number_: int) -> str:
        at, own = places[number_]
        one = given[at]
        index = {"full": f"{row}, {column}", "row": column, "column": row}[one.kind]
        return f"{names[at]}[{f'{own}, ' if one.count > 1 else ''}{index}]"

    return element


HEAD = """import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Stream, bfloat16, float32, int8, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate


"""


def indented(depth: int, lines: Sequence[str]) -> str:
    return "".join(f"{'    ' * depth}{one}\n" for one in lines)


def program_text(kind: str, expr: Expr, given: Sequence[Operand], to: str = "Ty") -> str:
    """Return the text of a file with the program of an expression, and its reference in NumPy.

    Args:
        to: the element type of the result.
    """
    flat, vector = is_flat(expr, given), of_rows(expr, given)
    names = [f"X{at}" if len(given) > 1 else "X" for at in range(len(given))]
    if flat:
        sizes, share, tensors = "N=1024, P=1", "Nt = N // P", [("N", "S(0)")] * (len(given) + 1)
        body = _flat_body(expr, [name.lower() for name in names], plain={to, *(one.dtype for one in given)} == {"Ty"})
    else:
        sizes, share = "M=1024, N=64, P=1024", "Mt = M // P"
        tensors = [tensor_of(one, "M", "N", ("S(0)", "R")) for one in (*given, Operand("full"))]
        tensors[-1] = ("M", "S(0)") if vector else tensors[-1]
        body = _row_body(expr, given, [name.lower() for name in names], vector=vector)
    types = [*(one.dtype for one in given), to]
    wide = [f"{name}: {own}[{shape}]" for name, own, (shape, _) in zip([*names, "Y"], types, tensors, strict=True)]
    own = [f"{w[:1].lower()}{w[1:]} @ [{layout}]" for w, (_, layout) in zip(wide, tensors, strict=True)]
    known = operand_names(given, [name.lower() for name in names], flat=flat)
    lines = numpy_lines(expr, known)
    result = f"{known[expr]}[:, 0]" if vector else known[expr]
    return f'''"""{kind}: written from an expression."""

{HEAD}def program({sizes}, Ty=bfloat16):
    {share}

    @df.region()
    def top({", ".join(wide)}):
        @df.kernel(mapping=[P], args=[{", ".join([*names, "Y"])}])
        def core({", ".join(own)}):
{indented(3, body)}
    return top


def reference({", ".join(name.lower() for name in names)}):
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
{indented(2, lines)}        return np.asarray({result}, np.float32)
'''


def _flat_body(expr: Expr, names: Sequence[str], *, plain: bool) -> list[str]:
    """A pass over the elements.

    Args:
        plain: all tensors have one type.
    """
    lines: list[str] = []
    text = Writer().tiles(expr, names, "Ty[Nt]", lines) if plain else None
    if text is not None:
        return [*lines, f"y[:] = {text}"]
    lines = []
    result = Writer().scalars(expr, {}, lambda at: f"{names[at]}[i]", lines)
    return ["for i in range(Nt):", *(f"    {one}" for one in (*lines, f"y[i] = {result}"))]


def _row_body(expr: Expr, given: Sequence[Operand], names: Sequence[str], *, vector: bool) -> list[str]:
    """A pass over a row for each reduction, and one for the result; exponentials that several need are kept."""
    writer, uses = Writer(), [own for one in inside(expr) for own in operands(one)]
    rows, known, kept = list[str](), dict[Expr, str](), dict[Expr, str]()

    def computed(one: Expr, column: str, lines: list[str]) -> str:
        values = {**{own: f"{name}[{column}]" for own, name in kept.items()}, **known}
        return writer.scalars(one, values, element_of(given, names, "i", column), lines)

    def once(expr: Expr) -> None:
        """Compute before a pass what all elements of a row share."""
        for one in list(inside(expr, known)):
            if operands(one) and one[0] not in REDUCTIONS and of_rows(one, given):
                writer.scalars(one, known, element_of(given, names, "i", "0"), rows)

    for at, one in enumerate(reductions(expr)):
        once(operands(one)[0])
        name, inner = f"total{at}", list[str]()
        begin = {"row_sum": "0.0", "row_max": LOWEST, "row_min": HIGHEST}[str(one[0])]
        value = computed(operands(one)[0], f"j{at}", inner)
        if operands(one)[0][0] == "exp" and uses.count(operands(one)[0]) > 1:
            kept[operands(one)[0]] = f"kept{at}"
            inner.append(f"kept{at}[j{at}] = {value}")
        if one[0] == "row_sum":
            inner.append(f"{name} += {value}")
        else:
            inner += [f"if {value} {'>' if one[0] == 'row_max' else '<'} {name}:", f"    {name} = {value}"]
        rows += [f"{name}: float32 = {begin}", f"for j{at} in range(N):", *(f"    {line}" for line in inner)]
        known[one] = name
    once(expr)
    inner = []
    result = computed(expr, "j", inner)
    if vector:
        rows += [*inner, f"y[i] = {result}"]
    else:
        rows += ["for j in range(N):", *(f"    {line}" for line in (*inner, f"y[i, j] = {result}"))]
    return [*(f"{one}: float32[N] = 0.0" for one in kept.values()), "for i in range(Mt):", *(f"    {o}" for o in rows)]


def _folder() -> Path:
    """The folder of written programs, beside the cache of machine code."""
    folder = directory() / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir(), "allo-dse-programs")
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def loaded_text(kind: str, text: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """Return the functions `program` and `reference` of a text, which is kept as a file.

    Args:
        kind: begins the name of the file.
    """
    name = f"{''.join(c if c.isalnum() else '_' for c in kind)[:40]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = _folder() / f"{name}.py"
    if not file.exists() or file.read_text() != text:
        write_whole(file, text)
    spec = importlib.util.spec_from_file_location(f"allo_dse_programs_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.program, module.reference


def padded(size: int, least: int, most: int, unit: int = 1) -> int:
    """Return the smallest size from `size` on that tasks of `least` to `most` elements share evenly.

    Args:
        unit: that the elements of a task are multiples of.
    """
    size = -(-size // unit) * unit
    if size <= most or any(size % share == 0 for share in range(-(-least // unit) * unit, most + 1, unit)):
        return size
    share = -(-max(least, 1 << (max(1, most // 4)).bit_length() - 1) // unit) * unit
    return -(-size // share) * share


def row_tiles(width: int) -> tuple[int, int]:
    """Return the fewest and the most rows of a task, for rows of a width."""
    pair = 1 + (width <= MOST_WIDTH // 2)  # a result of each is a word
    return max(1, min(8, LEAST_WIDTH // width)), max(pair, min(64, MOST_ELEMENTS // width))


def expression_work(
    kind: str, expr: Expr, given: Sequence[Operand], shape: tuple[int, int], element: object, to: str = "Ty"
) -> Work:
    """Return the work that computes an expression for each element of a matrix.

    Args:
        kind: name of the operator.
        given: the tensors that it reads; rows and columns of one tensor are inputs of the expression one by one.
        shape: rows and columns. Without rows, columns and reductions, only their product counts.
        element: `Ty`, the type of tensors without one of their own. to: the type of the result.

    Raises:
        StudyError: for more tensors than a core has channels for, rows that no core holds, and sizes that tasks do not
            divide.
    """
    if not fits(given):
        raise StudyError(f"{kind} reads {len(given)} tensors; a core has channels for two")
    (rows, width), made_of = shape, Made(expr, tuple(given), to=to)
    program, reference = loaded_text(kind, program_text(kind, expr, given, to))
    if "Ty" not in {to, *(one.dtype for one in given)}:
        element = float32
    if is_flat(expr, given):
        params = {"N": rows * width, "P": tile_counts(rows * width, LEAST_ELEMENTS, MOST_ELEMENTS), "Ty": element}
        return Work(kind, program, params, reference, lambda p: {"N": 4 * p["P"]}, made_of)
    if width > MOST_WIDTH:
        raise StudyError(f"{kind} of rows of {width:,} elements; a core holds {MOST_WIDTH:,}")
    params = {"M": rows, "N": width, "P": tile_counts(rows, *row_tiles(width)), "Ty": element}
    return Work(kind, program, params, reference, lambda p: {"M": p["P"], "N": min(width, 16)}, made_of)


# Definitions of functions.


def one_plus_exp(x: Expr, by: float = -1.0) -> Expr:
    """1 + exp(by * x), the denominator of logistic functions."""
    return ("add", ("exp", ("mul", x, number(by))), number(1))


def sigmoid(x: Expr) -> Expr:
    return ("div", number(1), one_plus_exp(x))


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent; finite where the exponential overflows."""
    return ("sub", ("div", number(2), one_plus_exp(x, -2.0)), number(1))


def relu(x: Expr) -> Expr:
    return ("max", x, number(0))


def _abs(x: Expr) -> Expr:
    return ("max", x, ("mul", x, number(-1)))


def _erf(x: Expr) -> Expr:
    size = _abs(x)
    t = ("div", number(1), ("add", ("mul", size, number(ERF_SLOPE)), number(1)))
    polynomial: Expr = number(ERF[-1])
    for one in ERF[-2::-1]:
        polynomial = ("add", ("mul", polynomial, t), number(one))
    found = ("sub", number(1), ("mul", ("mul", polynomial, t), ("exp", ("mul", ("mul", size, size), number(-1)))))
    return ("where", ("gt", x, number(0)), found, ("mul", found, number(-1)))


def _softplus(x: Expr) -> Expr:
    return ("add", relu(x), ("log", ("add", ("exp", ("mul", _abs(x), number(-1))), number(1))))


def _round(x: Expr) -> Expr:
    """The nearest whole number, the even one of two; large numbers are whole."""
    return ("where", ("gt", number(1 << 22), _abs(x)), ("round", x), x)


def _elu(x: Expr, alpha: float, scale: float = 1.0) -> Expr:
    low = ("mul", ("sub", ("exp", ("min", x, number(0))), number(1)), number(alpha * scale))
    return ("where", ("gt", x, number(0)), ("mul", x, number(scale)) if scale != 1 else x, low)


def quantized(x: Expr, scale: Expr, low: Expr, high: Expr) -> Expr:
    """The nearest multiple of a scale between two of them, as a whole number."""
    return ("round", ("min", ("max", ("div", x, scale), low), high))


def _celu(x: Expr, alpha: float) -> Expr:
    low = ("exp", ("mul", ("min", x, number(0)), number(1 / alpha)))
    return ("add", relu(x), ("mul", ("sub", low, number(1)), number(alpha)))


def power(x: Expr, exponent: float) -> Expr | None:
    """An expression to the power of a number; None if it needs more than products, quotients and roots."""
    if exponent < 0:
        positive = power(x, -exponent)
        return None if positive is None else ("div", number(1), positive)
    whole, half = int(exponent), exponent % 1
    if half not in (0, 0.5) or whole > 8:
        return None
    found: Expr | None = ("sqrt", x) if half else None
    for _ in range(whole):
        found = x if found is None else ("mul", found, x)
    return found or number(1)


GELU = -2 * math.sqrt(2 / math.pi)  # x / (1 + exp(GELU * u)) is x * (1 + tanh(-GELU / 2 * u)) / 2


def gelu(x: Expr) -> Expr:
    """The approximation of the Gaussian error linear unit, of operations that Allo has vector kernels for."""
    inner = ("mul", x, ("add", ("mul", ("mul", x, x), number(0.044715)), number(1)))
    return ("div", x, one_plus_exp(inner, GELU))


def silu(x: Expr) -> Expr:
    return ("div", x, one_plus_exp(x))


Attribute = Callable[[str, float], float]


def _hard_sigmoid(x: Expr, slope: float, offset: float) -> Expr:
    return ("min", ("max", ("add", ("mul", x, number(slope)), number(offset)), number(0)), number(1))


_PLAIN: dict[str, Callable[[Expr], Expr]] = {
    "Abs": _abs, "Erf": _erf, "Gelu": gelu, "Relu": relu, "Round": _round, "Sigmoid": sigmoid, "Silu": silu,
    "Softplus": _softplus, "Tanh": tanh,
}  # fmt: skip
UNARY: dict[str, Callable[[Expr, Attribute], Expr]] = {
    **{name: partial(lambda of, x, _: of(x), of) for name, of in _PLAIN.items()},
    **{op.title(): partial(lambda op, x, _: (op, x), op) for op in ("cos", "exp", "log", "sin", "sqrt")},
    "Ceil": lambda x, _: ("add", _round(x), ("gt", x, _round(x))),
    "Celu": lambda x, a: _celu(x, a("alpha", 1)),
    "Elu": lambda x, a: _elu(x, a("alpha", 1)),
    "Dequantize": lambda x, a: ("mul", ("sub", x, number(a("zero", 0))), number(a("scale", 1))),
    "Floor": lambda x, _: ("sub", _round(x), ("gt", _round(x), x)),
    "HardSigmoid": lambda x, a: _hard_sigmoid(x, a("alpha", 0.2), a("beta", 0.5)),
    "HardSwish": lambda x, _: ("mul", x, _hard_sigmoid(x, 1 / 6, 0.5)),
    "LeakyRelu": lambda x, a: ("where", ("gt", x, number(0)), x, ("mul", x, number(a("alpha", 0.01)))),
    "Mish": lambda x, _: ("mul", x, tanh(_softplus(x))),
    "Neg": lambda x, _: ("mul", x, number(-1)),
    "Not": lambda x, _: ("sub", number(1), x),
    "QuickGelu": lambda x, a: ("mul", x, sigmoid(("mul", x, number(a("alpha", 1.702))))),
    "Reciprocal": lambda x, _: ("div", number(1), x),
    "Quantize": lambda x, a: (
        "add", quantized(x, *(number(a(one, 0)) for one in ("scale", "low", "high"))), number(a("zero", 0)),
    ),
    "Selu": lambda x, of: _elu(x, of("alpha", 1.67326319217681884765625), of("gamma", 1.05070102214813232421875)),
    "Sign": lambda x, _: ("sub", ("gt", x, number(0)), ("gt", number(0), x)),
    "Softsign": lambda x, _: ("div", x, ("add", _abs(x), number(1))),
    "Swish": lambda x, a: ("mul", x, sigmoid(("mul", x, number(a("alpha", 1))))),
    "ThresholdedRelu": lambda x, a: ("where", ("gt", x, number(a("alpha", 1))), x, number(0)),
}  # fmt: skip
"""ONNX's functions of an element, given how to read a number of the node."""

_OPERATIONS = {
    **{"Add": "add", "And": "mul", "Div": "div", "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Max": "max"},
    **{"Min": "min", "Mul": "mul", "Or": "max", "Sub": "sub", "Sum": "add"},
}
BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    **{name: partial(lambda op, a, b: (op, a, b), op) for name, op in _OPERATIONS.items()},
    "Less": lambda a, b: ("gt", b, a),
    "LessOrEqual": lambda a, b: ("ge", b, a),
    "PRelu": lambda a, b: ("where", ("gt", a, number(0)), a, ("mul", a, b)),
    "SiluMul": lambda a, b: ("mul", silu(a), b),
    "Xor": lambda a, b: ("sub", ("max", a, b), ("min", a, b)),
}
"""ONNX's functions of two elements; Max, Min and Sum take more, one after another."""
