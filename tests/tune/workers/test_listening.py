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

from ..fakes import FakeEvaluator
from .conftest import EXHAUSTIVE, ray_files, study

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
LISTENS = "0A"  # of the states in /proc/net/tcp


def listening(processes: set[int]) -> set[str]:
    """The addresses that some processes listen on."""
    inodes = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(link.readlink().name)
            except OSError:
                continue  # closed meanwhile
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in inodes:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    """An address that the kernel has written as words of 32 bits, each in the order of this machine."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:")


def descendants(process: int) -> set[int]:
    found, todo = set(), [process]
    while todo:
        found.add(one := todo.pop())
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                todo += [int(text) for text in task.read_text().split() if int(text) not in found]
            except OSError:
                continue
    return found


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
