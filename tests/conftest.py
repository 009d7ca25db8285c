"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os

# Read when NumPy is imported, here and in processes that tests start: for small matrices other threads only spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.internal.entropy
import pytest
from _pytest.terminal import TerminalReporter
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import HealthCheck, settings

from allo_dse.lang import install

from .support.others_data import ABSENT

install()  # so that each test module can import programs, whichever module pytest imports first

# Tests never fail for taking long, and a run of CI tries what the run before it tried.
settings.register_profile(
    "project", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")
# Nothing draws from NumPy's global generator (ruff NPY002): to save and seed it is most of the time between examples.
hypothesis.internal.entropy.NP_RANDOM = False  # type: ignore[assignment]
with hypothesis.internal.entropy.deterministic_PRNG():
    pass  # the first time it collects garbage, of which there is little now


gc.disable()  # while tests are collected, of which most objects live to the end: a fifth of the time would go there
NEW_OBJECTS = 20_000
"""More of them than were freed begin a collection, not 700: a sixth of the time of tests went there."""


LONG = (
    "tune/workers/test_ray_deaths.py", "dashboard/test_browser.py", "networks/test_studies.py",
    "tune/workers/test_ray.py", "tune/workers/test_isolation.py", "tune/run/test_optuna_storage.py", "cli/test_tune.py",
    "backends/fpga/hls/test_csim.py", "test_examples.py", "simulator/replay/test_designs.py",
    "simulator/replay/test_trace.py", "test_guides.py", "eval/rtl/test_rtl.py", "backends/fpga/test_shared_costs.py",
    "simulator/replay/test_replay.py", "test_notebooks.py", "backends/npu/test_accuracy.py", "soak/test_soak.py",
    "dashboard/test_fpga_design.py", "dashboard/test_gestures.py", "studies/test_mappings.py",
    "tune/search/test_promotion.py", "cli/test_runs.py", "tune/workers/test_listening.py",
    "tune/workers/test_pickled_study.py", "mapper/fold/test_node_fold_search.py", "networks/test_compose.py",
    "networks/test_accuracy.py", "studies/test_npu.py", "studies/test_fpga.py", "networks/test_fpga.py",
    "dashboard/test_report.py", "simulator/engine/test_timeline.py", "tune/run/test_withdrawal.py",
    "cli/test_calibrate.py", "eval/calibrate/test_calibration.py", "tune/search/test_exact.py",
    "backends/npu/allo/test_allo_verdicts.py", "networks/operators/test_in_dram.py",
)  # fmt: skip
"""Files that take longest for their number of tests, the longest first: at the end one process would be left with
them. The others come by their number of tests."""


WAITING = (
    "dashboard/", "backends/fpga/hls/test_hls.py", "tune/run/test_optuna_storage.py", "tune/workers/test_isolation.py",
    "tune/workers/test_listening.py", "tune/workers/test_pickled_study.py", "tune/workers/test_ray.py",
    "tune/workers/test_ray_deaths.py", "cli/test_tune.py",
)  # fmt: skip
"""Folders and files whose tests wait for other processes most of the time: browsers, Ray, tools that hang."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if gone := [name for name in (*LONG, *WAITING) if not (Path(__file__).parent / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py orders files that do not exist: {', '.join(gone)}")
    count = Counter(item.path for item in items)
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: (place.get(item.path, len(LONG)), -count[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Files that wait go to the last process as long as there are any, and the others to those before it: with one
    process more than cores, no core idles, and tests that compute seldom share one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Beside(LoadFileScheduling):  # type: ignore[misc]  # without types
        def _assign_work_unit(self, node: Any) -> None:
            waits = node.gateway.id == f"gw{self.numnodes - 1}"
            for file in self.workqueue:
                if file.removeprefix("tests/").startswith(WAITING) == waits:
                    self.workqueue.move_to_end(file, last=False)
                    break
            super()._assign_work_unit(node)

    return Beside(config, log)


def pytest_configure(config: pytest.Config) -> None:
    # Of five collections at the end, which look for what nobody has raised, four find nothing.
    config.stash[gc_collect_iterations_key] = 1


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


OTHER_PYTHON = "Python 3."
"""In the reason of every test that another version of Python runs."""


def _skips(reporter: TerminalReporter) -> dict[str, int]:
    """How many tests were skipped for which reason."""
    reasons = (report.longrepr for report in reporter.stats.get("skipped", []))
    return Counter(reason[2] if isinstance(reason, tuple) else str(reason) for reason in reasons)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say what was skipped and why, and how to install it."""
    skips = {reason: count for reason, count in _skips(terminalreporter).items() if OTHER_PYTHON not in reason}
    if not skips:
        return
    terminalreporter.section("not tested here")
    for reason, count in sorted(skips.items()):
        terminalreporter.line(f"{count} x {reason.removeprefix('Skipped: ')}")
    if not all(ABSENT in reason for reason in skips):
        terminalreporter.line("`sudo make system-packages` installs every program that tests use (Debian)")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI everything is tested: a skipped test is a failure, unless another version of Python runs it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "CI" in os.environ and reporter is not None and any(OTHER_PYTHON not in reason for reason in _skips(reporter)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with `golden/<name>` beside the test; `--update-golden` rewrites the file instead."""

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest with --update-golden"
        assert text == path.read_text()

    return check
