"""Code of FIFOs, the scheduler and table processes, and the records that it shares with NumPy.

Imports: common.
Imported by: backends, simulator.codegen, simulator.engine, simulator.network, simulator.replay.
"""
