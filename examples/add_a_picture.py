"""A picture of a run is a function of its data frame: here, how much latency each DSP buys, as an SVG.

    python examples/add_a_picture.py [PATH]

Pictures of the package are Plotly figures in `allo_dse/dashboard/figures` (pages and report draw the same ones) and SVG
of graphs, placements and timelines in `allo_dse/drawing`.
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd
from scale import study


def staircase(front: pd.DataFrame, x: str, y: str, width: int = 480, height: int = 320) -> str:
    """The front as a staircase: everything below it is out of reach."""
    rows = front.sort_values(x)[[x, y]].astype(float)
    scaled = (rows - rows.min()) / (rows.max() - rows.min()).replace(0, 1)
    points = [(20 + a * (width - 40), height - 20 - b * (height - 40)) for a, b in scaled.to_numpy()]
    path = f"M{points[0][0]:.0f},{points[0][1]:.0f}" + "".join(f"H{a:.0f}V{b:.0f}" for a, b in points[1:])
    dots = "".join(f'<circle cx="{a:.0f}" cy="{b:.0f}" r="4"/>' for a, b in points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<path d="{path}" fill="none" stroke="#888"/>{dots}<text x="20" y="14">{y} over {x}</text></svg>'
    )


path = Path(sys.argv[1] if len(sys.argv) > 1 else "front.svg")
with tempfile.TemporaryDirectory() as folder:
    result = study().run(trials=30, run_dir=folder, progress="quiet")
    path.write_text(staircase(result.pareto, "dsp", "latency_cycles"), encoding="utf-8")
print(f"{len(result.pareto)} designs drawn in {path}")
