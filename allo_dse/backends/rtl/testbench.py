"""SystemVerilog around the tasks' circuits: FIFOs, memories, a clock, and a monitor.

Memories are behavioural and have any number of ports; a read or write takes a cycle. The bench stops when all tasks are
done, or when nothing has moved for a while, and reports the waiting ports.
"""

from __future__ import annotations

from collections.abc import Iterable

from .circuit import Circuit, Task, Tile
from .tools import LocalArray, RtlKernel, Site

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
    lines += [f"  reg d{number} = 0;" for number in range(len(circuit.tasks))]
    for number, task in enumerate(circuit.tasks):
        lines += _task(number, task, circuit.kernels[task.kernel])
    lines += _ends(circuit)
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


def _task(number: int, task: Task, kernel: RtlKernel) -> list[str]:
    lines, ports = [f"  // {task.name}"], ["clock(clock)", "reset(reset)"]
    for argument, value in enumerate(task.pid):
        wire = f"p{number}_{argument}"
        lines.append(f"  wire {wire}_valid, {wire}_ready;")
        lines.append(f"  df_once {wire} (clock, reset, 1'b1, {wire}_ready, {wire}_valid);")
        ports += [f"in{argument}({kernel.index_bits}'d{value})", *_handshake(f"in{argument}", wire)]
    for local, array in enumerate(kernel.arrays):
        lines.append(_array(f"l{number}_{local}", array))
    for place, site in enumerate(kernel.sites):
        wire, port = f"s{number}_{place}", f"in{kernel.pids + place}"
        ports += _site_ports(port, wire, site)
        if site.space == "stream":
            lines += _stream_site(wire, site)
        else:
            lines += _memory_site(wire, site, task, number)
    start, done = f"in{kernel.pids + len(kernel.sites)}", f"d{number}"
    lines.append(f"  wire {done}_start_valid, {done}_start_ready, {done}_valid;")
    go = "1'b1" if task.after is None else f"d{task.after}"
    lines.append(f"  df_once {done}_start (clock, reset, {go}, {done}_start_ready, {done}_start_valid);")
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
    """Connect a kernel's port: an address goes out and data comes in, or both go out and a signal comes in."""
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


def _stream_site(wire: str, site: Site) -> list[str]:
    """A place of a task at a FIFO, with wires of its own to the FIFO's end."""
    ask, answer = f"{wire}_ask_valid, {wire}_ask_ready", f"{wire}_answer_valid, {wire}_answer_ready"
    end = f"{wire}_{site.kind}"
    ports = f"{end}_data, {end}_valid, {end}_ready"
    parts = f"{ask}, {wire}_data, {answer}, {ports}" if site.kind == "get" else f"{wire}_data, {ask}, {answer}, {ports}"
    return [
        _wires(wire, site, "wire"),
        f"  wire [{site.width - 1}:0] {end}_data; wire {end}_valid, {end}_ready;",
        f"  df_{site.kind} #({site.width}) {wire} (clock, reset, {parts});",
    ]


def _ends(circuit: Circuit) -> list[str]:
    """Connect the ends of FIFOs to the places of one task, or of tasks that run in turn.

    They take turns, so at most one of them asks in any cycle.
    """
    places: dict[tuple[int, str], list[str]] = {}
    for number, task in enumerate(circuit.tasks):
        for place, site in enumerate(circuit.kernels[task.kernel].sites):
            if site.space == "stream":
                places.setdefault((task.streams[site.target], site.kind), []).append(f"s{number}_{place}_{site.kind}")
    lines = []
    for (fifo, kind), ends in places.items():
        end = f"f{fifo}_{kind}"
        if kind == "get":
            lines += [f"  assign {one}_data = {end}_data, {one}_valid = {end}_valid;" for one in ends]
            lines.append(f"  assign {end}_ready = {' | '.join(f'{one}_ready' for one in ends)};")
        else:
            data = "".join(f"{one}_valid ? {one}_data : " for one in ends[:-1]) + f"{ends[-1]}_data"
            lines += [f"  assign {one}_ready = {end}_ready;" for one in ends]
            lines.append(f"  assign {end}_valid = {' | '.join(f'{one}_valid' for one in ends)}, {end}_data = {data};")
    return lines


def _memory(task: Task, number: int, site: Site, address: str) -> str:
    """The element that a port means by an address."""
    if site.space == "local":
        return f"l{number}_{site.target}[{address}]"
    tile = task.tiles[site.target]
    return f"t_{tile.tensor}[{_position(tile, address)}]"


def _position(tile: Tile, address: str) -> str:
    """Return the position in the tensor of an element of a tile."""
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
