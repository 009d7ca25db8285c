"""Pictures of graphs, placements and timelines, as SVG and as files for viewers.

Imports: common, compiler, mapper, simulator.
Imported by: allo_dse, backends, dashboard, networks, tune.
"""

from .graphs import vmg_svg
from .perfetto import save_perfetto
from .svg import points_svg

__all__ = ["points_svg", "save_perfetto", "vmg_svg"]
