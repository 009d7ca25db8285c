"""Placement and routing: folded nodes on tiles, streams and flows on wires."""

from .result import Infeasible, PlacedDesign
from .solve import place
from .verify import verify_placement

__all__ = ["Infeasible", "PlacedDesign", "place", "verify_placement"]
