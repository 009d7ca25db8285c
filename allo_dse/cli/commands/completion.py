"""`allo-tune completion`: commands, options, studies' settings, runs and designs, completed by the shell."""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import typer

from allo_dse.common.quoting import shell_completion, unquoted

SCRIPT = """_allo_tune() {
    local found
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$found")
    done < <(allo-tune --complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
}
complete -o default -F _allo_tune allo-tune
"""
_COMPLETION = """The script that lets a shell complete commands, options, settings, runs and designs.

[bold]Examples[/]

  eval "$(allo-tune completion)"                                  in ~/.bashrc
  autoload -U bashcompinit; bashcompinit; eval "$(allo-tune completion)"
"""
WITH_DESIGN = ("show", "replay", "export", "compare", "verify", "depths")
SHOWN = 8  # characters of a key


def add_commands(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("completion", help=_COMPLETION)(completion)


def completion() -> None:
    print(SCRIPT, end="")


def complete(
    index: int, words: Sequence[str], commands: Sequence[str], application: Callable[[str], typer.Typer]
) -> list[str]:
    """What a word may become; nothing where the shell's own files are meant.

    Args:
        words: of the command line, the program's name first; that at `index` is to be completed.
        application: makes that of a command.
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

    from .tune import app

    group = get_command(app if application is None else application(command))
    chosen = getattr(group, "commands", {}).get(command, group)
    return ["--help", *(name for one in chosen.params for name in one.opts if name.startswith("--"))]
