"""Other loops for a kernel: rectangles in place of triangles, strips, fused and distributed nests, and other orders.

Each rewrite keeps the program's results: `check_order` proves that for orders, `check_merged` for fused and distributed
nests. A loop whose rounds do not depend on each other can be distributed and move inside others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from itertools import pairwise, permutations
from typing import Literal

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import Operation, arith, ir, memref, nested_ops, scf
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Frozen, Ints, divisors_of, replace

from ..ir.affine import extent
from ..ir.nest import LOOP
from ..program.compiled import CompiledProgram, Kernel
from .body import Body, inner_block, is_pure, number_of, numbered, statements
from .lookup import Found
from .loops import (
    Pairing,
    bounds,
    check_merged,
    check_order,
    compute_at,
    constant,
    erase_unused,
    known,
    new_loop,
    references,
    reorder,
    share_constants,
    split,
    trips_of,
    value_ranges,
    variable,
)
from .memories import IndexForms, is_within, readdress

ALL_ORDERS = 3
"""Most loops of a nest that offers all orders. A deeper nest offers to move each loop to the inside."""
MOST_CUT = 8
"""Most statements of the first part of a nest that is distributed."""
SHORTEST_STRIP = 8
"""Rounds of the shortest strip: about the latency of an adder, which they hide."""

MOST_STRIP = 1024
_FAR = 1 << 32


class Rewrite(Frozen):
    """A rewrite of a kernel's loops.

    Attributes:
        kind: "rectangle" gives loops with varying bounds constant ones, their bodies under a condition; "fuse" makes a
            nest one with the nest before; "distribute" makes two of one; "order" gives its loops another order; "strip"
            moves strips of the loop around a sum inside it.
        nest: position of the nest's outermost loop among the kernel's outermost loops.
        order: names of the nest's loops from the outermost to the innermost.
        cut: number of statements that stay in the first nest.
        width: rounds of a strip.
    """

    kernel: str
    kind: Literal["rectangle", "strip", "fuse", "distribute", "order"]
    nest: int = 0
    order: tuple[str, ...] = ()
    cut: int = 0
    width: int = 0

    def __str__(self) -> str:
        said = {
            "rectangle": "rectangles",
            "strip": f"nest {self.nest} in strips of {self.width}",
            "fuse": f"nest {self.nest} fused with the one before",
            "distribute": f"nest {self.nest} distributed after statement {self.cut}",
            "order": " ".join(self.order),
        }
        return f"{self.kernel}: {said[self.kind]}"


@lru_cache(maxsize=512)
def has_triangles(kernel: Kernel) -> bool:
    """Return whether bounds of the kernel's loops depend on loops around them, so that they can be rectangles."""
    with _opened(kernel) as body:
        return next(_triangles(body), None) is not None


@lru_cache(maxsize=512)
def orders(kernel: Kernel) -> tuple[tuple[int, tuple[tuple[str, ...], ...]], ...]:
    """Nests whose innermost loop carries a value from round to round, with the orders in which another loop does.

    Returns:
        Position of each such nest, and its legal orders, that of the program first.
    """
    found = []
    with _opened(kernel) as body:
        for number, chain in _serial(body):
            names = [body.source(loop).name for loop in chain]
            if len(set(names)) < len(names):
                continue
            legal = [order for order in _wanted(len(chain)) if _is_legal(check_order, body, chain, order)]
            better = [order for order in legal if not _carries(body, chain, order[-1])]
            if better:
                every = (tuple(range(len(chain))), *better)
                found.append((number, tuple(tuple(names[loop] for loop in order) for order in every)))
    return tuple(found)


@lru_cache(maxsize=512)
def fusible(kernel: Kernel) -> Ints:
    """Return the positions of nests that can become one with the nest before."""
    with _opened(kernel) as body:
        pairs = enumerate(pairwise(_nests(body)), 1)
        return tuple(n for n, pair in pairs if _are_alike(*pair) and _is_legal(check_merged, body, *pair))


@lru_cache(maxsize=512)
def cuts(kernel: Kernel) -> tuple[tuple[int, Ints], ...]:
    """Nests that carry a value from round to round innermost, with the cuts that leave a part without one.

    Returns:
        Position of each such nest, and how many of its statements can be the first part.
    """
    with _opened(kernel) as body:
        counts = [(nest, min(len(_effects(chain[-1])), MOST_CUT + 1)) for nest, chain in _serial(body)]
    legal = [(nest, tuple(cut for cut in range(1, most) if _frees_a_part(kernel, nest, cut))) for nest, most in counts]
    return tuple((nest, own) for nest, own in legal if own)


