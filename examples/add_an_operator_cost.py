"""What an operator costs is data of a device: here is a multiplier of floats made of logic, without DSPs.

    python examples/add_an_operator_cost.py

Latency is in extra cycles at the clock where it holds, as HLS reports state it: 0 is combinational.
"""

import tempfile
from pathlib import Path

from scale import study

import allo_dse as dse

IN_LOGIC = """
extends = "u280"

[operators.f32]
mul = [{ mhz = 300.0, latency = 6, dsp = 0, ff = 700, lut = 650 }]
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "in_logic.toml"
    path.write_text(IN_LOGIC)
    for device in ("u280", dse.Device.load(str(path))):
        result = study(device=device).run(trials=4, run_dir=Path(folder) / "run", fresh=True, progress="quiet")
        best = result.pareto.iloc[0]
        print(f"{device if isinstance(device, str) else device.name}: {best.latency_cycles} cycles, {best.dsp} DSPs")
