"""The spaces of legal folds, and bounds that rule folds out before they are built.

Imports: common, device, mapper.axes, mapper.fold, mapper.graph, mapper.model, mapper.transport, program.
Imported by: allo_dse, eval, mapper.target, space.
"""
