"""Moving computation out of coroutines: loop nests without stream operations become functions of their own.

In a coroutine every value from before a suspension is loaded from the frame where it is used, also inside a loop, and
a store to an array might change the frame: LLVM then neither hoists the loads nor vectorises. In a function of its own
the same nest has its arrays and bounds in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allo_dse.common.mlir.bindings import arith, func, ir, memref, nested_ops
from allo_dse.common.mlir.dialect import Breathe, CostTimes


def site(op: ir.Operation, name: str) -> int:
    """The value of an integer attribute."""
    return int(ir.IntegerAttr(op.attributes[name]).value)


NEST = ".nest"
"""Part of the names of outlined functions."""
_COST = "df.cost"
COSTS = (_COST, "df.cost_times")
"""Operations that name a cost site."""
_SOURCE_LOOP = "df.loop"
"""Attribute that keeps loops of the source, and so copies of one nest, apart; nothing after this reads it."""
LOOPS = ("affine.for", "affine.parallel", "scf.for", "scf.parallel", "linalg.copy")


def outline_nests(module: ir.Module, function: ir.Operation, least: int = 2) -> None:
    """Replace each outermost nest of at least `least` loops by a call, unless it moves tokens; so too loops within one
    that breathes, which are long.

    The costs of a nest are counted in it and paid for after the call: nobody else can tell when in a nest its task
    waited. Nests that differ only in their arguments and cost sites, as copies of an unrolled loop's body do, share one
    function: LLVM takes most of its time for nests.
    """
    shared: dict[str, str] = {}
    for nest in list(_nests(function.regions[0].blocks, least)):
        name = f"{ir.StringAttr(function.attributes['sym_name']).value}{NEST}{len(shared)}"
        call, target = _outline(module, nest, name)
        text = str(target.get_asm(use_local_scope=True))  # otherwise names of the whole module are made for each
        first = shared.setdefault(text.replace(name, "", 1), name)
        if first != name:
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(first)
            target.erase()


def _nests(blocks: Iterable[ir.Block], least: int) -> Iterator[ir.Operation]:
    for block in blocks:
        for op in block.operations:
            names = [inner.name for inner in nested_ops(op)]
            is_pure = not any(name.startswith("df.") and name != _COST for name in names)
            is_loop = op.operation.name in LOOPS and sum(name in LOOPS for name in names) >= least
            if is_loop and is_pure:
                yield op.operation
            else:
                for region in op.regions:
                    inside = {op.operation.name for block in region.blocks for op in block.operations}
                    yield from _nests(region.blocks, 1 if Breathe.OPERATION_NAME in inside else least)


def _outline(module: ir.Module, nest: ir.Operation, name: str) -> tuple[ir.Operation, ir.Operation]:
    """Move a nest to a function of its own; returns the call that stands for it, and the function."""
    inside = nested_ops(nest)
    outer = _values_from_outside(inside)
    constants = [value for value in outer if _is_constant(value)]
    arguments = [value for value in outer if not _is_constant(value)]
    costs = [op for op in inside if op.name == _COST]
    sites = sorted({site(op, "site") for op in costs})
    with ir.Location.unknown():
        results = [*(result.type for result in nest.results), *[ir.IndexType.get()] * len(sites)]
        with ir.InsertionPoint.at_block_begin(module.body):
            target = func.FuncOp(name, ([a.type for a in arguments], results))
        from ..run_time.builder import make_internal  # the dialect of LLVM, for a third of the time of a first run

        make_internal(target)
        body = target.add_entry_block()
        with ir.InsertionPoint(nest):
            call = func.CallOp(results, ir.FlatSymbolRefAttr.get(name), arguments)
            found = list(call.results)
            for number, times in zip(sites, found[len(nest.results) :], strict=True):
                CostTimes(times, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number))
        for old, new in zip(nest.results, found, strict=False):
            old.replace_all_uses_with(new)
        with ir.InsertionPoint(body):
            copies = [value.owner.clone().results[0] for value in constants]
            counters = {number: _counter() for number in sites}
        body.append(nest)
        inner: list[ir.Value] = [*copies, *body.arguments]
        for value, own in zip([*constants, *arguments], inner, strict=True):
            for op in inside:
                op.replace_uses_of_with(value, own)
        for op in inside:
            if _SOURCE_LOOP in op.attributes:
                del op.attributes[_SOURCE_LOOP]
        for op in costs:
            _count(op, counters[site(op, "site")])
        with ir.InsertionPoint(body):
            counts = [memref.LoadOp(counter, []).result for counter in counters.values()]
            func.ReturnOp([*nest.results, *counts])
    return call.operation, target.operation


def _counter() -> ir.Value:
    """A number in memory, which LLVM keeps in a register; zero at first."""
    counter = memref.AllocaOp(ir.MemRefType.get([], ir.IndexType.get()), [], []).result
    memref.StoreOp(arith.ConstantOp(ir.IndexType.get(), 0).result, counter, [])
    return counter


def _count(cost: ir.Operation, counter: ir.Value) -> None:
    """Count instead of letting the clock advance."""
    with ir.InsertionPoint(cost):
        one = arith.ConstantOp(ir.IndexType.get(), 1).result
        memref.StoreOp(arith.AddIOp(memref.LoadOp(counter, []).result, one).result, counter, [])
    cost.erase()


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value, ir.BlockArgument) and value.owner.name == "arith.constant"


def _values_from_outside(inside: list[ir.Operation]) -> list[ir.Value]:
    """Operands of a nest's operations that the nest does not define, each once."""
    own: set[ir.Value] = {result for op in inside for result in op.results}
    own |= {
        argument for op in inside for region in op.regions for block in region.blocks for argument in block.arguments
    }
    return list(dict.fromkeys(operand for op in inside for operand in op.operands if operand not in own))
