"""What users call directly, joined from several packages.

`functions` has `dse.check`, `place`, `draw`, `simulate` and `record_trace`, `built` what `df.build` returns for each
target. Only `allo_dse/__init__` imports it.
"""
