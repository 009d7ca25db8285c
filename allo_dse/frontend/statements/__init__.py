"""From statements and expressions of a kernel to operations: control flow, declarations, calls.

Imports: common, frontend.model, frontend.ops, frontend.regions, lang, program.
Imported by: frontend.
"""
