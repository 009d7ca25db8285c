"""An evaluator is any object with a name, a version and `evaluate`; this one counts bytes instead of cycles.

    python examples/add_an_evaluator.py

What it raises costs one trial. Raise its version when its numbers change: results are stored under name and version.
"""

import tempfile

from scale import study

import allo_dse as dse


class RowsPerTask:
    """How many rows the tasks of a design have, and how many nodes work on them."""

    name = "rows"
    version = "1"

    def evaluate(self, design: dse.Design) -> dse.Metrics:
        return dse.Metrics(rows=64 // design.vmg.task_count, nodes=design.vmg.node_count)


counted = study(evaluator=RowsPerTask, objectives=[dse.minimize("rows"), dse.minimize("nodes")])
with tempfile.TemporaryDirectory() as folder:
    result = counted.run(trials=10, run_dir=folder, progress="quiet")
    print(result.pareto[["rows", "nodes", "P"]].to_string(index=False))
