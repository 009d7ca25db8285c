"""Pictures of graphs and placements, for pages and reports."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from .figures.style import Theme

if TYPE_CHECKING:
    from allo_dse.eval.backend import Placement
    from allo_dse.space.design import Design


def svg_uri(svg: str, look: Theme) -> str:
    """A picture as the source of an image: so it cannot run scripts, whatever names are in it.

    An image does not see the page around it, so it is told the colour of lines and texts.
    """
    colored = svg.replace("<svg ", f'<svg style="color:{look.text}" ', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(colored.encode()).decode()}"


def design_pictures(design: Design, placed: Placement | None, look: Theme) -> list[tuple[str, str]]:
    """Titles and sources: the graph before and after folding and, where it can be placed, the placement."""
    from allo_dse.drawing import vmg_svg

    found = [("Before folding", vmg_svg(design.program.vmg)), ("After folding", vmg_svg(design.vmg))]
    if placed is not None and placed.placed:
        found.append(("Placement on the array", placed.drawn()))
    return [(title, svg_uri(svg, look)) for title, svg in found]
