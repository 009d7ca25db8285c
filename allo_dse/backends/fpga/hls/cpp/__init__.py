"""C++ text: names, element types, expressions, streams, constants.

Imports: backends.fpga.cost, common, compiler, lang.
Imported by: backends.fpga.hls, backends.fpga.hls.dataflow, backends.fpga.hls.task.
"""
