"""Compiled task bodies are read from disk by later processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import allo_dse
from allo_dse.common.mlir import jit
from allo_dse.simulator.codegen import bodies, compile_server
from allo_dse.simulator.codegen.signature import Body

BODY = Body(
    "put",
    """
func.func @put(%out: index) {
  %v = arith.constant 3 : i32
  affine.for %i = 0 to 4 {
    "df.put"(%out, %v) {op = 0} : (index, i32) -> ()
    "df.cost"() {site = 0} : () -> ()
  }
  return
}""",
)
PROGRAM = f"""
from allo_dse.simulator import NetworkBuilder
from allo_dse.simulator.engine.engine import compile_bodies
from allo_dse.simulator.codegen.signature import Body
engine = compile_bodies([{BODY!r}])
builder = NetworkBuilder()
words = engine.signatures["put"].words(1, [builder.stream(8, token_bytes=4)], cost_site=builder.costs([7]))
builder.tasks("put", words)
result = engine.run(builder.build())
print(result.finished, result.cycles)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_same_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_server.compiled_bodies([BODY])
    recording = compile_server.compiled_bodies([BODY], record=True)
    assert recording.object_file != first.object_file
    monkeypatch.setattr(bodies, "compile_bodies", None)
    assert compile_server.compiled_bodies([BODY]) == first
    assert compile_server.compiled_bodies([BODY], record=True) == recording


@pytest.mark.parametrize("changed", ["_mlir_version", "processor"])
def test_another_compiler_or_processor_compiles_anew(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_server.compiled_bodies([BODY])
    monkeypatch.setattr(compile_server, changed, lambda: "another")
    compile_server._compiler.cache_clear()
    monkeypatch.setattr(compile_server, "compiled", None)
    with pytest.raises(TypeError):
        compile_server.compiled_bodies([BODY])
    compile_server._compiler.cache_clear()


def test_processes_at_the_same_time_and_later_and_copies_of_the_package_get_the_same(tmp_path: Path) -> None:
    together = [_start() for _ in range(2)]
    answers = {process.communicate(timeout=600)[0] for process in together}
    package = Path(allo_dse.__file__).parent
    shutil.copytree(package, tmp_path / "copy" / package.name, copy_function=shutil.copyfile)  # with times of its own
    assert answers == {_start(tmp_path / "copy").communicate(timeout=600)[0]} == {"True 28\n"}
    assert len([path for path in jit.directory().rglob("*") if path.is_file()]) == 2  # the run time and the body


def _start(folder: Path | None = None) -> subprocess.Popen[str]:
    """A process that has the package of a folder."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=folder, stdout=subprocess.PIPE, text=True)
