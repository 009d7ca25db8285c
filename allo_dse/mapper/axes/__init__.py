"""What each mesh axis of a kernel allows, and which axes of different kernels belong together.

Imports: common, mapper.model, program.
Imported by: mapper.fold, mapper.graph, mapper.search, space.
"""
