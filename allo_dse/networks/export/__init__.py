"""Export of networks: a folder to build and run (`export`, `driver`), its page (`page`), its facts.

Imports: backends, common, compiler, device, drawing, eval, networks, networks.onnx, networks.operators.
Imported by: cli.
"""
