"""SystemVerilog around the tasks' circuits: FIFOs, memories, a clock, and someone who watches.

Memories are behavioural and have as many ports as are asked for; reading or writing takes a cycle. The bench stops when
all tasks are done, or when nothing has moved for a while, and says which ports wait for what.
"""

from __future__ import annotations

from collections.abc import Iterable

from .circuit import Circuit, Task, Tile
from .parts import LocalArray, RtlKernel, Site

_HEAD = """\
`timescale 1ns/1ns
module bench;
  reg clock = 0, reset = 1;
  reg [63:0] cycles = 0, still = 0;
  always #1 clock = ~clock;
"""


def bench_text(circuit: Circuit, *, max_cycles: int, patience: int) -> str:
    """The test bench of a circuit; kernel `k` is module `kernel<k>`.

    Args:
        max_cycles: where to give up. patience: cycles without any access that mean a deadlock.
    """
    used = _users(circuit)
    lines = [_HEAD]
    for name, (width, words) in circuit.tensors.items():
        lines.append(f"  reg [{width - 1}:0] t_{name} [0:{words - 1}];")
    for number, fifo in enumerate(circuit.fifos):
        if number in used:
            lines.append(_fifo(number, fifo.width, fifo.depth))
    for number, task in enumerate(circuit.tasks):
        lines += _task(circuit, number, task, circuit.kernels[task.kernel])
    lines.append(_control(circuit, used, max_cycles, patience))
    return "\n".join(lines) + "\nendmodule\n"


def _users(circuit: Circuit) -> set[int]:
    """Streams that any circuit is connected to."""
    return {
        task.streams[site.target]
        for task in circuit.tasks
        for site in circuit.kernels[task.kernel].sites
        if site.space == "stream"
    }


def _fifo(number: int, width: int, depth: int) -> str:
    name = f"f{number}"
    return (
        f"  wire [{width - 1}:0] {name}_put_data, {name}_get_data;\n"
        f"  wire {name}_put_valid, {name}_put_ready, {name}_get_valid, {name}_get_ready;\n"
        f"  wire [31:0] {name}_peak;\n"
        f"  df_fifo #({width}, {depth}) {name} (clock, reset, {name}_put_data, {name}_put_valid, {name}_put_ready,"
        f" {name}_get_data, {name}_get_valid, {name}_get_ready, {name}_peak);"
    )


def _task(circuit: Circuit, number: int, task: Task, kernel: RtlKernel) -> list[str]:
    lines, ports = [f"  // {task.name}"], ["clock(clock)", "reset(reset)"]
    for argument, value in enumerate(task.pid):
        wire = f"p{number}_{argument}"
        lines.append(f"  wire {wire}_valid, {wire}_ready;")
        lines.append(f"  df_once {wire} (clock, reset, {wire}_ready, {wire}_valid);")
        ports += [f"in{argument}({kernel.index_bits}'d{value})", *_handshake(f"in{argument}", wire)]
    for local, array in enumerate(kernel.arrays):
        lines.append(_array(f"l{number}_{local}", array))
    doubled = _shared_streams(kernel)
    for place, site in enumerate(kernel.sites):
        wire, port = f"s{number}_{place}", f"in{kernel.pids + place}"
        ports += _site_ports(port, wire, site)
        if site.space == "stream":
            lines += _stream_site(wire, site, f"f{task.streams[site.target]}", doubled)
        else:
            lines += _memory_site(wire, site, task, number)
    for target, places in doubled.items():
        lines += _join(f"f{task.streams[target]}", [f"s{number}_{p}" for p in places], kernel.sites[places[0]])
    start, done = f"in{kernel.pids + len(kernel.sites)}", f"d{number}"
    lines.append(f"  wire {done}_start_valid, {done}_start_ready, {done}_valid; reg {done} = 0;")
    lines.append(f"  df_once {done}_start (clock, reset, {done}_start_ready, {done}_start_valid);")
    lines.append(f"  always @(posedge clock) if ({done}_valid && !reset) {done} <= 1;")
    ports += [*_handshake(start, f"{done}_start"), f"out0_valid({done}_valid)", "out0_ready(1'b1)"]
    lines.append(f"  kernel{task.kernel} k{number} ({', '.join('.' + port for port in ports)});")
    return lines


def _array(name: str, array: LocalArray) -> str:
    mask = (1 << array.width) - 1
    given = "".join(f" {name}[{at}] = {array.width}'d{value & mask};" for at, value in enumerate(array.initial))
    start = f" initial begin{given} end" if given else ""
    return f"  reg [{array.width - 1}:0] {name} [0:{array.words - 1}];{start}"


def _handshake(port: str, wire: str) -> list[str]:
    return [f"{port}_valid({wire}_valid)", f"{port}_ready({wire}_ready)"]


def _site_ports(port: str, wire: str, site: Site) -> list[str]:
    """How a kernel's port is connected: an address goes out and data comes in, or both go out and a signal comes in."""
    address = site.words > 1
    if site.kind in ("load", "get"):
        found = [f"{port}_ld0_data({wire}_data)", *_handshake(f"{port}_ld0_data", f"{wire}_answer")]
        found += _handshake(f"{port}_ld0_addr", f"{wire}_ask")
        return [*found, f"{port}_ld0_addr({wire}_address)"] if address else found
    found = [f"{port}_st0_data({wire}_data)", *_handshake(f"{port}_st0", f"{wire}_ask")]
    found += _handshake(f"{port}_st0_done", f"{wire}_answer")
    return [*found, f"{port}_st0_address({wire}_address)"] if address else found


