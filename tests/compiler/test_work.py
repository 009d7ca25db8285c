"""How often work is done, where loops around it depend on each other."""

from __future__ import annotations

import allo_dse as dse

from ..backends.fpga.cost import programs


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
