"""`allo-tune verify`: proof that designs of a run compute the same as their program, for all inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup
from allo_dse.common.records import JsonObject
from allo_dse.tune.store.run_info import MARKER

from ..output import (
    EXIT_DIFFERENT,
    NO_DESIGN,
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
    from allo_dse.tune.earlier_runs import Replayer


def verify(
    words: Annotated[list[str] | None, typer.Argument(metavar="[ID|FOLDER]... [RUN]", show_default=False)] = None,
    run: RunOption = None,
    study: StudyOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare designs with their program for all inputs: both run at random points of a prime field.

    Without an ID, all designs of the run's front. Of a folder that an NPU design was exported to, the program and
    the mapping in it are compared. This executes the study file the run was made with, and its `verify_with` chooses
    the size. Exit code 1 says that a design differs. Where data decides on loops or indices, it is for all inputs on
    the path that random ones take. Designs that poll streams or call vendor kernels are undecided.

    Examples:

      allo-tune verify                           the front of the latest run
      allo-tune verify 41 9f3c2a runs/gemm
      allo-tune verify runs/gemm/best/latency_us
      allo-tune verify --json | jq '.[] | select(.equal == false)'
    """
    from allo_dse.tune.earlier_runs import Replayer

    folders = [word for word in words or [] if (Path(word) / "design.json").is_file()]
    ids, run = designs_and_run([word for word in words or [] if word not in folders], run)
    designs = [*ids, *folders]
    parents = (parent for folder in folders for parent in Path(folder).resolve().parents)
    table = open_run(run or next((parent for parent in parents if (parent / MARKER).is_file()), None))
    chosen: list[tuple[str, Path | None]] = []
    for wanted in designs or (table.keys[row] for row in table.front.tolist()):
        exported = Path(wanted) / "design.json"
        if exported.is_file():
            chosen.append((_exported_key(exported), exported.parent))
        else:
            chosen.append((table.keys[find_design(table, wanted)], None))
    found: list[JsonObject] = []
    with json_only(as_json), Replayer(table.path, study) as replayer:
        for key, folder in chosen:
            found.append(_proved(replayer, key, folder))
            if not as_json:
                _print(found[-1])
    if as_json:
        print_json(found)
    elif not chosen:
        console().print(NO_DESIGN)
    if any(one["equal"] is False for one in found):
        raise typer.Exit(EXIT_DIFFERENT)


def _exported_key(file: Path) -> str:
    try:
        return str(json.loads(file.read_bytes())["key"])
    except (ValueError, LookupError, TypeError) as error:
        raise StudyError(f"{file} is damaged", hint="export the design again") from error


def _proved(replayer: Replayer, key: str, exported: Path | None) -> JsonObject:
    """Return the verdict on one design; `equal` is None if it cannot be decided."""
    from allo_dse.eval.equivalence.data_values import Undecidable

    try:
        proof = replayer.prove(key, exported)
    except Undecidable as error:
        return {"key": key, "equal": None, "text": error.message, "seconds": 0.0}
    return {"key": key, "equal": proof.ok, "text": proof.message, "seconds": proof.seconds}


def _print(found: JsonObject) -> None:
    mark = {True: "[bold green]equal[/]", False: "[bold red]different[/]", None: "[yellow]undecided[/]"}[found["equal"]]
    text = str(found["text"]).removeprefix("equal ").removeprefix("different: ")
    console().print(f"{found['key']} {mark}: {markup(text)}")
