"""Budgets of the package: size, distance and readability, each with a limit that should only fall.

python docs/budgets.py             # prints every measure beside its limit; exit code 1 where one is exceeded
python docs/budgets.py --lower     # writes today's measures into pyproject.toml where they are below the limit

`make lint` runs it. The limits are in `[tool.budgets]` of `pyproject.toml`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "pyproject.toml"
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_CLAUSE_WORDS = {"what", "whether", "where", "those", "of", "how", "which", "that", "who", "when"}
_SHORT_LINES = 250
_KIND_TEST = re.compile(r"isinstance\([^)]*\b(?:NpuDevice|FpgaDevice)\b|\.family\s*[!=]=|\.family in\b")


def measures(root: Path = ROOT) -> dict[str, int]:
    """Return every measure of the package below `root`, by its name in `[tool.budgets]`."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "allo_dse").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = {_module(path, root): path for path in texts}
    imports = {name: set(_imports(name, trees[path], modules)) for name, path in modules.items()}
    stubs = [path.read_text(encoding="utf-8") for path in (root / "allo_dse").rglob("*.pyi")]
    return {
        "tokens": sum(map(_tokens, [*texts.values(), *stubs])),
        "modules": len(texts),
        "longest_import_chain": _longest_chain(imports),
        "small_modules_with_one_importer": _small_with_one_importer(imports, modules, texts),
        "kind_tests_outside_backends": sum(
            len(_KIND_TEST.findall(text))
            for path, text in texts.items()
            if path.relative_to(root / "allo_dse").parts[0] not in ("backends", "device")
        ),
        "docstrings_with_clause_word": sum(map(_clause_docstrings, trees.values())),
    }


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _tokens(text: str) -> int:
    """Count tokens, comments apart."""
    return sum(token.type not in _SKIPPED for token in tokenize.generate_tokens(io.StringIO(text).readline))


def _clause_docstrings(tree: ast.Module) -> int:
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    docs = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    return sum(doc.split()[0].rstrip(",:").lower() in _CLAUSE_WORDS for doc in docs if doc and doc.split())


def _imports(name: str, tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    """List the modules that are imported when a module is: not those in functions or for type checkers."""
    package = name if modules[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                if found in modules and found != name:
                    yield found


def _longest_chain(imports: dict[str, set[str]]) -> int:
    """Count the modules of the longest chain of imports; there are no cycles."""

    @cache
    def length(name: str) -> int:
        return 1 + max(map(length, imports[name]), default=0)

    return max(map(length, imports))


def _small_with_one_importer(imports: dict[str, set[str]], modules: dict[str, Path], texts: dict[Path, str]) -> int:
    importers = defaultdict[str, set[str]](set)
    for name, targets in imports.items():
        for target in targets:
            importers[target].add(name)
    count = 0
    for name, found in importers.items():
        path = modules[name]
        if path.name != "__init__.py" and len(found) == 1 and texts[path].count("\n") < _SHORT_LINES:
            count += modules[next(iter(found))].parent == path.parent
    return count


def limits() -> dict[str, int]:
    """Return the limits in `pyproject.toml`."""
    found: dict[str, int] = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["tool"]["budgets"]
    return found


def main(arguments: list[str]) -> int:
    found, allowed = measures(), limits()
    for name, value in found.items():
        print(f"{name:34}{value:>10,} of {allowed[name]:,}{'   EXCEEDED' if value > allowed[name] else ''}")
    if "--lower" in arguments:
        text = CONFIG.read_text(encoding="utf-8")
        for name, value in found.items():
            text = re.sub(rf"(?m)^{name} = [\d_]+$", f"{name} = {min(value, allowed[name]):_}", text)
        CONFIG.write_text(text, encoding="utf-8")
    return int(any(value > allowed[name] for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
