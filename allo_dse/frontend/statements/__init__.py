"""From statements and expressions of a kernel to operations: control flow, declarations, calls.

The highest folder of the front end, used by `compiler` and `classes` only.
"""
