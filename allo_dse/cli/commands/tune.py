"""`allo-tune STUDY.py`: run the studies of a file."""

from __future__ import annotations

import ast
import csv
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from allo_dse import __version__
from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import shell_completion, unquoted
from allo_dse.tune.run.options import RunOptions

from ..output import EXIT_NO_RESULT, EXIT_SIGNALS, WIDE, flowing, json_only, say_stopped

_HELP = """Search the designs of the studies in a Python file, and show the best ones.

Examples:

  allo-tune studies/gemm_npu.py                    until its trials are done
  allo-tune studies/gemm_npu.py --time 60s         for a minute
  allo-tune studies/gemm_npu.py --set dtype=bf16   an argument of the study
  allo-tune studies/gemm_npu.py --help             the arguments of the study
  allo-tune studies/gemm_npu.py --workers 8        in worker processes
  allo-tune studies/gemm_npu.py --evaluator "./measure.sh {design}"
                                                   measured by a command
  allo-tune studies/gemm_npu.py --json             for machines

Running the same command again resumes. Ctrl-C keeps what was evaluated and leaves what takes longer than a second.
"""

_EPILOG = """Commands on a run, while it works or afterwards:

  allo-tune status [RUN]       how far it is, how fast, what rules designs out
  allo-tune best [RUN]         the best design of each objective
  allo-tune pareto [RUN]       the front, as a table or --csv
  allo-tune show ID [RUN]      everything about one design
  allo-tune replay ID [RUN]    evaluate one again and compare
  allo-tune compare A B [RUN]  two designs, or two runs, side by side
  allo-tune export ID [RUN]    a design's files, to build it
  allo-tune verify [ID] [RUN]  whether designs compute what their program does
  allo-tune depths ID [RUN]    FIFO depths: cycles against memory
  allo-tune dashboard [RUN]    all of it in a browser
  allo-tune report [RUN]       a page to keep or to send
  allo-tune list               the runs there are
  allo-tune clean RUN...       remove runs

Other commands:

  allo-tune network MODEL      a whole network (ONNX) in launches
  allo-tune lint STUDY.py      what of a program Allo does not build
  allo-tune calibrate FILE     a device file from what was measured
  eval "$(allo-tune completion)"    the shell completes commands and names

Each has --help, and what prints results --json. RUN is a run directory or its name in runs/; without it, the newest.
A study file with the name of a command is run as ./NAME.
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=WIDE)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"allo-tune {__version__}")
        raise typer.Exit


_FLAGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "trials": (int, {}),
    "time": (str, {}),
    "patience": (int, {"metavar": "TRIALS"}),
    "gap": (str, {"metavar": "SHARE"}),
    "seed": (int, {}),
    "workers": (int, {}),
    "ray_address": (str, {"flag": "--ray", "metavar": "ADDRESS"}),
    "sampler": (str, {}),
    "initial": (int, {}),
    "population": (int, {}),
    "children": (int, {}),
    "modelled": (int, {}),
    "warm_start": (Path, {"metavar": "RUN"}),
    "run_dir": (Path, {}),
    "cache": (Path, {}),
    "storage": (str, {"metavar": "URL"}),
    "deadline": (list[str], {"metavar": "[NAME=]DURATION"}),
    "fresh": (bool, {"flag": "--fresh"}),
    "verify": (bool, {"flag": "--verify/--no-verify"}),
    "export": (bool, {"flag": "--export/--no-export"}),
}
"""Options of a run that are flags, with their types and irregularities. Their help is in `RunOptions`."""


def _taking_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of a run in place of `**given`."""
    signature, help = inspect.signature(command, eval_str=True), RunOptions.help()
    defaults = {option.name: option.default for option in dataclasses.fields(RunOptions)}
    flags = []
    for name, (kind, how) in _FLAGS.items():
        names = [how["flag"]] if "flag" in how else []
        text = help[name]
        shown = typer.Option(*names, metavar=how.get("metavar"), help=text, show_default=bool(defaults[name]))
        annotation = Annotated[kind if kind is bool or defaults[name] else kind | None, shown]  # type: ignore[valid-type]
        flags.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        )
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "given"]
    own.sort(key=lambda parameter: parameter.kind)  # arguments before flags
    command.__signature__ = signature.replace(parameters=[*own[:1], *flags, *own[1:]])  # type: ignore[attr-defined]
    return command


