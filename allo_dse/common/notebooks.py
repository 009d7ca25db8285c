"""Notebook displays of objects: tables as HTML, and objects whose picture a higher layer draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import ClassVar

from .quoting import html_text


class Pictured:
    """An object that a notebook shows as a picture.

    Attributes:
        picture: module and function that draw it. By name, since drawing lies above what it draws.
    """

    picture: ClassVar[str]

    def _repr_html_(self) -> str:
        module, _, function = self.picture.partition(":")
        return str(getattr(import_module(module), function)(self))


def table_html(rows: Mapping[str, object]) -> str:
    """Names and values."""
    cells = "".join(f"<tr><th>{html_text(name)}</th><td>{_value(value)}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"


def columns_html(rows: Sequence[Mapping[str, object]]) -> str:
    """A row per mapping, a column per name that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{html_text(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_value(row.get(name, ''))}</td>" for name in names) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def folded_html(title: str, content: str) -> str:
    """HTML that is shown when its title is clicked."""
    return f"<details><summary>{html_text(title)}</summary>{content}</details>"


def _value(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else html_text(str(value))
