"""The page of a composition: every operator, launch and part of the time is on it, and it refers to nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.networks.compose import Composition, compositions
from allo_dse.networks.export.page import graph_svg, page_html, sources_of
from allo_dse.networks.fronts import search_fronts
from allo_dse.networks.network import Arrange, Step
from allo_dse.networks.operators import binary_work, element_type, unary_work

ELEMENTS = 4096


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> list[Composition]:
    """Two functions of one input, one of the first's elements turned around, and the product of its two ends."""
    element = element_type("bf16")
    net = dse.Network("a<b")
    x = net.input("x", (64, 64))
    first = net.add(unary_work("relu", ELEMENTS, element), x, name="first", shape=(64, 64))
    turned = net.add(Arrange(np.transpose, False), first, name="turned")
    last = net.add(unary_work("gelu", ELEMENTS, element), turned, name="last")
    both = net.add(binary_work("mul", ELEMENTS, element), first, last, name="both")
    net.output(net.add(unary_work("silu", ELEMENTS, element), x, name="other"), both, last)
    fronts = search_fronts(net, "npu1_2col", trials=2, cache=tmp_path_factory.mktemp("cache"))
    return compositions(fronts, runtime="launches")


def test_everything_is_on_the_page(front: list[Composition], tmp_path: Path) -> None:
    page = page_html(front[-1], front)
    assert "<title>a&lt;b on npu1_2col</title>" in page
    for launch in front[-1].launches:
        assert f"launch {launch.number}: " in page
        for run in launch.runs:
            assert f">{run.step.name}</text>" in page
            assert f"{run.step.name}: {run.start_us:,.1f} to {run.end_us:,.1f} us" in page
    for name, us in front[-1].time_us.items():
        assert f">{name}</text>" in page
        assert f"{us:,.0f} us, " in page
    assert 'stroke-dasharray="4 3"' in page  # from the first to the last, whose elements are turned around
    assert re.findall(r'<path d="M[^"L]*L([^" ]*)[^"]*(?:L[^"L]*){4}"', page)  # from the first to the product of both
    graph = graph_svg(front[-1])
    (width,) = re.findall(r'<svg[^>]* width="([\d.]+)"', graph)
    assert max(float(x) for x in re.findall(r"[ML]([\d.]+) ", graph)) < float(width)
    for one in front if len(front) > 1 else ():
        assert f"<td>{one.where}</td><td>{one.latency_us:,.0f}</td><td>{len(one.launches)}</td>" in page
    assert len(re.findall("<circle", page)) == (len(front) if len(front) > 1 else 0)
    assert not re.findall(r'(?:src|href)="', page)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("up_projection+relu", "up_projection+relu"),
        ("/a/Conv.product+/a/Conv+/a/body.2/Relu", "/a/Conv+Relu"),
        ("/a/Conv.product", "/a/Conv.product"),
        ("/a/Conv+/b/Add", "/a/Conv+Add"),
    ],
)
def test_names_do_not_repeat_themselves(name: str, title: str) -> None:
    assert Step(name, Arrange(np.transpose, False), (), "").title == title


def test_what_a_tensor_is_made_of_is_known_through_rearrangements(front: list[Composition]) -> None:
    assert sources_of(front[-1].fronts.network) == {"turned.result": [("first.result", True)]}
