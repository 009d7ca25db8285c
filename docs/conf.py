"""How `make docs` builds the manual: the guides of this folder, and the reference from docstrings of public names."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from run_notebooks import page

import allo_dse

project = "allo-dse"
version = release = allo_dse.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
html_theme = "furo"
html_title = "allo-dse"
html_copy_source = False
exclude_patterns = ["build"]
suppress_warnings = ["myst.xref_missing"]  # links from guides to files of the repository

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autosummary_generate = False
default_role = "code"  # `name` in docstrings, as in Markdown
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True  # "Attributes:" describe fields that are members anyway
myst_heading_anchors = 3


def _as_code_blocks(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text in which an indented block is code: say so where the markup wants it said."""
    text: list[str] = []
    before = ""
    for line in lines:
        indented = line.startswith("    ") and not before.strip()
        if indented and text and not any(t.endswith("::") for t in text[-2:]) and not _in_code(text):
            text += [".. code-block:: text", ""]
        text.append(line)
        before = line
    lines[:] = text


def _in_code(text: list[str]) -> bool:
    for line in reversed(text):
        if line.startswith(".. code-block"):
            return True
        if line.strip() and not line.startswith("    "):
            return False
    return False


def _read_notebook(app: object, name: str, source: list[str]) -> None:
    """Notebooks are read as the pages that they are."""
    if name.startswith("notebooks/"):
        source[0] = page(source[0])


def setup(app: object) -> None:
    connect = inspect.getattr_static(app, "connect", None)
    if connect is not None:
        app.connect("source-read", _read_notebook)  # type: ignore[attr-defined]
        app.connect("autodoc-process-docstring", _as_code_blocks, priority=900)  # type: ignore[attr-defined]
