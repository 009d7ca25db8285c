"""The virtual mapping graph and what is decided on it: folds, limits, data movement, placement.

Everything here is a function of a compiled program (`program`), a device and decisions, and knows no search, no clock
and no file. Imports `backends` (costs of FPGA designs), `frontend`, `program`, `device`; `draw`, `space`, `eval` and
`tune` import it.
"""
