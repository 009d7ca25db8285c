"""Many projects compiled as one program, because most of the time goes into the headers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from allo_dse.backends.fpga.hls.build_modes import FLAGS, load_results, save_arguments
from allo_dse.backends.fpga.hls.project import HlsProject

HEADERS = "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <allo_hls.h>\n#include <allo_check.h>\n"


class Batch:
    """A compiled set of projects, each in a namespace of its own."""

    def __init__(self, projects: Mapping[str, HlsProject], compiler: str, directory: Path) -> None:
        self.projects, self.directory = projects, directory
        next(iter(projects.values())).write(directory)
        helpers = {_testbench(project)[0] for project in projects.values()}
        parts = [f"namespace {name} {{\n{_code(project)}\n}}\n" for name, project in projects.items()]
        calls = [
            f'  if (!strcmp(argv[1], "{name}")) return {name}::run_all(argc - 1, argv + 1);\n' for name in projects
        ]
        main = "int main(int argc, char **argv) {\n" + "".join(calls) + "  return 9;\n}\n"
        (directory / "all.cpp").write_text("".join([HEADERS, *helpers, *parts, main]))
        command = [compiler, *FLAGS, "-o", "all", "all.cpp"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:6000]

    def run(self, name: str, *arrays: Any) -> list[Any]:
        """Run one project on copies of the arrays, which are returned."""
        copies = [np.array(a, copy=True) if isinstance(a, np.ndarray) else a for a in arrays]
        data = self.directory / f"data_{name}"
        data.mkdir(exist_ok=True)
        arguments = save_arguments(self.projects[name], copies, data)
        done = subprocess.run(
            ["./all", name, data.name], cwd=self.directory, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{name}: {done.returncode} {done.stderr}"
        load_results(self.projects[name], arguments, data)
        return copies


def _code(project: HlsProject) -> str:
    tensors = re.sub(r"^#.*$", "", project.files["tensors.h"], flags=re.MULTILINE)
    testbench = _testbench(project)[1].replace("int main(", "int run_all(")
    return _with_no_includes(project.files["kernel.cpp"] + tensors + testbench).replace('extern "C" ', "")


def _testbench(project: HlsProject) -> tuple[str, str]:
    """Templates, which all projects have, and what runs this one."""
    templates, start, rest = project.files["testbench.cpp"].partition("static long run(")
    _, _, templates = _with_no_includes(templates).partition("\n\n")  # behind what this program does
    return templates, start + rest


def _with_no_includes(text: str) -> str:
    return re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
