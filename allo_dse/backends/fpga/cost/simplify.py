"""Task bodies after the HLS tool's compiler: common subexpressions once, no wider than needed, tables as ROMs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count, islice, product
from typing import Any

from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import WIRING, Access, Branch, Loop, Nest, Node, Op, accesses_of, ops_of, read_nest, walk

from .memory import WORD_BITS

PACKED = frozenset({"df.get_block", "df.put_block"})
"""Operations that move blocks."""
_FIRST_WORD = 1 << 32  # beyond the values of a body
_MODULAR = frozenset({"arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.andi", "arith.ori", "arith.xori"})
_LOW_BITS = _MODULAR | {"arith.extsi", "arith.extui", "arith.trunci"}
_ADDERS = 2  # non-zero signed digits of a constant that a product with it may have, to be built of an adder


@lru_cache(maxsize=4096)
def simplified(mlir: str) -> Nest:
    """Return a task body with the operations that the tool builds."""
    nest = read_nest(mlir)
    body, tables = _without_copies(replace(nest, body=tuple(_packed(nest.body, count(_FIRST_WORD)))))
    used = {op.access.array for op in ops_of(body) if op.access is not None}
    arrays = {name: array for name, array in nest.arrays.items() if name in used or not array.values}
    for name, values in tables.items():
        bits = max(value.bit_length() for value in values) + (min(values) < 0)
        arrays[name] = replace(arrays[name], values=values, bits=max(1, min(bits, arrays[name].bits)))
    body = _once(body, {}, {})
    makers = {value: op for op in ops_of(body) for value in op.outputs}
    needed = _needed_bits(body)
    return replace(nest, body=tuple(_narrowed(node, needed, makers) for node in body), arrays=arrays)


def _packed(nodes: Iterable[Node], numbers: Iterator[int]) -> Iterator[Node]:
    """Yield nodes in which blocks of one word move at once, and those in banks stay where they are."""
    for node in _with_tokens(list(nodes)):
        if isinstance(node, Loop):
            yield replace(node, body=tuple(_packed(node.body, numbers)))
        elif isinstance(node, Branch):
            yield replace(node, sides=tuple(tuple(_packed(side, numbers)) for side in node.sides))
        elif node.name in PACKED and node.access and node.bits * math.prod(node.block) <= WORD_BITS:
            yield from _word(node, node.access, numbers)
        else:
            yield node


def _with_tokens(nodes: list[Node]) -> Iterator[Node]:
    """Yield nodes with tokens in place of blocks in banks: one as a bank is taken, one as it is handed over."""
    before, after = defaultdict[int, list[Node]](list), defaultdict[int, list[Node]](list)
    for node in nodes:
        if isinstance(node, Op) and node.bank is not None and node.access:
            using = [number for number, other in enumerate(nodes) if any(accesses_of([other], node.access.array))]
            token = replace(node, access=None, block=(), bank=None)
            bank = replace(token, stream=node.bank)
            first, last = (token, bank) if node.access.write else (bank, token)
            before[using[0]].append(first)
            after[using[-1]].append(last)
    for number, node in enumerate(nodes):
        yield from before[number]
        if not isinstance(node, Op) or node.bank is None:
            yield node
        yield from after[number]


def _word(op: Op, block: Access, numbers: Iterator[int]) -> list[Op]:
    """Return the operation on the word of a block, before the stores of its elements or after their loads."""
    size, gets = math.prod(op.block), block.write
    values = (next(numbers),) * size if gets else tuple(islice(numbers, size))
    moves = []
    for value, place in zip(values, product(*map(range, op.block)), strict=True):
        inside = (form and form + Linear((), at) for form, at in zip(block.index, place, strict=True))
        access = replace(block, index=tuple(inside))
        moves.append(
            Op("store" if gets else "load", (value,) * gets, (value,) * (not gets), "", op.bits, access=access)
        )
    whole = replace(op, bits=op.bits * size, access=None, block=())
    return [replace(whole, outputs=values[:1]), *moves] if gets else [*moves, replace(whole, inputs=values)]


def _without_copies(nest: Nest) -> tuple[tuple[Node, ...], Mapping[str, tuple[int, ...]]]:
    """Return the body without loops that copy a table, and the values of the arrays that nothing else fills."""
    stored = Counter(op.access.array for op in ops_of(nest.body) if op.access is not None and op.access.write)
    tables, body = {}, []
    for node in nest.body:
        ops = list(ops_of((node,)))
        if isinstance(node, Loop) and node.source is None and len(ops) == 2:
            (load, store) = (op.access for op in ops)
            values = nest.arrays[load.array].values if load and store else ()
            if load and store and values and store.write and stored[store.array] == 1 and load.index == store.index:
                tables[store.array] = values
                continue
        body.append(node)
    return tuple(body), tables


def rebuilt(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a loop or a condition with changed content; operations stay."""
    if isinstance(node, Op):
        return node
    if isinstance(node, Branch):
        return replace(node, sides=tuple(tuple(map(change, side)) for side in node.sides))
    return replace(node, body=tuple(map(change, node.body)))


