"""Places of tiles: what loops and nodes add up to is what each task's pid says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.movement.flows import GroupPorts
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.vmg import VMG
from tests.mapper.laws import folded


@given(folded(), st.data())
def test_places_are_those_of_the_tasks_pids(case: tuple[CompiledProgram, MeshFold], data: st.DataObject) -> None:
    program, fold = case
    vmg = VMG.of(program).fold(fold)
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        leaves = np.array(data.draw(st.lists(st.integers(0, tasks.shape[1] - 1), min_size=1, unique=True)))
        ports = GroupPorts(group, vmg.graph)
        for kernel in {use.task.kernel for use in ports.round.classes}:
            first, last = program.first_task[kernel], program.first_task[kernel + 1]
            mine = leaves[((tasks[:, leaves] >= first) & (tasks[:, leaves] < last)).all(0)]
            pids = program.pids(kernel, tasks[:, mine].reshape(-1))
            for port in (port for cls in program.kernels[kernel].classes for port in cls.tensor_ports):
                found = ports.grid_places(kernel, port.tile, mine)
                expected = np.unravel_index(port.tile.linear(pids), port.tile.grid or (1,))
                for one, other in zip(found, expected, strict=True):
                    assert np.array_equal(np.broadcast_to(one, (len(tasks), len(mine))).reshape(-1), other)
