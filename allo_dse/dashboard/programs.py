"""The programs behind the designs of a run.

Looking at a run never executes anything. Graphs, placements, timelines and `mapping_primitives` need the compiled
program, and so the study's file, which is executed only when the user names it (`--study`) or asks for it on the page.
"""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.eval.backend import backend_of

from .data.analysis import measured
from .data.runs import Board, Ref
from .figures.style import Theme

if TYPE_CHECKING:
    from allo_dse.eval.backend import Placement
    from allo_dse.eval.recording import Part, Recorded, Span
    from allo_dse.space.design import Design
    from allo_dse.space.space import Candidate
    from allo_dse.tune.declare.spec import StudySpec


@dataclass
class Programs:
    """Studies by run, loaded when asked for.

    Attributes:
        file: the study file of all runs; by default the one recorded in each run.
    """

    board: Board
    file: Path | None = None
    _studies: dict[int, StudySpec] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._candidate = lru_cache(maxsize=64)(self._decode)
        self._recorded = lru_cache(maxsize=4)(self._record)
        self._part = lru_cache(maxsize=3)(lambda ref, span: self.recorded(ref).part(span))  # each is large

    def file_of(self, run: int) -> Path | None:
        """The file that defines a run's study, if it is known."""
        if self.file is not None:
            return self.file
        stated = self.board.runs[run].facts.study_file
        return None if stated is None else Path(stated)

    def is_loaded(self, run: int) -> bool:
        return run in self._studies

    def load(self, run: int) -> StudySpec:
        """Execute the study file of a run.

        Raises:
            AlloDseError: when it is not there, does not run, or is not of this run any more.
        """
        with self._lock:
            if run not in self._studies:
                self._studies[run] = self._load(run)
            return self._studies[run]

    def _load(self, run: int) -> StudySpec:
        from allo_dse.tune.study import load_studies

        facts, file = self.board.runs[run].facts, self.file_of(run)
        if file is None:
            raise StudyError(
                "the run does not say which file defines its study", hint="allo-tune dashboard RUN --study FILE.py"
            )
        studies = load_studies(file, facts.settings)
        for study in studies:
            if study.name == facts.study:
                return study
        names = ", ".join(study.name for study in studies)
        raise StudyError(f"{file} has no study {facts.study!r}", hint=f"it defines {names}")

    def candidate(self, ref: Ref) -> Candidate:
        """The design, rebuilt from its log entry.

        Raises:
            AlloDseError: if the study is not loaded, or generates another design from the same genes.
        """
        return self._candidate(ref.run, self.board.key(ref))

    def _decode(self, run: int, key: str) -> Candidate:
        if run not in self._studies:
            raise StudyError("the program is not compiled yet")
        table = self.board.runs[run]
        genes = table.record(table.row_of[key]).get("genes") or {}
        with self._lock:
            try:
                candidate = self._studies[run].space.decode_genes(genes)
            except AlloDseError:
                raise
            except Exception as error:  # any error in the user's program
                raise StudyError(f"the design cannot be rebuilt: {type(error).__name__}: {error}") from error
        if candidate is None or candidate.key != key:
            raise StudyError(
                f"design {key} is not what its study makes of the same choices now",
                hint="the program, the device or allo-dse has changed since the run; run it again with --fresh",
            )
        return candidate

    def placement(self, ref: Ref) -> Placement | None:
        """Return a design's placement on the array, as the run found it; None for devices without an array.

        Raises:
            AlloDseError: as for `candidate`.
        """
        from allo_dse.tune.results.best import placement_of

        return placement_of(self.board.table(ref).path, self.candidate(ref).design, self.load(ref.run).place)

    def recorded(self, ref: Ref) -> Recorded:
        """Simulate and record a design, at the stream depths and intervals it was measured with.

        Raises:
            AlloDseError: as for `candidate`, or if it cannot be simulated.
        """
        return self._recorded(ref.run, self.board.key(ref))

    def _record(self, run: int, key: str) -> Recorded:
        table = self.board.runs[run]
        ref = Ref(run, table.row_of[key])
        design = self.candidate(ref).design
        return backend_of(design.device).record(design, measured(table, ref.row))

    def part(self, ref: Ref, span: Span) -> Part:
        """Return a part of a recorded run in detail; the latest ones are kept.

        Raises:
            AlloDseError: as for `recorded`.
        """
        return self._part(ref, span)

    def explain(self, ref: Ref) -> str:
        """A design in words."""
        from allo_dse.tune.results.explain import explain

        return explain(self.candidate(ref).design, dict(measured(self.board.table(ref), ref.row)))


# Pictures of graphs and placements, for pages and reports.


def svg_uri(svg: str, look: Theme) -> str:
    """A picture as the source of an image: so it cannot run scripts, whatever names are in it.

    An image does not see the page around it, so it is told the colour of lines and texts.
    """
    colored = svg.replace("<svg ", f'<svg style="color:{look.text}" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(colored.encode()).decode()}"


def design_pictures(design: Design, placed: Placement | None, look: Theme) -> list[tuple[str, str]]:
    """Titles and sources: the graph before and after folding and, where it can be placed, the placement."""
    from allo_dse.drawing import vmg_svg

    found = [("Before folding", vmg_svg(design.program.vmg)), ("After folding", vmg_svg(design.vmg))]
    if placed is not None and placed.placed:
        found.append(("Placement on the array", placed.drawn()))
    return [(title, svg_uri(svg, look)) for title, svg in found]