@lru_cache(maxsize=512)
def strips(kernel: Kernel) -> tuple[tuple[int, Ints], ...]:
    """Nests whose innermost loop has floating-point sums inside, with the widths of strips that can move inside these.

    Returns:
        Position of each such nest, and the rounds of its possible strips, ascending.
    """
    with _opened(kernel) as body:
        rounds = [(nest, trips_of(chain[-1]) or 1) for nest, chain in enumerate(_nests(body)) if _sums(body, chain)]
    found = []
    for nest, trips in rounds:
        widths = [width for width in divisors_of(trips) if SHORTEST_STRIP <= width <= MOST_STRIP]
        if widths and _is_legal(_try_strip, kernel, nest, widths[0]):
            found.append((nest, (*widths[:-1:2], widths[-1])))
    return tuple(found)


def _try_strip(kernel: Kernel, nest: int, width: int) -> None:
    with _opened(kernel) as body:
        _strip(body, list(_nests(body))[nest], width)


def _sums(body: Body, chain: list[Operation]) -> bool:
    """Return whether a loop in a nest's innermost one hands a floating-point value from round to round."""
    if trips_of(chain[-1]) is None:
        return False
    own = {scalar.results[0] for scalar in _own_scalars(body, chain[-1])}
    for op in statements(inner_block(chain[-1])):
        if LOOP in op.attributes and op.name == "scf.for" and any(one.name in _FLOATS for one in nested_ops(op)):
            inner = _perfect_below(op)
            stored = {one.operands[1] for one in nested_ops(op) if one.name == "memref.store"}
            if stored & own or _carries(body, [*chain, *inner]):
                return True
    return False


_FLOATS = ("arith.addf", "arith.subf", "arith.mulf", "arith.divf")


def _own_scalars(body: Body, loop: Operation) -> Iterator[Operation]:
    """Variables that each round of a loop sets before it reads them, and that nothing else uses."""
    for op in body.operations():
        if op.name not in ("memref.alloc", "memref.alloca") or ir.MemRefType(op.results[0].type).rank:
            continue
        users = [use.owner.operation for use in op.results[0].uses]
        if users and all(user.name in ("memref.load", "memref.store") and is_within(user, loop) for user in users):
            order = statements(inner_block(loop))
            first = next(one for one in order if any(is_within(user, one) for user in users))
            if first.name == "memref.store":
                yield op


def _strip(body: Body, chain: Sequence[Operation], width: int) -> None:
    """Do the rounds of a nest's innermost loop strip by strip, those of a strip inside the loops in it.

    before:  for j: s = 0; for k: s += f(j, k); g(j, s)
    after:   for j.outer: for k: for j: if k == 0: s[j] = 0; s[j] += f(j, k); if k == last: g(j, s[j])

    Raises:
        ProgramError: where rounds depend on each other, or pass values from part to part that are in no variable.
    """
    loop = chain[-1]
    _spill(body, loop)
    scalars = list(_own_scalars(body, loop))
    own = [scalar.results[0] for scalar in scalars]
    shared = any(
        op.name == "memref.store" and not ir.MemRefType(op.operands[1].type).rank and op.operands[1] not in own
        for op in nested_ops(loop)
    )
    if shared or _carries(body, chain):
        raise ProgramError("rounds of this loop depend on each other")
    if not all(op.name.startswith(_MOVABLE) for op in nested_ops(loop)):
        raise ProgramError("a loop that uses streams or parts of arrays cannot become strips")
    split(Found(body, loop), width)
    strip = next(op for op in body.loops() if number_of(op) == len(body.sources) - 1)

    for scalar in scalars:
        _expand(scalar, strip, width)
    ops = statements(inner_block(strip))
    loops = [place for place, op in enumerate(ops) if op.name == "scf.for"]
    parts = [range(start, end) for start, end in pairwise([0, *loops[1:], len(ops)])]
    copies = [strip]
    for number in range(1, len(parts)):
        with ir.InsertionPoint(strip):
            copies.insert(-1, strip.clone().operation)
        _rename(body, copies[-2], number)
    for part, copy in zip(parts, copies, strict=True):
        _erase([op for place, op in enumerate(statements(inner_block(copy))) if place not in part])
        chain = _perfect_below(next(op for op in statements(inner_block(copy)) if op.name == "scf.for"))
        _enclose(copy, chain)
        reorder(body, [*chain, copy])


