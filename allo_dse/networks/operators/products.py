"""Products of matrices: C = A @ B, and of a matrix and a vector, with partial sums flowing along K."""

from __future__ import annotations

from typing import cast

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import bfloat16, int8, int32
from allo.memory import Layout
from numpy.typing import NDArray

from allo_dse.common.records import replace

from .execute import LEAST_TILE, MOST_TILE, Expr, Made, Operand, Work, tile_counts
from .expressions import (
    HEAD,
    Writer,
    composed,
    element_of,
    expression_work,
    fits,
    indented,
    input_of,
    is_flat,
    loaded_text,
    numpy_lines,
    operand_names,
    reductions,
    tensor_of,
)
from .packed import Packed

S, R = Layout.Shard, Layout.Replicate
Array = NDArray[np.generic]
Floats = NDArray[np.float32]


def gemv_work(rows: int, depth: int, element: object, packed: Packed | None = None) -> Work:
    """[rows, depth] times a vector, by loops, or by a matrix kernel with columns of zeros beside it.

    A task has few elements of the vector, as no core keeps more than 2,048 of one, twice, and 16 KB of columns.
    """
    block, width = packed.block if packed else 1, 1 if packed or element == int8 else UNIT
    program, reference = loaded_text("gemv", _gemv_text(packed, whole=element == int8))
    most, deep = (32, 512) if width == 1 else (128, 256)
    return Work(
        "gemv",
        program,
        {
            "M": rows,
            "K": depth,
            "Ty": element,
            "W": width,
            "Pm": tile_counts(rows, 2, most),
            "Pk": tile_counts(depth, deep, 2048, block),
        },
        reference,
        lambda p: {"M": 2 * p["Pm"], "K": max(16, block) * p["Pk"]},
    )


def _gemv_text(packed: Packed | None, *, whole: bool) -> str:
    """The text of a file with y = A @ x, and the reference in NumPy.

    Allo drops dimensions of a single element, and with them its matrix product's. So its kernel multiplies W columns,
    the vector and zeros, and W = 1 are loops.

    Args:
        whole: whole numbers are multiplied.
    """
    kind, depth, lines = ("int8", "int32") if whole else ("Ty", "float32"), "K", list[str]()
    (weights, sums), numbers = kind, "A.astype(np.int32) @ x.astype(np.int32)" if whole else "A @ x"
    inner = ["for k in range(Kt):", "    total += local_A[i, k] * local_x[k]"]
    if packed:
        weights, depth = "int8", f"K // {packed.block} * {packed.bytes}"
        lines, numbers = ["A = A.T", *packed.numpy_lines("A")], "x @ weights"
        loop = packed.loop(
            lambda byte: f"local_A[i, b * {packed.bytes} + {byte}]",
            "part: float32 = 0.0",
            lambda weight, k: f"part += {weight} * local_x[b * {packed.block} + {k}]",
        )
        inner = [
            f"for b in range(Kt // {packed.block}):",
            *(f"    {line}" for line in (*loop, "total += part * scale")),
        ]
    body = [f"total: {sums} = before[i]", *inner, "before[i] = total"]
    return f'''"""A matrix by a vector."""

{HEAD}def program(M=2048, K=2048, Pm=256, Pk=1, W=1, Ty=bfloat16):
    Mt, Kt, D = M // Pm, K // Pk, {depth}

    @df.region()
    def top(A: {weights}[M, D], x: {kind[0]}[K], y: {sums if whole else "Ty"}[M]):
        sums: Stream[{sums}[Mt], 2][Pk - 1, Pm]

        @df.kernel(mapping=[Pk, Pm], args=[A, x, y])
        def gemv(
            local_A: {weights}[M, D] @ [S(1), S(0)], local_x: {kind[0]}[K] @ [S(0)],
            local_y: {sums if whole else "Ty"}[M] @ [S(1)],
        ):
            pk, pm = df.get_pid()
            before: {sums}[Mt]
            with allo.meta_if(pk > 0):
                before[:] = sums[pk - 1, pm].get()
            with allo.meta_else():
                before[:] = 0
            with allo.meta_if(W > 1):
                columns: Ty[Kt, W] = 0
                for k1 in range(Kt):
                    columns[k1, 0] = local_x[k1]
                products: Ty[Mt, W] = allo.matmul(local_A, columns)
                for i2 in range(Mt):
                    before[i2] = before[i2] + products[i2, 0]
            with allo.meta_else():
                for i in range(Mt):
{indented(5, body)}
            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm].put(before)
            with allo.meta_elif(pk == Pk - 1):
                for i1 in range(Mt):
                    local_y[i1] = before[i1]

    return top


def reference(A, x):
{indented(1, lines)}    return {numbers}
'''


