"""The picture of the packages in `docs/architecture.md`, from the import contracts and the code itself.

python docs/packages.py            # rewrites docs/img/packages.svg
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "img" / "packages.svg"
WIDTH, ROW, BOX_GAP, LEFT = 1000, 64, 16, 20


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
                f"imports {escape(_cut(', '.join(known[package]) or 'errors only', room))}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {sum(map(len, floors()))} packages")
