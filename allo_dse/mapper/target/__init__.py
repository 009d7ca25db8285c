"""What shall build the winner of a study, and the rules it builds by.

Imports: common, device, mapper, mapper.fold, mapper.graph, mapper.model, mapper.search, mapper.streams, program.
Imported by: cli, tune.
"""
