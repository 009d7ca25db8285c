"""Changes of layout: what they do to a tile, and whether the cores or DMA channels carry them out.

Imports: common, device, mapper.graph, mapper.model, program.
Imported by: eval, mapper, mapper.limits, mapper.transport.
"""

from .affine import Arrangement
from .layout_plan import layout_plan

__all__ = ["Arrangement", "layout_plan"]
