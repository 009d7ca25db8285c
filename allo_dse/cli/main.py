"""Dispatch of commands, and handling of their errors."""

from __future__ import annotations

import atexit
import errno
import gc
import inspect
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer
from typer.exceptions import TyperException

from allo_dse.common.errors import AlloDseError, did_you_mean
from allo_dse.common.quoting import markup

from .output import WIDE, discard, flowing, print_error

# `allo-tune STUDY.py --help`: settings of the studies in a file.


def print_settings(arguments: Sequence[str]) -> None:
    """Print the settings of the study file among the arguments, if one is there; it is executed for that."""
    from .output import console, print_error

    file = next((Path(text) for text in arguments if text.endswith(".py") and Path(text).is_file()), None)
    if file is None:
        return
    from allo_dse.tune.study import study_functions

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


_GROUPS = {
    "allo_dse.cli.commands.calibrate": ("calibrate",),
    "allo_dse.cli.commands.tune": ("completion",),
    "allo_dse.cli.commands.depths": ("depths",),
    "allo_dse.cli.commands.designs": ("show", "replay", "compare"),
    "allo_dse.cli.commands.run_directories": ("list", "export", "clean"),
    "allo_dse.cli.commands.lint": ("lint",),
    "allo_dse.cli.commands.network": ("network",),
    "allo_dse.cli.commands.runs": ("status", "best", "pareto"),
    "allo_dse.cli.commands.verify": ("verify",),
    "allo_dse.cli.commands.dashboard": ("dashboard", "report"),
}
COMMANDS = {name: module for module, names in _GROUPS.items() for name in names}
"""Commands and their modules. A study file with such a name must be given as a path (`./status`)."""

EXIT_USER_ERROR = 2
OF_THE_MACHINE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EISDIR,
    errno.ENOTDIR,
}  # fmt: skip
"""Errors caused by files, directories or disks rather than by the command."""
EXIT_CTRL_C = 130
EXIT_BROKEN_PIPE = 1  # as in Typer


def application(command: str) -> typer.Typer:
    """Return an application with one command: importing all takes as long as most commands."""
    app = typer.Typer(
        name="allo-tune",
        add_completion=False,
        rich_markup_mode=None,  # drawing it with Rich takes as long as all else
        context_settings=WIDE,
        pretty_exceptions_enable=False,
        callback=lambda: None,  # without it, Typer parses a lone command's name as its first argument
    )
    module = vars(import_module(COMMANDS[command]))
    function = module.get(f"{command}_") or module[command]
    app.command(command, help=flowing(inspect.getdoc(function) or ""))(function)
    return app


def _open_streams() -> None:
    """Open closed standard streams on the null device, and escape characters that an encoding lacks."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # A file opened later would get this descriptor, and be used as the stream.
            opened = os.open(os.devnull, os.O_RDONLY if name == "stdin" else os.O_WRONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _call(app: typer.Typer, *, as_json: bool) -> None:
    """Run an application, which ends the process; with `--json` report bad options as JSON, too."""
    if not as_json:
        app()
    try:
        code = app(standalone_mode=False)
    except TyperException as error:
        raise AlloDseError(error.format_message(), hint="see --help") from error
    sys.exit(code if isinstance(code, int) else 0)


def _run(arguments: list[str], *, as_json: bool) -> None:
    """Run the command that the arguments name. Most of them end the process."""
    if arguments[:1] in (["--complete"], ["--complete-plain"]):
        from .commands.tune import complete, complete_plain

        completing = complete if arguments[0] == "--complete" else complete_plain
        found = completing(int(arguments[1]), arguments[2:], sorted(COMMANDS), application)
        print("".join(f"{one}\n" for one in found), end="")
    elif arguments and arguments[0] in COMMANDS:
        _call(application(arguments[0]), as_json=as_json)
    else:
        if arguments and not arguments[0].startswith("-"):
            _refuse_unknown_command(arguments[0])
        from .commands.tune import app

        try:
            _call(app, as_json=as_json)
        finally:
            if "--help" in arguments:
                print_settings(arguments)


def _refuse_unknown_command(word: str) -> None:
    """Suggest commands for a first word that is neither a command nor the path of a study file.

    Raises:
        AlloDseError: for such a word.
    """
    if "/" in word or Path(word).suffix or Path(word).exists():
        return
    files = [f"{word}.py"] if Path(f"{word}.py").is_file() else []
    raise AlloDseError(
        f"no command {word!r}",
        hint=f"{did_you_mean(word, [*COMMANDS, *files])}`allo-tune --help` lists the commands, and "
        "`allo-tune STUDY.py` runs a study",
    )


def main() -> None:
    """Run the command line. Errors a user can cause end with a message and a hint; bugs keep their traceback."""
    # Python collects cycles at exit, which takes a quarter of the time of a small run.
    atexit.register(gc.freeze)
    _open_streams()
    arguments = sys.argv[1:]
    as_json = "--json" in arguments
    try:
        try:
            _run(arguments, as_json=as_json)
        finally:
            sys.stdout.flush()  # report an error now: at exit it would have no message
    except AlloDseError as error:
        print_error(error, as_json=as_json)
        sys.exit(EXIT_USER_ERROR)
    except BrokenPipeError:  # the reader has seen enough
        discard(sys.stdout)
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print_error(AlloDseError(f"{where}{error.strerror}"), as_json=as_json)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_CTRL_C)
    except Exception as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # imports may turn Ctrl-C into another error
            raise
        sys.exit(EXIT_CTRL_C)