def _once(nodes: Iterable[Node], same: dict[int, int], known: Mapping[Hashable, int]) -> tuple[Node, ...]:
    """Return nodes without operations whose value another one has.

    Args:
        same: by value, an equal one. known: by operation and its operands, its value.
    """
    found: list[Node] = []
    known = dict(known)
    for node in nodes:
        if isinstance(node, Op):
            node = replace(node, inputs=tuple(same.get(v, v) for v in node.inputs))
            key = _key(node)
            if key is not None and key in known:
                same.update(dict.fromkeys(node.outputs, known[key]))
                continue
            if key is not None:
                known[key] = node.outputs[0]
            if node.access is not None and (node.access.write or node.block):
                known = {k: v for k, v in known.items() if not (isinstance(k, tuple) and k[0] == node.access.array)}
            found.append(node)
            continue
        written = {op.access.array for op in ops_of((node,)) if op.access is not None and (op.access.write or op.block)}
        known = {k: v for k, v in known.items() if not (isinstance(k, tuple) and k[0] in written)}
        if isinstance(node, Loop):
            found.append(replace(node, body=_once(node.body, same, known)))
        else:
            sides = tuple(_once(side, same, known) for side in node.sides)
            results = tuple(tuple(same.get(v, v) for v in side) for side in node.results)
            condition = same.get(node.condition, node.condition)
            found.append(replace(node, sides=sides, results=results, condition=condition))
    return tuple(found)


def _key(op: Op) -> Hashable:
    """Return what decides on the value of an operation; None if that may change."""
    if op.direction is not None or len(op.outputs) != 1 or op.block:
        return None
    if op.access is None:
        return op.name, op.inputs, op.element, op.bits, op.operand_bits, op.constant, op.factor
    if op.access.write or not op.access.index or None in op.access.index:
        return None
    return op.access.array, op.access.index


def _is_mask(op: Op, makers: Mapping[int, Op]) -> bool:
    """Return whether an operation ends a remainder by a power of two, `x - x // 8 * 8`, which is wires."""
    if op.name != "arith.subi" or (product := makers.get(op.inputs[1], op)).name != "arith.muli":
        return False
    quotient, by = makers.get(product.inputs[0], op), product.factor
    if quotient.name != "arith.floordivsi" or quotient.inputs[0] != op.inputs[0]:
        return False
    return isinstance(by, Linear) and by.is_constant and by == quotient.factor and product_by([by.constant]) == WIRING


def _needed_bits(nodes: Iterable[Node]) -> Mapping[int, int]:
    """Return by value how many of its low bits are used, for those whose users are known."""
    needed: dict[int, int] = {}
    for op in reversed(list(ops_of(nodes))):
        wanted = max((needed.get(v, op.bits) for v in op.outputs), default=op.bits)
        low = wanted if op.name in _LOW_BITS else None
        if op.name == "store" or op.direction == "put":
            low = op.bits
        for place, value in enumerate(op.inputs):
            every = low is None or (op.access is not None and place > 0)
            needed[value] = max(needed.get(value, 0), 1 << 16 if every or low is None else low)
    for branch in walk(nodes):
        if isinstance(branch, Branch):
            needed.update(dict.fromkeys((branch.condition, *branch.results[0], *branch.results[1]), 1 << 16))
    return needed


def _narrowed(node: Any, needed: Mapping[int, int], makers: Mapping[int, Op]) -> Any:
    if not isinstance(node, Op) or node.name not in _MODULAR:
        return rebuilt(node, lambda inner: _narrowed(inner, needed, makers))
    if _is_mask(node, makers):
        return replace(node, name=WIRING)
    bits = min(node.bits, needed.get(node.outputs[0], node.bits))
    return replace(node, bits=bits, operand_bits=tuple(min(n, bits) for n in node.operand_bits))


def product_by(constants: Iterable[int]) -> str:
    """Return the operation that multiplies by one of some constants: wires, one adder, or a multiplier."""
    digits = max(map(signed_digits, constants), default=1)
    if digits <= 1:
        return WIRING
    return "arith.addi" if digits <= _ADDERS else "arith.muli"


def signed_digits(number: int) -> int:
    """Return the non-zero signed digits of a number: a product with it is the sum of as many shifted values."""
    count, rest = 0, abs(number)
    while rest:
        if rest & 1:
            count += 1
            rest += 1 if rest & 2 and rest > 1 else -1
        rest >>= 1
    return max(1, count)
