"""Run the notebooks of the manual and keep what their cells show, as Jupyter would; and notebooks as pages.

    python docs/run_notebooks.py             # all of them anew, after the package has changed

A notebook is JSON whose format is https://nbformat.readthedocs.io. Its cells are run here without Jupyter: each is
compiled with its place in the notebook, and the value of its last line is shown by its `_repr_html_` or `repr`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).with_name("notebooks")


def run(notebook: dict[str, Any], name: str) -> None:
    """Execute all code cells in order, in a folder of its own, and replace their outputs."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    here = Path.cwd()
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(code, start=1):
                cell["execution_count"] = number
                cell["outputs"] = _outputs("".join(cell["source"]), f"<{name}, cell {number}>", number, scope)
        finally:
            os.chdir(here)


def _outputs(source: str, place: str, number: int, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and its last value."""
    linecache.cache[place] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        place,
    )  # for inspect, as Jupyter does
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), scope)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(text: str) -> str:
    """A notebook as Markdown: code in blocks, what it printed below it, and its HTML as it is."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            html, plain = "".join(data.get("text/html", [])), "".join(data["text/plain"])
            parts.append(f"```{{raw}} html\n{html}\n```" if html else f"```text\n{plain.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    sys.path[0] = str(
        NOTEBOOKS.parents[1]
    )  # their `studies` are those of the repository, not the pages of docs/studies
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        run(notebook, path.stem)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
