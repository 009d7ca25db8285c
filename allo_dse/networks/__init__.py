"""Whole networks: operators with tensors between them, each a dataflow program, mapped in space and time.

`network` is the graph, `operators` has the programs and runs them on numbers, and `onnx` reads models. `fronts`
searches the designs of every operator, and `compose` puts them into launches. `edges` merges rearrangements and finds
streams, and `accuracy` chooses element types.

Imports: backends, common, compiler, device, drawing, eval, lang, mapper, space, tune.
Imported by: cli.
"""
