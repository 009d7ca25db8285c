"""`python -m allo_dse.lang` runs programs that know nothing of allo-dse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import allo.dataflow as df
import numpy as np
from allo.ir.types import int32
from sizes import N

@df.region()
def top(A: int32[N], B: int32[N]):
    @df.kernel(mapping=[1], args=[A, B])
    def look_up(a: int32[N], b: int32[N]):
        for i in range(N):
            at: int32 = a[i]
            b[i] = a[at]

A, B = np.array([1, 2, 3, int(sys.argv[1])], np.int32), np.zeros(4, np.int32)
df.build(top, target="simulator")(A, B)
print(B.tolist())
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "sizes.py").write_text("N = 4")
    command = [sys.executable, "-m", "allo_dse.lang", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_a_program_runs_unchanged(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "program.py"), "0")
    assert (done.returncode, done.stdout) == (0, "[2, 3, 0, 1]\n"), done.stderr


def test_an_error_of_the_program_has_no_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "program.py"), "4")
    assert done.returncode == 2
    assert "program.py:14:22: index `at` into dimension 0 of size 4 is 4 in look_up_0" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_runs_as_a_program_does(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import allo.dataflow\ndef test_it(): assert allo.dataflow.region\n")
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py"))
    done = run(tmp_path, *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_help_and_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert run(tmp_path, "--help").returncode == 0
    assert run(tmp_path, "-m").returncode == 2
    missing = run(tmp_path, "nothing.py")
    assert missing.returncode == 2
    assert "there is no program nothing.py" in missing.stderr


FLAT = """
import allo.dataflow as df
import numpy as np
from allo.ir.types import int32

def flat(A: int32[2, 2]):
    for i in range(4):
        A[0, i] = i

A = np.zeros((2, 2), np.int32)
df.build(flat)(A)
print(A.tolist())
"""


def test_options_before_the_program(tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT)
    done = run(tmp_path, "--strict", "--check=run", str(tmp_path / "flat.py"))
    assert (done.returncode, done.stdout) == (0, "[[0, 1], [2, 3]]\n"), done.stderr
    assert run(tmp_path, str(tmp_path / "flat.py")).returncode == 2
    assert "unknown option --chek=run" in run(tmp_path, "--chek=run", str(tmp_path / "flat.py")).stderr
    assert "check='never' is not known" in run(tmp_path, "--check=never", str(tmp_path / "flat.py")).stderr


def test_an_array_that_is_looked_for_in_a_function_is_an_error_at_its_line(tmp_path: Path) -> None:
    program = FLAT.replace("df.build(flat)(A)", "import allo\ns = allo.customize(flat)\ns.partition(flat.A)")
    (tmp_path / "flat.py").write_text(program.replace("A[0, i]", "A[0, 0]"))
    done = run(tmp_path, str(tmp_path / "flat.py"))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "flat.py:13:1: error: `flat` is a function: it has no `A`" in done.stderr
    assert "hint: arrays are named by its schedule: s.A" in done.stderr


def test_a_module_of_allo_is_found_around_the_program_or_is_an_error_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    program = tmp_path / "tests" / "uses.py"
    program.write_text("import sys\nfrom allo.library.shapes import T\nprint(T)\nimport allo.nothing\n")
    missing = run(tmp_path, str(program))
    assert f"{program.name}:2:1: error: allo-dse has no allo.library" in missing.stderr
    (tmp_path / "allo" / "library").mkdir(parents=True)
    (tmp_path / "allo" / "library" / "shapes.py").write_text("from allo.ir.types import int8\nT = int8[4]\n")
    found = run(tmp_path, str(program))
    assert (found.returncode, found.stdout, "Traceback" in found.stderr) == (2, "int8[4]\n", False), found.stderr
    assert f"{program.name}:4:1: error: allo-dse has no allo.nothing" in found.stderr