@app.command(help=flowing(_HELP), epilog=flowing(_EPILOG), no_args_is_help=True)
@_taking_flags
def tune(  # noqa: PLR0913 (the flags of a command)
    study: Annotated[
        Path, typer.Argument(metavar="STUDY.py", help="File that defines one or more studies.", show_default=False)
    ],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Argument of the study function; repeatable.", show_default=False
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET|OBJECTIVE=VALUE",
            help="What shall build the winner: allo, or model (the hardware's limits only). "
            "[default: the study's, or allo for NPUs] With a value: end the run when one design reaches all of them.",
            show_default=False,
        ),
    ] = None,
    evaluator: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help='What measures designs: a command that reads a folder and prints JSON, "./measure.sh {design}". '
            "[default: the study's, or the simulator]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how large the space is and how long it takes to close it.")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Evaluate everything again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the result.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    **given: Any,
) -> None:
    """Run every study of a file and print what came out."""
    from allo_dse.common.quoting import file_name
    from allo_dse.eval.command import located
    from allo_dse.tune.run.dry_run import estimate_space
    from allo_dse.tune.run.session import run_study
    from allo_dse.tune.show.reporters import JsonReporter
    from allo_dse.tune.study import load_studies, parse_settings

    command, code = ["allo-tune", *(a for a in sys.argv[1:] if a != "--fresh")], 0
    given["deadline"] = {name: value for name, _, value in (text.rpartition("=") for text in given["deadline"] or ())}
    given["cache"] = False if no_cache else given["cache"]
    run_dir = given["run_dir"]
    given["target"] = _values([text for text in target or () if "=" in text])
    builder = next((text for text in reversed(target or []) if "=" not in text), None)
    own = {"target": builder, "evaluator": evaluator and located(evaluator)}
    chosen = [*(settings or []), *(f"{name}={value}" for name, value in own.items() if value is not None)]
    try:
        with json_only(as_json) as out:
            studies = load_studies(study, parse_settings(chosen))
            for one in studies:
                progress = JsonReporter(out) if as_json else "quiet" if quiet else "auto"
                if dry_run:
                    ahead = estimate_space(one, RunOptions(**given))
                    print(json.dumps(ahead.to_dict()) if as_json else ahead, file=out, flush=True)
                    continue
                if run_dir is not None and len(studies) > 1:
                    given["run_dir"] = run_dir / file_name(one.name)
                result = run_study(one, RunOptions(**given, command=command, progress=progress))
                if result.stopped in EXIT_SIGNALS:
                    raise typer.Exit(EXIT_SIGNALS[result.stopped])
                if result.wrong or not result.front or any(one.measured_nothing for one in result.rung_failures):
                    code = EXIT_NO_RESULT
    except KeyboardInterrupt as stopped:
        code = say_stopped(stopped, command)
    raise typer.Exit(code)


