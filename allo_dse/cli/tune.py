"""`allo-tune STUDY.py`: run the studies of a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from allo_dse import __version__

from .output import json_only

_EXIT_NO_RESULT = 1
_EXIT_SIGNALS = {"Ctrl-C": 130, "SIGTERM": 143}

_HELP = """Search the designs of the studies in a Python file, and show the best ones.

[bold]Examples[/]

  allo-tune studies/gemm_npu.py                     until its trials are done
  allo-tune studies/gemm_npu.py --time 60s --seed 1 for a minute
  allo-tune studies/gemm_npu.py --set dtype=bf16    an argument of the study
  allo-tune studies/gemm_npu.py --workers 8         in worker processes
  allo-tune studies/gemm_npu.py --json              for machines

Running the same command again resumes. Ctrl-C finishes what is being evaluated and keeps everything; twice stops now.
"""

_EPILOG = """[bold]Commands on a run, while it works or afterwards[/]

  allo-tune status [RUN]            how far it is, how fast, what rules designs out
  allo-tune best [RUN]              the best design of each objective
  allo-tune pareto [RUN]            the front, as a table or --csv
  allo-tune show ID                 everything about one design
  allo-tune replay ID               evaluate one again and compare
  allo-tune compare A B             two designs, or two runs, side by side
  allo-tune dashboard [RUN]         all of it in a browser
  allo-tune report [RUN]            a page to keep or to send

  allo-tune lint STUDY.py           what of a program Allo does not build, line by line

Each has --help with examples, and --json. RUN is a run directory; without it, the newest in runs/.
A study file with the name of a command is run as ./NAME.
"""

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"allo-tune {__version__}")
        raise typer.Exit


@app.command(help=_HELP, epilog=_EPILOG)
def tune(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY.py", help="File that defines one or more studies.", show_default=False)
    ],
    trials: Annotated[
        int | None, typer.Option(help="Designs to evaluate in all, those of earlier runs included.", show_default=False)
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Time budget of this run: 90s, 5m, 1h30m.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Same seed and one worker: same trials. \\[default: the earlier run's, or 0]", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="1 evaluates in this process, more in worker processes. \\[default: 1; with --ray one per CPU]",
            show_default=False,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Use the workers of a running Ray cluster.", show_default=False),
    ] = None,
    sampler: Annotated[str, typer.Option(help="auto, evolution, random, nsga2, tpe or exhaustive.")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Argument of the study function; repeatable.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="What shall build the winner: allo, or model (the hardware's limits only). "
            "\\[default: the study's, or allo for NPUs]",
            show_default=False,
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Where log and results go. \\[default: runs/<study>]", show_default=False)
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Results shared with other runs. \\[default: runs/.results, none with --run-dir]", show_default=False
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Evaluate everything again.")] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Copy trials to an Optuna storage, and share the study with its other drivers: "
            "postgresql://..., sqlite:///FILE, journal.",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DURATION",
            help="How long one design may take, at one evaluator or all, in a process of its own; repeatable. "
            "\\[default: as the evaluators say]",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard an earlier run in that directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the result.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not run and compare the final designs.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    from allo_dse.tune.show.reporters import JsonReporter

    command = _resume_command(sys.argv[1:])
    chosen = [*(settings or []), *([f"target={target}"] if target else [])]
    options = {
        "trials": trials,
        "time": time,
        "workers": workers,
        "ray_address": ray,
        "seed": seed,
        "sampler": sampler,
        "run_dir": run_dir,
        "fresh": fresh,
        "verify": not no_verify,
        "progress": "quiet" if quiet else "auto",
        "command": command,
        "storage": storage,
        "deadline": {name: value for name, _, value in (text.rpartition("=") for text in deadline or ())},
        "cache": False if no_cache else cache,
    }
    try:
        if as_json:
            with json_only() as out:
                code = _run(study, chosen, {**options, "progress": JsonReporter(out)})
        else:
            code = _run(study, chosen, options)
    except KeyboardInterrupt:
        print(f"\nstopped at once; what was evaluated is kept. Go on with: {shlex.join(command)}", file=sys.stderr)
        code = _EXIT_SIGNALS["Ctrl-C"]
    raise typer.Exit(code)


def _run(file: Path, settings: list[str], options: dict[str, Any]) -> int:
    """Run every study of a file and print what came out; returns the exit code."""
    from allo_dse.tune.show.output import print_result
    from allo_dse.tune.store.file_names import file_name
    from allo_dse.tune.study_file import load_studies, parse_settings

    studies = load_studies(file, parse_settings(settings))
    run_dir, code = options["run_dir"], 0
    for study in studies:
        if run_dir is not None and len(studies) > 1:
            options["run_dir"] = run_dir / file_name(study.name)
        result = study.run(**options)
        if isinstance(options["progress"], str):  # a reporter has shown the result itself
            print_result(result, Console(highlight=False), options["command"])
        if result.stopped in _EXIT_SIGNALS:
            return _EXIT_SIGNALS[result.stopped]
        if result.wrong or not result.front:
            code = _EXIT_NO_RESULT
    return code


def _resume_command(arguments: Sequence[str]) -> list[str]:
    """The command that goes on with this run."""
    return ["allo-tune", *(a for a in arguments if a != "--fresh")]
