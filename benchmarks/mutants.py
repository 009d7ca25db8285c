"""How many small mistakes the tests notice: mutants of the package, each run against the tests that reach it.

    python -m benchmarks.mutants                        # 200 mutants of mapper, space, simulator and the cost models
    python -m benchmarks.mutants --count 20 --seed 7 --only allo_dse/mapper
    python -m benchmarks.mutants --resume mutants.jsonl # goes on where it was stopped

A mutant changes one operator, comparison, constant or condition. It is killed when a test fails. Messages, type
annotations, `__repr__` and named constants of modules (bounds of effort, sizes of pictures) are left alone.

All tests are collected once and run once, to see which functions each one reaches. Then a child process for each
mutant replaces the code of the changed function and runs the tests that reach it, the shortest first, up to the first
that fails. Code that runs when the tests are collected, and code that Numba compiles, is changed in a copy of the
package instead.

Mutants that behave as the original does, or differ in effort only, are listed in `equivalent_mutants.json` with the
reason, and printed with it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.mutation.mutants import Mutant, sample
from benchmarks.mutation.tests import Killers, with_tests

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")


def verdicts(mutants: list[Mutant], kept: Path, killers: Killers) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with the first test that fails, or nothing."""
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(r["file"], r["line"], r["before"], r["after"]): r["killed_by"] for r in rows}
    for mutant in mutants:
        key = (mutant.file, mutant.line, mutant.before, mutant.after)
        if key not in known:
            known[key] = killers.of(mutant)
            row = asdict(mutant) | {"killed_by": known[key]}
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
        yield mutant, known[key]


def show(mutants: list[Mutant], kept: Path, killers: Killers) -> None:
    rows = json.loads(EQUIVALENT.read_text())
    reasons = {(r["file"], r["function"], r["before"], r["after"]): r["reason"] for r in rows}
    survivors = equivalent = 0
    for number, (mutant, verdict) in enumerate(verdicts(mutants, kept, killers), 1):
        if not verdict:
            change = f"{mutant.before}  ->  {mutant.after}"
            reason = reasons.get((mutant.file, mutant.function, mutant.before, mutant.after))
            equivalent += bool(reason)
            survivors += not reason
            verdict = f"SAME: {change}\n     ({reason})" if reason else f"SURVIVES: {change}"
        print(f"{number:4} {mutant.file}:{mutant.line} {verdict}", flush=True)
    killed = len(mutants) - survivors - equivalent
    print(f"{killed} of {len(mutants)} mutants killed, {equivalent} behave as the original, {survivors} survive")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a folder of the package")
    parser.add_argument("--resume", type=Path, help="results are kept in this file, and those in it are not run again")
    arguments = parser.parse_args()
    mutants = sample(arguments.count, arguments.seed, arguments.only)
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.resume.resolve() if arguments.resume else Path(folder) / "mutants.jsonl"
        with_tests(lambda killers: show(mutants, kept, killers), kept.with_suffix(".reached.json"))


if __name__ == "__main__":
    main()
