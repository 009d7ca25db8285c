"""Memories and buses that several tasks use, as shared resources and processes of a network.

* A memory port serves one access a cycle: `net.resource(...)`, and `table.request(port, 1)` for each access.
* A bus moves one beat a cycle: a burst holds it for as many cycles as it has beats.
* An AXI master asks for bursts ahead of the data: `outstanding` of them can be on their way, and the first data come
  `latency` cycles after the address. A read port gives one token a burst to its task, a write port takes one.
"""

from __future__ import annotations

from dataclasses import dataclass

from allo_dse.common.errors import SimulationError

from .network import NetworkBuilder
from .tables import Table


@dataclass(frozen=True)
class Axi:
    """Behaviour of an AXI master.

    Attributes:
        latency: cycles from an address to the first beat of its data; of writes, from the last beat to the response.
        outstanding: bursts that can be on their way at one time.
        beats: cycles for which a burst holds the bus.
    """

    latency: int
    outstanding: int
    beats: int

    def __post_init__(self) -> None:
        if self.latency < 0 or self.outstanding < 1 or self.beats < 1:
            raise SimulationError(f"an AXI port needs at least one burst on its way, of one beat or more: {self}")


def read_port(net: NetworkBuilder, bus: int, axi: Axi, bursts: int, data: int) -> tuple[int, int]:
    """Add a port that reads `bursts` bursts over a bus and puts a token to `data` for each when it is there.

    A burst is over, and makes room for another, when its data have been taken over.

    Returns:
        The processes that send addresses and receive data.
    """
    in_flight = net.stream(axi.outstanding, latency=0)
    asked = net.stream(axi.outstanding, latency=axi.latency)
    send, receive = Table(), Table()
    with send.repeat(bursts):
        send.put(0)
        send.put(1)
        send.wait(1)
    with receive.repeat(bursts):
        receive.get(1)
        receive.request(0, axi.beats)
        receive.put(2)
        receive.get(0)
    return net.process(send, [in_flight, asked]), net.process(receive, [in_flight, asked, data], [bus])


def write_port(net: NetworkBuilder, bus: int, axi: Axi, bursts: int, data: int) -> tuple[int, int]:
    """Add a port that takes `bursts` tokens from `data` and writes a burst over a bus for each.

    A burst is over when its response has come.

    Returns:
        The processes that send data and receive responses.
    """
    in_flight = net.stream(axi.outstanding, latency=0)
    sent = net.stream(axi.outstanding, latency=axi.latency)
    send, receive = Table(), Table()
    with send.repeat(bursts):
        send.get(2)
        send.put(0)
        send.request(0, axi.beats)
        send.put(1)
    with receive.repeat(bursts):
        receive.get(1)
        receive.get(0)
    return net.process(send, [in_flight, sent, data], [bus]), net.process(receive, [in_flight, sent])
