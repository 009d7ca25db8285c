"""Exact times of long regular runs: states that repeat are found, the rest is arithmetic.

Imports: common, simulator.codegen, simulator.network.
Imported by: eval, simulator, simulator.engine.
"""
