"""Networks that were mapped are listed by the dashboard, with runs or without, and each opens its page."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from allo_dse.cli.commands.dashboard import _only_networks
from allo_dse.dashboard.app.networks import KEPT

from ..support.listening import listening
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
        "runtime": "calls",
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
        cells = page.locator("td").all_text_contents()
        assert datetime.fromisoformat(cells.pop(5)) <= datetime.now()  # models of one name are told apart by the time
        assert cells == ["two <layers>", "npu2", "calls", "1,234", "2", "no"]
        page.click("td a")
        page.wait_for_selector("text=two on npu2")
        assert page.goto(f"{url}/networks/other").status == 404
        page.close()


def test_nothing_is_said_of_networks_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not _only_networks()


SECRET = "what is outside of the folder of runs"
UPWARDS = ("..", "%2e%2e", "%252e%252e", ".%2e", "..%00", "..;", "..%c0%af")
SLASHES = ("/", "%2f", "%252f", "\\", "%5c", "//")


def test_no_address_leads_out_of_what_is_served(here: Path) -> None:
    """By any spelling, absolute or through links, under every address that has a part of its own."""
    (here / "secret.html").write_text(SECRET)
    pages = here / "runs" / KEPT
    facts = (pages / "two-npu2" / "composition.json").read_text()
    for name, made in (("linked", "file"), ("linked-folder", "folder")):
        outside = here / f"outside-{name}"
        outside.mkdir()
        (outside / "composition.json").write_text(facts)
        (outside / "network.html").write_text(SECRET)
        if made == "folder":
            (pages / name).symlink_to(outside)
        else:
            (pages / name).mkdir()
            (pages / name / "composition.json").write_text(facts)
            (pages / name / "network.html").symlink_to(here / "secret.html")
    asked = [
        slash.join([*[upward] * depth, "secret.html"]) for upward in UPWARDS for slash in SLASHES for depth in (1, 3, 9)
    ]
    asked += [str(here / "secret.html"), quote(str(here / "secret.html"), safe=""), f"file://{here}/secret.html"]
    asked += [f"linked-{number}" for number in range(6)] + [f"linked-folder-{number}" for number in range(6)]
    with served(write_run(here / "runs" / "made", 5)) as (url, _):
        at = urlsplit(url)
        connection = HTTPConnection(str(at.hostname), at.port)

        def answer(address: str) -> tuple[int, str]:
            connection.request("GET", address)  # as it stands: urllib and browsers would shorten it
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")

        for before in ("/", "/networks/", "/assets/", "/_dash-component-suites/dash/", "/_dash-component-suites/"):
            for path in asked:
                status, text = answer(before + path)
                assert SECRET not in text, before + path
                assert status < 500, before + path
        assert answer("/assets/style.css")[0] == 200
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_dashboard_listens_on_this_computer_only(tmp_path: Path) -> None:
    before = listening({os.getpid()})
    with served(write_run(tmp_path / "made", 5)):
        assert listening({os.getpid()}) - before <= {"127.0.0.1"}
        assert "127.0.0.1" in listening({os.getpid()})
