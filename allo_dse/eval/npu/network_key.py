"""What decides the network of a design: designs of a program that agree in it take the same time, and only one is run.

Folds that differ in which tiles a node has, but not in when it needs other ones, have equal networks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from msgspec import msgpack

from allo_dse.device.device import NpuDevice
from allo_dse.mapper.graph.node_schedules import GroupSchedule
from allo_dse.mapper.model.movement import Transport
from allo_dse.mapper.streams.channels import Links
from allo_dse.program.compiled import CompiledProgram

from .network import is_paged


def network_key(
    program: CompiledProgram, schedules: Sequence[GroupSchedule], links: Links, transport: Transport, device: NpuDevice
) -> bytes:
    """Equal only for designs of one program for which `build_npu_network` makes equal networks."""
    movement = list(_movement(program, transport, device))
    parts = (device.array_key, list(_nodes(schedules)), list(_channels(links)), movement)
    return hashlib.blake2b(msgpack.encode(parts), digest_size=16).digest()


def _nodes(schedules: Sequence[GroupSchedule]) -> Iterator[object]:
    for schedule in schedules:
        # Classes by work can have equal names; they live as long as the program.
        yield schedule.group.count, [id(cls) for cls in schedule.work_list], schedule.work.tobytes()
        for port in schedule.ports:
            flags = [flags.tobytes() for flags in (port.first, port.steady, port.last_use)]
            yield port.key, port.port.tile_bytes, flags


def _channels(links: Links) -> Iterator[object]:
    yield sorted(links.depth.items())
    for own in links.groups:
        yield own.channels, list(own.uses.by_leaf.items())


def _movement(program: CompiledProgram, transport: Transport, device: NpuDevice) -> Iterator[object]:
    tensors = {tensor.name: tensor for tensor in program.tensors}
    for flow in transport.flows:
        yield flow.nodes, flow.ports, flow.tile_bytes, flow.run_bytes, flow.depth
    for transfer in transport.transfers:
        paged = is_paged(transfer, tensors[transfer.tensor], device.board)
        yield transfer.flows, transfer.column, transfer.depth, paged
