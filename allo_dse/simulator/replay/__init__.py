"""Replay of traces: the times of recorded operations at other stream depths, by the same clock rules.

Imports: common, simulator, simulator.engine, simulator.network, simulator.run_time.
Imported by: allo_dse, backends, cli, simulator.depths.
"""
