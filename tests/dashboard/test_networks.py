"""Networks that were mapped are listed by the dashboard, with runs or without, and each opens its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allo_dse.dashboard.app.networks import KEPT
from allo_dse.dashboard.cli import _only_networks

from .conftest import served
from .synthetic import write_run

PAGE = "<!doctype html><html><head><title>two on npu2</title></head><body><h1>two on npu2</h1></body></html>"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which a network was mapped."""
    folder = tmp_path / "runs" / KEPT / "two-npu2"
    folder.mkdir(parents=True)
    facts = {
        "network": "two <layers>",
        "device": "npu2",
        "latency_us": 1234.5,
        "launches": [{}, {}],
        "certificate": "no",
    }
    (folder / "composition.json").write_text(json.dumps(facts))
    (folder / "network.html").write_text(PAGE)
    for name, text in (("being-written", "{"), ("of-another-kind", "[]")):
        (folder.with_name(name)).mkdir()
        (folder.with_name(name) / "composition.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("with_run", [False, True])
def test_a_network_has_a_row_that_opens_its_page(here: Path, with_run: bool, shared: Any) -> None:
    runs = [write_run(here / "runs" / "made", 50)] if with_run else []
    assert _only_networks() is not with_run
    with served(*runs) as (url, _):
        page = shared.new_page()
        page.goto(url)
        if with_run:
            page.click("text=Networks")
        page.wait_for_selector("td")
        assert page.locator("td").all_text_contents() == ["two <layers>", "npu2", "1,234", "2", "no"]
        page.click("td a")
        page.wait_for_selector("text=two on npu2")
        assert page.goto(f"{url}/networks/other").status == 404
        page.close()


def test_nothing_is_said_of_networks_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not _only_networks()
