"""Taking designs away: JSON, mapping primitives, HLS projects, tables, and commands that reproduce them."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import structs

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.quoting import csv_text, shell_command
from allo_dse.eval.backend import backend_of

from .data.runs import Board, Ref
from .data.selection import label
from .programs import Programs

Content = tuple[str, bytes]
"""A file's name and what is in it."""


def design_json(board: Board, _: Programs, ref: Ref) -> Content:
    """Everything the log says about the design, rung by rung."""
    table = board.table(ref)
    key = table.keys[ref.row]
    verification = table.verified.get(key)
    return _json(
        "design",
        board,
        ref,
        {
            "run": str(table.path),
            "command": list(table.facts.command),
            "records": [table.record(ref.row, position) for position in range(len(table.rungs(key)))],
            "verification": None if verification is None else structs.asdict(verification),
        },
    )


def primitives_py(board: Board, programs: Programs, ref: Ref) -> Content:
    """A Python module whose `mapping_primitives()` returns Allo's mapping primitives."""
    design = programs.candidate(ref).design
    return f"{_stem('mapping', board, ref)}.py", design.vmg.mapping_source().encode()


def build_zip(board: Board, programs: Programs, ref: Ref) -> Content:
    """Everything to build the design, as `Result.best().export()` writes it."""
    return f"{_stem('build', board, ref)}.zip", _built(board, programs, ref, "")


def project_zip(board: Board, programs: Programs, ref: Ref) -> Content:
    """The project among the design's files, such as an HLS project.

    Raises:
        AlloDseError: when there is none, or the program cannot be written as one.
    """
    folder = backend_of(programs.candidate(ref).design.device).project_folder
    if not folder:
        raise StudyError("the files of designs for this device hold no project of their own")
    return f"{_stem(folder, board, ref)}.zip", _built(board, programs, ref, folder)


def _built(board: Board, programs: Programs, ref: Ref, part: str) -> bytes:
    """A directory of the design's files, zipped."""
    from allo_dse.tune.results.best import BestDesign
    from allo_dse.tune.store.record import Record

    record = Record.from_dict(board.table(ref).record(ref.row))
    with tempfile.TemporaryDirectory() as scratch:
        BestDesign(
            programs.load(ref.run),
            record,
            board.table(ref).path,
            verification=board.table(ref).verified.get(record.key),
        ).export(scratch)
        directory = Path(scratch) / part
        if not directory.is_dir():
            raise StudyError("the design has no HLS project: it is not for an FPGA")
        return _zipped(directory)


EXPORTS: dict[str, Callable[[Board, Programs, Ref], Content]] = {
    "json": design_json,
    "primitives": primitives_py,
    "build": build_zip,
    "project": project_zip,
}
NEED_PROGRAM = ("primitives", "build", "project")


def table_csv(board: Board, refs: Iterable[Ref]) -> bytes:
    """Designs as CSV, one row each, with every column of their runs."""
    names = board.column_names
    several, rows = len(board.runs) > 1, []
    for ref in refs:
        columns = board.table(ref).columns
        cells = [columns[n].value(ref.row) if n in columns else None for n in names]
        rows.append([*([board.names[ref.run]] if several else []), *cells])
    return csv_text([*(["run"] if several else []), *names], rows).encode(errors="backslashreplace")


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


def file_name(table: str, board: Board, run: int) -> str:
    return f"{table}-{board.runs[run].name}.csv"


def exported(board: Board, programs: Programs, ref: Ref, kind: str) -> Content:
    """One of `EXPORTS`; the study is loaded where that is needed.

    Raises:
        AlloDseError: if it cannot be made.
    """
    if kind not in EXPORTS:
        raise StudyError(f"there is no export {kind!r}")
    if kind in NEED_PROGRAM:
        programs.load(ref.run)
    try:
        return EXPORTS[kind](board, programs, ref)
    except AlloDseError:
        raise
    except OSError as error:
        raise StudyError(f"cannot write the {label(kind)}: {error}") from error


def _stem(what: str, board: Board, ref: Ref) -> str:
    table = board.table(ref)
    return f"{table.facts.study}-{table.keys[ref.row][:8]}-{what}".replace("/", "_")


def _json(what: str, board: Board, ref: Ref, values: object) -> Content:
    return f"{_stem(what, board, ref)}.json", (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _zipped(directory: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(directory))
    return out.getvalue()