def gemm_work(
    rows: int, columns: int, depth: int, element: object, packed: Packed | None = None, blocks: int = 1
) -> Work:
    """[rows, depth] times [depth, columns]; of 8-bit whole numbers, sums of 32 bits.

    Args:
        blocks: of columns, each a tensor of its own; of more than one, the product of a single row, whose result has a
            row for each.
    """
    block = packed.block if packed else 1
    sums = "int32" if element == int8 else "Ty"
    made_of = Made(stages=((("in", 0), None),), to=sums, sums=sums, packed=packed, blocks=blocks)
    rows, columns = rows * blocks, columns // blocks
    program, reference = loaded_text("gemm", product_text("gemm", made_of))
    return Work(
        "gemm",
        program,
        {
            "M": rows,
            "N": columns,
            "K": depth,
            "Pm": blocks if blocks > 1 else tile_counts(rows),
            "Pn": tile_counts(columns),
            "Pk": tile_counts(depth, unit=block),
            "Ty": element,
        },
        reference,
        lambda p: {"M": (4 if blocks == 1 else 1) * p["Pm"], "N": 4 * p["Pn"], "K": max(4, block) * p["Pk"]},
        made_of,
    )


MATRIX_ELEMENTS = 12_288
"""Elements of a task's three matrices: double buffering takes four bytes of each, of 64 KB."""
UNIT = 8
"""Sides of matrix kernels are multiples of it."""
SMALL = 64
"""Sides up to this are one tile, whatever they are."""


