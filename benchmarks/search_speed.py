"""Designs per second of a search on one core, everything included, and where the time goes.

    python -m benchmarks.search_speed [--trials 2000] [--studies gemm_npu,attention_npu,systolic_fpga,polybench_fpga]

Runs each study in this process (one worker), without verification, as `allo-tune` would: with its default sampler, to
the end of its space or for so many trials. A design is *decided* when it was evaluated, breaks a limit, or is never
built because its bounds say that one that was found is at least as good: in spaces that are searched by bounds, and in
those in which designs are bred, where it counts once however often it was bred. Then with every design evaluated
(`sampler="evolution"`) of whatever the device can do (`target="model"`: there are few that Allo builds), and once more
for the shares.

Seconds are of the processor. Beside them stands how many times the fixed work of `engine_reference.py`, run in the same
process right before and after, the machine could have done instead: that figure means the same on every machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from allo_dse.lang import install
from allo_dse.space.choices.parameters import CompiledPrograms
from allo_dse.space.space import Candidate, Space
from allo_dse.tune.declare.spec import StudySpec
from allo_dse.tune.results.result import Result
from allo_dse.tune.run import session
from allo_dse.tune.run.ledger import Ledger
from allo_dse.tune.search.lower_bounds import LowerBounds
from allo_dse.tune.search.proposals import EvolutionProposer
from allo_dse.tune.search.screening import Screen, Verdict
from allo_dse.tune.study import load_studies
from allo_dse.tune.workers.evaluate_one import InProcessEvaluator

install()

from benchmarks.quiet import reference_seconds

STUDIES = ("gemm_npu", "attention_npu", "systolic_fpga", "polybench_fpga")
BRED = 300  # trials of the runs that evaluate every design
WHERE = Path(__file__).resolve().parent.parent / "studies"

PARTS: dict[tuple[object, str], str] = {
    (CompiledPrograms, "load"): "compile programs",
    (Space, "count"): "count the space",
    (Space, "decode"): "decode",
    (LowerBounds, "_losses"): "bounds",
    (StudySpec, "check"): "check (fold, data movement, limits, rules)",
    (InProcessEvaluator, "run"): "evaluate (network, run)",
    (Ledger, "add"): "write the log",
    (Result, "written"): "tables at the end",
    (session, "write_best"): "folders to build from at the end",
}
"""What of the package does which part of the work; a part does not count what it has another one do."""


@contextmanager
def passed_over() -> Iterator[set[str]]:
    """Takes down the keys of the designs that are refused, or that bounds rule out when they have been bred."""
    found: set[str] = set()
    admit, decode_and_admit = Screen.admit, Screen.decode_and_admit

    def admitted(screen: Screen, candidate: Candidate) -> Verdict:
        verdict = admit(screen, candidate)
        if verdict == "invalid":
            found.add(candidate.key)
        return verdict

    def decoded(screen: Screen, *asked: Any) -> tuple[Candidate | None, Verdict]:
        candidate, verdict = decode_and_admit(screen, *asked)
        if verdict == "dominated" and candidate is not None:
            found.add(candidate.key)
        return candidate, verdict

    with patch.object(Screen, "admit", admitted), patch.object(Screen, "decode_and_admit", decoded):
        yield found


def run(name: str, trials: int, sampler: str = "auto", **settings: str) -> tuple[Result, float]:
    """A run, and the processor seconds that it took."""
    study = load_studies(WHERE / f"{name}.py", settings)[0]
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        result = study.run(
            trials, seed=0, sampler=sampler, verify=False, progress="quiet", run_dir=Path(folder) / "run"
        )
        return result, time.process_time() - started


def decided(result: Result, passed: set[str]) -> int:
    """Designs that the run has decided."""
    known = result.certificate
    if known is None:
        return len(passed.union(record.key for record in result.records))
    return known.evaluated + known.refused + known.bounded


def shares(name: str, trials: int) -> dict[str, float]:
    """Share of each part in the processor time of a run."""
    spent: Counter[str] = Counter()
    inner = [0.0]  # what the parts inside each of those under way have taken

    def timed(function: Callable[..., object], part: str) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            inner.append(0.0)
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                whole = time.process_time() - started
                spent[part] += whole - inner.pop()  # type: ignore[assignment]
                inner[-1] += whole

        return call

    with ExitStack() as patches:
        for (owner, function), part in PARTS.items():
            patches.enter_context(patch.object(owner, function, timed(getattr(owner, function), part)))
        _, total = run(name, trials)
    spent["the rest: proposals, which comes next, start"] = total - inner[0]  # type: ignore[assignment]
    return {part: seconds / total for part, seconds in spent.most_common()}


def report(name: str, trials: int) -> None:
    before = reference_seconds()
    with passed_over() as passed:
        result, seconds = run(name, trials)
    with patch.object(EvolutionProposer, "_is_dominated", lambda *_: False):
        bred, each = run(name, BRED, "evolution", target="model")
    reference = (before + reference_seconds()) / 2
    count = decided(result, passed)
    print(
        f"{name}: {count:,} designs decided ({len(result.records)} evaluated) in {seconds:.1f} s of CPU: "
        f"{count / seconds:.0f}/s, {seconds / count / reference:.2f} x the reference each; "
        f"all evaluated: {len(bred.records) / each:.0f}/s, {each / len(bred.records) / reference:.2f} x"
    )
    for part, share in shares(name, trials).items():
        print(f"    {share:6.1%}  {part}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--studies", default=",".join(STUDIES))
    options = parser.parse_args()
    run("gemm_npu", 100, "evolution")  # imports, and machine code of the simulator and of what ranks parents
    for name in options.studies.split(","):
        report(name, options.trials)


if __name__ == "__main__":
    main()
