"""`allo-tune STUDY.py --help`: what can be set of the studies in a file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

from allo_dse.common.errors import AlloDseError
from allo_dse.common.quoting import markup


def print_settings(arguments: Sequence[str]) -> None:
    """Print the settings of the study file among the arguments, if one is there; it is executed for that."""
    from .output import console, print_error

    file = next((Path(text) for text in arguments if text.endswith(".py") and Path(text).is_file()), None)
    if file is None:
        return
    from allo_dse.tune.study_file import study_functions

    try:
        functions = study_functions(file)
    except AlloDseError as error:
        print_error(error, as_json=False)
        return
    to = console()
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        about = (inspect.getdoc(function) or "").partition("\n")[0]
        to.print(f"\n[bold]Settings of {markup(str(file))}[/] ({markup(function.__name__)}) {markup(about)}")
        for one in parameters:
            kind = "" if one.annotation is one.empty else f"  {getattr(one.annotation, '__name__', one.annotation)}"
            default = "required" if one.default is one.empty else f"default: {one.default!r}"
            to.print(f"  --set {markup(one.name)}=...{markup(kind)}  [dim]{markup(default)}[/]")
        if not parameters:
            to.print("  none")
