"""Whether a folded graph fits a device: every limit that it exceeds, as values.

Imports: backends, common, device, mapper.fold, mapper.graph, mapper.layouts, mapper.model, mapper.streams,
  mapper.transport, program.
Imported by: eval, mapper, tune.
"""
