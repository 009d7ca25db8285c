"""Tensors with another order in DRAM than in their program: shim channels walk through them in that order.

    found = mapping.reading({"Q": order})               # the transport plan for that, or why there is none

A tile's elements, and the tiles of a channel one after another, must be loops over addresses there; words of a tile
must be words in DRAM; and one descriptor must hold at least a tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from allo_dse.compiler.program.tensors import IntArray, TensorPort
from allo_dse.device.npu_model import Descriptor
from allo_dse.mapper.graph_algorithms import Nest, loop_nest
from allo_dse.mapper.violation import Buffering

from .access import fit_loops
from .flows import FlowFamily, plan_flows
from .movement import WORD_BYTES, AccessPattern, Flow, Transfer, Transport
from .view import MappingView


def read_as_it_lies(
    transport: Transport,
    view: MappingView,
    descriptor: Descriptor,
    buffering: Buffering,
    orders: Mapping[str, IntArray],
) -> Transport | str:
    """A transport plan for tensors that lie in other orders, or why a channel cannot walk that way.

    Args:
        orders: by tensor, of each of its elements the place in DRAM, in elements; -1 of one that is nowhere.
    """
    families = {
        flow.index: family
        for family in plan_flows(view.vmg.program, view.groups, view.declared_links.between, buffering)
        for flow in family.flows
    }
    transfers, runs = [], dict[int, int]()
    for transfer in transport.transfers:
        order = orders.get(transfer.tensor)
        if order is not None:
            family, flows = families[transfer.flows[0]], [transport.flows[flow] for flow in transfer.flows]
            walked = _walked(transfer, family, flows, order, descriptor)
            if isinstance(walked, str):
                return f"{transfer.tensor}: {walked}"
            transfer = walked
            runs |= dict.fromkeys(transfer.flows, transfer.run_bytes)
        transfers.append(transfer)
    moved = (replace(f, run_bytes=runs[f.index]) if f.index in runs else f for f in transport.flows)
    return Transport(tuple(moved), tuple(transfers), transport.violations, transport.layouts)


def _walked(
    transfer: Transfer, family: FlowFamily, flows: Sequence[Flow], order: IntArray, descriptor: Descriptor
) -> Transfer | str:
    """The transfer through a tensor as it lies."""
    port, bits = family.port, family.port.tensor.dtype.bits
    if family.pattern.nest is None:
        return "its tiles follow each other without a pattern"
    if bits % 8:
        return f"elements of {bits} bits are not whole bytes"
    size = bits // 8
    firsts = [flow.first_byte // size for flow in flows]
    starts = (_moved(family.pattern.nest)[:, None] // size + np.array(firsts, np.int64)).reshape(-1)
    words = _words_of_tiles(starts, _inside(port), order, size)
    if isinstance(words, str):
        return words
    tile, tiles = loop_nest(words), loop_nest((order[starts].astype(np.int64) - order[starts[0]]) * size)
    if tile is None or tiles is None:
        return f"the {'elements of its tiles' if tile is None else 'tiles'} do not lie in loops"
    inside = [(count, step * WORD_BYTES) for count, step in reversed(tile)]
    pattern = fit_loops([*inside, *reversed(tiles)], descriptor)
    if math.prod(count for count, _ in pattern.dims) < len(words):
        return f"a tile takes more than the {descriptor.dims} loops of a descriptor, or longer ones"
    run = words_in_a_row(pattern, len(words)) * WORD_BYTES
    lies_in = (int(order.max()) + 1) * size
    return replace(transfer, pattern=pattern, run_bytes=run, lies_in_bytes=lies_in)


def words_in_a_row(pattern: AccessPattern, most: int) -> int:
    """Return the number of contiguous words that a walk takes before it jumps, within a tile of `most` words."""
    row = 1
    for count, step in pattern.dims:
        if step != row:
            break
        row *= count
    return math.gcd(row, most)


def _moved(nest: Nest) -> IntArray:
    """The first bytes of the tiles that are moved, in turn: innermost loops without a step only use one again."""
    loops = list(nest)
    while loops and (loops[-1][1] == 0 or loops[-1][0] == 1):
        loops.pop()
    found: IntArray = np.zeros(1, np.int64)
    for count, step in loops:
        found = (found[:, None] + step * np.arange(count)).reshape(-1)
    return found


def _inside(port: TensorPort) -> IntArray:
    """The elements of a tile in turn, relative to its first one."""
    found: IntArray = np.zeros(1, np.int64)
    for extent, stride in zip(port.tile_shape, port.tensor.strides, strict=True):
        found = (found[:, None] + stride * np.arange(extent)).reshape(-1)
    return found


def _words_of_tiles(starts: IntArray, inside: IntArray, order: IntArray, size: int) -> IntArray | str:
    """Return the offsets of a tile's words from its first one, equal for all tiles, or why there are none."""
    each = max(1, WORD_BYTES // size)
    first: IntArray | None = None
    for start in np.unique(starts):
        lies = order[start + inside].astype(np.int64)
        if lies.min() < 0:
            return "some of its elements are nowhere"
        if len(lies) % each or lies[0] * size % WORD_BYTES or (np.diff(lies.reshape(-1, each)) != 1).any():
            return f"its words are no words in DRAM, and DMA moves {WORD_BYTES}-byte words"
        relative = (lies[::each] - lies[0]) * size
        if (relative % WORD_BYTES).any():
            return f"its words are no words in DRAM, and DMA moves {WORD_BYTES}-byte words"
        if first is None:
            first = relative
        elif not np.array_equal(first, relative):
            return "its tiles do not all lie alike"
    assert first is not None
    if size > WORD_BYTES:
        parts = np.arange(0, size, WORD_BYTES)
        first = (first[:, None] + parts).reshape(-1)
    found: IntArray = first // WORD_BYTES
    return found
