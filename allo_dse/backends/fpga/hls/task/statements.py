"""The statements of a task function, from its MLIR body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.compiler.ir.nest import View

from ...linear import atomic, linear_forms
from ..cpp.expressions import BOOL, Node, bit_range, element_of, leaf, render
from ..cpp.operations import choice, constant
from .body import Array, Body, whole
from .tokens import TAKE, TOKEN_HANDLERS, find_banks


def translate(body: Body, function: ir.Operation) -> None:
    """Write the statements of `func.func` `function`, whose arguments have been bound."""
    body.forms |= linear_forms(function)
    find_banks(body, function)
    body.statements(function.regions[0].blocks[0])


def stored_in(op: ir.Operation, views: Mapping[ir.Value, View]) -> frozenset[Array]:
    """The arrays and variables that an operation, or anything inside it, changes."""
    found: set[Array] = set()
    for inner in nested_ops(op):
        name, operands = inner.name, list(inner.operands)
        if name == "memref.store" or name.startswith(("df.get_block", "df.try_get_block")):
            target = operands[1]
            while target not in views and target.owner.name in ("memref.subview", "memref.cast"):
                target = target.owner.operands[0]
            found.add(views[target].array)
        elif name == "llvm.call":
            found.update(view.array for view in views.values())
    return frozenset(found)


# -- memory ----------------------------------------------------------------------------------------------------------


def _load(body: Body, op: ir.Operation) -> None:
    view = body.views[op.operands[0]]
    text = body.place(view, [body.index(i) for i in list(op.operands)[1:]])
    node = leaf(text, view.array.element, frozenset([view.array]))
    if op.name == TAKE and not list(op.results[0].uses):  # the token leaves the FIFO even if it is unused
        body.line(f"volatile {node.type} {body.names.new('drained')} = {text};")
        return
    if view.array.pointer is not None or op.name == TAKE:  # other processes write there, so the read must not move
        body.values[op.results[0]] = leaf(body.variable(node, view.array.name), node.type)
    else:
        body.define(op.results[0], node, view.array.name)


def _store(body: Body, op: ir.Operation) -> None:
    operands = list(op.operands)
    view, value = body.views[operands[1]], body.node(operands[0])
    body.flush(frozenset([view.array]))
    place = body.place(view, [body.index(i) for i in operands[2:]])
    bits = bit_range(value, place)
    if bits is None:
        if not body.initialise(view.array, render(value)):
            body.line(f"{place} = {render(value)};")
    else:
        body.line(f"{place}.range({bits[0]}, {bits[1]}) = {render(bits[2])};")


def _alloc(body: Body, op: ir.Operation) -> None:
    result = op.results[0]
    type_ = ir.MemRefType(result.type)
    name = str(ir.StringAttr(op.attributes["df.name"]).value) if "df.name" in op.attributes else ""
    element = element_of(type_.element_type)
    name_ = body.names.new(name or ("tile" if type_.rank else "flag" if element == BOOL else "x"))
    array = Array(name_, element, tuple(type_.shape))
    if result in body.banks:
        texts = body.pragmas.array(name, "{}", range(len(array.extents)), array.extents)
        body.bank_pragmas.setdefault(body.banks[result].name, []).extend(texts)
        body.views[result] = whole(array)
        return
    if not array.extents:
        body.unset[array] = len(body.lines)
    body.line(f"{array.element} {array.name}{''.join(f'[{n}]' for n in array.extents)};")
    for text in body.pragmas.array(name, array.name, range(len(array.extents)), array.extents):
        body.pragma(text)
    body.views[result] = whole(array)


def _alias(body: Body, op: ir.Operation) -> None:
    body.views[op.results[0]] = body.views[op.operands[0]]


def _subview(body: Body, op: ir.Operation) -> None:
    body.views[op.results[0]] = body.views[op.operands[0]].part(op, body.index)


def _constant(body: Body, op: ir.Operation) -> None:
    if not isinstance(op.results[0].type, ir.IndexType):
        body.values[op.results[0]] = constant(op)


# -- control ---------------------------------------------------------------------------------------------------------


def _for(body: Body, op: ir.Operation) -> None:
    low, high, step, *initial = op.operands
    inner = op.regions[0].blocks[0]
    variable, *carried = inner.arguments
    body.flush(stored_in(op, body.views))
    names = [body.declare(c, "sum", i) for c, i in zip(carried, initial, strict=True)]
    end = body.index(high)
    source = body.pragmas.source(op, end.const if end.is_const else 1)
    if source.comment:
        body.line(f"// {source.comment}")
    label = body.label(source)
    with body.names.scope():
        counter = body.names.new(source.variable)
        body.atoms[variable] = counter
        by = body.index(step)
        stride = f"{counter}++" if by.is_const and by.const == 1 else f"{counter} += {body.index_text(step)}"
        head = f"for (int {counter} = {body.index_text(low)}; {counter} < {body.index_text(high)}; {stride}) {{"
        with body.block(f"{label}: {head}"):
            for text in source.pragmas:
                body.pragma(text)
            body.statements(inner)
            body.assign(names, list(inner.operations)[-1].operands)
    for result, name in zip(op.results, names, strict=True):
        body.bind(result, name)


def _if(body: Body, op: ir.Operation) -> None:
    condition = body.node(op.operands[0])
    body.flush(stored_in(op, body.views))
    blocks = [block for region in op.regions for block in region.blocks]
    if len(op.results) == 1 and _ternary(body, op, condition, blocks):
        return
    names = [body.declare(result, "v") for result in op.results]
    for position, inner in enumerate(blocks):
        last = list(inner.operations)[-1]
        if position == 1 and len(list(inner.operations)) == 1 and not names:
            break
        if position == 1:
            body.lines[-1] += " else {"
        else:
            body.line(f"if ({render(condition)}) {{")
        body.depth += 1
        with body.names.scope():
            body.statements(inner)
            body.assign(names, last.operands)
        body.depth -= 1
        body.line("}")


def _ternary(body: Body, op: ir.Operation, condition: Node, blocks: Sequence[ir.Block]) -> bool:
    """Write a choice between two expressions as one, if nothing else happens in the branches."""
    mark = len(body.lines)
    known = dict(body.pending), dict(body.values), dict(body.atoms)
    results = []
    body.depth += 1
    for inner in blocks:
        body.statements(inner)
        results.append(body.node(list(inner.operations)[-1].operands[0]))
    body.depth -= 1
    if len(body.lines) > mark:
        del body.lines[mark:]
        body.pending, body.values, body.atoms = known
        return False
    result = op.results[0]
    body.define(result, choice(condition, results[0], results[1], element_of(result.type)))
    return True


def _while(body: Body, op: ir.Operation) -> None:
    before, after = (region.blocks[0] for region in op.regions)
    body.flush(stored_in(op, body.views))
    source = body.pragmas.source(op)
    hint = source.variable if len(before.arguments) == 1 else "state"
    names = [
        body.declare(argument, hint, initial) for argument, initial in zip(before.arguments, op.operands, strict=True)
    ]
    if source.comment:
        body.line(f"// {source.comment}")
    with body.block(f"{body.label(source)}: while (true) {{"):
        for text in source.pragmas:
            body.pragma(text)
        head = len(body.lines)
        body.statements(before)
        condition, *passed = list(before.operations)[-1].operands
        test = body.node(condition)
        if len(body.lines) == head and not source.pragmas:
            body.lines[-1] = body.lines[-1].replace("while (true)", f"while ({render(test)})")
        else:
            body.line(f"if (!({render(test)})) break;")
        for argument, result, value in zip(after.arguments, op.results, passed, strict=True):
            _pass_on(body, argument, result, value)
        body.statements(after)
        body.assign(names, list(after.operations)[-1].operands)


def _pass_on(body: Body, argument: ir.Value, result: ir.Value, value: ir.Value) -> None:
    """Let the second part of a loop, and what follows it, see a value of the first: one of the loop's variables."""
    if isinstance(value.type, ir.IndexType):
        text = body.index_text(value)
        body.atoms[argument] = body.atoms[result] = atomic(text)
        return
    node = body.node(value)
    if not node.is_simple or node.reads:
        raise AlloDseError("HLS C++: a loop's condition computes a value that is used outside of it")
    body.values[argument] = body.values[result] = node


def _nothing(body: Body, op: ir.Operation) -> None:
    """Costs and the end of a local array's life have no code; constant arrays are bound before."""


HANDLERS: dict[str, Callable[[Body, ir.Operation], None]] = {
    "memref.load": _load,
    TAKE: _load,
    "memref.store": _store,
    "memref.alloc": _alloc,
    "memref.alloca": _alloc,
    "memref.dealloc": _nothing,
    "memref.get_global": _nothing,
    "memref.cast": _alias,
    "memref.subview": _subview,
    "arith.constant": _constant,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "df.cost": _nothing,
    **TOKEN_HANDLERS,
}
