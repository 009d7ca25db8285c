"""Designs measured by the vendor's HLS tool: projects of designs, the tool, and what its reports change.

Imports: backends, common, device, eval, eval.calibrate, eval.fpga, eval.processes, eval.program, frontend, lang,
  mapper, simulator, space.
Imported by: allo_dse, dnn, eval, eval.hardware, eval.public, tune.
"""
