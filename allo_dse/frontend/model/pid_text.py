"""The text of a function of the pid: index arithmetic where it can be computed so, else an entry of a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from allo_dse.common.aliases import Array
from allo_dse.lang.types import DType, Int, index

from .mlir_text import FunctionText
from .pid_values import Meta, Tree

TableEntry = Callable[[Array, DType], str]
"""Writes the load of this task's entry of an array that broadcasts against the mesh."""

_OPERATIONS = {"+": "addi", "-": "subi", "*": "muli", "//": "floordivsi", "min": "minsi", "max": "maxsi"}
_OPERATIONS |= {"<<": "shli", ">>": "shrsi", "&": "andi", "|": "ori", "^": "xori"}


def pid_index(text: FunctionText, value: Meta, entry: TableEntry) -> str:
    """The run-time value (an `index`) of a function of the pid."""
    if value.affine is not None:
        return _affine(text, *value.affine)
    return _tree(text, value.tree if _computable(value.tree) else ("table", value.array), entry)


def _computable(tree: Tree) -> bool:
    """Whether a function of the pid can be computed by index arithmetic."""
    if tree[0] in ("pid", "const"):
        return True
    if tree[0] == "table":
        return bool(tree[1].dtype.kind in "iu")
    return tree[0] in (*_OPERATIONS, "%") and _computable(tree[1]) and _computable(tree[2])


def _affine(text: FunctionText, row: tuple[int, ...], offset: int) -> str:
    if not any(row):
        return text.constant(offset, index)
    if offset == 0 and sorted(row) == [0] * (len(row) - 1) + [1]:
        return f"%pid{row.index(1)}"
    dims = ", ".join(f"d{a}" for a in range(len(row)))
    terms = [f"d{a}" if factor == 1 else f"d{a} * {factor}" for a, factor in enumerate(row) if factor]
    terms += [str(offset)] if offset else []
    pids = ", ".join(f"%pid{a}" for a in range(len(row)))
    return text.shared(f"affine.apply affine_map<({dims}) -> ({' + '.join(terms)})>({pids})")


def _tree(text: FunctionText, tree: Tree, entry: TableEntry) -> str:
    if tree[0] == "pid":
        return f"%pid{tree[1]}"
    if tree[0] == "const":
        return text.constant(int(tree[1]), index)
    if tree[0] == "table":
        loaded = entry(tree[1].astype(np.int64), Int(64))
        return text.shared(f"arith.index_cast {loaded} : i64 to index")
    op, left, right = tree[0], _tree(text, tree[1], entry), _tree(text, tree[2], entry)
    if op == "%":
        quotient = text.shared(f"arith.floordivsi {left}, {right} : index")
        product = text.shared(f"arith.muli {quotient}, {right} : index")
        return text.shared(f"arith.subi {left}, {product} : index")
    return text.shared(f"arith.{_OPERATIONS[op]} {left}, {right} : index")
