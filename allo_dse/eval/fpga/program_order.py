"""Depths at which a design also ends where nothing overlaps.

The cost model's pipelines hold tokens: a loop gets those of later rounds before it has put those of earlier ones. C++
that is executed, and circuits without pipelines, do one operation after the other, and may need more room in FIFOs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allo_dse.common.errors import SimulationError
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.simulator.deadlock.explain import DeadlockError

from ..program.functional import run_graph
from ..program.observe import Inputs, arrays_of


def in_program_order(vmg: VMG, depths: Mapping[str, int], sets: Sequence[Inputs] = ()) -> dict[str, int]:
    """The depths by stream array, deeper where tasks that do their operations in the program's order wait for ever.

    They stay as they are where no depth helps.

    Args:
        sets: of inputs that the program runs on where data decides what it does; zeros without.
    """
    found = dict(depths)
    for inputs in sets or ({},):
        try:
            found = _deeper(vmg, found, inputs)
        except SimulationError:
            return dict(depths)
    return found


def _deeper(vmg: VMG, depths: dict[str, int], inputs: Inputs) -> dict[str, int]:
    arrays = arrays_of(vmg.program, inputs)
    try:
        run_graph(vmg, *arrays, depths=depths, values=bool(inputs))
    except DeadlockError as error:
        if not error.deeper:
            raise
        return _deeper(vmg, depths | error.deeper, inputs)
    return depths
