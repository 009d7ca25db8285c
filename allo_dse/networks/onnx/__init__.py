"""Conversion of ONNX models to networks.

`graph` reads a model, `patterns` finds operators that exporters write as several nodes, and `convert` makes a step of
each node and reads files. `torch` has PyTorch write a model.

Imports: common, lang, networks, networks.operators, tune.
Imported by: cli, networks.export.
"""
