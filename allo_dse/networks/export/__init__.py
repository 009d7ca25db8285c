"""What a network becomes: a folder to build and run (`export`, `hls`, `driver`), its page, its facts.

Imports: backends, common, device, drawing, eval, networks, networks.operators.
Imported by: cli.
"""
