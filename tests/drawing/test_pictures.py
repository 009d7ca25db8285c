"""Pictures: what they show, and that nothing in them overlaps, at any size."""

from __future__ import annotations

import re
from itertools import combinations, product
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from allo_dse.backends.npu.drawing import placement_svg
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.place.placed_design import PlacedDesign
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import NpuDevice
from allo_dse.drawing import vmg_svg
from allo_dse.drawing.graphs import SIZE, lay_out
from allo_dse.drawing.summary import MAX_BOXES, summarise
from allo_dse.drawing.svg import COLORS, fit, styles, text_width
from allo_dse.mapper.fold.vmg import VMG

from ..backends.npu.place.designs import DESIGNS, attention, gemm
from ..mapper.laws import programs
from ..support.programs import attention_program, gemm_program, graph_program, mesh_program, producer_consumer

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


def placed_design(name: str) -> PlacedDesign:
    vmg, device = DESIGNS[name]
    placed = NpuMapping(vmg, NpuDevice.load(device)).placement
    assert isinstance(placed, PlacedDesign)
    return placed


class TestGraphs:
    def test_an_unfolded_gemm_is_three_boxes(self) -> None:
        summary = summarise(VMG.of(gemm_program()))
        assert [(box.name, box.nodes) for box in summary.boxes] == [
            ("gemm.first", 1024),
            ("gemm.middle", 30720),
            ("gemm.last", 1024),
        ]
        assert [(f.source, f.target, f.streams, f.tokens) for f in summary.flows] == [
            (0, 1, 1024, 1024),
            (1, 1, 29696, 29696),
            (1, 2, 1024, 1024),
        ]

    def test_a_folded_one_has_a_box_per_node(self) -> None:
        summary = summarise(gemm(2, 4, 2))
        assert len(summary.boxes) == 16
        assert summary.boxes[0].lines == ("2,048 tasks", "reads A 64x64, B 64x64")
        assert "128x[gemm.first; 15*gemm.middle]" in summary.boxes[0].tip
        assert {(f.streams, f.tokens) for f in summary.flows} == {(128, 128)}

    def test_tokens_are_counted(self) -> None:
        (flow,) = summarise(VMG.of(producer_consumer(n=16))).flows
        assert (flow.streams, flow.tokens) == (1, 256)
        assert "1 stream, 256 tokens" in texts(vmg_svg(VMG.of(producer_consumer(n=16))))

    def test_every_stream_array_is_in_the_legend(self) -> None:
        found = texts(vmg_svg(attention(8, 4)))
        for name in ("score", "weight", "scale", "partial"):
            assert any(text.startswith(f"{name}: ") for text in found)

    @pytest.mark.parametrize("count", [60, 500])
    def test_many_kernels_are_cut(self, count: int) -> None:
        vmg = VMG.of(graph_program([(f"a{i}", f"a{(i * 7 + 3) % count}") for i in range(count)]))
        summary = summarise(vmg)
        assert len(summary.boxes) == MAX_BOXES
        assert sum(box.nodes for box in summary.boxes) == count
        assert summary.boxes[-1].name == "everything else"
        assert len(vmg_svg(vmg)) < 100_000

    def test_two_million_tasks_are_a_small_picture(self) -> None:
        picture = vmg_svg(VMG.of(gemm_program(Pm=128, Pn=128, Pk=128)))
        assert len(picture) < 5_000
        assert "gemm: 2,097,152 tasks" in texts(picture)

    def test_streams_lead_downwards(self) -> None:
        summary = summarise(VMG.of(attention_program(rows=2, chunks=4)))
        layout = lay_out(summary, 100, 40, (0, 0))
        for flow in summary.flows:
            assert layout.corners[flow.target][1] > layout.corners[flow.source][1]

    def test_lanes_lead_past_boxes(self) -> None:
        layout = lay_out(summarise(VMG.of(mesh_program((4, 8), [(0, 1), (1, 0)]))), 100, 40, (0, 0))
        for wanted in range(0, 600, 37):
            lane = layout.lane(-50, 5000, wanted)
            assert not any(x < lane < x + 100 for x, _ in layout.corners)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_any_graph_is_drawn_without_overlaps(program: CompiledProgram) -> None:
    summary = summarise(VMG.of(program))
    assert sum(box.nodes for box in summary.boxes) == program.task_count
    layout = lay_out(summary, 100, 40, (0, 0))
    for (x1, y1), (x2, y2) in combinations(layout.corners, 2):
        assert abs(x1 - x2) >= 110 or abs(y1 - y2) >= 50
    root = parsed(vmg_svg(VMG.of(program)))
    boxes = [rect for rect in root.iter(f"{SVG}rect") if "fill-opacity" in rect.attrib]
    assert len(boxes) <= 3 * MAX_BOXES
    shaded = [_area(box) for box in boxes if box.get("fill-opacity") != "0.0"]
    amounts = [_text_area(text) for text in root.iter(f"{SVG}text") if text.get("font-size") == f"{SIZE:g}"]
    for one, other in [*combinations(amounts, 2), *product(amounts, shaded)]:
        assert not _overlap(one, other)


