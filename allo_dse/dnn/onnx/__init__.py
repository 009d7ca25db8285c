"""From ONNX models to networks: `graph` reads a model, `patterns` finds operators that exporters write as several,
`convert` makes a step of each node.

Imports: common, dnn, dnn.operators.
Imported by: allo_dse, dnn.
"""
