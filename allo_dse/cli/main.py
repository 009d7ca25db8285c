"""Which command is meant, and how errors end."""

from __future__ import annotations

import sys

import typer

from allo_dse.common.errors import AlloDseError

from .output import print_error
from .settings import print_settings

COMMANDS = (
    "best",
    "calibrate",
    "clean",
    "compare",
    "completion",
    "dashboard",
    "depths",
    "export",
    "lint",
    "list",
    "pareto",
    "replay",
    "report",
    "show",
    "status",
    "verify",
)
"""Words that are commands: a study file of that name must be given as a path (`./status`)."""

EXIT_USER_ERROR = 2
EXIT_CTRL_C = 130


def commands() -> typer.Typer:
    """Everything but running a study."""
    from allo_dse.dashboard import cli as dashboard

    from .commands import calibrate, completion, depths, designs, keep, lint, runs, verify

    app = typer.Typer(
        name="allo-tune",
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        no_args_is_help=True,
    )
    runs.add_commands(app)
    designs.add_commands(app)
    verify.add_commands(app)
    keep.add_commands(app)
    completion.add_commands(app)
    lint.add_commands(app)
    depths.add_commands(app)
    calibrate.add_commands(app)
    dashboard.add_commands(app)
    return app


def main() -> None:
    """Run the command line. Errors a user can cause end with a message and a hint; bugs keep their traceback."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--complete"]:
        from .commands.completion import complete

        print(*complete(int(arguments[1]), arguments[2:], COMMANDS, commands), sep="\n")
        return
    try:
        if arguments and arguments[0] in COMMANDS:
            commands()()
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
