"""Who can reach the processes of a run: the kernel is asked while it goes on."""

import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.workers.ray_access import RayFolder

from ...support.listening import descendants, listening
from ..fakes import FakeEvaluator
from .conftest import EXHAUSTIVE, ray_files, study

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


class Looks(FakeEvaluator):
    """Notes who listens where, while the run goes on in workers."""

    def __init__(self, driver: int, notes: Path) -> None:
        super().__init__()
        self.driver, self.notes = driver, notes

    def evaluate(self, design: Any) -> Any:
        folders = [file.parents[2] for file in ray_files(self.driver, "sockets")]
        said = {
            "addresses": sorted(listening(descendants(self.driver))),
            "modes": [stat.S_IMODE(folder.stat().st_mode) for folder in folders],
        }
        with self.notes.open("a") as file:
            file.write(json.dumps(said) + "\n")
        return super().evaluate(design)


def test_the_kernel_is_asked_the_right_question() -> None:
    with socket.socket() as everywhere, socket.socket() as here:
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen()
        here.bind(("127.0.0.1", 0))
        here.listen()

        assert {"0.0.0.0", "127.0.0.1"} <= listening({os.getpid()})


def test_a_run_with_workers_listens_on_this_computer_only(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    study(Looks(os.getpid(), notes)).run(4, workers=2, run_dir=tmp_path / "run", **EXHAUSTIVE)
    said = [json.loads(line) for line in notes.read_text().splitlines()]
    assert said
    assert {address for one in said for address in one["addresses"]} == {"127.0.0.1"}
    assert {mode for one in said for mode in one["modes"]} == {0o700}


def test_the_folder_of_sockets_is_its_owners() -> None:
    folder = RayFolder()
    try:
        assert stat.S_IMODE(Path(folder.make()).parent.stat().st_mode) == 0o700
    finally:
        folder.remove()
