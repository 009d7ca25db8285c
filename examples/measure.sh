#!/bin/sh
# Measures a design of studies/gemm_npu.py for `dse.Command`: reads its folder, prints metrics as JSON in the last line.
#
#     allo-tune studies/gemm_npu.py --evaluator "examples/measure.sh {design}" --trials 10
#
# Put your simulator, board or flow in the place of the formula. Exit with 65 for a design that it cannot take.
exec python3 - "$1" <<'PYTHON'
import json, math, pathlib, sys

folder = pathlib.Path(sys.argv[1])
fold = json.loads((folder / "design.json").read_text())["fold"]
p = json.loads((folder / "parameters.json").read_text())
cores = math.prod(axis["spatial"] for kernel in fold["kernels"] for axis in kernel["axes"])
tile = {"m": p["M"] // p["Pm"], "n": p["N"] // p["Pn"], "k": p["K"] // p["Pk"]}
memory = 4 * (tile["m"] * tile["k"] + tile["k"] * tile["n"] + tile["m"] * tile["n"])
if memory > 60000:
    print(f"tiles of {memory} bytes: this flow takes 60000")
    sys.exit(65)
print("measured a mapping onto", cores, "cores")
cycles = p["M"] * p["N"] * p["K"] / (64 * cores) * (1 + 16 / min(tile.values()))
print(json.dumps({"latency_us": cycles / 1000, "pe_count": cores, "local_memory_bytes": memory}))
PYTHON