def _values(texts: Sequence[str]) -> dict[str, float] | None:
    """Return targets by objective; None without any."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise StudyError(f"--target {text}: {value!r} is not a number", hint="--target latency_us=100") from None
    return found or None


# `allo-tune completion`: the shell completes commands, options, settings, runs and designs.


SCRIPTS = {"bash": """_allo_tune() {
    local found
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$found")
    done < <(allo-tune --complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
}
complete -o default -F _allo_tune allo-tune
""", "zsh": """_allo_tune() {
    local -a found
    found=("${(@f)$(allo-tune --complete-plain $((CURRENT - 1)) "${(@Q)words}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _allo_tune allo-tune
""", "fish": """function __allo_tune
    set -l words (commandline -opc) (commandline -ct | string unescape)
    allo-tune --complete-plain (math (count $words) - 1) $words 2>/dev/null
end
complete -c allo-tune -a '(__allo_tune)'
"""}  # fmt: skip


class Shell(StrEnum):
    """Shells with a script."""

    BASH, ZSH, FISH = "bash", "zsh", "fish"


WITH_DESIGN = ("show", "replay", "export", "compare", "verify", "depths")
SHOWN = 8  # characters of a key


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")] = Shell.BASH) -> None:
    """The script that lets a shell complete commands, options, settings, runs and designs.

    Examples:

      eval "$(allo-tune completion)"          in ~/.bashrc
      eval "$(allo-tune completion zsh)"      in ~/.zshrc, after compinit
      allo-tune completion fish | source      in ~/.config/fish/config.fish
    """
    print(SCRIPTS[shell], end="")


def complete_plain(
    index: int, words: Sequence[str], commands: Sequence[str], application: Callable[[str], typer.Typer]
) -> list[str]:
    """Complete as `complete` does for shells that take words, and quote completions, by themselves."""
    typed = [(shell_completion(word, "") or "") if at == index else word for at, word in enumerate(words)]
    return [unquoted(one) for one in complete(index, typed, commands, application)]


def complete(
    index: int, words: Sequence[str], commands: Sequence[str], application: Callable[[str], typer.Typer]
) -> list[str]:
    """Return completions of a word; none if the shell should complete file names.

    Args:
        index: position of the word to complete.
        words: words of the command line, the program's name first.
        application: returns the application of a command.
    """
    word = words[index] if index < len(words) else ""
    before = words[index - 1] if index else ""
    if before in ("--run", "-r", "--run-dir"):
        return _beginning(word, _runs())
    if before == "--set":
        study = next((text for text in words[1:] if text.endswith(".py")), None)
        return _beginning(word, [f"{name}=" for name in _settings(Path(study))] if study else [])
    if index == 1:
        return _beginning(word, commands) if word else list(commands)
    command = words[1] if len(words) > 1 else ""
    if word.startswith("-"):
        return _beginning(word, _options(command, application if command in commands else None))
    found = list(_designs(words)) if command in WITH_DESIGN else []
    return _beginning(word, [*found, *(_runs() if command in commands else [])])


def _beginning(word: str, known: Iterable[str]) -> list[str]:
    """The known words that a typed one may become, quoted as the shell needs them."""
    beginning = unquoted(word)
    fitting = (shell_completion(text, word) for text in known if text.startswith(beginning))
    return sorted({text for text in fitting if text is not None})


def _runs() -> list[str]:
    return [str(path.parent) for path in Path("runs").glob("*/run.json")]


def _designs(words: Sequence[str]) -> Iterable[str]:
    """Designs of the front of the run that is meant."""
    named = [Path(after) for text, after in pairwise(words) if text in ("--run", "-r")]
    tables = [path / "pareto.csv" for path in named] or list(Path("runs").glob("*/pareto.csv"))
    newest = max((path for path in tables if path.is_file()), key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return []
    with newest.open(newline="", encoding="utf-8") as file:
        return [row["key"][:SHOWN] for row in csv.DictReader(file) if row.get("key")]


def _settings(file: Path) -> list[str]:
    """The arguments of the functions of a file that return studies; the file is read, not executed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    studies = [f for f in functions if f.name == "study" or (f.returns and ast.unparse(f.returns).endswith("Study"))]
    return [one.arg for f in studies for one in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)]


def _options(command: str, application: Callable[[str], typer.Typer] | None) -> list[str]:
    from typer.main import get_command

    group = get_command(app if application is None else application(command))
    chosen = getattr(group, "commands", {}).get(command, group)
    return ["--help", *(name for one in chosen.params for name in one.opts if name.startswith("--"))]
