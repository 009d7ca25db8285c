"""Commands that show runs: `dashboard` in the browser, `report` as a page to keep."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup, printable

from ..output import AsJson, print_json, print_warnings

if TYPE_CHECKING:
    from allo_dse.dashboard.data.runs import Board, Ref
    from allo_dse.dashboard.programs import Programs

DEFAULT_PORT = 8050

Runs = Annotated[list[Path] | None, typer.Argument(metavar="RUN…", help="Run directories. [default: the newest]")]
NamedRuns = Annotated[
    list[Path] | None,
    typer.Option("--run", "-r", metavar="RUN", help="The same as RUN; repeatable.", show_default=False),
]
StudyFile = Annotated[
    Path | None,
    typer.Option("--study", help="Study file, to compile the program at once; executes it.", show_default=False),
]
Reference = Annotated[
    str | None, typer.Option(help="Key of the design that others are compared with.", show_default=False)
]


def dashboard(
    runs: Runs = None,
    named_runs: NamedRuns = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other computers in.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    study: StudyFile = None,
    reference: Reference = None,
) -> None:
    """Show runs, live or finished, in the browser."""
    from allo_dse.dashboard.app.context import Context
    from allo_dse.dashboard.app.factory import make_app
    from allo_dse.dashboard.app.server import LOCAL, bind, server_on, url_of
    from allo_dse.dashboard.data.runs import Board

    runs = [*(runs or []), *(named_runs or [])]
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with bind(host, port) as listening:  # before runs are read, which may take seconds
        board = Board() if not runs and _only_networks() else Board.open(_paths(runs))
        print_warnings([note for run in board.runs for note in run.notes])
        programs = _programs(board, study)
        context = Context(board, programs, _reference(board, reference), local=host in LOCAL)
        url = url_of(listening)
        if host not in LOCAL:
            console.print(
                f"[bold yellow]warning:[/] whoever can reach {markup(url)} can see these runs and have the study's "
                "file executed; there is no password"
            )
        title = f"{', '.join(board.names) or 'networks'}: {sum(map(len, board.runs)):,} designs"
        console.print(f"{markup(title)} at [bold]{url}[/]   (Ctrl-C ends)")
        server = server_on(listening, make_app(context))
    with server, server.interrupted_between_requests():
        if browser:
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()
        server.serve_forever()


def report(
    runs: Runs = None,
    named_runs: NamedRuns = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("report.html"),
    study: StudyFile = None,
    reference: Reference = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML file about runs."""
    from allo_dse.dashboard.data.runs import Board
    from allo_dse.dashboard.report import write_report

    board = Board.open(_paths([*(runs or []), *(named_runs or [])]))
    print_warnings([note for run in board.runs for note in run.notes])
    programs = _programs(board, study)
    size = write_report(board, programs, output, reference=_reference(board, reference))
    if as_json:
        print_json({"file": str(output), "bytes": size, "runs": [str(run.path) for run in board.runs]})
        return
    print(f"{printable(str(output))}: {size / 1e6:.1f} MB, opens without a network")
    if study is None:
        print("with --study FILE.py it also has each design's graphs, placement and timeline; that executes the file")


def _programs(board: Board, study: Path | None) -> Programs:
    """The programs of the runs; those of a study file that is named are loaded at once, which executes it."""
    from allo_dse.dashboard.programs import Programs

    programs = Programs(board, study)
    for number in range(len(board.runs) if study else 0):
        programs.load(number)
    return programs


def _paths(runs: list[Path] | None) -> list[Path]:
    """The run directories that were named, or the newest one."""
    from allo_dse.tune.store.rundir import find_run

    return [find_run(path) for path in runs or (None,)]


def _only_networks() -> bool:
    """Return whether networks were mapped here, but no study has run."""
    from allo_dse.dashboard.app.networks import KEPT
    from allo_dse.tune.store.run_info import MARKER

    return any(Path("runs").glob(f"{KEPT}/*/composition.json")) and not any(Path("runs").glob(f"*/{MARKER}"))


def _reference(board: Board, key: str | None) -> Ref | None:
    """The design of a key, which may be abbreviated."""
    if key is None:
        return None
    found = board.find(key)
    if found is None:
        raise StudyError(f"no design {key!r} in {', '.join(board.names)}", hint="keys stand in pareto.csv")
    return found