def _area(box: ElementTree.Element) -> tuple[float, ...]:
    x, y, width, height = (float(box.get(name, "0")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def _text_area(text: ElementTree.Element) -> tuple[float, ...]:
    x, y = float(text.get("x", "0")), float(text.get("y", "0"))
    return x, y - SIZE, x + text_width(text.text or "", SIZE), y


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_names_that_fit_are_not_shortened() -> None:
    vmg = attention(8, 4)
    assert {f"cal_softmax_{column}x2" for column in range(4)} <= set(texts(vmg_svg(vmg)))


class TestPlacements:
    @pytest.mark.parametrize("name", ["gemm on one column", "attention", "gemm 4x8"])
    def test_every_node_and_tile_is_named(self, name: str) -> None:
        placed = placed_design(name)
        found = texts(placement_svg(placed))
        for need in placed.problem.nodes:
            assert any(text == need.name or ("…" in text and text.split("…")[0] in need.name) for text in found)
        for column in range(placed.problem.limits.columns):
            assert f"memory({column},1)" in found

    def test_bytes_and_channels_are_shown(self) -> None:
        found = texts(placement_svg(placed_design("gemm on one column")))
        assert found.count("51.2 KiB of 64 KiB") == 4
        assert found.count("DMA in 2/2, out 1/2") == 4
        assert "DMA in 6/6, out 5/6" in found

    def test_every_route_is_drawn_hop_by_hop(self) -> None:
        placed = placed_design("attention")
        picture = placement_svg(placed)
        for route in placed.routes:
            tip = f"<title>{route.kind} {route.index} ({route.name}): "
            assert picture.count(tip) == len(route.hops)

    def test_shared_streams_say_where_their_buffers_are(self) -> None:
        placed = placed_design("gemm in half chains")
        picture = placement_svg(placed)
        for owner in placed.owners:
            assert f"stream pipe: 16,384 bytes in the memory of {owner}" in picture

    def test_boxes_do_not_overlap(self) -> None:
        root = parsed(placement_svg(placed_design("gemm 4x8")))
        boxes = [
            tuple(float(rect.get(k, "0")) for k in ("x", "y", "width", "height"))
            for rect in root.iter(f"{SVG}rect")
            if float(rect.get("height", "0")) > 20
        ]
        assert len(boxes) == 2 * 8 * 6
        for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(boxes, 2):
            assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1

    def test_a_wire_joins_one_switch_to_the_next(self) -> None:
        """The end of each hop is the beginning of the one that follows it."""
        placed = placed_design("gemm on one column")
        route = next(r for r in placed.routes if r.kind == "flow" and len(r.hops) > 2)
        picture = placement_svg(placed)
        tip = f"<title>{route.kind} {route.index} "
        paths = [re.findall(r"[-\d.]+ [-\d.]+", line) for line in picture.splitlines() if tip in line]
        starts, ends = {points[0] for points in paths}, {points[-1] for points in paths}
        assert len(starts & ends) == sum(hop.target.side != "dma" for hop in route.hops)


def test_pictures_take_the_colours_of_the_page() -> None:
    """No black or white: text is in the page's colour, and the rest shows on light and dark."""
    for picture in (vmg_svg(gemm(1, 4, 4)), placement_svg(placed_design("gemm on one column"))):
        colors = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]+|\w+)"', picture))
        assert colors <= {*COLORS, "#808080", "none", "currentColor"}
        assert "http://www.w3.org/2000/svg" in picture
        assert "@import" not in picture
        assert "href" not in picture


def test_styles_tell_names_apart() -> None:
    assert len(set(styles(map(str, range(24))).values())) == 24


def test_long_names_keep_their_ends() -> None:
    short = fit("gemm_0_0_0-gemm_1_0_0-gemm_2_0_0x128", 100)
    assert text_width(short) <= 100
    assert short.startswith("gemm_0")
    assert short.endswith("128")


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("ground", ["#ffffff", "#111827"])
def test_colours_stand_out_on_light_and_dark_pages(color: str, ground: str) -> None:
    """At least 3:1, which accessibility guidelines (WCAG 2) ask of graphics."""

    def luminance(text: str) -> float:
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(color), luminance(ground)))
    assert (light + 0.05) / (dark + 0.05) >= 3
