"""The time semantics of the run engine, once more and independently: scripts of operations in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field

Script = list[tuple[str, int, int]]
"""Operations ("get", stream, _), ("put", stream, _), ("wait", _, cycles), ("request", resource, cycles)."""


@dataclass
class Outcome:
    clocks: list[int]
    positions: list[int]
    stall_get: list[int]
    stall_put: list[int]
    stall_request: list[int]
    puts: list[list[int]] = field(default_factory=list)
    gets: list[list[int]] = field(default_factory=list)
    times: list[list[int]] = field(default_factory=list)


def simulate(
    scripts: list[Script], depth: list[int], latency: list[int], initial: list[int], resources: int
) -> Outcome:
    """Run scripts to the end or to a deadlock. `puts` and `gets` are the times of all tokens of each stream."""
    n = len(scripts)
    out = Outcome([0] * n, [0] * n, [0] * n, [0] * n, [0] * n)
    out.puts = [[-(10**9)] * k for k in initial]
    out.gets = [[] for _ in depth]
    out.times = [[] for _ in scripts]
    free = [0] * resources
    while True:
        moved = False
        for i in range(n):
            while out.positions[i] < len(scripts[i]) and step(out, scripts, i, depth, latency):
                moved = True
        if moved:
            continue
        asking = [
            i for i in range(n) if out.positions[i] < len(scripts[i]) and scripts[i][out.positions[i]][0] == "request"
        ]
        if not asking:
            return out
        i = min(asking, key=lambda k: (out.clocks[k], k))
        _, server, cycles = scripts[i][out.positions[i]]
        begin = max(out.clocks[i], free[server])
        out.stall_request[i] += begin - out.clocks[i]
        out.clocks[i] = free[server] = begin + cycles
        advance(out, i)


def step(out: Outcome, scripts: list[Script], i: int, depth: list[int], latency: list[int]) -> bool:
    kind, a, cycles = scripts[i][out.positions[i]]
    clock = out.clocks[i]
    if kind == "wait":
        out.clocks[i] += cycles
    elif kind == "get" and len(out.gets[a]) < len(out.puts[a]):
        out.clocks[i] = max(clock, out.puts[a][len(out.gets[a])] + latency[a])
        out.gets[a].append(out.clocks[i])
        out.stall_get[i] += out.clocks[i] - clock
    elif kind == "put" and len(out.puts[a]) - len(out.gets[a]) < depth[a]:
        token = len(out.puts[a])
        freed = out.gets[a][token - depth[a]] if token >= depth[a] else -1
        out.clocks[i] = max(clock, freed + 1)
        out.puts[a].append(out.clocks[i])
        out.stall_put[i] += out.clocks[i] - clock
    else:
        return False
    advance(out, i)
    return True


def advance(out: Outcome, i: int) -> None:
    out.positions[i] += 1
    out.times[i].append(out.clocks[i])


def occupancy(puts: list[int], gets: list[int]) -> int:
    """The most tokens in a FIFO at one time: token n counts until the get of token m that is not before its put."""
    return max((n + 1 - sum(g < p for g in gets) for n, p in enumerate(puts)), default=0)