def _spill(body: Body, loop: Operation) -> None:
    """Put the values that go from beside a loop inside this one into that, or past it, into variables."""
    ops = [op.operation for op in inner_block(loop).operations]
    loops = [number for number, op in enumerate(ops) if op.name == "scf.for"]
    for number, op in enumerate(ops):
        later = ops[min((loop for loop in loops if loop > number), default=len(ops)) :]
        for result in () if number in loops else op.results:
            users = [(use.owner.operation, use.operand_number) for use in result.uses]
            far = [user for user in users if any(is_within(user[0], one) for one in later)]
            if not far or (isinstance(result.type, ir.IndexType) and is_pure(op)):
                continue
            with ir.InsertionPoint.at_block_begin(body.block):
                made = memref.AllocaOp(ir.MemRefType.get([], result.type), [], []).result
            with ir.InsertionPoint(ops[number + 1]):
                memref.StoreOp(result, made, [])
            for user, operand in far:
                with ir.InsertionPoint(user):
                    user.operands[operand] = memref.LoadOp(made, []).result


def _enclose(loop: Operation, chain: Sequence[Operation]) -> None:
    """Move what is beside a nest into its first and its last round.

    Raises:
        ProgramError: where the nest uses values of it that are in no variable.
    """
    if not all(map(trips_of, chain)):
        raise ProgramError("the first and the last round of a nest are not known")
    ops = statements(inner_block(loop))
    place = ops.index(chain[0])
    inside = inner_block(chain[-1])
    first, last = inside.operations[0], inside.operations[len(inside.operations) - 1]
    for beside, end, at in ((ops[:place], 0, first), (ops[place + 1 :], -1, last)):
        if all(map(is_pure, beside)):
            continue
        with ir.InsertionPoint(at):
            tests = []
            for one in chain:
                values = range(*(known(value) or 0 for value in bounds(one)))  # all constant
                value = constant(values[end])
                tests.append(arith.CmpIOp(arith.CmpIPredicate.eq, variable(one), value).result)
            branch = scf.IfOp(reduce(lambda a, b: arith.AndIOp(a, b).result, tests))
            with ir.InsertionPoint(branch.then_block):
                stop = scf.YieldOp([]).operation
        moved = list(beside)
        for op in reversed(beside):
            users = [use.owner.operation for result in op.results for use in result.uses]
            if not all(any(is_within(user, one) for one in moved) for user in users):
                if not is_pure(op):
                    raise ProgramError("a sum uses a value that is in no variable")
                moved.remove(op)
        for op in moved:
            op.move_before(stop)


_MOVABLE = ("arith.", "math.", "scf.", "memref.load", "memref.store", "df.cost")


def _expand(scalar: Operation, loop: Operation, width: int) -> None:
    """Give each round of a loop a variable of its own."""
    with ir.InsertionPoint(scalar):
        type_ = ir.MemRefType.get([width], ir.MemRefType(scalar.results[0].type).element_type)
        made = memref.AllocaOp(type_, [], [])
        for name in scalar.attributes:
            if str(name) != "operandSegmentSizes":
                made.attributes[str(name)] = scalar.attributes[str(name)]
    for use in list(scalar.results[0].uses):
        readdress(use.owner.operation, made.result, [variable(loop)])
    scalar.erase()


def _frees_a_part(kernel: Kernel, nest: int, cut: int) -> bool:
    with _opened(kernel) as body:
        try:
            parts = _distribute(body, list(_nests(body))[nest], cut)
        except ProgramError:
            return False
        return not all(_carries(body, part) for part in parts)


@contextmanager
def _opened(kernel: Kernel) -> Iterator[Body]:
    """The body of a kernel whose tasks are of one class, to look at or to rewrite."""
    (task_class,) = kernel.classes
    with text_context():
        yield Body.of(task_class, ir.Context.current)


def _serial(body: Body) -> Iterator[tuple[int, list[Operation]]]:
    """Nests of several loops whose innermost one carries a value from round to round, with their positions."""
    for number, chain in enumerate(_nests(body)):
        if len(chain) > 1 and _carries(body, chain):
            yield number, chain


