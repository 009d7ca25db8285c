"""Pictures of graphs, placements and timelines: what other layers have computed, as SVG and as files for viewers.

Imports: common, mapper, program, simulator.
Imported by: allo_dse, dashboard, dnn, eval, tune.
"""

from .graphs import vmg_svg
from .points import points_svg
from .timeline.files import save_occupancy, save_timeline
from .timeline.perfetto import save_perfetto

__all__ = ["points_svg", "save_occupancy", "save_perfetto", "save_timeline", "vmg_svg"]
