"""Memory of a task's own, as one more argument of its body: what a rewritten body writes down there."""

from __future__ import annotations

from allo_dse.program.tasks import TaskBody


def with_own_words(body: TaskBody, type_: str) -> str:
    """The body with the argument `%df_words`: after its last array, before numbers of streams.

    Args:
        type_: of the argument, a memref whose layout is `strided<[?], offset: ?>`.
    """
    head, opening, rest = body.mlir.partition(f"func.func @{body.symbol}(")
    arguments, closing, code = rest.partition(") {\n")
    names = arguments.split(", %")
    arrays = [k for k, name in enumerate(names) if "memref<" in name]
    place = arrays[-1] + 1 if arrays else next(k for k, n in enumerate([*names, ""]) if "pid" not in n)
    names.insert(place, f"df_words: {type_}")
    return head + opening + ", %".join(names) + closing + code
