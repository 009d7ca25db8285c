"""`allo-tune depths`: trade-off between memory and cycles over the stream depths of a design or a trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup
from allo_dse.common.records import JsonObject

from ..output import (
    AsJson,
    RunOption,
    StudyOption,
    console,
    designs_and_run,
    find_design,
    json_only,
    open_run,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from allo_dse.simulator.depths.front import DepthFront, DepthPoint


def depths(
    what: Annotated[
        list[str], typer.Argument(metavar="ID [RUN] | TRACE...", help="A design, or trace files.", show_default=False)
    ],
    run: RunOption = None,
    study: StudyOption = None,
    bits: Annotated[
        list[str] | None, typer.Option(metavar="N | STREAM=N", help="Width of tokens, 32 unless given; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="The FPGA that builds the FIFOs: u280 unless given.")] = None,
    max_runs: Annotated[int, typer.Option("--runs", min=2, help="Replays at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """The front of cycles against FIFO memory over the stream depths of a run's design, or of a trace.

    A design (its number or key) is one for an FPGA; the study file that its run was made with is executed. Several
    traces are runs of one design with different inputs; their cycles are added. The first point loses no cycle,
    whatever the depths: cycles are compared with those of FIFOs that never get full, which may be more, as shallow
    ones are read a cycle earlier. `--json` has the depths of every point. docs/replay.md says how a trace is made.

    Examples:

      allo-tune depths 41                        of the latest run
      allo-tune depths 9f3c2a runs/systolic
      allo-tune depths design.npz
      allo-tune depths design.npz --bits 16 --bits pipe_0=64 --device zcu102
      allo-tune depths first.npz second.npz --json | jq .lossless.depths
    """
    with json_only(as_json):
        is_design = not Path(what[0]).suffix and not Path(what[0]).exists()
        if is_design:
            what, run = designs_and_run(what, run, 1)
        if is_design and (bits or device):
            raise StudyError("--bits and --device are about traces", hint="a design has its own")
        if not is_design and (run or study):
            raise StudyError("--run and --study are about designs", hint="name a design by its number or key")
        view = _of_design(what[0], run, study, max_runs) if is_design else _of_traces(what, bits, device, max_runs)
    if as_json:
        print_json(view.facts())
    else:
        view.show()


def _of_traces(paths: list[str], bits: list[str] | None, device: str | None, max_runs: int) -> _DepthsReport:
    from allo_dse.backends.fpga.depths.front import depth_front, fifo_total, fpga_of
    from allo_dse.simulator.replay.trace import Trace

    fpga = fpga_of(device or "u280")
    loaded = [Trace.load(Path(path)) for path in paths]
    widths = _widths(bits or [], loaded[0].streams)
    front = depth_front(loaded, bits=widths, device=fpga, max_runs=max_runs)
    return _DepthsReport(front, lambda point: fifo_total(fpga, loaded[0], widths, point.depths))


def _of_design(wanted: str, run: Path | None, study: Path | None, max_runs: int) -> _DepthsReport:
    from allo_dse.backends.fpga.depths.front import depth_front, fifos_at
    from allo_dse.tune.earlier_runs import Replayer

    table = open_run(run)
    key = table.keys[find_design(table, wanted)]
    with Replayer(table.path, study) as replayer:
        design = replayer.candidate(replayer.record(key)).design
    return _DepthsReport(depth_front(design, max_runs=max_runs), lambda point: fifos_at(design, point.depths))


def _widths(given: list[str], streams: tuple[str, ...]) -> dict[str, int]:
    """Parse widths by stream from `N` for all streams and `STREAM=N` for one.

    Raises:
        StudyError: for anything but a positive number.
    """
    found: dict[str, int] = {}
    for text in sorted(given, key=lambda text: "=" in text):
        name, _, number = text.rpartition("=")
        if not number.isdecimal() or not int(number):
            raise StudyError(f"--bits {text}: {number!r} is no width in bits", hint="for example 32, or pipe_0=64")
        found.update({name: int(number)} if name else dict.fromkeys(streams, int(number)))
    return found


class _DepthsReport:
    """A front with the FPGA resources of each point."""

    def __init__(self, front: DepthFront, fifos: Callable[[DepthPoint], Any]) -> None:
        self._front, self._fifos = front, fifos

    def _resources(self, point: DepthPoint) -> JsonObject:
        total = self._fifos(point)
        return {"bram18": total.bram18, "lut": total.lut, "ff": total.ff}

    def _facts(self, point: DepthPoint | None) -> JsonObject | None:
        if point is None:
            return None
        return {"cycles": point.cycles, "memory_bits": point.memory_bits, **self._resources(point),
                "run": point.run, "depths": dict(point.depths)}  # fmt: skip

    def facts(self) -> JsonObject:
        """For machines."""
        front = self._front
        return {
            "best_cycles": front.best_cycles,
            "points": [self._facts(point) for point in front.points],
            "lossless": self._facts(front.lossless),
            "built": self._facts(front.built),
            "proven": front.proven,
            "at_least_bits": front.at_least_bits,
            "least_depths": dict(front.least_depths),
            "runs": front.runs,
            "proof_runs": front.proof_runs,
        }

    def show(self) -> None:
        """For people."""
        front, to = self._front, console()
        columns = ("cycles", "vs deepest", "memory (bits)", "BRAM18", "LUT", "FF", "found by run")
        table = Table(*columns, box=None, header_style="bold")
        for column in table.columns:
            column.justify = "right"
        for point in front.points:
            table.add_row(*self._row(point, f"{point.run}"), style="bold" if point is front.lossless else None)
        if front.built is not None:
            table.add_row(*self._row(front.built, "as built"), style="dim")
        to.print(table)
        to.print(markup(front.words))
        common, _ = Counter(front.lossless.depths.values()).most_common(1)[0]
        others = [f"{markup(name)} {depth}" for name, depth in front.lossless.depths.items() if depth != common]
        to.print(f"its depths: {common}" + (f", but {', '.join(others)}" if others else " everywhere"))

    def _row(self, point: DepthPoint, origin: str) -> list[str]:
        more = point.cycles / self._front.best_cycles - 1 if self._front.best_cycles else 0.0
        return [
            f"{point.cycles:,}", f"{round(more, 4) + 0.0:+.2%}", f"{point.memory_bits:,}",
            *(f"{value:,.0f}" for value in self._resources(point).values()), origin,
        ]  # fmt: skip
