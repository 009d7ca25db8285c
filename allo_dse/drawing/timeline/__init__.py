"""Timelines of recorded runs as files: SVG, tables, Chrome traces.

Imports: common, simulator.
Imported by: drawing.
"""
