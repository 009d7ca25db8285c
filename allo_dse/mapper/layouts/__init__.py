"""Changes of layout: what they do to a tile, and whether the cores or DMA channels carry them out."""

from .affine import Arrangement
from .plan import layout_plan

__all__ = ["Arrangement", "layout_plan"]
