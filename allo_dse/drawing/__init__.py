"""Pictures of graphs, placements and timelines, as SVG and as files for viewers.

Imports: common, compiler, mapper, simulator.
Imported by: allo_dse, backends, dashboard, networks, tune.
"""

from .graphs import vmg_svg
from .svg import points_svg
from .timelines import save_occupancy, save_perfetto, save_timeline

__all__ = ["points_svg", "save_occupancy", "save_perfetto", "save_timeline", "vmg_svg"]
