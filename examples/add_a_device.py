"""A new device is a file: `my_npu.toml` beside this program extends a device that exists and says where it differs.

    python examples/add_a_device.py

Devices that come with the package lie in `allo_dse/device/files/`, with the source of every number beside it.
"""

from pathlib import Path

from scale import scale

import allo_dse as dse

device = dse.Device.load(str(Path(__file__).with_name("my_npu.toml")))
program = dse.load_program(scale, P=16)
print(f"{device.name}: {dse.check(program, device)[0]}")

fold = dse.MeshFold((dse.KernelFold("scaled", (dse.AxisFold(8, "block"),)),))
print(f"folded onto 8 cores, too much of: {dse.check(program.vmg.fold(fold), device) or 'nothing'}")
