"""Peak memory of large work: a run over many designs, a network of many operators, the page of a long run.

    python -m benchmarks.memory [run] [network] [page] [--designs 1000000] [--operators 100] [--page 100000]

Each is a process of its own, whose peak contains the imports. The run resumes a log of this many designs.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import allo_dse as dse
from allo_dse.dashboard.data.grid import Grid, Query
from allo_dse.dashboard.data.progress import timeline
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.figures.parallel import parallel_figure
from allo_dse.dashboard.figures.progress import designs_figure, hypervolume_figure
from allo_dse.dashboard.figures.scatter import View, front_figure
from allo_dse.dashboard.figures.style import LIGHT
from benchmarks.stored_trials import MORE, peak_kib, study, write_log
from tests.dashboard.synthetic import write_run

ROWS, WIDTHS, TRIALS = 64, (128, 256, 384, 512, 640), 20


def run(folder: Path, designs: int) -> None:
    study().run(designs + MORE, verify=False, progress="quiet", run_dir=folder)


def network(folder: Path, operators: int) -> None:
    from allo_dse.networks.compose import compose
    from allo_dse.networks.fronts import search_fronts
    from allo_dse.networks.operators import element_type, gemm_work, unary_work

    of, rng, net = element_type("bf16"), np.random.default_rng(0), dse.Network("layers")
    tensor = net.input("x", (ROWS, WIDTHS[0]))
    for layer in range(operators // 2):
        rows, columns = (WIDTHS[n % len(WIDTHS)] for n in (layer, layer + 1))
        weights = net.constant(f"w{layer}", rng.standard_normal((rows, columns)).astype(np.float32))
        product = net.add(gemm_work(ROWS, columns, rows, of), tensor, weights)
        tensor = net.add(unary_work("relu", ROWS * columns, of), product)
    net.output(tensor)
    compose(search_fronts(net, "npu2", trials=TRIALS, cache=folder))


def page(folder: Path, _: int) -> None:
    board = Board.open([folder])
    front_figure(board, View("latency_us", "bram18"), LIGHT)
    parallel_figure(board, LIGHT)
    Grid(board).window(Query(sort=(("bram18", True),)), 0, 50)
    hypervolume_figure(board, LIGHT)
    designs_figure(timeline(board.runs[0]), LIGHT)


CASES: dict[str, Callable[[Path, int], None]] = {"run": run, "network": network, "page": page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["run", "network", "page"])
    parser.add_argument("--designs", type=int, default=1_000_000)
    parser.add_argument("--operators", type=int, default=100)
    parser.add_argument("--page", type=int, default=100_000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {"run": options.designs, "network": options.operators, "page": options.page}
    for case in options.cases:
        if options.child:
            CASES[case](Path(options.child), sizes[case])
            print(f"{case} of {sizes[case]:,}: peak {peak_kib() / 1024:,.0f} MiB", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder) / "made"
            if case == "run":
                write_log(where, sizes[case])
            if case == "page":
                write_run(where, sizes[case])
            name = {"run": "--designs", "network": "--operators", "page": "--page"}[case]
            child = [sys.executable, "-m", "benchmarks.memory", case, name, str(sizes[case]), "--child", str(where)]
            subprocess.run(child, check=True)


if __name__ == "__main__":
    main()
