"""Output of commands: JSON for machines, tables and lines for people, errors with a hint."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.quoting import markup, shell_command
from allo_dse.tune.search.budget import SIGNALS
from allo_dse.tune.store.run_info import MARKER
from allo_dse.tune.store.rundir import RUNS

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table import RunTable

RunArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN]", help="Run directory. [default: the newest in runs/]", show_default=False),
]
IdAndRun = Annotated[list[str], typer.Argument(metavar="ID [RUN]", help="A design, and its run.", show_default=False)]
StudyOption = Annotated[
    Path | None, typer.Option("--study", metavar="STUDY.py", help="Study file, where it has moved.")
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", "-r", metavar="RUN", help="The same as RUN after the other arguments.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


NO_DESIGN = "no design satisfies all limits and constraints yet"
STDOUT, STDERR = 1, 2
EXIT_DIFFERENT = EXIT_NO_RESULT = 1
EXIT_SIGNALS = {name: 128 + number for number, name in SIGNALS.items()}
COPIED = ("run", "go on with")
"""Facts that are paths or commands."""


WIDE = {"max_content_width": 120}
"""Settings of help, which is as wide as the terminal up to this."""


def flowing(text: str) -> str:
    """Let help paragraphs wrap at the terminal's width; those that begin with a space stay as they are."""
    return re.sub(r"(?m)(?<=\n\n)(?= )", "\b\n", text)


def say_stopped(stopped: KeyboardInterrupt, command: Sequence[str]) -> int:
    """Print how to resume a run that was stopped; return the exit code."""
    print(f"\nstopped at once; what was evaluated is kept. Go on with: {shell_command(command)}", file=sys.stderr)
    return EXIT_SIGNALS.get(str(stopped), EXIT_SIGNALS["Ctrl-C"])


def console() -> Console:
    return Console(highlight=False, soft_wrap=True)


@contextmanager
def json_only(wanted: bool = True) -> Iterator[TextIO | None]:
    """Reserve standard output for JSON if that is wanted: all other output, also of child processes, goes to standard
    error."""
    if not wanted:
        yield None
        return
    real, descriptor = sys.stdout, -1
    real.flush()
    try:
        if real.fileno() == STDOUT:
            descriptor = os.dup(STDOUT)
            os.dup2(STDERR, STDOUT)
    except OSError:  # not a file, as in tests
        pass
    out = os.fdopen(descriptor, "w") if descriptor >= 0 else real
    sys.stdout = sys.stderr
    try:
        yield out
    finally:
        sys.stdout = real
        if descriptor >= 0:
            os.dup2(descriptor, STDOUT)
            out.close()


def print_json(value: Any) -> None:
    """One JSON document; numbers that JSON does not have become null."""
    print(json.dumps(_finite(value), default=str), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def print_facts(facts: Mapping[str, Any], to: Console) -> None:
    """Print names and values in two columns, without empty values.

    Paths, commands and parts of a tuple are not broken over lines, so that they can be copied."""
    said = {name: value for name, value in facts.items() if value not in (None, "", (), [], {})}
    width = max(1, min(max(map(len, said), default=0), to.width // 2))
    for name, value in said.items():
        value = markup(_packed(value, max(1, to.width - width - 2)) if isinstance(value, tuple) else str(value))
        if name in COPIED:
            to.print(f"[dim]{markup(name):<{width}}[/]  {value}", soft_wrap=True)
            continue
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", overflow="fold", width=width)
        table.add_column(overflow="fold")
        table.add_row(markup(name), value)
        to.print(table)


def _packed(parts: Sequence[str], width: int) -> str:
    """Pack as many parts on a line as fit; `textwrap` breaks only at ordinary spaces."""
    return textwrap.fill("   ".join(part.replace(" ", "\xa0") for part in parts), width).replace("\xa0", " ")


def print_warnings(notes: Sequence[str]) -> None:
    to = Console(stderr=True, soft_wrap=True, highlight=False)
    for note in notes:
        to.print(f"[bold yellow]warning:[/] {markup(note)}")


def discard(stream: TextIO) -> None:
    """Drop a stream's unwritten output: Python would retry at exit, and return 120."""
    with suppress(OSError):  # without a descriptor, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_error(error: AlloDseError, *, as_json: bool) -> None:
    """Report an error, even if the standard streams are the cause."""
    try:
        if as_json:
            print_json({"event": "error", "message": error.message, "hint": error.hint, **error.place})
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)
    to = Console(stderr=True, soft_wrap=True, highlight=False)
    before, word, after = error.report.partition("error:")
    try:
        to.print(f"{markup(before)}[bold red]{word}[/]{markup(after)}")
        if error.hint:
            to.print(f"[bold]hint:[/] {markup(error.hint)}")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


# Look-up of runs and designs by what the user typed.


SHORTEST_KEY = 4


def means_run(text: str) -> bool:
    """Return whether a word means a run directory rather than a design; it need not exist."""
    return "/" in text or Path(text).is_dir() or (not text.isdecimal() and (RUNS / text / MARKER).is_file())


def one_run(*given: Path | None) -> Path | None:
    """The run that is given, if any.

    Raises:
        StudyError: for several.
    """
    runs = [run for run in given if run is not None]
    if len(runs) > 1:
        raise StudyError(f"one run is needed, and {len(runs)} are given: {', '.join(map(str, runs))}")
    return runs[0] if runs else None


def designs_and_run(
    words: Sequence[str], run: Path | None, designs: int | None = None
) -> tuple[list[str], Path | None]:
    """Split the arguments of a command into designs and the run, given after them or by `--run`.

    Args:
        designs: number of designs that the command takes; None for any.

    Raises:
        StudyError: for two runs, or another number of designs.
    """
    if designs is None:
        given, named = [word for word in words if not means_run(word)], [word for word in words if means_run(word)]
    else:
        given, named = list(words[:designs]), list(words[designs:])
    if len(given) < (designs or 0):
        raise StudyError("an ID is missing", hint="`allo-tune pareto` lists the designs of the front")
    return given, one_run(*map(Path, named), run)


def open_run(path: Path | None) -> RunTable:
    """Read a run directory as a table, to its present end; print the problems of its log.

    Raises:
        StudyError: when it is none.
    """
    from allo_dse.dashboard.data.table import RunTable
    from allo_dse.tune.store.rundir import find_run

    table = RunTable(find_run(path))
    table.refresh()
    print_warnings(table.notes)
    return table


def find_design(table: RunTable, wanted: str) -> int:
    """The row of a design given by its number, or by its key or the beginning of it.

    Raises:
        StudyError: when there is none, or more than one.
    """
    text = wanted.strip().removeprefix("#").lower()
    if text.isdecimal() and len(text) < len(next(iter(table.keys), "x" * 16)):
        numbers = table.numbers("number")
        rows = [row for row in range(len(table)) if numbers[row] == int(text)]
        if rows:
            return rows[0]
    rows = [row for key, row in table.row_of.items() if key.startswith(text)] if len(text) >= SHORTEST_KEY else []
    if len(rows) == 1:
        return rows[0]
    if rows:
        some = ", ".join(table.keys[row] for row in rows[:4])
        raise StudyError(f"{wanted} could be any of {len(rows)} designs: {some}", hint="give more of the key")
    near = difflib.get_close_matches(text, table.keys, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise StudyError(
        f"{table.path} has no design {wanted!r}",
        hint=f"{hint}`allo-tune pareto` lists designs by key; {SHORTEST_KEY} characters or the number will do",
    )
