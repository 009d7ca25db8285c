"""Traces: what processes did on their streams, without times; loaded, checked, built, or taken from a recorded run.

Imports: common, simulator.codegen, simulator.engine, simulator.network.
Imported by: allo_dse, eval, simulator, simulator.replay.
"""
