"""Stream depths that cost no time, and their front of cycles against memory.

Imports: backends.fpga, backends.fpga.cost, common, compiler, device, eval, mapper, simulator, space.
Imported by: backends.fpga, backends.fpga.hls, cli.
"""
