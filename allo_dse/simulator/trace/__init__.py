"""Traces: what processes did on their streams, without times; loaded, checked, built, or taken from a recorded run.

Imports `engine` (timelines) and `network`; `replay` imports it.
"""
