"""What a design is worth: evaluators, the networks that time designs on each kind of device, and verification.

`evaluator` says what an evaluator is. `program` runs programs and folded programs; `npu` and `fpga` turn a design
into a network for the simulator; `hls` and `rtl` measure it with other tools; `public` has the
functions that users call directly.

Imports: backends, common, compiler, device, lang, mapper, simulator, space.
Imported by: allo_dse, backends, cli, dashboard, networks, tune.
"""
