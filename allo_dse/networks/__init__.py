"""Whole networks: operators with tensors between them, each a dataflow program, mapped in space and time.

`network` is the graph, `operators` has the programs and runs them on numbers, `onnx` reads models, `layouts` removes
rearrangements, `fronts` searches the designs of every operator, `compose` puts them into launches, `elements` says
which types operators may have.

Imports: backends, common, compiler, device, drawing, eval, lang, mapper, space, tune.
Imported by: allo_dse, cli.
"""
