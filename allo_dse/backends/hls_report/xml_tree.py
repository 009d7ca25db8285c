"""XML files as trees, without what makes reading XML from strangers dangerous.

A report needs neither a document type nor entities; both are refused, and so is absurd nesting.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from .parts import HlsReportError

DEEPEST = 200


class _Builder:
    """Builds the tree and counts how deep it is."""

    def __init__(self, path: Path) -> None:
        self.path, self.level, self.tree = path, 0, TreeBuilder()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.level += 1
        if self.level > DEEPEST:
            raise HlsReportError(f"{self.path}: elements nested more than {DEEPEST} deep", hint="not an HLS report")
        self.tree.start(tag, attributes)

    def end(self, tag: str) -> None:
        self.level -= 1
        self.tree.end(tag)

    def refuse(self, *_: object) -> None:
        raise HlsReportError(f"{self.path}: has a document type or entities", hint="an HLS report has neither")


def read_tree(path: Path, data: bytes) -> Element:
    """The root element of an XML document.

    Raises:
        HlsReportError: if it is damaged, truncated, or has a document type.
    """
    builder = _Builder(path)
    parser = expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.tree.data
    parser.StartDoctypeDeclHandler = builder.refuse
    parser.EntityDeclHandler = builder.refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the latter two: an encoding that does not exist
        raise HlsReportError(
            f"{path}: damaged or truncated: {error}", hint="run csynth again, or copy the report once more"
        ) from None
    return builder.tree.close()


def text(element: Element | None, path: str) -> str:
    """Stripped text of a descendant; empty when there is none."""
    found = element.find(path) if element is not None else None
    return (found.text or "").strip() if found is not None else ""
