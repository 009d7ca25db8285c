"""What a design is worth: evaluators, the networks that time designs on each kind of device, and verification.

`evaluator` says what an evaluator is. `program` runs programs and folded programs; `npu` and `fpga` turn a design
into a network for the simulator; `hls` and `rtl` measure it with other tools. Imports everything from `space`
downwards; `tune` and `allo_dse/__init__`
import it: `public` has the functions that users call directly.
"""
