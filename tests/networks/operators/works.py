"""Works of single expressions, which networks make from models."""

from __future__ import annotations

from allo_dse.networks.operators.elementwise import FULL, normed, softmax
from allo_dse.networks.operators.execute import Expr, Operand, Work
from allo_dse.networks.operators.expressions import BINARY, WIDTH, expression_work, number


def centred(x: Expr) -> Expr:
    """x less the mean of its row."""
    return ("sub", x, ("div", ("row_sum", x), WIDTH))


def row_work(op: str, rows: int, width: int, element: object) -> Work:
    """ "add" or "mul" of every row of a matrix and the same row."""
    expr = BINARY[op.title()](("in", 0), ("in", 1))
    return expression_work(f"{op}_row", expr, [FULL, Operand("row")], (rows, width), element)


def layer_norm_work(rows: int, width: int, epsilon: float, element: object) -> Work:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias for every row; weight and bias are rows of one matrix."""
    expr = ("add", ("mul", normed(centred(("in", 0)), epsilon), ("in", 1)), ("in", 2))
    return expression_work("layer_norm", expr, [Operand("full"), Operand("row", 2)], (rows, width), element)


def softmax_work(rows: int, width: int, element: object) -> Work:
    """exp(x - largest) over its sum, for every row."""
    return expression_work("softmax", softmax(("in", 0)), [Operand("full")], (rows, width), element)


def pool_work(op: str, taps: int, size: int, element: object) -> Work:
    """ "max" or "mean" of each of `size` rows of `taps` elements."""
    x: Expr = ("in", 0)
    expr: Expr = ("row_max", x) if op == "max" else ("mul", ("row_sum", x), number(1 / taps))
    return expression_work(f"{op}_pool", expr, [FULL], (size, taps), element)
