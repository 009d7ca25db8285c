"""C++ text: names, element types, expressions, streams, constants.

Imports: common, ir, lang, program.
Imported by: backends.hls, backends.hls.dataflow, backends.hls.task.
"""
