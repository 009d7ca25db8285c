"""The tests that reach a function, run with the function changed: in a child process, or in a copy of the package."""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest
from hypothesis import Phase, settings

from benchmarks.mutation.mutants import ROOT, Mutant

TESTS = (
    "mapper",
    "space",
    "simulator",
    "backends/fpga",
    "eval/npu",
    "eval/fpga",
    "eval/program",
    "eval/test_verify.py",
)
PARTS = ("allo_dse", "tests", "studies", "benchmarks", "docs", "examples")
FILES = ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
TEST_SECONDS = 40
"""Of computing: a test that needs more does not end."""
MEMORY_BYTES = 16 << 30
FEW_EXAMPLES = 3
"""How many examples of a law tell which functions it reaches."""

SETTINGS = "_hypothesis_internal_use_settings"
NOT_IN_A_FUNCTION = "not in a function"

Reached = dict[str, list[str]]
"""By `file:function`, or `file` alone: the tests that reach it, the shortest first."""


def with_tests(run: Callable[[Killers], None], reached: Path) -> None:
    """Collects all tests and calls `run`."""
    options = ["-q", "-s", "-W", "ignore", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
    os.chdir(ROOT)
    plugin = _Collected(run, reached)
    status = pytest.main([*options, *(f"tests/{name}" for name in TESTS)], plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(status)


class _Collected:
    """What takes the place of pytest's own loop over the tests."""

    def __init__(self, run: Callable[[Killers], None], reached: Path) -> None:
        self.run, self.reached, self.imported = run, reached, Reach()

    def pytest_sessionstart(self) -> None:
        self.imported.__enter__()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.imported.__exit__()
        self.run(Killers(session, self.reached, self.imported.functions()))
        return True


class Reach:
    """The functions of the package that are entered while this is open."""

    def __init__(self) -> None:
        self._seen: set[CodeType] = set()

    def __enter__(self) -> None:
        seen = self._seen

        def enter(frame: FrameType, event: str, argument: object) -> None:
            seen.add(frame.f_code)  # no local trace function: lines cost nothing

        sys.settrace(enter)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def functions(self) -> set[str]:
        package = str(ROOT / "allo_dse")
        found = (code for code in self._seen if code.co_filename.startswith(package) and code.co_name != "<module>")
        return {f"{Path(code.co_filename).relative_to(ROOT)}:{_outermost(code.co_qualname)}" for code in found}


def _outermost(name: str) -> str:
    return name.split(".<locals>")[0]


class Killers:
    """Which test fails when a mutant takes the place of the code.

    `imported` are the functions that ran when the tests were collected: what they returned then is still there.
    """

    def __init__(self, session: pytest.Session, kept: Path, imported: set[str]) -> None:
        self._session, self._imported = session, imported
        self._items = {item.nodeid: item for item in session.items}
        if not kept.exists():
            kept.write_text(_in_child(lambda say: say(json.dumps(_reached(session)))))
        self._reached: Reached = json.loads(kept.read_text())

    def _tests(self, mutant: Mutant) -> list[str]:
        """Tests that reach the function, or else its file, or else its folder: calls of compiled code are not seen."""
        function, folder = f"{mutant.file}:{mutant.function}", str(Path(mutant.file).parent)
        beside = [test for name, tests in self._reached.items() if name.startswith(folder) for test in tests]
        return self._reached.get(function) or self._reached.get(mutant.file) or list(dict.fromkeys(beside))

    def of(self, mutant: Mutant) -> str:
        """The first test that fails, or nothing."""
        name = mutant.function
        tests = [test for test in self._tests(mutant) if test in self._items]
        if not tests:
            return ""
        if not name or "from .jit import compiled" in mutant.text:
            return _in_copy(mutant, tests)

        def run(say: Callable[[str], None]) -> None:
            if not _replace(mutant):
                say(NOT_IN_A_FUNCTION)
            _run([self._items[test] for test in tests], say)

        verdict = _in_child(run)
        # What a function returned while tests were collected may have hidden the change.
        is_hidden = not verdict and f"{mutant.file}:{name}" in self._imported
        return _in_copy(mutant, tests) if is_hidden or verdict == NOT_IN_A_FUNCTION else verdict


def _in_child(run: Callable[[Callable[[str], None]], None]) -> str:
    """What `run` says first in a child process, or that it died."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with contextlib.suppress(BaseException):
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

            def say(text: str) -> None:
                with os.fdopen(write, "w") as pipe:
                    pipe.write(text)
                os._exit(0)

            run(say)
            os._exit(0)
        os._exit(1)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said or ("does not end, or ends the process" if status else "")


def _run(items: list[pytest.Item], say: Callable[[str], None]) -> None:
    """Runs tests up to the first that fails; laws are not reduced to their simplest counterexample."""

    class First:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                say(report.nodeid)

    items[0].config.pluginmanager.register(First())
    for item, following in zip(items, [*items[1:], None], strict=True):
        _examples(item, lambda old: settings(old, phases=[Phase.explicit, Phase.generate]))
        signal.setitimer(signal.ITIMER_PROF, TEST_SECONDS)  # the process's own time; at its end the process ends
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _examples(item: pytest.Item, change: Callable[[settings], settings]) -> None:
    """Changes with how many examples, and how, Hypothesis tries a law; other tests stay as they are."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    if test is not None and hasattr(test, "hypothesis"):
        old = getattr(test, SETTINGS, settings.default)
        setattr(test, SETTINGS, change(settings(old, derandomize=True, database=None)))


def _reached(session: pytest.Session) -> Reached:
    """Runs every test once, with few examples of laws. Tests that fail without a mutant are left out."""
    found: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    failed: set[str] = set()

    class Failures:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed or report.skipped:
                failed.add(report.nodeid)

    session.config.pluginmanager.register(Failures())
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        _examples(item, lambda old: settings(old, max_examples=FEW_EXAMPLES))
        reach, start = Reach(), time.process_time()
        with reach:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = time.process_time() - start
        functions = reach.functions()
        for name in functions | {name.split(":")[0] for name in functions}:
            found.setdefault(name, set()).add(item.nodeid)
    together: dict[str, list[str]] = {}
    for item in session.items:
        together.setdefault(str(item.path) if _shares(item.path) else item.nodeid, []).append(item.nodeid)
    mates = {test: group for group in together.values() for test in group}
    reaching = {name: {mate for test in tests for mate in mates[test]} - failed for name, tests in found.items()}
    return {name: sorted(tests, key=lambda test: (seconds[test], test)) for name, tests in reaching.items()}


def _shares(path: Path) -> bool:
    """Whether tests of a file use what one of them made: then each reaches what any of them does."""
    text = path.read_text(encoding="utf-8")
    return 'scope="' in text or "cache" in text


def _replace(mutant: Mutant) -> bool:
    """Gives every function object of the changed function the new code; false where only its surroundings changed."""
    path = str(ROOT / mutant.file)
    new = _codes(compile(mutant.text, path, "exec"))
    old = _codes(compile(ast.unparse(ast.parse(Path(path).read_text(encoding="utf-8"))), path, "exec"))
    changed = [i for i, (one, two) in enumerate(zip(old, new, strict=True)) if not _alike(one, two)]
    # Functions of one name, such as a property and its setter, are told apart by their order.
    names = {(old[i].co_qualname, [c.co_qualname for c in old[:i]].count(old[i].co_qualname)): new[i] for i in changed}
    functions = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__.co_filename == path]
    lines: dict[str, set[int]] = {}
    for function in functions:
        lines.setdefault(function.__code__.co_qualname, set()).add(function.__code__.co_firstlineno)
    replaced = False
    for function in functions:
        code = function.__code__
        key = (code.co_qualname, sorted(lines[code.co_qualname]).index(code.co_firstlineno))
        if key in names:
            function.__code__ = names[key]
            replaced = True
    return replaced


def _codes(code: CodeType) -> list[CodeType]:
    """The code of functions that are not inside another function, in the order of the file."""
    found: list[CodeType] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_class = not constant.co_flags & 0x2  # CO_NEWLOCALS: functions, not bodies of classes
            found += _codes(constant) if is_class else [constant]
    return found


def _alike(one: CodeType, two: CodeType) -> bool:
    if one.co_code != two.co_code or one.co_names != two.co_names or len(one.co_consts) != len(two.co_consts):
        return False
    pairs = zip(one.co_consts, two.co_consts, strict=True)
    return all(
        _alike(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else (type(a), a) == (type(b), b)
        for a, b in pairs
    )


def _in_copy(mutant: Mutant, tests: list[str]) -> str:
    """The same in a copy of the package, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / ROOT.name
        place.mkdir()
        if (ROOT.parent / "shared").exists():  # measured data that some tests read
            (place.parent / "shared").symlink_to(ROOT.parent / "shared")
        for name in PARTS:
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, place / name)
        (place / mutant.file).write_text(mutant.text, encoding="utf-8")
        options = ["-x", "-q", "-p", "no:cacheprovider", "-n", "0", "-o", f"faulthandler_timeout={10 * TEST_SECONDS}"]
        options += ["-o", "faulthandler_exit_on_timeout=true"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode == pytest.ExitCode.OK:
            return ""
        if done.returncode == pytest.ExitCode.USAGE_ERROR:
            raise RuntimeError(done.stderr)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].removeprefix("FAILED ")[:150] if failed else "cannot be imported, or does not end"
