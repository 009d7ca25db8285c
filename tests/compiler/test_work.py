"""How often work is done, where loops around it depend on each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse

from ..backends.fpga.cost import programs
from ..support.written_programs import write_program


def test_work_of_tasks_is_counted_through_loops_that_depend_on_each_other() -> None:
    for by_shifts in (True, False):
        (kernel,) = dse.load_program(programs.stages(by_shifts)).kernels
        classes, table = kernel.by_work
        assert [classes[position].work[0].count for position in table] == [46, 44]


def test_work_of_loops_that_count_down_is_counted() -> None:
    for down in (True, False):
        (kernel,) = dse.load_program(programs.counting(down)).kernels
        assert [op.count for op in kernel.classes[0].work] == [64]


def test_work_under_control_that_data_decides_is_not() -> None:
    (kernel,) = dse.load_program(programs.until()).kernels
    assert [op.count for op in kernel.by_work[0][0].work] == [None]


TABLE = [[3, 1, 4], [1, 5, 9]]
BY_PLACE = """import numpy as np
N, TABLE = 64, np.array([[3, 1, 4], [1, 5, 9]])

@df.region()
def build(Y: int32[2, 3]):
    @df.kernel(mapping=[2, 3], args=[Y])
    def count(y: int32[2, 3]):
        p, q = df.get_pid()
        for i in range({rounds}):
            y[p, q] += 1
"""


@pytest.mark.parametrize(
    "rounds",
    [
        "N // (2 << p + q)",
        "2 ** (p + q)",
        "(p + 1) * (q + 2)",
        "TABLE[p, q] * q",
        "N // (2 * TABLE[p, q])",
        "N % (p + 3)",
    ],
)
def test_loops_are_as_long_as_the_place_of_a_task_says(rounds: str, tmp_path: Path) -> None:
    top = write_program(tmp_path / "place.py", BY_PLACE.format(rounds=rounds))
    (kernel,) = dse.load_program(top).kernels
    classes, table = kernel.by_work
    expected = [eval(rounds, {"N": 64, "TABLE": np.array(TABLE), "p": p, "q": q}) for p in range(2) for q in range(3)]
    assert [classes[position].work[0].count for position in np.broadcast_to(table, (2, 3)).flat] == expected
