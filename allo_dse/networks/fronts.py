"""Fronts of operators: the fastest design on each number of columns, or designs for an FPGA over latency and resources.

A design for k columns uses only the cores, memory tiles and shim channels of k columns, so any k neighbouring
columns will do. Operators side by side need the sum of their columns, and nothing else of the array.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from pathlib import Path

import msgspec
from msgspec import field

from allo_dse.common.errors import RunDirectoryError, StudyError
from allo_dse.common.files import write_whole
from allo_dse.common.records import Frozen, replace
from allo_dse.device.device import Device
from allo_dse.eval.backend import backend_of
from allo_dse.eval.backend import target as target_of
from allo_dse.eval.evaluator import full_name
from allo_dse.eval.launches import Launches
from allo_dse.space.choices.parameters import CompiledPrograms
from allo_dse.tune.results.best import BestDesign
from allo_dse.tune.search.budget import SIGNALS, StepLeft
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.store.record import Record
from allo_dse.tune.study import Study

from .network import (
    Host,
    Network,
    Operator,
    fused_operators,
    optional_steps,
    single_operators,
    with_hosts,
    with_rows,
    without,
)
from .operators.execute import Work, interface, loaded

TRIALS = 60
"""Designs that are evaluated for each number of columns; less where the tuner has proved that none is better."""
WIDTHS = 4
"""Numbers of columns that most NPUs are searched for, each with the given trials. On an FPGA, one search of the whole
front gets this multiple of the trials."""

KEPT = "front.json"
MOST_POINTS, MOST_COPIES = 40, 4
"""The most designs of a work on an FPGA to choose from, and the most pieces of hardware for it."""

_HINTS = {
    True: 'target "model" (--target model) asks for what the device has only, not for what Allo builds',
    False: "other sizes may fit; of a program of your own, other parameters",
}


class Point(Frozen):
    """A design of a front: an operator's fastest one on a number of columns, or one for an FPGA.

    Attributes:
        latency_us: of a call by itself, including its launch.
        proved: no other design of the operator's space is faster there, as the evaluator times them.
        bound: shares of the time for which resources are busy.
        resources: that it takes of an FPGA, where it counts as one column.
        tables: positions of the operands that the bitstream has.
    """

    columns: int
    cores: int
    latency_us: float
    dram_bytes: int
    bound: Mapping[str, float]
    proved: bool
    design: BestDesign
    resources: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[int, ...] = ()


class Fronts(Frozen):
    """The fronts of a network's operators on a device.

    Attributes:
        candidates: operators for single steps, and for several steps that one program can do.
        points: the front of every work by its key, the fewest columns first.
        target: the target of the designs.
    """

    network: Network
    device: Device
    candidates: tuple[Operator, ...]
    points: Mapping[str, tuple[Point, ...]]
    target: str = "allo"

    @property
    def launches(self) -> Launches:
        """The launches of the device."""
        return launches_of(self.device)


def search_fronts(  # noqa: PLR0913 (settings of a search)
    network: Network,
    device: str | Path | Device = "npu2",
    *,
    trials: int = TRIALS,
    cache: str | Path = "runs/.networks",
    target: str | None = None,
    seed: int = 0,
    host: str = "auto",
    narrower: bool = True,
    say: Callable[[str], None] = lambda said: None,
) -> Fronts:
    """Search the fronts of a network's operators; equal operators share one.

    Args:
        trials: designs to evaluate for a point.
        cache: directory with a run for each point, which other networks and later calls reuse.
        target: the design's target, as in a study; by default the device's first.
        host: "auto" for operators without a design to run on the host, "never" to refuse them.
        narrower: whether to search designs on fewer columns, which can run side by side.
        say: called with a line before each search of designs that are not in the cache.

    Raises:
        AlloDseError: for a target that does not build for the device.
        StudyError: for a network without operators or outputs, or an operator that fits the device in none of its
            types; also if a program changes meanwhile, or another process searches the same designs.
        KeyboardInterrupt: once a search was stopped; another call continues it.
    """
    operators = [step for step in network.steps if isinstance(step.work, Work | Host)]
    for what, own, how in (("operators", operators, "add"), ("outputs", network.outputs, "output")):
        if not own:
            raise StudyError(f"network {network.name!r} has no {what}", hint=f"`Network.{how}` gives it some")
    found = Device.of(device)
    launches = launches_of(found)
    if launches.linked:
        network = with_rows(network, launches.ports, launches.table_bits)
    built_by = target_of(target, found)
    options = SearchOptions(Path(cache), trials, built_by.name, seed, narrower)
    points: dict[str, tuple[Point, ...]] = {}
    candidates, optional = tuple(_candidates(network, launches.table_bits)), optional_steps(network)
    failed: dict[str, StudyError] = {}
    left: dict[str, str] = {}
    keys = list(dict.fromkeys(one.key for one in candidates))
    for names, group in groupby(candidates, lambda one: one.names):
        variants = list(group)
        for one in variants:
            if one.key in points or one.key in failed:
                continue
            if not any(options.cache.glob(f"{one.key}-*")):
                dtype = f", {one.step.writes.name}" if len(variants) > 1 else ""
                say(f"{keys.index(one.key) + 1} of {len(keys)}: designs of {one.step.title} ({one.work.kind}{dtype})")
            try:
                points[one.key] = tuple(_improving(_points(one, found, options)))
            except RunDirectoryError:  # does not mean that there is no design
                raise
            except StudyError as error:  # another type may fit; fused steps may run one by one
                failed[one.key] = error
        if len(names) == 1 and names[0] not in optional.values() and not any(one.key in points for one in variants):
            if host == "auto" and variants[0].work.reference is not None:
                left[names[0]] = failed[variants[-1].key].message
                continue
            last = failed[variants[-1].key]
            place = f"{network.name}: step {names[0]!r} ({variants[0].work.kind})"
            may = _HINTS[bool(built_by.rules)]
            raise StudyError(f"{place}: {last.message}", hint="; ".join(filter(None, [may, last.hint]))) from last
    for one in candidates:
        if not one.key.startswith(work_key(one.work)):
            raise StudyError(
                f"{network.name}: the source of {one.step.name!r} ({one.work.kind}) changed during the search",
                hint="run it again: what it changes is searched again",
            )
    singles = [one.step for one in candidates if one.key in points and len(one.names) == 1]
    used = {name for step in singles for name in (step.name, *step.inputs)}
    if lost := [name for tensor, name in optional.items() if not used.issuperset((tensor, name))]:
        network = without(network, lost)
        candidates = tuple(_candidates(network, launches.table_bits))
    candidates = tuple(one for one in candidates if one.key in points and left.keys().isdisjoint(one.names))
    network = with_hosts(network, left)
    if launches.linked:
        candidates = tuple(_with_copies(candidates, launches.ports))
    return Fronts(network, found, candidates, points, target=built_by.name)


def launches_of(device: Device) -> Launches:
    """Return what launches take of a device."""
    return backend_of(device).launches(device)


class SearchOptions(Frozen):
    """Settings of the search for a front's points; see `search_fronts`."""

    cache: Path
    trials: int
    target: str
    seed: int
    narrower: bool = True


