"""What is refused of a model before its nodes become steps, with its place in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.lang.rules import current_rules

from .graph import Graph, Node
from .patterns import parts_of


def require_meant(names: Iterable[str], needed: Sequence[Node], read: Graph) -> None:
    """See that each name is that, or the type, of a node that becomes a step; of those `read` some are only parts."""
    there = {name for node in needed for name in (node.name, node.op)}
    for name in (one for one in names if one not in there):
        parts = ((part, whole) for whole in needed for part in parts_of(whole, read) if name in (part.name, part.op))
        for part, whole in parts:
            raise StudyError(
                f"{read.name}: programs[{name!r}]: {part.place} is part of {whole.place}",
                hint=f"give one for {whole.name or whole.op!r}",
            )
        raise StudyError(
            f"{read.name}: programs[{name!r}]: no operator that outputs depend on has that name or type",
            hint=f"{did_you_mean(name, there)}What depends on constants alone, or changes nothing, is none",
        )


def require_known(graph: Graph, ours: Sequence[Node], known: Collection[str], moving: Collection[str]) -> None:
    """See that nodes without a program of the user's are of types that are known.

    Args:
        moving: types that only move elements, of whatever kind.
    """
    if unknown := [node for node in ours if node.op not in known or not node.is_standard]:
        raise StudyError(
            f"{graph.name}: no program for {', '.join(node.place for node in unknown)}",
            hint="give one with programs={'the node\\'s name or type': function of (node, graph) that returns a Work}",
        )
    if whole := [node for node in ours if node.output in graph.whole and node.op not in moving]:
        raise StudyError(
            f"{graph.name}: {whole[0].place}: its elements are not floating-point numbers",
            hint="cast them, or give a program for it with programs=",
        )


def require_tensors(graph: Graph, needed: Sequence[Node]) -> None:
    """See that what nodes and outputs read is written, and has a shape that a program may have."""
    most = current_rules().elements
    for name, shape in graph.shapes.items():
        if math.prod(shape) > most:
            raise StudyError(f"{graph.name}: tensor {name!r} of {shape} has more than {most:,} elements")
    written = {"", *graph.inputs, *graph.known}
    written.update(name for n in needed for name in (n.outputs if n.op == "Split" else (n.output,)))
    shaped = {"", *graph.known, *(name for name, shape in graph.shapes.items() if min(shape, default=1) > 0)}
    reads = [(node.place, (*node.inputs, node.output)) for node in needed]
    for place, name in [(place, name) for place, names in [*reads, ("output", graph.outputs)] for name in names]:
        if name not in written:
            hint = "only the first outputs of operators are known, but of Split"
            raise StudyError(f"{graph.name}: {place}: nothing writes {name!r}", hint=hint)
        if name not in shaped:
            raise StudyError(
                f"{graph.name}: {place}: the shape of {name!r} is {graph.shapes.get(name, 'not known')}",
                hint="it may not depend on what inputs hold, nor be empty; export the model with sizes that are fixed",
            )


@contextmanager
def placed(graph: Graph, node: Node) -> Iterator[None]:
    """What is wrong with a node, such as its sizes, is said with its place."""
    try:
        yield
    except StudyError as error:
        if node.place in error.message:
            raise
        raise StudyError(f"{graph.name}: {node.place}: {error.message}", hint=error.hint) from None
