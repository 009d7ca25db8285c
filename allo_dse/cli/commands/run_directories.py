"""Commands on run directories: `list`, `export`, `clean`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.quoting import markup
from allo_dse.tune.store.rundir import RUNS

from ..output import (
    AsJson,
    IdAndRun,
    RunOption,
    StudyOption,
    console,
    designs_and_run,
    find_design,
    json_only,
    open_run,
    print_json,
)


def list_(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the runs are.")] = RUNS,
    as_json: AsJson = False,
) -> None:
    """The runs in a directory: what each is of, how far it is, and where.

    Examples:

      allo-tune list                      those in runs/
      allo-tune list elsewhere --json
    """
    from allo_dse.tune.store.rundir import running

    from ..run_facts import run_status

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
    words: IdAndRun,
    run: RunOption = None,
    to: Annotated[
        Path | None, typer.Option("--to", "-o", metavar="FOLDER", help="[default: RUN/export/ID]", show_default=False)
    ] = None,
    study: StudyOption = None,
    as_json: AsJson = False,
) -> None:
    """Write everything needed to build one design into a directory. ID is its number or the beginning of its key.

    This executes the study file the run was made with.

    Examples:

      allo-tune export 41
      allo-tune export 9f3c2a runs/gemm --to build/
    """
    from allo_dse.tune import earlier_runs
    from allo_dse.tune.results.best import BestDesign

    (design,), run = designs_and_run(words, run, 1)
    table = open_run(run)
    key = table.keys[find_design(table, design)]
    where = to or table.path / "export" / key[:8]
    with json_only(as_json):
        result = earlier_runs.open_run(table.path, study=study)
        record = result.records.by_key(key)
        files = BestDesign(result.study, record, table.path, verification=table.verified.get(record.key)).export(where)
    if as_json:
        print_json({"key": key, "directory": str(where), "files": [str(file) for file in files]})
    else:
        console().print(f"{markup(str(where))}: {len(files)} files")


def clean(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", show_default=False)] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Runs that have evaluated nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove runs with everything in their directories. Without --yes, it only says which.

    Examples:

      allo-tune clean runs/gemm runs/old --yes
      allo-tune clean --empty --yes       the runs that have evaluated nothing
    """
    from allo_dse.tune.store.rundir import find_run, running

    if not runs and not empty:
        raise StudyError(
            "clean needs the names of runs", hint="name their directories, or take --empty; `allo-tune list` shows them"
        )
    chosen = [find_run(path) for path in runs or ()]
    if empty:
        chosen += [path for path in _runs(RUNS) if not path.is_symlink() and not len(open_run(path))]
    chosen = list(dict.fromkeys(chosen))
    for path in chosen:
        if path.is_symlink():
            raise StudyError(f"{path} is a link to {path.resolve()}", hint="name the directory itself")
        if running(path) is not None:
            raise StudyError(f"{path} is in use by a run", hint="stop it first")
    if yes:
        for path in chosen:
            shutil.rmtree(path.resolve())  # `rmtree` cannot remove "."
    if as_json:
        print_json({"removed" if yes else "would_remove": [str(path) for path in chosen]})
        return
    for path in chosen:
        console().print(f"{'removed' if yes else 'would remove'} {markup(str(path))}")
    if not chosen:
        console().print(f"no run in {RUNS}/ is empty")
    elif not yes:
        console().print("the same with --yes removes them")


def _runs(folder: Path) -> list[Path]:
    """The run directories in a folder, by name."""
    from allo_dse.tune.store.run_info import MARKER

    return sorted(path.parent for path in folder.glob(f"*/{MARKER}"))
