"""split, reorder, fuse and tile: other loops around the same statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from allo_dse.ir.bindings import arith, ir, scf
from allo_dse.ir.nest import Loop
from allo_dse.ir.nested_ops import nested_ops
from allo_dse.lang.diagnostics import ProgramError

from .body import LOOP, Body, inner_block, is_pure, number_of, numbered, statements
from .dependence import Pairing, first_order, is_update, private, references, value_ranges
from .find import Found


def constant(value: int) -> ir.Value:
    """A number, where code is being written."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def known(value: ir.Value) -> int | None:
    """The number that a value is, if it is one."""
    if isinstance(value, ir.BlockArgument) or value.owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def bounds(loop: ir.Operation) -> tuple[ir.Value, ir.Value, ir.Value]:
    """First value, end and step."""
    if loop.name != "scf.for":
        raise ProgramError("a loop that data ends cannot be rewritten", hint="write it as `for i in range(...)`")
    low, high, step = list(loop.operands)[:3]
    return low, high, step


def trips_of(loop: ir.Operation) -> int | None:
    """How often a loop runs, where that is a number."""
    low, high, step = (known(value) for value in bounds(loop))
    return None if low is None or high is None or not step else max(0, -(-(high - low) // step))


def _trips(loop: ir.Operation) -> ir.Value:
    """How often a loop runs, as a value that is computed before it."""
    number = trips_of(loop)
    if number is not None:
        return constant(number)
    low, high, step = bounds(loop)
    if known(step) != 1:
        raise ProgramError("a loop whose bounds and step both vary cannot be rewritten")
    return high if known(low) == 0 else arith.SubIOp(high, low).result


def variable(loop: ir.Operation) -> ir.Value:
    return inner_block(loop).arguments[0]


def new_loop(end: ir.Value, mark: ir.IntegerAttr) -> ir.Operation:
    """A loop from 0 to an end, where code is being written."""
    made = scf.ForOp(constant(0), end, constant(1)).operation
    made.attributes[LOOP] = mark
    with ir.InsertionPoint(inner_block(made)):
        scf.YieldOp([])
    return made


def _value_at(loop: ir.Operation, round_: ir.Value) -> ir.Value:
    """What a loop's variable is in a round."""
    low, _, step = bounds(loop)
    scaled = round_ if known(step) == 1 else arith.MulIOp(round_, step).result
    return scaled if known(low) == 0 else arith.AddIOp(low, scaled).result


def _take_over(target: ir.Operation, loop: ir.Operation) -> None:
    """Move the statements of one loop to the end of another, and erase the first."""
    end = list(inner_block(target).operations)[-1]
    for op in statements(inner_block(loop)):
        op.move_before(end)
    loop.erase()


def split(found: Found, factor: int) -> None:
    """Two loops in place of one, the inner one of `factor` rounds.

    before:  for i in 0..n        after:  for i.outer in 0..ceil(n / f): for i.inner in 0..min(f, n - i.outer * f)
    """
    body, loop = found.body, found.op
    source, trips = body.source(loop), trips_of(loop)
    with ir.InsertionPoint(loop):
        total, size = _trips(loop), constant(factor)
        if trips is not None:
            rounds = constant(-(-trips // factor))
        else:
            rounds = arith.FloorDivSIOp(arith.AddIOp(total, constant(factor - 1)).result, size).result
        outer = new_loop(rounds, body.marked(source, f"{source.name}.outer"))
    with ir.InsertionPoint.at_block_terminator(inner_block(outer)):
        first = arith.MulIOp(variable(outer), size).result
        exact = trips is not None and trips % factor == 0
        end = size if exact else arith.MinSIOp(size, arith.SubIOp(total, first).result).result
        inner = new_loop(end, body.marked(source, f"{source.name}.inner"))
    with ir.InsertionPoint.at_block_terminator(inner_block(inner)):
        value = _value_at(loop, arith.AddIOp(first, variable(inner)).result)
        variable(loop).replace_all_uses_with(value)
    _take_over(inner, loop)


def fuse(chain: Sequence[Found]) -> str:
    """One loop in place of several that stand directly in each other; returns its name.

    before:  for i in 0..n: for j in 0..m        after:  for i_j_fused in 0..n * m, i = i_j_fused // m, j = the rest
    """
    body = chain[0].body
    loops = perfect([one.op for one in chain])
    numbers = [trips_of(loop) for loop in loops]
    if None in numbers:
        raise ProgramError("loops whose number of rounds varies cannot be fused")
    sizes = [number for number in numbers if number is not None]
    name = "_".join(body.source(loop).name for loop in loops) + "_fused"
    total = 1
    for size in sizes:
        total *= size
    with ir.InsertionPoint(loops[0]):
        whole = new_loop(constant(total), body.marked(body.source(loops[0]), name))
    mapping: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint.at_block_terminator(inner_block(whole)):
        rest = variable(whole)
        for loop, size in zip(loops, sizes, strict=True):
            total //= size
            quotient = rest if total == 1 else arith.FloorDivSIOp(rest, constant(total)).result
            mapping[variable(loop)] = _value_at(loop, quotient)
            used = arith.MulIOp(quotient, constant(total)).result
            rest = constant(0) if total == 1 else arith.SubIOp(rest, used).result  # loops of one round may follow
    _sink(loops, whole, mapping)
    return name


def reorder(body: Body, wanted: Sequence[ir.Operation]) -> None:
    """The loops in another order, each in the place of one of them.

    before:  for i: for j: for k        after reorder(k, i):  for k: for j: for i

    Raises:
        ProgramError: where results could differ, and where other statements stand between the loops.
    """
    chain = perfect(list(_between(wanted)))
    places = [position for position, loop in enumerate(chain) if any(loop == one for one in wanted)]
    order = list(range(len(chain)))
    for place, loop in zip(places, wanted, strict=True):
        order[place] = next(position for position, other in enumerate(chain) if other == loop)
    if order == list(range(len(chain))):
        return
    _check_bounds(body, chain, order)
    check_order(body, chain, order)
    with ir.InsertionPoint(chain[0]):
        point = ir.InsertionPoint(chain[0])
    mapping: dict[ir.Value, ir.Value] = {}
    made: list[ir.Operation] = []
    for position in order:
        loop = chain[position]
        with point:
            low, high, step = (_copied(value, chain, mapping) for value in bounds(loop))
            new = scf.ForOp(low, high, step).operation
            for name in loop.attributes:
                new.attributes[str(name)] = loop.attributes[str(name)]
            with ir.InsertionPoint(inner_block(new)):
                scf.YieldOp([])
        mapping[variable(loop)] = variable(new)
        made.append(new)
        point = ir.InsertionPoint.at_block_terminator(inner_block(new))
    _sink(chain, made[-1], mapping)


def _between(wanted: Sequence[ir.Operation]) -> list[ir.Operation]:
    """All loops from the outermost to the innermost of some that stand in each other."""
    for innermost in wanted:
        chain = [innermost]
        outer = innermost.parent
        while outer is not None and outer.name == "scf.for":
            chain.append(outer)
            outer = outer.parent
        if all(any(one == loop for loop in chain) for one in wanted):
            last = max(position for position, loop in enumerate(chain) if any(loop == one for one in wanted))
            return chain[: last + 1][::-1]
    raise ProgramError("these loops are not nested in each other", hint="name loops of one nest")


def perfect(loops: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The loops, outermost first, if nothing but the computing of indices stands between them.

    Raises:
        ProgramError: otherwise.
    """
    chain = _between(loops)
    for outer, inner in pairwise(chain):
        if any(op != inner and not is_pure(op) for op in statements(inner_block(outer))):
            raise ProgramError(
                "there are other statements between these loops", hint="only directly nested loops can move"
            )
    return chain


def _check_bounds(body: Body, chain: Sequence[ir.Operation], order: Sequence[int]) -> None:
    """Refuse to move a loop out of one that its bounds depend on."""
    for place, position in enumerate(order):
        inside = [chain[later] for later in order[place + 1 :]]
        for value in bounds(chain[position]):
            for loop in inside:
                if _depends(value, variable(loop)):
                    names = body.source(chain[position]).name, body.source(loop).name
                    raise ProgramError(
                        f"the bounds of loop `{names[0]}` depend on `{names[1]}`, which must stay outside"
                    )


def _depends(value: ir.Value, other: ir.Value) -> bool:
    if value == other:
        return True
    return not isinstance(value, ir.BlockArgument) and any(_depends(v, other) for v in value.owner.operands)


def check_order(body: Body, chain: Sequence[ir.Operation], order: Sequence[int]) -> None:
    """Refuse an order of loops in which an element is read or written too early.

    Raises:
        ProgramError: naming the array, and the loops of its two accesses.
    """
    nest = body.nest()
    if nest.unsupported is not None:
        raise ProgramError(f"loops cannot be reordered here: {nest.unsupported.reason}")
    loops = [numbered(nest, number_of(loop)) for loop in chain]
    inner = loops[-1].body
    own = private(inner)
    pairing = Pairing(tuple(loops), tuple(loops), value_ranges(_around(nest.body, loops[0]) + loops, {}))
    found = [reference for reference in references(inner) if reference.access.array not in own]
    inside = [loop for reference in found for loop in reference.loops]
    pairing = Pairing(pairing.left, pairing.right, value_ranges(inside, pairing.ranges))
    for one in found:
        for other in found:
            if is_update(one, other):
                continue
            for vector in pairing.directions(one, other):
                moved = [vector[position] for position in order]
                if first_order(vector) == "<" and first_order(moved) == ">":
                    names = [body.source(loop).name for loop in chain]
                    distance = ", ".join(f"{n} {d}" for n, d in zip(names, vector, strict=True))
                    raise ProgramError(
                        f"in this order an element of `{one.access.array}` is used too early",
                        hint=f"an iteration uses what an earlier one leaves there ({distance} later ones)",
                    )


def _around(nodes: Sequence[object], target: Loop) -> list[Loop]:
    """The loops around a loop, outermost first."""
    for node in nodes:
        if node is target:
            return []
        if isinstance(node, Loop) and _contains(node.body, target):
            return [node, *_around(node.body, target)]
        for side in getattr(node, "sides", ()):
            if _contains(side, target):
                return _around(side, target)
    return []


def _contains(nodes: Sequence[object], target: Loop) -> bool:
    return any(
        node is target
        or (isinstance(node, Loop) and _contains(node.body, target))
        or any(_contains(side, target) for side in getattr(node, "sides", ()))
        for node in nodes
    )


def _copied(value: ir.Value, chain: Sequence[ir.Operation], mapping: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value that is computed in the chain, computed again where code is being written."""
    if value in mapping:
        return mapping[value]
    if isinstance(value, ir.BlockArgument) or not any(value.owner.parent == loop for loop in chain):
        return value
    operands = [_copied(operand, chain, mapping) for operand in value.owner.operands]
    copy = value.owner.clone().operation
    for position, operand in enumerate(operands):
        copy.operands[position] = operand
    mapping.update(zip(value.owner.results, copy.results, strict=True))
    return mapping[value]


def _sink(chain: Sequence[ir.Operation], target: ir.Operation, mapping: dict[ir.Value, ir.Value]) -> None:
    """Move what the innermost loop of a chain does into another loop, and what is computed between the loops."""
    end = list(inner_block(target).operations)[-1]
    for outer, inner in pairwise(chain):
        for op in statements(inner_block(outer)):
            if op != inner:
                op.move_before(end)
    for op in statements(inner_block(chain[-1])):
        op.move_before(end)
    for old, new in mapping.items():
        old.replace_all_uses_with(new)
    chain[0].erase()


def erase_unused(block: ir.Block) -> None:
    """Erase what is computed in a block, and in those inside it, but not used."""
    for op in reversed([op.operation for op in block.operations]):
        for region in op.regions:
            for inner in region.blocks:
                erase_unused(inner)
        if is_pure(op) and not any(list(result.uses) for result in op.results):
            op.erase()


def share_constants(function: ir.Operation) -> None:
    """Write each number once, at the beginning of the function."""
    block = function.regions[0].blocks[0]
    constants = [op for op in nested_ops(function, parents_first=True) if op.name == "arith.constant"]
    every = [op for op in constants if isinstance(op.results[0].type, ir.IndexType)]
    shared: dict[int, ir.Operation] = {}
    for op in every:
        value = known(op.results[0])
        assert value is not None
        if value in shared:
            op.results[0].replace_all_uses_with(shared[value].results[0])
            op.erase()
        else:
            shared[value] = op
            op.move_before(block.operations[0])
