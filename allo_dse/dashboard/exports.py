"""Taking designs away: JSON, mapping primitives, HLS projects, tables, and commands that reproduce them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from msgspec import structs

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import csv_lines, shell_command
from allo_dse.eval.backend import backend_of

from .data.runs import Board, Ref
from .data.selection import label
from .programs import Programs

Content = tuple[str, bytes]
"""A file's name and what is in it."""


def _built(board: Board, programs: Programs, ref: Ref, part: str) -> bytes:
    """A directory of the design's files, zipped."""
    from allo_dse.tune.results.best import BestDesign
    from allo_dse.tune.store.record import Record

    record = Record.from_dict(board.table(ref).record(ref.row))
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch) / "design"
        BestDesign(
            programs.load(ref.run),
            record,
            board.table(ref).path,
            verification=board.table(ref).verified.get(record.key),
        ).export(exported)
        if not (exported / part).is_dir():
            raise StudyError("the design has no HLS project: it is not for an FPGA")
        return Path(shutil.make_archive(f"{scratch}/files", "zip", exported / part)).read_bytes()


def table_csv(board: Board, refs: Iterable[Ref]) -> bytes:
    """Designs as CSV, one row each, with every column of their runs."""
    names = board.column_names
    several, rows = len(board.runs) > 1, []
    for ref in refs:
        columns = board.table(ref).columns
        cells = [columns[n].value(ref.row) if n in columns else None for n in names]
        rows.append([*([board.names[ref.run]] if several else []), *cells])
    return "".join(csv_lines([*(["run"] if several else []), *names], rows)).encode(errors="backslashreplace")


def reproduce_text(board: Board, programs: Programs, ref: Ref) -> str:
    """The command that repeats the run, and the lines of Python that rebuild the design and measure it again."""
    table = board.table(ref)
    facts, record = table.facts, table.record(ref.row)
    file = programs.file_of(ref.run) or Path("STUDY.py")
    command = facts.command_line or shell_command(["allo-tune", str(file), "--seed", str(facts.seed or 0)])
    settings = "".join(f", {key!r}: {value!r}" for key, value in facts.settings.items())[2:]
    return "\n".join(
        [
            f"# the run that found it (seed {facts.seed})",
            command,
            "",
            "# this design alone, in Python",
            "from allo_dse.tune.study import load_studies",
            f"studies = load_studies({str(file)!r}, {{{settings}}})",
            f"study = next(s for s in studies if s.name == {facts.study!r})",
            f"design = study.space.decode_genes({json.dumps(record.get('genes') or {})}).design",
            f"assert design.key == {table.keys[ref.row]!r}",
            "print(study.make_evaluator().evaluate(design))",
        ]
    )


def exported(board: Board, programs: Programs, ref: Ref, kind: str) -> Content:
    """Return a design as a file; the study is loaded where that is needed.

    Args:
        kind: "json" for all that the log says about it, rung by rung; "primitives" for a Python module whose
            `mapping_primitives()` returns Allo's; "build" for everything to build it, as `Result.best().export()`
            writes it; "project" for the project among these files, such as an HLS project.

    Raises:
        AlloDseError: if it cannot be made, or a device has no projects.
    """
    table = board.table(ref)
    key = table.keys[ref.row]

    def named(what: str) -> str:
        return f"{table.facts.study}-{key[:8]}-{what}".replace("/", "_")

    if kind == "json":
        verification = table.verified.get(key)
        values = {
            "run": str(table.path),
            "command": list(table.facts.command),
            "records": [table.record(ref.row, position) for position in range(len(table.rungs(key)))],
            "verification": None if verification is None else structs.asdict(verification),
        }
        return named("design.json"), (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    if kind not in ("primitives", "build", "project"):
        raise StudyError(f"there is no export {kind!r}")
    programs.load(ref.run)
    try:
        if kind == "build":
            return named("build.zip"), _built(board, programs, ref, "")
        design = programs.candidate(ref).design
        if kind == "primitives":
            return named("mapping.py"), design.vmg.mapping_source().encode()
        folder = backend_of(design.device).project_folder
        if not folder:
            raise StudyError("the files of designs for this device hold no project of their own")
        return named(f"{folder}.zip"), _built(board, programs, ref, folder)
    except OSError as error:
        raise StudyError(f"cannot write the {label(kind)}: {error}") from error
