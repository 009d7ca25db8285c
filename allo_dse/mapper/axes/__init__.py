"""What each mesh axis of a kernel allows, and which axes of different kernels belong together.

Imports `graph` and `model`; `fold` and `search` import it.
"""
