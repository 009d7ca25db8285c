"""A kind of choice is a class that asks questions: here whether input ports of an NPU's cores are double-buffered.

    python examples/add_a_choice.py

`decide` returns the draft with what the answers mean. Genes, enumeration, counting and resuming follow from it;
`tests/space/choices/test_conformance.py` says what must hold.
"""

import tempfile
from dataclasses import replace

from scale import study

import allo_dse as dse


class InputDepth(dse.QuestionChoice):
    """One buffer or two for each input port."""

    writes = frozenset({"buffering.input_depth"})

    def decide(self, draft: dse.Draft, ask: dse.Ask) -> dse.Draft:
        depth = 1 + int(ask(dse.Question.position("input_depth", (1, 2))))
        return replace(draft, buffering=replace(draft.buffering, input_depth=depth))

    def describe(self) -> dict[str, object]:
        return {"input_depths": [1, 2]}


if __name__ == "__main__":
    declared = study(
        device="npu1_4col",
        schedules=(),
        objectives=[dse.minimize("latency_us"), dse.minimize("local_memory_bytes")],
        extra_choices=[InputDepth()],
    )
    with tempfile.TemporaryDirectory() as folder:
        result = declared.run(trials=40, run_dir=folder, progress="quiet")
        depths = {1 + record.genes["input_depth"] for record in result.records}
        print(f"{declared.space.count(10**6)} designs; input ports of depth {sorted(depths)} were tried")
        print(result.pareto[["latency_us", "local_memory_bytes"]].head(4).to_string(index=False))
