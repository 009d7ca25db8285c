"""Which package imports which, from the code itself: the picture in `docs/architecture.md`, and docstrings' last lines.

python docs/packages.py            # rewrites docs/img/packages.svg and the docstrings of packages
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections import defaultdict
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "img" / "packages.svg"
WIDTH, ROW, BOX_GAP, LEFT = 1000, 64, 16, 20
LINE = 120
_NEIGHBOURS = re.compile(r"\n*^Imports: .*?(?=\"\"\")", re.DOTALL | re.MULTILINE)
_DOCSTRING = re.compile(r'^""".*?(?=""")', re.DOTALL)


def floors() -> list[list[str]]:
    """Packages from the top, those of one floor together, as the import contract lists them."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [[name.strip() for name in layer.split("|")] for layer in layers]
    packages = [[name for name in floor if (ROOT / "allo_dse" / name).is_dir()] for floor in named]
    return [floor for floor in packages if floor]


def purpose(package: str) -> str:
    """The first sentence of a package's docstring."""
    doc = ast.get_docstring(ast.parse((ROOT / "allo_dse" / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).split(". ")[0].replace("`", "").rstrip(".")


def imports() -> dict[str, list[str]]:
    """Per package the packages that it imports, by how many of its modules do, most first."""
    graph = grimp.build_graph("allo_dse", cache_dir=None)
    packages = [name for floor in floors() for name in floor]
    for package in packages:
        graph.squash_module(f"allo_dse.{package}")
    found = {}
    for package in packages:
        targets = {name.partition(".")[2] for name in graph.find_modules_directly_imported_by(f"allo_dse.{package}")}
        found[package] = [name for name in packages if name in targets - {package}]
    return found


def docstrings() -> dict[Path, str]:
    """Per `__init__.py` its text, whose docstring ends with what the package imports and what imports it."""
    graph = grimp.build_graph("allo_dse", cache_dir=None)
    packages = {name for name in graph.modules if (ROOT / _folder(name) / "__init__.py").is_file()}
    imported, importing = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for source in graph.modules:
        for target in graph.find_modules_directly_imported_by(source):
            for package in _left(source, target) & packages:
                imported[package].add(_seen_from(package, target, packages))
            for package in _left(target, source) & packages:
                importing[package].add(_seen_from(package, source, packages))
    texts = {}
    for package in sorted(packages - {"allo_dse"}):
        path = ROOT / _folder(package) / "__init__.py"
        lines = [_listed("Imports", imported[package]), _listed("Imported by", importing[package])]
        text = _NEIGHBOURS.sub("", path.read_text(encoding="utf-8"), count=1)
        (said,) = _DOCSTRING.findall(text)
        texts[path] = text.replace(said, "\n".join([said.rstrip(), "", *lines, ""]), 1)
    return texts


def _folder(module: str) -> Path:
    return Path(*module.split("."))


def _left(source: str, target: str) -> set[str]:
    """The packages that hold `source` and not `target`, among others."""
    parts = source.split(".")
    around = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return {name for name in around if target != name and not target.startswith(name + ".")}


def _seen_from(package: str, module: str, packages: set[str]) -> str:
    """The outermost package that holds `module` and not `package`; that of both for a module that lies beside it."""
    parts = module.split(".")
    around = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    outer = [name for name in around if name in packages]
    apart = [name for name in outer if package != name and not package.startswith(name + ".")]
    return (apart or outer[-1:])[0].removeprefix("allo_dse.")


def _listed(title: str, names: set[str]) -> str:
    return textwrap.fill(f"{title}: {', '.join(sorted(names)) or 'nothing of allo_dse'}.", LINE)


def picture() -> str:
    """The floors as rows of boxes: name, purpose, and what each imports."""
    rows, known = floors(), imports()
    height = len(rows) * (ROW + 12) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for number, floor in enumerate(rows):
        width = (WIDTH - 2 * LEFT - (len(floor) - 1) * BOX_GAP) / len(floor)
        for place, package in enumerate(floor):
            x, y = LEFT + place * (width + BOX_GAP), 10 + number * (ROW + 12)
            room = int(width / 7.2)
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROW}" rx="6" fill="#eef3fa" stroke="#5b7fb0"/>'
                f'<text x="{x + 12:.0f}" y="{y + 20}" font-size="15" font-weight="bold">{package}</text>'
                f'<text x="{x + 12:.0f}" y="{y + 38}" font-size="12">{escape(_cut(purpose(package), room))}</text>'
                f'<text x="{x + 12:.0f}" y="{y + 55}" font-size="11" fill="#556">'
                f"imports {escape(_cut(', '.join(known[package]) or 'nothing', room))}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


if __name__ == "__main__":
    for path, text in docstrings().items():
        path.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {sum(map(len, floors()))} packages")
