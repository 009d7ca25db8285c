"""Task bodies as plain trees of loops and operations, and index arithmetic; refusals name their place.

Imports nothing else of the cost model.
"""
