"""Studies of scripts, notebook cells and modules, in worker processes that know nothing of them."""

import json
import linecache
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.declare.pickled_study import PickledStudy
from allo_dse.tune.study import Study

from ..fakes import fake_study

PROGRAM = """
import allo_dse as dse
from allo_dse.lang import install
install()
import allo
import allo.dataflow as df
from allo.ir.types import int16
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate

def dense(P):
    @df.region()
    def top(X: int16[64, 64], W: int16[64, 64], Y: int16[64, 64]):
        @df.kernel(mapping=[P], args=[X, W, Y])
        def tile(x: int16[64, 64] @ [S(0), R], w: int16[64, 64] @ [R, R], y: int16[64, 64] @ [S(0), R]):
            y[:, :] = allo.matmul(x, w)
    return top

class Simulator:
    name, version, isolate = "simulator", 1, {isolate}
    def evaluate(self, design):
        from allo_dse.backends.npu.evaluator import NpuSimulator
        return NpuSimulator().evaluate(design)
"""
STUDY = """
study = dse.Study("dense", program=dense, params={"P": dse.choices([4, 8])}, device="npu1_4col", evaluator=Simulator,
                  objectives=[dse.minimize("latency_us")])
"""
LOADS = """
import sys, msgspec, json
from allo_dse.tune.declare.pickled_study import PickledStudy
study = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PickledStudy).load()
print(json.dumps([dict(study.make_evaluator().evaluate(found.design)) for found in study.space.designs()]))
"""


def run_cell(source: str, file: str, scope: dict[str, Any]) -> None:
    """Execute a cell as Jupyter does: its text is known to `linecache` only."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)


@pytest.fixture
def cell_study() -> Iterator[Study]:
    scope: dict[str, Any] = {"__name__": "__main__"}
    run_cell((PROGRAM + STUDY).replace("{isolate}", "True"), "<cell 1>", scope)
    yield scope["study"]
    del linecache.cache["<cell 1>"]


@pytest.fixture
def module_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    (tmp_path / "program_of_a_module.py").write_text(PROGRAM.replace("{isolate}", "False"))
    monkeypatch.syspath_prepend(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("from program_of_a_module import *\n" + STUDY, scope)
    found: Study = scope["study"]
    return found


@pytest.mark.parametrize("kind", ["cell_study", "module_study"])
def test_another_process_finds_the_same_designs_and_metrics(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    study: Study = request.getfixturevalue(kind)
    data = msgspec.msgpack.encode(PickledStudy.of(study))
    done = subprocess.run([sys.executable, "-c", LOADS], input=data, capture_output=True, cwd=tmp_path, check=True)
    expected = [dict(study.make_evaluator().evaluate(found.design)) for found in study.space.designs()]
    assert expected
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))


def test_a_notebook_cell_runs_with_workers(cell_study: Study, tmp_path: Path, cluster: Any) -> None:
    options: dict[str, Any] = {"progress": "quiet", "sampler": "exhaustive", "export": False}
    alone = cell_study.run(run_dir=tmp_path / "alone", **options)
    found = cell_study.run(run_dir=tmp_path / "workers", workers=2, ray_address=cluster.address, **options)
    assert {r.key: r.metrics for r in found.records} == {r.key: r.metrics for r in alone.records}
    assert found.values == alone.values
    assert {r.status for r in found.records} == {"ok"}


def test_what_cannot_be_pickled_is_explained() -> None:
    generator = (line for line in range(3))
    with pytest.raises(StudyError, match="cannot be sent to another process") as caught:
        PickledStudy.of(fake_study(verifier=lambda design: next(generator)))
    assert "create it inside the function" in caught.value.hint
