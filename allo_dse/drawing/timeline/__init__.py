"""Timelines of recorded runs as files: SVG, tables, Chrome traces."""
