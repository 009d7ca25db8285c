"""Plain data and small algorithms without a graph: axis rules, buffering, sequences, orders, violations.

The lowest folder of the mapper.

Imports: common, mapper.graph, program.
Imported by: allo_dse, dnn, eval, mapper, mapper.axes, mapper.fold, mapper.graph, mapper.layouts, mapper.limits,
  mapper.place, mapper.search, mapper.streams, mapper.target, mapper.transport, space, tune.
"""