def work_key(work: Work) -> str:
    """Return a key that equal works share."""
    params = {name: str(value) for name, value in sorted(work.params.items())}
    source = inspect.getsource(work.program)
    text = json.dumps([work.kind, source, params])
    return f"{work.kind}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _candidates(network: Network, bits: int) -> Iterator[Operator]:
    """Yield all operators, also with constants in the bitstream: the smallest that fit together, all of a size or none.

    Args:
        bits: of memory that the bitstream can fill.
    """
    every = [*single_operators(network), *fused_operators(network)]
    sizes = {
        name: 8 * tensor.bytes
        for one in every
        for name, tensor in zip(one.step.inputs, interface(loaded(one.work))[0], strict=True)
        if name in network.constants and tensor.shape
    }
    ordered = sorted(sizes.values())
    ends = dict(zip(ordered, accumulate(ordered), strict=True))
    fitting = {name for name, size in sizes.items() if ends[size] <= bits}
    for one in every:
        key = work_key(one.work)
        yield replace(one, key=key)
        if tables := tuple(at for at, name in enumerate(one.step.inputs) if name in fitting):
            yield replace(one, key="_".join([key, *map(str, tables)]), tables=tables)


def _with_copies(candidates: Iterable[Operator], ports: int) -> Iterator[Operator]:
    """Yield every operator on each piece of hardware that equal operators may have.

    The n-th of them may run on the first n pieces, as many as the memory has ports for. Those with the same constants
    in the bitstream share a piece.
    """
    alike: dict[str, list[tuple[str, ...]]] = {}
    for one in candidates:
        own, known = alike.setdefault(one.key, []), tuple(one.step.inputs[at] for at in one.tables)
        if not known or known not in own:
            own.append(known)
        most = min(len(own), MOST_COPIES, max(1, ports // (1 + len(one.step.inputs))))
        copies = [own.index(known)] if known else range(most)
        yield from (replace(one, copy=copy) for copy in copies)


def _improving(points: Iterator[Point]) -> Iterator[Point]:
    """Yield the points that are faster than all points with fewer columns."""
    best = float("inf")
    for point in points:
        if point.latency_us < best:
            best = point.latency_us
            yield point


def _points(operator: Operator, device: Device, options: SearchOptions) -> Iterator[Point]:
    """Yield the fastest design on each number of columns, or at most `MOST_POINTS` of a front, the smallest first."""
    launches, work = launches_of(device), operator.work
    program = loaded(work)
    tables = [interface(program)[0][at].name for at in operator.tables]
    evaluator = full_name(backend_of(device).evaluator(device))
    whole = len(launches.objectives) > 1
    own = replace(options, trials=WIDTHS * options.trials) if whole else options
    programs = CompiledPrograms(work.program)
    for columns, part in [*launches.parts()][0 if options.narrower else -1 :]:
        schedules = launches.schedules(program, tables)
        study = Study(
            operator.key,
            program=work.program,
            params=work.params,
            device=part,
            target=options.target,
            schedules=schedules,
            objectives=[minimize(name) for name in launches.objectives],
            reference=work.reference,
            verify_with=work.verify_with,
            programs=programs,
        )
        asked = hashlib.sha256(repr((launches.objectives, schedules, evaluator)).encode()).hexdigest()[:12]
        place = options.cache / f"{operator.key}-{part.key[:12]}-{asked}-{options.target}-{own.trials}-{options.seed}"
        try:
            found, proved = _searched(study, place, own)
        except RunDirectoryError:
            raise
        except StudyError:
            if columns < launches.columns:
                continue  # the operator needs more columns
            raise
        designs = sorted(found if whole else found[:1], key=lambda one: -float(one.metrics["latency_us"]))
        step = max(1, -(-(len(designs) - 1) // (MOST_POINTS - 1)))
        for design in dict.fromkeys([designs[0], *designs[::-step][::-1]]):
            metrics = design.metrics
            yield Point(
                columns=columns,
                cores=int(metrics["pe_count"]),
                latency_us=float(metrics["latency_us"]),
                dram_bytes=int(metrics["dram_bytes"]),
                bound=dict(metrics["bound"]),
                proved=proved,
                design=design,
                resources={name: int(metrics[name]) for name in launches.resources},
                tables=operator.tables,
            )


class Kept(msgspec.Struct, frozen=True):
    """The stored result of a search, beside its run: the front's designs, or the reason why there are none.

    Attributes:
        proved: nothing of the space is left that may be better.
        near: of the fastest design, as `BestDesign` has it.
        why: the reason and a hint.
    """

    proved: bool
    designs: list[Record]
    near: str = ""
    why: tuple[str, str] = ("", "")


def _searched(study: Study, place: Path, options: SearchOptions) -> tuple[list[BestDesign], bool]:
    """Return the front of a whole or continued search, the best design first, and whether it is proved.

    Raises:
        StudyError: if no design fits.
    """
    found = _kept(study, place / KEPT)
    if found is None:
        result = study.run(
            options.trials,
            seed=options.seed,
            run_dir=place,
            progress="quiet",
            verify=False,
            export=False,
            cache=False,
        )
        if result.stopped in SIGNALS.values():
            raise StepLeft(result.stopped)
        try:
            designs = [one.record for one in result.front]
            found = Kept(result.stopped == "exhausted", designs, result.best().near)
        except StudyError as none:
            found = Kept(False, [], why=(none.message, none.hint))
        write_whole(place / KEPT, msgspec.json.encode(found))
    if not found.designs:
        raise StudyError(found.why[0], hint=found.why[1])
    return [BestDesign(study, record, place, found.near) for record in found.designs], found.proved


def _kept(study: Study, path: Path) -> Kept | None:
    """Return the result of an earlier search; None if there is none, or if its designs have left the space."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Kept)
        for record in found.designs:
            study.candidate(record)
    except (OSError, msgspec.DecodeError, StudyError):
        return None
    return found
