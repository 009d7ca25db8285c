"""Code of FIFOs, the scheduler and table processes, and the records that it shares with NumPy.

Imports: ir.
Imported by: eval, simulator, simulator.codegen, simulator.codegen.lowering, simulator.engine, simulator.network,
  simulator.steady, simulator.trace.
"""
