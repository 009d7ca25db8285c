"""Types, layouts, targets and schedules as programs write them."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any, cast

import pytest

from allo_dse.lang import ProgramError, builder_of, known_targets, register_target
from allo_dse.lang.allo import dataflow as df
from allo_dse.lang.allo.dataflow import get_pid
from allo_dse.lang.memory import Layout
from allo_dse.lang.types import ConstExpr, Fixed, Int, Stream, UInt, bfloat16, float32, int8, int16, int32

S, R = Layout.Shard, Layout.Replicate


def test_tensor_and_stream_types() -> None:
    assert (int16[4, 8].dtype, int16[4, 8].shape) == (int16, (4, 8))
    assert int8[4].shape == (4,)
    assert repr(int16[4, 8] @ [S(0), R]) == "int16[4, 8]"
    assert (int16[4, 8] @ [S(0), R]).layout == Layout([S(0), R])
    assert repr(Stream[int16[4, 8], 2][3, 5]) == "Stream[int16[4, 8], 2][3, 5]"
    assert Stream[float32, 4].block == ()
    assert Stream[float32].depth == Stream.DEFAULT_DEPTH
    assert Int(16) == int16
    assert (UInt(256).bits, UInt(3).bytes, Fixed(16, 8).fraction_bits) == (256, 1, 8)
    assert (bfloat16.kind, bfloat16.bytes, bfloat16.is_float) == ("bfloat", 2, True)
    assert [(t.exponent, t.fracs) for t in (bfloat16, float32, Fixed(16, 8), int8)] == [(8, 7), (8, 23), (0, 8), (0, 0)]
    assert ConstExpr[int16].dtype == int16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Int(0), "a width must be 1 to 1024 bits, not 0"),
        (lambda: UInt(1025), "a width must be 1 to 1024 bits, not 1025"),
        (lambda: Fixed(8, 9), "a number of 8 bits cannot have 9 fraction bits"),
        (lambda: Fixed(8, cast(Any, int8)), "the number of fraction bits must be an integer"),
        (lambda: Stream[int16, 0], "a stream's depth must be at least 1, not 0"),
        (lambda: Stream["int16", 2], "a stream carries elements or blocks of them"),
        (lambda: int16[2.5], "an extent of a tensor must be an integer, not 2.5"),
        (lambda: int16[-1], "must not be negative"),
        (lambda: int16[4][4], "already has a shape"),
        (lambda: Layout("S0X"), "cannot read layout 'S0X'"),
        (lambda: int16[4] @ [3], "a layout is a list of Layout.Shard(axis) and Layout.Replicate"),
        (lambda: Layout([S(0), S(0)]).axes(1), "shards two dimensions on mesh axis 0"),
        (lambda: Layout("S2").axes(2), "the mesh has 2 axes"),
        (lambda: ConstExpr[3], "expected an element type"),
        (lambda: int16(3), "can only be used inside a kernel"),
        (lambda: get_pid(), "get_pid() can only be used inside a kernel"),
    ],
)
def test_mistakes_in_types(make: Any, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        make()
    assert message in str(caught.value)


def test_string_layouts_count_axes_from_the_last() -> None:
    assert Layout("S1S2").axes(3) == Layout([S(1), S(0)]).axes(3) == (1, 0)
    assert Layout("S2S0").axes(3) == Layout([S(0), S(2)]).axes(3) == (0, 2)
    assert Layout("S1S0").axes(3) == Layout([S(1), S(2)]).axes(3) == (1, 2)
    assert Layout("RS0").axes(2) == (None, 1)


def test_regions_are_recorded_and_never_run() -> None:
    def top(A: Any) -> None:
        raise RuntimeError("regions are not executed")

    assert isinstance(top, FunctionType)
    recorded = df.region()(top)
    assert recorded.name == "top"
    assert recorded[2, 3].arguments == (2, 3)
    with pytest.raises(ProgramError, match=r"df\.build\(top"):
        recorded(1)


def test_targets_are_found_by_name_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_backend")
    module.build = lambda region, **options: (region, options)
    monkeypatch.setitem(sys.modules, "a_backend", module)
    targets: dict[str, str] = {}
    monkeypatch.setattr("allo_dse.lang.schedule.TARGETS", targets)
    monkeypatch.setattr("allo_dse.common.plugins.TARGETS", targets)
    register_target("toy", "a_backend:build")
    assert known_targets() == ("toy",)
    assert builder_of("toy")(1, strict=True, mode="fast") == (1, {"mode": "fast"})
    assert df.build("region", target="toy", project="x") == ("region", {"project": "x"})
    with pytest.raises(ProgramError, match=r"unknown target 'tpu'(.|\n)*hint: known targets: toy"):
        df.build("region", target="tpu")
    schedule = df.customize("region")
    schedule.partition("top:A", dim=1, factor=2)
    schedule.pipeline("i")
    built, options = schedule.build(target="toy", mode="csim")
    assert built.region == "region"
    assert options == {"mode": "csim"}
    assert [p.name for p in built.primitives] == ["partition", "pipeline"]


def test_errors_outside_of_kernels_are_at_the_line_that_was_running() -> None:
    with pytest.raises(ProgramError, match=r"int32\[\.\.\.\]") as caught:
        int32[...]
    assert caught.value.place["file"] == __file__
    assert caught.value.place["source_line"] == "        int32[...]"
    assert caught.value.place["column"] == 9
