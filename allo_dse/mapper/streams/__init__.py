"""What moves between and inside nodes: tiles, flows that several nodes share, rounds, memory of a core.

Imports `fold`, `graph` and `model`; `transport` and `limits` import it.
"""
