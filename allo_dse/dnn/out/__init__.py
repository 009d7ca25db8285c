"""What a network becomes: a folder to build and run (`export`, `hls`, `driver`), its page, its facts.

Imports: backends, common, device, dnn, dnn.operators, drawing, eval.
Imported by: cli.
"""
