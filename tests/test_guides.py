"""The commands of the guides from a front to silicon run as they stand, but for those that need a board; and searches
end as docs quote them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .support.commands import allo_tune

ROOT = Path(__file__).parent.parent


QUOTED = re.findall(r"\$ allo-tune (.+)\n((?:not )?complete: .+)\n", (ROOT / "docs" / "tuning.md").read_text("utf-8"))


@pytest.mark.parametrize(("arguments", "end"), QUOTED)
def test_a_search_ends_as_the_docs_quote_it(arguments: str, end: str, tmp_path: Path) -> None:
    done = allo_tune(*arguments.split(), f"--run-dir={tmp_path}", environment={"COLUMNS": "400"})
    assert end.removesuffix(" ...") in done.stdout, done.stderr


def test_the_docs_quote_a_search_that_ends_with_a_proof_and_one_that_does_not() -> None:
    assert [end.partition(":")[0] for _, end in QUOTED] == ["complete", "not complete"]


@pytest.mark.parametrize("name", ["silicon_npu", "silicon_fpga"])
def test_the_commands_of_a_guide_run(name: str, tmp_path: Path) -> None:
    if name == "silicon_fpga" and not (shutil.which("g++") and shutil.which("make")):
        pytest.skip("needs g++ and make")
    for folder in ("studies", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    # By a shell, `allo-tune` is the command that was installed; alone it begins with the package imported.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    commands = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    assert len(commands) >= 3
    for command in commands:
        if command.startswith("allo-tune ") and "&&" not in command:
            done = allo_tune(*shlex.split(command)[1:], cwd=tmp_path)
        else:
            done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
