"""Runs made up from formulas, written as run directories in the real log format."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from msgspec import structs

import allo_dse
from allo_dse.tune.store.log import RunLog
from allo_dse.tune.store.record import Record

OBJECTIVES = [{"name": "latency_us", "direction": "minimize"}, {"name": "bram18", "direction": "minimize"}]
COMMAND = ["allo-tune", "studies/made_up.py", "--trials", "300"]


def design(number: int, at: float | None = None) -> Record:
    """A made-up design; the same number gives the same one."""
    rng = random.Random(number)
    tile, cores, depth = rng.choice([8, 16, 32, 64]), rng.choice([1, 2, 4, 8, 16]), rng.choice([1, 2])
    how = rng.choice(["block", "cyclic"])
    latency = 40_000 / cores * (1 + 0.2 * (depth == 1)) * (1 + 8 / tile) * rng.uniform(1.0, 1.3)
    bram = cores * (tile // 4) * depth + rng.randrange(8)
    status = "failed" if number % 29 == 28 else "infeasible" if bram > 300 else "ok"
    metrics = {
        "latency_us": latency,
        "bram18": bram,
        "dsp": 8 * cores,
        "dram_bytes": 1 << 24,
        "bound": {"compute": rng.random(), "DRAM": rng.random()},
        "bottleneck": "DRAM" if tile < 32 else "compute",
    }
    return Record.from_dict(
        {
            "number": number,
            "key": f"{number:08x}{rng.getrandbits(32):08x}",
            "status": status,
            "genes": {"param.tile": tile.bit_length() - 4, "fold.k.0.spatial": cores.bit_length() - 1},
            "params": {"size": 1024, "tile": tile},
            "fold": {
                "kernels": [
                    {"kernel": "k", "axes": [{"spatial": cores, "pattern": how, "how": "bundle"}], "order": [0]}
                ]
            },
            "buffering": {"input_depth": 2, "output_depth": depth, "memory_tile_depth": 2},
            "at": 0.01 * number if at is None else at,
            "metrics": None if status == "failed" else metrics,
            "constraints": None if status == "failed" else {"bram18 <= 300": max(0.0, bram - 300)},
            "error": "RuntimeError: the tool gave up" if status == "failed" else None,
            "seconds": 0.008,
            "evaluator": "made-up 1",
        }
    )


def violation(number: int) -> Record:
    """A proposal that breaks a limit of the device."""
    like = design(number + 1_000_000, at=0.01 * number)
    broken = [{"constraint": "core_memory", "text": "data memory on core k_0: needs 70,000 bytes, has 65,536 bytes"}]
    none = {"metrics": None, "constraints": None, "error": None, "evaluator": ""}
    fields = {"number": -1, "key": f"v{like.key}", "status": "violation", "violations": broken}
    return structs.replace(like, **fields, **none)


def write_run(path: Path, designs: int, *, objectives: list[Any] | None = None, name: str = "made_up") -> Path:
    """A run directory of some hundred or many thousand designs, one in five proposals ruled out."""
    path.mkdir(parents=True, exist_ok=True)
    info = {
        "study": name,
        "seed": 0,
        "program": "p0",
        "device": "npu1_4col d0",
        "evaluator": "made-up 1",
        "space": {"params": {"size": ["1024"], "tile": ["8", "16", "32", "64"]}},
        "versions": {"allo-dse": allo_dse.__version__},
        "command": COMMAND,
        "objectives": OBJECTIVES if objectives is None else objectives,
        "constraints": ["bram18 <= 300"],
    }
    (path / "run.json").write_text(json.dumps(info))
    append(path, range(designs))
    return path


def append(path: Path, numbers: range) -> None:
    """More designs at the end of a run's log."""
    log = RunLog(path / "log.jsonl")
    try:
        log.append(
            record.to_dict()
            for number in numbers
            for record in ([violation(number)] if number % 5 == 4 else []) + [design(number)]
        )
    finally:
        log.close()


def verify(path: Path, key: str, ok: bool, message: str = "equal to the reference") -> None:
    """The outcome of a verification at the end of a run's log."""
    log = RunLog(path / "log.jsonl")
    try:
        log.append([{"type": "verify", "key": key, "ok": ok, "message": message, "seconds": 0.5}])
    finally:
        log.close()