def restructured(program: CompiledProgram, rewrites: Sequence[Rewrite]) -> CompiledProgram:
    """The program with rewritten loops.

    before:  for i: for j in range(i + 1): f(i, j)        after:  for i: for j in range(n): if j <= i: f(i, j)

    Raises:
        ProgramError: where a rewrite does not apply, or could change results.
    """
    kernels = (_rewritten(own, tuple(one for one in rewrites if one.kernel == own.name)) for own in program.kernels)
    return CompiledProgram(**program.compiled_fields | {"kernels": tuple(kernels)})


@lru_cache(maxsize=512)
def _rewritten(kernel: Kernel, rewrites: tuple[Rewrite, ...]) -> Kernel:
    if not rewrites:
        return kernel
    with _opened(kernel) as body:
        for rewrite in rewrites:
            if rewrite.kind == "rectangle":
                while (loop := next(_triangles(body), None)) is not None:
                    _make_rectangle(body, loop)
                continue
            nests = list(_nests(body))
            if rewrite.kind == "strip":
                _strip(body, nests[rewrite.nest], rewrite.width)
            elif rewrite.kind == "fuse":
                first, second = nests[rewrite.nest - 1 : rewrite.nest + 1]
                compute_at(Found(body, first[-1]), Found(body, second[-1]))
            elif rewrite.kind == "distribute":
                _distribute(body, nests[rewrite.nest], rewrite.cut)
            else:
                chain = {body.source(loop).name: loop for loop in nests[rewrite.nest]}
                if set(rewrite.order) != set(chain):
                    raise ProgramError(f"the loops of this nest are {', '.join(chain)}, not {', '.join(rewrite.order)}")
                reorder(body, [chain[name] for name in rewrite.order])
        share_constants(body.function)
        erase_unused(body.block)
        return replace(kernel, classes=(body.finished(),))


def _triangles(body: Body) -> Iterator[Operation]:
    """Loops that count by one between bounds that depend on loops around them, which are bounded themselves."""
    forms = IndexForms(body)
    for loop in body.loops():
        if loop.name != "scf.for" or list(loop.results):
            continue
        low, high, step = bounds(loop)
        if known(step) != 1 or (known(low) is not None and known(high) is not None):
            continue
        ends = [forms.of(value) for value in (low, high)]
        spans = [extent(form, forms.ranges) for form in ends if form is not None]
        if len(spans) == 2 and -_FAR < spans[0][0] < spans[1][1] < _FAR:
            yield loop


def _make_rectangle(body: Body, loop: Operation) -> None:
    forms = IndexForms(body)
    low, high, _ = bounds(loop)
    first, last = (forms.of(value) for value in (low, high))
    assert first is not None
    assert last is not None
    (least, _), (_, most) = extent(first, forms.ranges), extent(last, forms.ranges)
    with ir.InsertionPoint(loop):
        made = new_loop(loop.attributes[LOOP], constant(least), constant(most), constant(1))
    with ir.InsertionPoint.at_block_begin(inner_block(made)):
        tests = []
        if not first.is_constant:
            tests.append(arith.CmpIOp(arith.CmpIPredicate.sge, variable(made), low).result)
        if not last.is_constant:
            tests.append(arith.CmpIOp(arith.CmpIPredicate.slt, variable(made), high).result)
        block = inner_block(made)
        end = block.operations[len(block.operations) - 1].operation
        if tests:
            inside = scf.IfOp(reduce(lambda a, b: arith.AndIOp(a, b).result, tests))
            with ir.InsertionPoint(inside.then_block):
                end = scf.YieldOp([]).operation
    for op in statements(inner_block(loop)):
        op.move_before(end)
    variable(loop).replace_all_uses_with(variable(made))
    loop.erase()


def _are_alike(first: Sequence[Operation], second: Sequence[Operation]) -> bool:
    """Return whether two nests have the same rounds, and at most one of them uses streams."""
    ends = [[[known(value) for value in bounds(loop)] for loop in chain] for chain in (first, second)]
    named = ({op.name for op in nested_ops(chain[0]) if op.name.startswith("df.")} for chain in (first, second))
    return ends[0] == ends[1] and not all(names - {"df.cost"} for names in named)


def _effects(loop: Operation) -> list[Operation]:
    """The statements of a loop that do more than compute values."""
    return [op for op in statements(inner_block(loop)) if not is_pure(op) and op.name not in ("memref.load", "df.cost")]


