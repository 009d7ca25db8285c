"""What staying within Allo's rules costs: the best latency that a search finds with target "allo" and with "model".

    python -m benchmarks.allo_target                 # the table of docs/allo_target.md
    python -m benchmarks.allo_target --trials 100 ffn_npu gemv_npu

Both searches evaluate the same number of designs from the same seed. Latencies are those of the model.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from allo_dse.tune.study import load_studies

FILES = Path(__file__).resolve().parent.parent / "studies"
STUDIES: Sequence[tuple[str, Mapping[str, str]]] = (
    ("gemm_npu", {"dtype": "i16", "size": "1024"}),
    ("vector_add_npu", {}),
    ("reduction_npu", {}),
    ("mlp_npu", {}),
    ("ffn_npu", {}),
    ("elementwise_npu", {}),
    ("elementwise_npu", {"op": "gelu"}),
    ("elementwise_npu", {"op": "cast"}),
    ("norm_npu", {}),
    ("norm_npu", {"op": "layer_norm"}),
    ("rope_npu", {}),
    ("gemv_npu", {}),
    ("attention_npu", {"length": "512"}),
    ("multihead_attention_npu", {}),
    ("resnet_npu", {}),
)
SEED = 0


def best_us(name: str, settings: Mapping[str, str], target: str, trials: int) -> tuple[float | None, int]:
    """The best latency in microseconds, None without a design, and how many designs were evaluated."""
    (study,) = load_studies(FILES / f"{name}.py", {**settings, "target": target})
    with tempfile.TemporaryDirectory() as directory:
        result = study.run(trials, seed=SEED, run_dir=Path(directory), cache=False, verify=False, progress="quiet")
        if not len(result.pareto):
            return None, 0
        evaluated = int((result.trials["status"] == "ok").sum())
        return float(result.pareto["latency_us"].min()), evaluated


def main() -> None:
    parser = argparse.ArgumentParser(description="What staying within Allo's rules costs.")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("studies", nargs="*", help="names of studies; all by default")
    options = parser.parse_args()
    trials: int = options.trials
    print("| study | designs (model, allo) | best latency, model (us) | allo (us) | lost |")
    print("|---|---|---|---|---|")
    for name, settings in STUDIES:
        if options.studies and name not in options.studies:
            continue
        said = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
        (free, many), (bound, few) = (best_us(name, settings, target, trials) for target in ("model", "allo"))
        if free is None or bound is None:
            print(f"| `{said}` | {many}, {few} | {free} | {bound} | |", flush=True)
            continue
        print(f"| `{said}` | {many}, {few} | {free:,.1f} | {bound:,.1f} | {bound / free - 1:.1%} |", flush=True)


if __name__ == "__main__":
    main()
