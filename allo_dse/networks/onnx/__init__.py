"""From ONNX models to networks: `graph` reads a model, `patterns` finds operators that exporters write as several,
`convert` makes a step of each node. `torch` has PyTorch write a model, `files` reads models and Python files.

Imports: common, lang, networks, networks.operators, tune.
Imported by: allo_dse, cli.
"""