def _wires(wire: str, site: Site, data: str) -> str:
    address = f" wire [{max(0, (site.words - 1).bit_length() - 1)}:0] {wire}_address;" if site.words > 1 else ""
    return (
        f"  {data} [{site.width - 1}:0] {wire}_data;{address}"
        f" wire {wire}_ask_valid, {wire}_ask_ready, {wire}_answer_ready;"
        f" {'reg' if data == 'reg' or site.kind == 'store' else 'wire'} {wire}_answer_valid;"
        f" wire {wire}_fire = {wire}_ask_valid && {wire}_ask_ready;"
    )


def _shared_streams(kernel: RtlKernel) -> dict[int, list[int]]:
    """Streams that a kernel uses in several places, with the places; it uses them one after the other."""
    places: dict[int, list[int]] = {}
    for place, site in enumerate(kernel.sites):
        if site.space == "stream":
            places.setdefault(site.target, []).append(place)
    return {target: found for target, found in places.items() if len(found) > 1}


def _stream_site(wire: str, site: Site, fifo: str, doubled: dict[int, list[int]]) -> list[str]:
    lines = [_wires(wire, site, "wire")]
    end = fifo
    if site.target in doubled:
        end = wire
        ready = "get_valid" if site.kind == "get" else "put_ready"
        asks = "get_ready" if site.kind == "get" else "put_valid"
        lines.append(f"  wire {wire}_{asks}; wire {wire}_{ready} = {fifo}_{ready};")
        lines.append(
            f"  wire [{site.width - 1}:0] {wire}_"
            + (f"get_data = {fifo}_get_data;" if site.kind == "get" else "put_data;")
        )
    ask = f"{wire}_ask_valid, {wire}_ask_ready"
    answer = f"{wire}_answer_valid, {wire}_answer_ready"
    if site.kind == "get":
        ports = f"{ask}, {wire}_data, {answer}, {end}_get_data, {end}_get_valid, {end}_get_ready"
    else:
        ports = f"{wire}_data, {ask}, {answer}, {end}_put_data, {end}_put_valid, {end}_put_ready"
    lines.append(f"  df_{site.kind} #({site.width}) {wire} (clock, reset, {ports});")
    return lines


def _join(fifo: str, wires: list[str], site: Site) -> list[str]:
    """Several places of a task at one end of a FIFO: at most one of them asks in any cycle."""
    if site.kind == "get":
        return [f"  assign {fifo}_get_ready = {' | '.join(f'{w}_get_ready' for w in wires)};"]
    data = "".join(f"{w}_put_valid ? {w}_put_data : " for w in wires[:-1]) + f"{wires[-1]}_put_data"
    return [
        f"  assign {fifo}_put_valid = {' | '.join(f'{w}_put_valid' for w in wires)};",
        f"  assign {fifo}_put_data = {data};",
    ]


def _memory(task: Task, number: int, site: Site, address: str) -> str:
    """The element that a port means by an address."""
    if site.space == "local":
        return f"l{number}_{site.target}[{address}]"
    tile = task.tiles[site.target]
    return f"t_{tile.tensor}[{_position(tile, address)}]"


def _position(tile: Tile, address: str) -> str:
    """Where an element of a tile lies in the tensor."""
    terms, below = [str(tile.offset)], 1
    for extent, stride in reversed(list(zip(tile.shape, tile.strides, strict=True))):
        if extent > 1:
            terms.append(f"({address} / {below}) % {extent} * {stride}")
        below *= extent
    return " + ".join(terms)


def _memory_site(wire: str, site: Site, task: Task, number: int) -> list[str]:
    element = _memory(task, number, site, f"{wire}_address" if site.words > 1 else "0")
    access = f"{wire}_data <= {element};" if site.kind == "load" else f"{element} <= {wire}_data;"
    return [
        _wires(wire, site, "reg" if site.kind == "load" else "wire"),
        f"  assign {wire}_ask_ready = !{wire}_answer_valid;",
        f"  always @(posedge clock) if (reset) {wire}_answer_valid <= 0; else if ({wire}_fire) begin"
        f" {wire}_answer_valid <= 1; {access} end else if ({wire}_answer_ready) {wire}_answer_valid <= 0;",
    ]


def _control(circuit: Circuit, used: Iterable[int], max_cycles: int, patience: int) -> str:
    sites = [
        (number, task, place, site)
        for number, task in enumerate(circuit.tasks)
        for place, site in enumerate(circuit.kernels[task.kernel].sites)
    ]
    moved = " | ".join(f"s{number}_{place}_fire" for number, _, place, _ in sites) or "1'b0"
    done = " & ".join(f"d{number}" for number in range(len(circuit.tasks)))
    load = "".join(f'    $readmemh("{name}.in", t_{name});\n' for name in circuit.tensors)
    dump = "".join(f'        $writememh("{name}.out", t_{name});\n' for name in circuit.tensors)
    peaks = "".join(f'        $display("PEAK {number} %0d", f{number}_peak);\n' for number in sorted(used))
    waits = "".join(
        f"        if (s{number}_{place}_ask_valid && !s{number}_{place}_ask_ready)"
        f' $display("WAITS {number} {site.kind} {task.streams[site.target]}");\n'
        for number, task, place, site in sites
        if site.space == "stream"
    )
    return f"""\
  initial begin
{load}    repeat (4) @(posedge clock);
    reset <= 0;
  end
  always @(posedge clock) if (!reset) begin
    cycles <= cycles + 1;
    still <= ({moved}) ? 0 : still + 1;
    if ({done}) begin
        $display("DONE %0d", cycles);
{peaks}{dump}        $finish;
    end else if (still > {patience}) begin
        $display("STUCK %0d", cycles - still);
{peaks}{waits}        $finish;
    end else if (cycles > {max_cycles}) begin
        $display("LIMIT %0d", cycles);
        $finish;
    end
  end"""