def _distribute(body: Body, chain: Sequence[Operation], cut: int) -> tuple[list[Operation], list[Operation]]:
    """Make two nests of one, the second with the statements after the first `cut`.

    before:  for i: f(i); g(i)        after:  for i: f(i)    for i: g(i)

    Raises:
        ProgramError: where the second part needs values of the first, or results could differ.
    """
    last = _effects(chain[-1])[cut - 1]
    with ir.InsertionPoint(chain[0]):
        first = chain[0].clone().operation
    copied = [first]
    while len(copied) < len(chain):
        copied.append(next(op for op in statements(inner_block(copied[-1])) if op.name == "scf.for"))
    _rename(body, first, cut)
    ops = statements(inner_block(chain[-1]))
    place = ops.index(last) + 1
    _erase(statements(inner_block(copied[-1]))[place:])
    _erase(ops[:place])
    loads = sum(op.name == "memref.load" for op in statements(inner_block(chain[-1]))[: place - len(ops) or None])
    check_merged(body, copied, chain)
    nest = body.nest()
    stored, used = (references([numbered(nest, number_of(loop))]) for loop in (first, chain[0]))
    if {one.access.array for one in stored if one.access.write} & {one.access.array for one in used[:loads]}:
        raise ProgramError("a part of the loop loads what the other one changes after that")
    return copied, list(chain)


def _rename(body: Body, nest: Operation, number: int) -> None:
    """Give the loops of a copy names of their own."""
    for loop in nested_ops(nest):
        if LOOP in loop.attributes:
            source = body.source(loop)
            loop.attributes[LOOP] = body.marked(source, f"{source.name}.{number}")


def _erase(ops: Sequence[Operation]) -> None:
    """Erase statements, the last one first; loads whose values others use stay."""
    for op in reversed(ops):
        if not any(list(result.uses) for result in op.results):
            op.erase()
        elif not is_pure(op) and op.name != "memref.load":
            raise ProgramError("a part of the loop uses a result of the other one")


def _nests(body: Body) -> Iterator[list[Operation]]:
    """The outermost loops, each with the loops inside that nothing but index computations is beside."""
    for op in body.operations():
        if LOOP not in op.attributes or op.name != "scf.for":
            continue
        chain = _perfect_below(op)
        are_counted = all(trips_of(loop) is not None and not list(loop.results) for loop in chain)
        yield chain if are_counted else chain[:1]


def _perfect_below(loop: Operation) -> list[Operation]:
    """A loop with the loops inside it that nothing but index computations is beside."""
    chain = [loop]
    while trips_of(chain[-1]) is not None and not list(chain[-1].results):
        inner = [one for one in statements(inner_block(chain[-1])) if not is_pure(one)]
        if len(inner) != 1 or inner[0].name != "scf.for" or LOOP not in inner[0].attributes:
            break
        chain.append(inner[0])
    return chain


def every_order(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the orders of a nest that may be offered, that of the program first."""
    return [tuple(names), *(tuple(names[loop] for loop in order) for order in _wanted(len(names)))]


def _wanted(depth: int) -> Iterator[Ints]:
    """Orders other than that of the program."""
    every = tuple(range(depth))
    if depth <= ALL_ORDERS:
        yield from (order for order in permutations(every) if order != every)
    else:
        yield from ((*(one for one in every if one != last), last) for last in every[:-1])


def _is_legal(check: Callable[..., None], *args: object) -> bool:
    try:
        check(*args)
    except ProgramError:
        return False
    return True


def _carries(body: Body, chain: Sequence[Operation], position: int = -1) -> bool:
    """Return whether rounds of a loop, those around it being equal, hand values on to each other."""
    nest = body.nest()
    if nest.unsupported is not None:
        return False
    loops = [numbered(nest, number_of(loop)) for loop in chain]
    found = references(loops[-1].body)
    inside = [loop for reference in found for loop in reference.loops]
    pairing = Pairing(tuple(loops), tuple(loops), value_ranges([*loops, *inside], {}))
    wanted = tuple("<" if loop is loops[position] else "=" for loop in loops)
    return any(
        vector == wanted
        for one in found
        for other in found
        if one.access.index and other.access.index and not (one.access.array.startswith("stream "))
        for vector in pairing.directions(one, other)
    )
