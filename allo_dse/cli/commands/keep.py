"""Commands on run directories: `list`, `export`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.quoting import markup
from allo_dse.tune.store.rundir import RUNS

from ..output import ID_AND_RUN, JSON, RUN_OPTION, STUDY_OPTION, console, json_only, print_json

_LIST = """The runs in a directory: what each is of, how far it is, and where.

[bold]Examples[/]

  allo-tune list                      those in runs/
  allo-tune list elsewhere --json
"""

_EXPORT = """Write everything needed to build one design into a directory. ID is its number or the beginning of its key.

This executes the study file the run was made with.

[bold]Examples[/]

  allo-tune export 41
  allo-tune export 9f3c2a runs/gemm --to build/
"""


def add_commands(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("list", help=_LIST)(list_)
    app.command("export", help=_EXPORT)(export)


def list_(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the runs are.")] = RUNS,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    from allo_dse.tune.store.rundir import running

    from ..facts import run_status
    from ..output import open_run

    if folder != RUNS and not folder.is_dir():
        raise StudyError(f"{folder} is not a directory", hint="name the one that run directories are in")
    found = []
    for path in _runs(folder):
        try:
            facts = run_status(open_run(path), running(path))
        except AlloDseError as error:
            found.append({"run_dir": str(path), "problem": error.message})
        else:
            names = ("run_dir", "study", "device", "running", "trials", "feasible", "failed", "front_size")
            found.append({name: facts[name] for name in names})
    if as_json:
        print_json({"runs": found})
        return
    for one in found:
        words = one.get("problem") or (
            f"{one['study']} on {one['device'].partition(' ')[0]}: {one['trials']:,} designs, "
            f"{one['front_size']} on the front{', running' if one['running'] else ''}"
        )
        console().print(f"[bold]{markup(str(one['run_dir']))}[/]  {markup(str(words))}")
    if not found:
        console().print(f"no runs in {markup(str(folder))}")


def export(
    words: Annotated[list[str], ID_AND_RUN],
    run: Annotated[Path | None, RUN_OPTION] = None,
    to: Annotated[
        Path | None, typer.Option("--to", "-o", metavar="FOLDER", help="\\[default: RUN/export/ID]", show_default=False)
    ] = None,
    study: Annotated[Path | None, STUDY_OPTION] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    from allo_dse.tune import opened
    from allo_dse.tune.results.best import BestDesign

    from ..output import designs_and_run, find_design, open_run

    (design,), run = designs_and_run(words, run, 1)
    table = open_run(run)
    key = table.keys[find_design(table, design)]
    where = to or table.path / "export" / key[:8]
    with json_only() if as_json else nullcontext():
        result = opened.open_run(table.path, study=study)
        record = next(record for record in result.records if record.key == key)
        files = BestDesign(result.study, record, table.path, verification=table.verified.get(record.key)).export(where)
    if as_json:
        print_json({"key": key, "directory": str(where), "files": [str(file) for file in files]})
    else:
        console().print(f"{markup(str(where))}: {len(files)} files")


def _runs(folder: Path) -> list[Path]:
    """The run directories in a folder, by name."""
    from allo_dse.tune.store.run_info import MARKER

    return sorted(path.parent for path in folder.glob(f"*/{MARKER}"))
