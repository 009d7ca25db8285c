"""From a region's source to tensors, streams and kernels, and the state of compiling one kernel.

Imports `model`; `ops` and `statements` import it.
"""
