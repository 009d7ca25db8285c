"""Check, timer and verifier agree on which folds deadlock."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import allo_dse as dse
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.eval.token_exchange import TokenExchange, _never_waits, exchange_depths, smallest_depths
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold, fold_choices
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ..mapper.laws import folded
from ..soak.exchanges import disagreement, exchange_program
from .execute.test_folded_results import pipeline

_TWO = """
import allo, allo.dataflow as df
from allo.ir.types import Stream, int32
from allo.memory import Layout
@df.region()
def top(X: int32[16], Y: int32[16]):
    s: Stream[int32, 1][4]
    @df.kernel(mapping=[4], args=[X, Y])
    def core(x: int32[16] @ [Layout.Shard(0)], y: int32[16] @ [Layout.Shard(0)]):
        i = df.get_pid()
        v: int32 = x[0]
        y[:] = x
        {first}
        {second}
        y[0] = v
"""
_PUT, _GET = "s[(i + 1) % 4].put(x[0])", "v += s[i].get()"
_PUT_RIGHT = "with allo.meta_if(i < 3):\n            s[i + 1].put(x[0])"
_GET_LEFT = "with allo.meta_if(i > 0):\n            v += s[i].get()"


class _AllRounds(TokenExchange, frozen=True, eq=False, dict=True):
    @property
    def _executed(self) -> Any:
        return [order.kinds for order in self.orders]


def test_the_first_round_decides_the_others(tmp_path: Path) -> None:
    shorter = blocked = 0
    for seed in range(60):
        vmg = _loaded(tmp_path, exchange_program(random.Random(seed))).vmg
        orders = vmg.graph.token_orders
        if not orders:
            continue
        one, every = TokenExchange(vmg, orders), _AllRounds(vmg, orders)
        found, expected = smallest_depths(one), smallest_depths(every)
        assert (found.depth, found.blocked) == (expected.depth, expected.blocked)
        shorter += one._executed != every._executed
        blocked += bool(found.blocked)
    assert shorter > 10
    assert blocked > 3


@settings(max_examples=100, deadline=None)
@given(drawn=folded())
def test_the_first_place_along_separate_axes_shows_whether_any_fifo_waits(
    drawn: tuple[CompiledProgram, MeshFold],
) -> None:
    program, fold = drawn
    vmg = VMG.of(program).fold(fold)
    assert _never_waits(vmg.slice) == _never_waits(vmg)


@pytest.mark.parametrize(("sums", "turned"), [(True, True), (True, False), (False, False)])
def test_the_first_place_along_separate_axes_needs_what_all_need(sums: bool, turned: bool) -> None:
    program = dse.load_program(pipeline, R=4, C=3, sums=sums, turned=turned)
    folds = list(itertools.islice(fold_choices(program.vmg.program), 4000))
    smaller = 0
    for fold in random.Random(0).sample(folds, 40):
        vmg = program.vmg.fold(fold)
        orders, found = vmg.graph.token_orders, exchange_depths(vmg)
        assert orders is not None
        assert found is not None
        expected = smallest_depths(TokenExchange(vmg, orders))
        assert (found.depth, bool(found.blocked)) == (expected.depth, bool(expected.blocked))
        smaller += vmg.slice.task_count < vmg.task_count
    assert smaller > 10


def _program(tmp_path: Path, first: str, second: str) -> dse.Program:
    return _loaded(tmp_path, _TWO.format(first=first, second=second))


def _loaded(tmp_path: Path, text: str) -> dse.Program:
    install()
    path, names = tmp_path / "program.py", dict[str, Any]()
    path.write_text(text)
    exec(compile(text, str(path), "exec"), names)
    return dse.load_program(names["top"])


@pytest.mark.parametrize("device", ["npu1_4col", "zcu102"])
def test_a_ring_that_gets_first_is_refused_with_tasks_streams_and_lines(tmp_path: Path, device: str) -> None:
    program = _program(tmp_path, _GET, _PUT)
    design = Design(program, unfolded(program), Buffering(), dse.Device.load(device))
    (violation,) = (one for one in design.mapping.violations if one.constraint == "stream_deadlock")
    assert "core_0 waits to get from s" in str(violation)
    assert "py:13:14" in str(violation)
    assert disagreement(design) == ""


@pytest.mark.parametrize("device", ["npu1_4col", "zcu102"])
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_line_that_puts_first_runs_however_it_is_folded(tmp_path: Path, device: str, nodes: int) -> None:
    program = _program(tmp_path, _PUT_RIGHT, _GET_LEFT)
    fold = MeshFold((KernelFold("core", (AxisFold(nodes, "block", "chain"),)),))
    design = Design(program, fold, Buffering(), dse.Device.load(device))
    assert not any(one.constraint == "stream_deadlock" for one in design.mapping.violations)
    assert disagreement(design) == ""


def test_buffers_inside_a_node_have_room_for_what_is_put_before_it_is_got(tmp_path: Path) -> None:
    fold = MeshFold((KernelFold("core", (AxisFold(1, "block", "chain"),)),))
    for first, second, held in ((_PUT_RIGHT, _GET_LEFT, 2), (_GET_LEFT, _PUT_RIGHT, 1)):
        fifos = _program(tmp_path, first, second).vmg.fold(fold).uses.fifos
        assert fifos.held.max() == held
