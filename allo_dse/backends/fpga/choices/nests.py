"""Copies of the bodies of a kernel's loop nests: which loop is pipelined, and by how much it is unrolled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TypeAlias

from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Branch, Loop, Nest, Node, Op, ops_of, outermost, read_nest
from allo_dse.compiler.program.compiled import REGION, Directive, Kernel, TaskClass
from allo_dse.device.device import FpgaDevice
from allo_dse.space.choice import Ask, Question

from ..cost.memory import Unrolled, addresses_of, split

# `benchmarks/polybench_search.py` and `benchmarks/hand_designs.py` measure the designs that these settings offer.
MOST_COPIES = 4096  # operations of one round that unrolling may make
MOST_TOKENS = 16
"""Tokens of one stream in a round. They pass one by one, so a longer round is as fast as one round per token."""
INTERVALS = (1, 2, 4)
BANKS = ("all", "half")
SHARES = ("all", "slow", "quarter", "one")
SLOW = 8  # times the interval of the others
MINOR = 16  # nests with fewer rounds than the largest one's by this factor may be treated differently


class Level(Frozen):
    """A loop of a nest.

    Attributes:
        inside: copies of innermost bodies when it is pipelined; 0 if it cannot be, as a loop inside has too many rounds
            or a number that varies.
        passes: whether each of its rounds uses a stream, so that copies of its body would wait for each other.
    """

    trips: int
    inside: int
    passes: bool


Copies: TypeAlias = tuple[int, int, int]
"""Number of copies of the innermost body, the pipelined level, and the unroll factor of its loop.

