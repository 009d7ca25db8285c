"""What users call directly, joined from several packages.

`functions` has `dse.check`, `place`, `draw`, `simulate` and `record_trace`, `built` what `df.build` returns for each
target.

Imports: backends, common, device, drawing, eval.fpga, eval.hls, eval.program, frontend, lang, mapper, program,
  simulator, space.
Imported by: allo_dse.
"""
