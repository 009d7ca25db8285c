"""Which command is meant, and how errors end."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module

import typer

from allo_dse.common.errors import AlloDseError

from .output import flowing, print_error
from .settings import print_settings

_GROUPS = {
    "allo_dse.cli.commands.calibrate": ("calibrate",),
    "allo_dse.cli.commands.completion": ("completion",),
    "allo_dse.cli.commands.depths": ("depths",),
    "allo_dse.cli.commands.designs": ("show", "replay", "compare"),
    "allo_dse.cli.commands.keep": ("list", "export", "clean"),
    "allo_dse.cli.commands.lint": ("lint",),
    "allo_dse.cli.commands.network": ("network",),
    "allo_dse.cli.commands.runs": ("status", "best", "pareto"),
    "allo_dse.cli.commands.verify": ("verify",),
    "allo_dse.dashboard.cli": ("dashboard", "report"),
}
COMMANDS = {name: module for module, names in _GROUPS.items() for name in names}
"""Words that are commands, and where they are: a study file of that name must be given as a path (`./status`)."""

EXIT_USER_ERROR = 2
EXIT_CTRL_C = 130


def application(command: str) -> typer.Typer:
    """The command and those of its module; others are not imported, which would take as long as most commands do."""
    app = typer.Typer(
        name="allo-tune",
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        callback=lambda: None,  # without one, Typer takes a lone command's name for its first argument
    )
    import_module(COMMANDS[command]).add_commands(app)
    for one in app.registered_commands:
        one.help = flowing(one.help or "")
    return app


def main() -> None:
    """Run the command line. Errors a user can cause end with a message and a hint; bugs keep their traceback."""
    # When it ends Python looks for cycles in all that there is: a quarter of the time of a small run.
    atexit.register(gc.freeze)
    arguments = sys.argv[1:]
    if arguments[:1] == ["--complete"]:
        from .commands.completion import complete

        print(*complete(int(arguments[1]), arguments[2:], sorted(COMMANDS), application), sep="\n")
        return
    try:
        if arguments and arguments[0] in COMMANDS:
            application(arguments[0])()
        else:
            from .commands.tune import app

            try:
                app()
            finally:
                if "--help" in arguments:
                    print_settings(arguments)
    except AlloDseError as error:
        print_error(error, as_json="--json" in arguments)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_CTRL_C)
