"""Pictures of graphs and placements as SVG."""

from .array import placement_svg
from .graph import vmg_svg

__all__ = ["placement_svg", "vmg_svg"]
