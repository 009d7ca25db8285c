"""Replay of traces: the times of recorded operations at other stream depths, by the same clock rules.

Imports `trace` and `engine`; nothing of the simulator imports it.
"""