def fitting_side(size: int) -> int:
    """Return the side of a matrix that tiles divide well, from `size` on: at most a few percent more."""
    if size == 1:  # Allo drops dimensions of a single element
        return UNIT
    if size <= SMALL or (size % UNIT == 0 and any(size % tile == 0 for tile in range(LEAST_TILE, MOST_TILE + 1, UNIT))):
        return size
    unit = 16 if size <= MOST_TILE else 64 if size <= 16 * MOST_TILE else MOST_TILE
    return -(-size // unit) * unit


def gemm_batch(B=12, M=64, N=64, K=64, P=12, Ty=bfloat16):
    """Products of matrices, one for each task; of 8-bit whole numbers, sums of 32 bits."""
    whole = int(Ty == int8)
    Out = int32 if whole else Ty

    @df.region()
    def top(A: Ty[B * M, K], Bs: Ty[B * K, N], C: Out[B * M, N]):
        @df.kernel(mapping=[P], args=[A, Bs, C])
        def gemm(a: Ty[B * M, K] @ [S(0), R], b: Ty[B * K, N] @ [S(0), R], c: Out[B * M, N] @ [S(0), R]):
            with allo.meta_if(whole == 1):
                sums: Out[M, N] = 0
                c[:, :] = allo.matmul(a, b) + sums
            with allo.meta_else():
                c[:, :] = allo.matmul(a, b)

    return top


def batch_cuts(rows: int, columns: int, depth: int) -> tuple[int, int] | None:
    """Return into how many parts of rows and of columns products are cut, to fit a task; None if none does."""

    def parts(size: int) -> list[int]:
        return [own for own in range(1, size + 1) if size % own == 0]

    fitting = (
        (m, n)
        for m in parts(rows)
        for n in parts(columns)
        if rows // m * depth + depth * columns // n + rows // m * (columns // n) <= MATRIX_ELEMENTS
    )
    return min(fitting, key=lambda own: own[0] * own[1], default=None)


def gemm_batch_work(count: int, rows: int, columns: int, depth: int, element: object) -> Work:
    """[count * rows, depth] times [count * depth, columns], matrix by matrix."""

    def reference(A: Floats, Bs: Floats) -> Array:
        whole = np.int32 if element == int8 else np.float32
        made = A.astype(whole).reshape(count, -1, A.shape[1]) @ Bs.astype(whole).reshape(count, A.shape[1], -1)
        return made.reshape(-1, Bs.shape[1])

    params = {"B": count, "M": rows, "N": columns, "K": depth, "P": count, "Ty": element}
    return Work("gemm_batch", gemm_batch, params, reference, lambda p: dict.fromkeys("MNK", UNIT))


# Fusion: programs of expressions become one, and products are followed by expressions that never go to DRAM.

_GEMM = """
        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, {names}{result}])
        def gemm(local_A: {own} @ [{rows}, S(0)], {locals}{argument}):
            pk, pm, pn = df.get_pid()
{unpacked}            before: {sums}[Mt, Nt]
            with allo.meta_if(pk > 0):
                before[:, :] = sums[pk - 1, pm, pn].get()
            with allo.meta_else():
                before[:, :] = 0
{added}            with allo.meta_if(pk < Pk - 1):
                sums[pk, pm, pn].put(after)
            with allo.meta_else():
{last}
"""


def product_text(kind: str, made_of: Made) -> str:
    """Return the text of a file with a product and what follows on its elements, and the reference in NumPy.

    A stage with a tensor of its own is a kernel of its own, as a core has no third channel for what comes in.
    """
    stages, to, whole = made_of.stages, made_of.to, made_of.sums != "Ty"
    types = [made_of.sums, *["Ty"] * (len(stages) - 2), to]
    first, own = stages[0][0], [(expr, one) for expr, one in stages[1:] if one is not None]
    shapes = [tensor_of(one, "M", "N", ("S(0)", "S(1)")) for _, one in own]
    others = [f"O{at}" for at in range(len(own))]
    streams = [f"        stage{at}: Stream[{types[at]}[Mt, Nt], 2][Pm, Pn]\n" for at in range(len(own))]
    kernels = []
    for at, (expr, one) in enumerate(own):
        last = at == len(own) - 1
        made = _stage(expr, one, at, "local_C" if last else "y", plain=types[at] == types[at + 1] == one.dtype == "Ty")
        if not last:
            made = [f"y: {types[at + 1]}[Mt, Nt] = 0", *made, f"stage{at + 1}[pm, pn].put(y)"]
        shape, layout = shapes[at]
        ends = (", C", f", local_C: {to}[M, N] @ [S(0), S(1)]") if last else ("", "")
        kernels.append(
            f"\n        @df.kernel(mapping=[Pm, Pn], args=[O{at}{ends[0]}])\n"
            f"        def finish{at}(o{at}: {one.dtype}[{shape}] @ [{layout}]{ends[1]}):\n"
            + indented(3, ["pm, pn = df.get_pid()", f"x{at}: {types[at]}[Mt, Nt] = stage{at}[pm, pn].get()", *made])
        )
    end = ["stage0[pm, pn].put(after)"] if own else _stage(first, None, 0, "local_C", plain=to == made_of.sums)
    operand, packed, blocks = "int8" if whole else "Ty", made_of.packed, made_of.blocks
    names = [f"B{at}" for at in range(blocks)] if blocks > 1 else ["B"]
    rights = [f"local_{name}" for name in names]
    weights, right, unpacked, lines = f"{operand}[K, N]", "B", list[str](), list[str]()
    if packed:
        rights, right = ["wide"], "weights"
        weights, lines = f"int8[K // {packed.block} * {packed.bytes}, N]", packed.numpy_lines("B")
        loop = packed.loop(
            lambda byte: f"local_B[b * {packed.bytes} + {byte}, j]",
            "",
            lambda weight, k: f"wide[b * {packed.block} + {k}, j] = {weight} * scale",
        )
        unpacked = ["wide: Ty[K // Pk, Nt] = 0", f"for b, j in allo.grid(K // Pk // {packed.block}, Nt):"]
        unpacked += [f"    {line}" for line in loop]
    added = []
    for at, right_tile in enumerate(rights):
        product = f"allo.matmul(local_A, {right_tile})"
        value = f"{product} + before" if whole else f"allo.add({product}, before)"
        added += [f"with allo.meta_if(pm == {at}):"] * (blocks > 1)
        added.append(f"{'    ' * (blocks > 1)}after: {made_of.sums}[Mt, Nt] = {value}")
    own_row, rows = (f"{operand}[M, K]", "S(1)") if blocks == 1 else (f"{operand}[1, K]", "R")
    tensors = [
        f"A: {own_row}",
        *(f"{name}: {weights}" for name in names),
        *(f"O{at}: {one.dtype}[{shape}]" for at, ((shape, _), (_, one)) in enumerate(zip(shapes, own, strict=True))),
        f"C: {to}[M, N]",
    ]
    gemm = _GEMM.format(
        result="" if own else ", C",
        argument="" if own else f", local_C: {to}[M, N] @ [S(1), S(2)]",
        own=own_row,
        rows=rows,
        names=", ".join(names),
        locals=", ".join(f"local_{name}: {weights} @ [S(0), S(2)]" for name in names),
        unpacked=indented(3, unpacked),
        sums=made_of.sums,
        added=indented(3, added),
        last=indented(4, end).rstrip(),
    )
    exact = ".astype(np.int32)" * whole
    each = [f"A{exact} @ {name}{exact}" for name in (names if blocks > 1 else [right])]
    lines.append(f"product = np.concatenate([{', '.join(each)}])" if blocks > 1 else f"product = {each[0]}")
    result = "product"
    for at, (expr, other) in enumerate(stages):
        known: dict[Expr, str] = {("in", 0): result}
        if other is not None:
            inputs = operand_names([other], [f"o{at - 1}"])
            known |= {("in", input_of(name) + 1): text for name, text in inputs.items()}
        lines += numpy_lines(expr, known, f"t{at}_")
        result = known[expr]
    return f'''"""{kind}: a product and what follows on its elements."""

{HEAD}def program(M=2048, N=2048, K=2048, Pm=32, Pn=32, Pk=32, Ty=bfloat16):
    Mt, Nt = M // Pm, N // Pn

    @df.region()
    def top({", ".join(tensors)}):
        sums: Stream[{made_of.sums}[Mt, Nt], 2][Pk - 1, Pm, Pn]
{"".join(streams)}{gemm}{"".join(kernels)}
    return top


def reference({", ".join(["A", *names, *(name.lower() for name in others)])}):
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
{indented(2, lines)}        return np.asarray({result}{"" if to == "int32" else ", np.float32"})
'''


def _stage(expr: Expr, one: Operand | None, at: int, target: str, *, plain: bool) -> list[str]:
    """The lines that compute an expression of a tile of the product, and of a further tensor.

    Args:
        plain: all tiles have one type.
    """
    source, writer = "after" if one is None else f"x{at}", Writer(f"t{at}_")
    lines: list[str] = []
    if plain and (one is None or one.kind == "full"):
        text = writer.tiles(expr, [source, f"o{at}"], "Ty[Mt, Nt]", lines)
        if text is not None:
            return [*lines, f"{target}[:, :] = {text}"]
    lines = []
    given = [Operand("full"), *([one] if one else [])]
    element = element_of(given, [source, f"o{at}"], f"i{at}", f"j{at}")
    result = writer.scalars(expr, {}, element, lines)
    return [
        f"for i{at}, j{at} in allo.grid(Mt, Nt):",
        *(f"    {ln}" for ln in (*lines, f"{target}[i{at}, j{at}] = {result}")),
    ]


def fused_work(work: Work, following: Work, position: int) -> Work | None:
    """Fuse two works into one program; None if there is none.

    It reads the inputs of `work`, then the other inputs of `following`.

    Args:
        position: of the result of `work` among the inputs of `following`.
    """
    after, before = following.made_of, work.made_of
    if after is None or after.stages or before is None:
        return None
    given, expr = after.given, after.expr
    if position >= len(given) or given[position].kind != "full" or reductions(expr):
        return None
    typed = before.sums != "Ty"  # what follows sums of whole numbers decides the type of the rest
    if given[position].dtype != before.to or not (typed or work.params.get("Ty") == following.params.get("Ty")):
        return None
    kind = f"{work.kind}_{following.kind}"
    firsts = [sum(one.count for one in given[:at]) for at in range(len(given))]
    others = [(first, one) for at, (first, one) in enumerate(zip(firsts, given, strict=True)) if at != position]
    if not before.stages:
        return _fused_expressions(kind, work, following, position)
    if len(others) > 1 or (
        following.params.get("M") and any(following.params[side] != work.params[side] for side in "MN")
    ):
        return None
    order: list[Expr] = [("in", 0)] * sum(one.count for one in given)
    for first, one in others:
        order[first : first + one.count] = [("in", 1 + own) for own in range(one.count)]
    own, stages = composed(expr, order), before.stages
    last, operand = stages[-1]
    if others:
        stages = (
            *stages,
            (
                composed(own, [last, *(("in", 1 + n) for n in range(others[0][1].count))]) if operand is None else own,
                others[0][1],
            ),
        )
    else:
        stages = (*stages[:-1], (composed(own, [last]), operand))
    made_of = replace(before, stages=stages, to=after.to)
    program, reference = loaded_text(kind, product_text(kind, made_of))
    params = {**work.params, "Ty": following.params["Ty"]}
    return Work(kind, program, params, reference, work.verify_with, made_of)


def _fused_expressions(kind: str, work: Work, following: Work, position: int) -> Work | None:
    """Fuse functions of as many elements each: the tensors of both are at most two."""
    before, after = work.made_of, following.made_of
    assert before is not None
    assert after is not None
    given = [*before.given, *(one for at, one in enumerate(after.given) if at != position)]
    sized = is_flat(before.expr, before.given) and is_flat(after.expr, after.given)
    if not sized or not fits(given):
        return None
    rest = iter(range(len(before.given), len(given)))
    own = [before.expr if at == position else ("in", next(rest)) for at in range(len(after.given))]
    size = cast(int, work.params["N"])
    return expression_work(kind, composed(after.expr, own), given, (size, 1), work.params["Ty"], after.to)
