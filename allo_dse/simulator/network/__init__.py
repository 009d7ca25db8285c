"""What a run executes, as plain data: streams, tasks, nodes, operation tables, shared resources, their run-time image.

Imports `codegen.run_time` (the layout of records).
"""
