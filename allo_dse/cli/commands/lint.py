"""`allo-tune lint STUDY.py`: parts of a study file's programs that its target does not build, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allo_dse.common.quoting import printable

from ..output import AsJson, print_json

if TYPE_CHECKING:
    from allo_dse.tune.study import Study

EXIT_FOUND = 1


def lint(
    study: Annotated[Path, typer.Argument(metavar="STUDY.py", help="File that defines one or more studies.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Argument of the study function; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what Allo does not build of a study's program, however it is folded: the line, and what to write instead.

    Looks at the program of the study's first parameters. Exit code 1 when there is something.

    Examples:

      allo-tune lint studies/ffn_npu.py
      allo-tune lint studies/ffn_npu.py --set device=npu2 --json
    """
    from allo_dse.tune.study import load_studies, parse_settings

    found = {one.name: _findings(one) for one in load_studies(study, parse_settings(settings or []))}
    if as_json:
        print_json(found)
    else:
        for name, texts in found.items():
            print(printable("\n".join(texts) or f"{name}: nothing that Allo does not build"))
    raise typer.Exit(EXIT_FOUND if any(found.values()) else 0)


def _findings(study: Study) -> list[str]:
    """Return the rules of the device's targets that the program of the study's first parameters breaks."""
    from allo_dse.eval.backend import backend_of, with_rewrite

    backend, program = backend_of(study.device), study.first_program()
    found = (target.check_program(backend.map(program.vmg, study.device)) for target in backend.targets.values())
    return [with_rewrite(violation, program, study.device) for violations in found for violation in violations]
