"""What the front end works with: source files, text of MLIR, values known at compile time, diagnostics.

The lowest folder of the front end: the other three import it.
"""
