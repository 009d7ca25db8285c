"""compute_at: move the computation of one nest into the nest that uses it."""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.errors import ProgramError, warn
from allo_dse.common.mlir.bindings import ir

from ..ir.nest import Loop, Node
from .body import Body, inner_block, is_pure, number_of, numbered, statements
from .find import Found
from .loops import Pairing, Reference, bounds, first_order, known, references, value_ranges, variable


def compute_at(producer: Found, target: Found) -> None:
    """Run rounds of one nest at the beginning of the rounds of another, down to a loop of that.

    before:  for i: B[i] = ...; for ii: ... B[ii] ...        after:  for ii: B[ii] = ...; ... B[ii] ...

    Args:
        producer: any loop of the nest that is moved.
        target: the innermost loop that is shared.

    Raises:
        ProgramError: where the loops do not have the same rounds, or where results would differ.
    """
    body = target.body
    path, shared = _path(producer.op), _path(target.op)
    while path and shared and path[0] == shared[0]:  # loops around both nests
        path, shared = path[1:], shared[1:]
    if not path or not shared:
        raise ProgramError("both loops belong to one nest", hint="compute_at merges two nests")
    first = path[0]
    moved = _same_rounds(body, first, shared)
    if len(moved) < len(shared):
        names = body.source(moved[-1]).name, body.source(shared[len(moved) - 1]).name
        warn(f"compute_at: `{names[0]}` has several loops inside it, which all run in the rounds of `{names[1]}`")
        shared = shared[: len(moved)]
    if first.parent != shared[0].parent:
        raise ProgramError("the two nests are not next to each other")
    check_merged(body, moved, shared)
    at = inner_block(shared[-1]).operations[0]
    mapping = {variable(old): variable(new) for old, new in zip(moved, shared, strict=True)}
    for outer in moved:
        for op in statements(inner_block(outer)):
            if not any(op == inner for inner in moved):
                op.move_before(at)
    for old, new in mapping.items():
        old.replace_all_uses_with(new)
    moved[0].erase()


def _path(loop: ir.Operation) -> list[ir.Operation]:
    """The loops of a nest down to one of them."""
    path = [loop]
    while path[0].parent is not None and path[0].parent.name == "scf.for":
        path.insert(0, path[0].parent)
    return path


def _same_rounds(body: Body, first: ir.Operation, shared: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The loops of the moved nest that correspond to those of the other, as far as they have one loop inside each."""
    moved = [first]
    for depth, other in enumerate(shared):
        if depth:
            inner = [op for op in statements(inner_block(moved[-1])) if not is_pure(op)]
            if not any(op.name == "scf.for" for op in inner):
                raise ProgramError(f"`{body.source(moved[-1]).name}` has no loop directly inside it")
            if len(inner) > 1:
                break
            moved.append(inner[0])
        own, wanted = ([known(value) for value in bounds(loop)] for loop in (moved[-1], other))
        if own != wanted or None in own:
            names = body.source(moved[-1]).name, body.source(other).name
            raise ProgramError(f"loops `{names[0]}` and `{names[1]}` do not have the same rounds")
    return moved


def check_merged(body: Body, moved: Sequence[ir.Operation], shared: Sequence[ir.Operation]) -> None:
    """Check that two nests compute the same as one whose rounds do those of the first and then those of the second.

    Args:
        moved, shared: corresponding loops of the first and of the second nest, outermost first.

    Raises:
        ProgramError: where a round of the second would come before a round of the first that it depends on.
    """
    nest = body.nest()
    if nest.unsupported is not None:
        raise ProgramError(f"loops cannot be merged here: {nest.unsupported.reason}")
    left = [numbered(nest, number_of(loop)) for loop in moved]
    right = [numbered(nest, number_of(loop)) for loop in shared]
    produced, used = references([left[0]]), references([right[0]])
    block = _block_of(nest.body, left[0])
    places = [next(p for p, node in enumerate(block) if node is loop) for loop in (left[0], right[0])]
    if places[0] > places[1]:
        raise ProgramError("the nest that is moved comes after the other")
    ranges = value_ranges([loop for one in (*produced, *used) for loop in one.loops], {})
    for between in references(block[places[0] + 1 : places[1]]):
        if any(_conflict(between, one) for one in produced):
            raise ProgramError(f"`{between.access.array}` is used between the two nests")
    pairing = Pairing(tuple(left), tuple(right), ranges)
    for one in produced:
        for other in used:
            if any(first_order(vector) == ">" for vector in pairing.directions(one, other)):
                raise ProgramError(
                    f"elements of `{one.access.array}` would be used before they are computed",
                    hint="choose a loop further out, or reorder the nests first",
                )


def _conflict(one: Reference, other: Reference) -> bool:
    return one.access.array == other.access.array and (one.access.write or other.access.write)


def _block_of(nodes: Sequence[Node], loop: Loop) -> Sequence[Node]:
    """The block of the tree that a loop stands in."""
    if any(node is loop for node in nodes):
        return nodes
    for node in nodes:
        inside = [node.body] if isinstance(node, Loop) else list(getattr(node, "sides", ()))
        for block in inside:
            found = _block_of(block, loop)
            if found:
                return found
    return ()