Level 0 is the innermost loop; everything inside the pipelined level is unrolled. A loop that would be unrolled
completely is inside, and the one around it is pipelined.
"""


def options(levels: tuple[Level, ...], most: int) -> tuple[Copies, ...]:
    """The numbers of copies that a nest can have, ascending; `levels` begin with the outermost loop."""
    found: dict[int, Copies] = {}
    for number, level in enumerate(reversed(levels)):
        for factor in range(1, level.trips + 1) if level.inside else ():
            copies = factor * level.inside
            if level.trips % factor == 0 and copies <= most and (factor == 1 or not level.passes):
                found[copies] = (copies, number, factor)
    return tuple(sorted(found.values())) or ((1, 0, 1),)


def at_most(levels: tuple[Level, ...], wanted: int, most: int) -> Copies:
    """Return the option with the most copies up to `wanted`.

    Nests share operators, so a nest with more copies than the others would set the cost of all.
    """
    every = options(levels, most)
    return max((option for option in every if option[0] <= wanted), default=every[0])


class Chain(Frozen):
    """Loops around each other, outermost first; the last one has none inside.

    Attributes:
        rounds: number of executions of the innermost body.
    """

    names: tuple[str, ...]
    levels: tuple[Level, ...]

    @property
    def rounds(self) -> int:
        return math.prod(level.trips for level in self.levels)


Nests: TypeAlias = tuple[tuple[Copies, int], ...]
"""Copies of each chain of a kernel, and its pipeline interval."""


class KernelChains(Frozen):
    """Questions about the loop nests of a kernel.

    Attributes:
        chains: loop chains of its classes; chains of the same loops count once.
        most: largest number of copies.
        shares: question of each chain that may be treated differently.
    """

    kernel: str
    chains: Sequence[Chain]
    most: int
    copies: Question
    interval: Question
    shares: Sequence[Question | None]
    banks: Question

    @classmethod
    def of(cls, kernel: Kernel, device: FpgaDevice) -> KernelChains | None:
        """Return the questions of a kernel; None without loops."""
        found: dict[tuple[str, ...], Chain] = {}
        for task_class in kernel.classes:
            for chain in _chains(read_nest(task_class.body.mlir), task_class):
                found.setdefault(chain.names, chain)
        if not found:
            return None
        chains = tuple(found.values())
        # Unfolded tasks have hardware of their own, and a copy's operator takes at least one DSP, which as many copies
        # share as the longest interval has cycles.
        most = max(1, min(MOST_COPIES, INTERVALS[-1] * device.limit("dsp") // kernel.task_count))
        name, largest = f"schedule.{kernel.name}", max(chain.rounds for chain in chains)
        wanted = sorted({option[0] for chain in chains for option in options(chain.levels, most)})
        return cls(
            kernel.name,
            chains,
            most,
            Question.number(f"{name}.copies", wanted, MOST_COPIES),
            Question.number(f"{name}.interval", INTERVALS, INTERVALS[-1]),
            tuple(
                Question.word(f"{name}.{number}.share", SHARES, SHARES) if chain.rounds * MINOR < largest else None
                for number, chain in enumerate(chains)
            ),
            Question.word(f"{name}.banks", BANKS, BANKS),
        )

    def asked(self, ask: Ask) -> Nests:
        copies, interval = int(ask(self.copies)), int(ask(self.interval))
        nests = []
        for chain, question in zip(self.chains, self.shares, strict=True):
            share = "all" if question is None else str(ask(question))
            target = {"quarter": max(1, copies // 4), "one": 1}.get(share, copies)
            pace = interval * SLOW if share == "slow" else interval
            nests.append((at_most(chain.levels, target, self.most), pace))
        return tuple(nests)

    def directives(self, nests: Nests) -> Iterator[Directive]:
        """Pipeline and unroll the nests."""
        decided: dict[str, tuple[int, int]] = {}
        for chain, ((_, level, factor), interval) in zip(self.chains, nests, strict=True):
            decided.setdefault(chain.names[len(chain.names) - 1 - level], (factor, interval))
        for loop, (factor, interval) in decided.items():
            yield Directive("pipeline", self.kernel, loop, {"initiation_interval": interval})
            if factor > 1:
                yield Directive("unroll", self.kernel, loop, {"factor": factor})

    def unrolled(self, options: Sequence[Copies]) -> dict[str, int]:
        """Return by how much each pipelined loop is unrolled, by its name."""
        pairs = zip(self.chains, options, strict=True)
        return {chain.names[len(chain.names) - 1 - level]: factor for chain, (_, level, factor) in pairs}


def _chains(nest: Nest, task_class: TaskClass) -> Iterator[Chain]:
    inside: dict[int, int] = {}
    for loop in outermost(nest.body):
        _bodies(loop, inside)
    for loops in _paths(nest.body, ()):
        known = [(loop.source, _trips(loop)) for loop in loops]
        if all(source is not None and trips is not None for source, trips in known):
            names = tuple(task_class.loop_names[source] for source, _ in known if source is not None)
            levels = [Level(_trips(loop) or 0, inside[loop.variable], _passes(loop.body)) for loop in loops]
            yield Chain(names, tuple(levels))


def _trips(loop: Loop) -> int | None:
    return loop.trips.constant if loop.trips is not None and loop.trips.is_constant else None


def _bodies(loop: Loop, found: dict[int, int]) -> int:
    """Note how many copies of innermost bodies the rounds of loops have, pipelined; 0 if they cannot be."""
    counts = []
    for inner in outermost(loop.body):
        own, trips = _bodies(inner, found), _trips(inner)
        passes_all = trips is not None and (trips <= MOST_TOKENS or not _passes(inner.body))
        counts.append(own * trips if passes_all and trips else 0)
    found[loop.variable] = 0 if 0 in counts else max(counts, default=1)
    return found[loop.variable]


def is_chain(nest: Nest) -> bool:
    """Return whether the nests of a function can run at once, so that HLS makes ping-pong buffers of its arrays.

    Each array is of one nest alone, or filled by one and read by a single other one after it.
    """
    users, own = defaultdict[str, list[set[bool]]](list), defaultdict[str, set[bool]](set)
    for position, node in enumerate(nest.body):
        for op in ops_of((node,)):
            if op.stream is not None:
                return False
            if op.access is not None:
                own[op.access.array].add(op.access.write)
        # Operations between nests belong to the next one, or to the last.
        rest = any(isinstance(later, Loop) and later.source is not None for later in nest.body[position + 1 :])
        if (isinstance(node, Loop) and node.source is not None and rest) or position == len(nest.body) - 1:
            for array, does in own.items():
                users[array].append(does)
            own.clear()
    return all(len(does) == 1 or (len(does) == 2 and True in does[0] and does[1] == {False}) for does in users.values())


def _passes(nodes: Iterable[Node]) -> bool:
    """Return whether some stream is used whenever the nodes are executed."""
    for node in nodes:
        if isinstance(node, Loop):
            if (_trips(node) or 0) > 0 and _passes(node.body):
                return True
        elif isinstance(node, Branch):
            if all(_passes(side) for side in node.sides):
                return True
        elif node.stream is not None:
            return True
    return False


def _paths(nodes: Iterable[Node], outer: tuple[Loop, ...]) -> Iterator[tuple[Loop, ...]]:
    """From the outermost to each innermost loop."""
    for loop in outermost(nodes):
        inner = list(_paths(loop.body, (*outer, loop)))
        yield from inner or [(*outer, loop)]


# Banks that let all copies of a loop body access an array in the same cycle.


CopiesByLoop: TypeAlias = Mapping[str, int]
"""Copies of the bodies of a kernel's pipelined loops, by the loop's name; loops inside are unrolled completely."""
Array: TypeAlias = tuple[str, str]
"""Scope and name: the kernel for its own arrays, the region for tensors."""
_SPARSE = 4  # banks per access beyond which a cyclic split costs more than it serves


class Spread(Frozen):
    """Indices of an access in one round of its pipelined loop.

    Attributes:
        pipelined: the variable of that loop.
        dims: per dimension the part of the index that all copies share, and the indices of the copies beside it; None
            where data decides.
    """

    pipelined: int
    dims: tuple[tuple[Linear, frozenset[int]] | None, ...]


class NestAccess(Frozen, eq=False, dict=True):
    """An access to an array, with the loops around it, outermost first, and their names."""

    array: Array
    shape: tuple[int, ...]
    index: tuple[Linear | None, ...]
    loops: tuple[tuple[Loop, str], ...]

    def spread(self, copies: CopiesByLoop) -> Spread | None:
        """Return its indices in a round, for copies of the pipelined loop; None if no loop around it is pipelined."""
        found = next((at for at, (_, name) in enumerate(self._counted) if name in copies), None)
        if found is None:
            return None
        key = found, copies[self._counted[found][1]]
        if key not in self._known:
            self._known[key] = self._spread(*key)
        return self._known[key]

    @cached_property
    def _counted(self) -> list[tuple[Loop, str]]:
        """The loops with constant trips."""
        return [(loop, name) for loop, name in self.loops if loop.trips and loop.trips.is_constant and loop.lower]

    @cached_property
    def _known(self) -> dict[tuple[int, int], Spread]:
        return {}

    def _spread(self, pipelined: int, factor: int) -> Spread:
        index, unrolled = self.index, dict[int, range]()
        for loop, _ in self._counted[pipelined + 1 :]:
            assert loop.trips is not None
            assert loop.lower is not None
            first = loop.lower.value({})
            if first is not None:
                unrolled[loop.variable] = range(first, first + loop.trips.constant * loop.step, loop.step)
        outer, _ = self._counted[pipelined]
        if factor > 1:  # the variable counts rounds, another one the copies
            inner = -1 - outer.variable
            unrolled[inner] = range(factor)
            form = Linear(((inner, outer.step), (outer.variable, outer.step * factor)))
            index = tuple(part and part.put_in(outer.variable, form) for part in index)
        return Spread(outer.variable, tuple(_copies_of(form, unrolled) for form in index))


def _copies_of(form: Linear | None, unrolled: Unrolled) -> tuple[Linear, frozenset[int]] | None:
    parts = split(form, unrolled)
    return None if parts is None else (parts[1], frozenset(addresses_of([parts[0]], unrolled)[:, 0].tolist()))


def uses_of(kernel: Kernel) -> tuple[tuple[NestAccess, ...], ...]:
    """Return the accesses to elements of named arrays, by class."""
    found = []
    for task_class in kernel.classes:
        nest, names = read_nest(task_class.body.mlir), task_class.loop_names
        tensors = {port.arg: port.tensor.name for port in task_class.tensor_ports}
        arrays = {
            name: (kernel.name, name) if own.argument is None else (REGION, tensors.get(own.argument, name))
            for name, own in nest.arrays.items()
        }
        found.append(
            tuple(
                NestAccess(arrays[op.access.array], nest.arrays[op.access.array].shape, op.access.index, loops)
                for op, loops in _accesses(nest.body, names, ())
                if op.access is not None and op.access.index and not op.block and "." not in op.access.array
            )
        )
    return tuple(found)


def _accesses(
    nodes: Iterable[Node], names: Sequence[str], loops: tuple[tuple[Loop, str], ...]
) -> Iterator[tuple[Op, tuple[tuple[Loop, str], ...]]]:
    for node in nodes:
        if isinstance(node, Loop):
            name = names[node.source] if node.source is not None else ""
            yield from _accesses(node.body, names, (*loops, (node, name)))
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _accesses(side, names, loops)
        else:
            yield node, loops


def needed_banks(uses: Iterable[NestAccess], copies: CopiesByLoop) -> dict[Array, dict[int, int]]:
    """Per array, the banks per dimension (1-based) that spread the accesses of a round.

    As many banks as elements where rounds always use the same elements: a window, or a line buffer's lines.
    """
    rounds: dict[tuple[Array, int, int], dict[int, dict[Linear, set[int]]]] = {}
    for use in uses:
        spread = use.spread(copies)
        if spread is None:
            continue
        for dim, part in enumerate(spread.dims):
            if part is not None:
                alike = rounds.setdefault((use.array, dim, use.shape[dim]), {}).setdefault(spread.pipelined, {})
                alike.setdefault(part[0], set()).update(part[1])
    needed: dict[Array, dict[int, int]] = {}
    for (array, dim, extent), by_loop in rounds.items():
        factor = _banks(extent, [list(alike.items()) for alike in by_loop.values()])
        if factor > 1:
            needed.setdefault(array, {})[dim + 1] = factor
    return needed


def _banks(extent: int, rounds: Sequence[Sequence[tuple[Linear, Set[int]]]]) -> int:
    """Return the banks along a dimension for the indices of each pipelined loop's rounds, by what rounds share."""
    several = [alike for alike in rounds if max(len(indices) for _, indices in alike) > 1]
    if not several:
        return 1
    fixed = [
        set().union(*(indices for _, indices in alike)) for alike in several if all(f.is_constant for f, _ in alike)
    ]
    if any(len(indices) * 2 >= extent for indices in fixed):
        return extent
    return _least_factor(extent, tuple(frozenset(indices) for alike in several for _, indices in alike))


def _least_factor(extent: int, rounds: tuple[frozenset[int], ...]) -> int:
    """Return the least divisor of an extent for which no two indices of a round have the same remainder.

    Where that takes many more banks than there are indices, as many as divide both numbers.
    """
    most = max(map(len, rounds))
    for factor in range(most, min(extent, _SPARSE * most) + 1):
        if extent % factor == 0 and all(len({i % factor for i in indices}) == len(indices) for indices in rounds):
            return factor
    return math.gcd(most, extent)
