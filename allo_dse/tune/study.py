"""The study, as users declare and run it."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allo_dse import lang
from allo_dse.common.errors import AlloDseError, StudyError, did_you_mean
from allo_dse.common.records import replace

from .declare.spec import StudySource, StudySpec
from .run.options import RunOptions, method

if TYPE_CHECKING:
    from .declare.enqueued import Measured, Wanted
    from .results.result import Result


def run_study(study: StudySpec, options: RunOptions) -> Result:
    """Search. Running again with the same run directory goes on where the last run stopped.

    Raises:
        StudyError: when the run cannot start, e.g. because the directory holds a run of something else.
    """
    from .run import session  # imported late: workers load studies but never run them

    return session.run_study(study, options)


class Study(StudySpec):
    """Definition of a search: program, choices, device, objectives and constraints.

        study = Study("gemm", program=gemm, params={"Pm": divisors(2048, at_most=64)}, device="npu1_4col",
                      objectives=[minimize("latency_us"), minimize(lambda m: m.pe_count, name="cores")],
                      constraints=[require(lambda m: m.dram_bytes < 64e6)], reference=lambda A, B: A @ B)
        result = study.run(trials=500, seed=0)

    Args:
        program: a region, or a function of the parameters that returns one.
        params: parameters by name; any other value than a `Parameter` is fixed.
        where: conditions on the parameters, e.g. `lambda p: p.Pm * p.Pn <= 1024`.
        device: a device, or its name or path.
        objectives: at least one.
        constraints: limits on the metrics.
        reference: computes the expected results from the inputs with NumPy, to verify the final front; the unfolded
            program by default.
        verify_with: maps a design's parameters to those of a reduced instance to verify with.
        output_depths: object FIFO depths of output ports to choose from (NPU).
        kernels: kernel libraries of the device to choose from, in addition to its default (NPU).
        schedules: choices for loops, arrays and tensors (FPGA): schedule parameters, "auto", or both in a list; () for
            none. By default "auto" for programs of a single task that customize nothing, unless `evaluator` is given.
        evaluator: evaluator of designs, or a function without arguments that makes it (in each worker process); the
            simulator by default.
        check: device limits, as a function of a design; those of its mapping and its target by default.
        verifier: function of a design that runs it and compares its numbers; `eval.verify.verify_and_prove` by default.
        folds: "kernels" folds whole kernels along the axes of their meshes, "tasks" gathers single tasks in nodes; or a
            choice of your own.
        extra_choices: further choices, made after all others.
        programs: compiles the program; for tests and other front ends.
        trials: number of designs that `run` evaluates by default.
        target: target that builds the winner: "allo" (default for NPUs: Allo's AIE backend), or "model" (the device's
            limits only).
        sizes: default sizes of the sampler "evolution": "initial", "population", "children", "modelled".
        inputs: sets of arrays by name (a list of dictionaries, or a function of the parameters that returns one) on
            which designs are timed if data decides how often loops run or whether streams are used (FPGA); the
            slowest set counts. Designs are verified on them in place of random ones.
        rungs: more expensive evaluators for the best designs, as `Rung` objects.
        noise: whether to measure designs again where noise may hide which is better; "auto" does for evaluators with a
            member `noisy` that is true: boards and commands.

    Raises:
        StudyError: when the declaration cannot work.
    """

    run = method(run_study, RunOptions)

    def enqueue(self, wanted: Wanted, *, params: Mapping[str, Any] | None = None) -> None:
        """Evaluate designs before the search begins. Results are compared with the first enqueued design.

        Args:
            wanted: a design of the space; a mapping by hand, as a `MeshFold` or as the list that Allo takes; values of
                parameters, for any legal design that has them; or the directory of a run, of any size and device, for
                the best of its designs.
            params: parameter values for a mapping; by default the first values that it fits.

        Raises:
            StudyError: when the space has no such design.
        """
        from .declare.enqueued import enqueue

        enqueue(self, wanted, params or {})

    def attach(self, measured: Measured, metrics: Mapping[str, Any] | None = None) -> None:
        """Take over measurements by the study's evaluator that were made before; none is evaluated again.

        They count as trials. Rows without metrics, and trials of Optuna without values, are failures.

        Args:
            measured: a design or the values of its parameters, with its `metrics`; the path of a CSV file with a column
                for each parameter and metric; or a study of Optuna.

        Raises:
            StudyError: when the space has no such design, or parameters leave its mapping open.
        """
        from .declare.enqueued import attach

        attach(self, measured, metrics)


# Python's errors show the names that users call.
StudySpec.__init__.__qualname__ = "Study"
RunOptions.__init__.__qualname__ = "Study.run"


# Study files: Python files that define studies, or functions that return studies.


_TRUTH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
_OWN_SETTINGS = ("target", "evaluator")  # settings that work even if the study's function has no such argument
_FOLDERS: set[Path] = set()
"""Folders of the files executed so far."""
_CONVERT: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": lambda text: _TRUTH[text.lower()]}


def load_studies(path: str | Path, settings: Mapping[str, str] | None = None) -> list[Study]:
    """The studies of a file, in the order of their definition.

    Args:
        settings: arguments of the functions that return studies, as text (`--set name=value`); `target` and
            `evaluator`, a command that measures designs, are every study's own.

    Raises:
        StudyError: when there is no such file, it does not run, defines no study, or has no such setting.
    """
    file = Path(path)
    settings = dict(settings or {})
    module = execute_file(file)
    functions = _study_functions(module)
    _refuse_unknown(settings, functions, file)
    own = {name: settings[name] for name in _OWN_SETTINGS if name in settings}
    studies = [
        _with_source(study, StudySource(str(file), name, own))
        for name, study in vars(module).items()
        if isinstance(study, Study)
    ]
    for name, function in functions.items():
        accepted = {k: v for k, v in settings.items() if k in inspect.signature(function).parameters} | own
        studies.append(_call(function, StudySource(str(file), name, accepted)))
    if not studies:
        raise StudyError(
            f"{file} defines no study",
            hint="assign a Study to a variable, or write `def study(...) -> Study:` that returns one",
        )
    names = [study.name for study in studies]
    for name in names:
        if names.count(name) > 1:
            raise StudyError(f"{file} defines two studies named {name!r}", hint="results are kept by name: rename one")
    return studies


def study_functions(path: str | Path) -> list[Callable[..., Any]]:
    """The functions of a file that return studies. Executes the file.

    Raises:
        StudyError: when there is no such file, or it does not run.
    """
    return list(_study_functions(execute_file(Path(path))).values())


def load_study(source: StudySource) -> Study:
    """One study again, in another process."""
    for study in load_studies(source.file, source.settings):
        if study.source == source:
            return study
    raise StudyError(f"{source.file} has no study {source.function!r} any more")


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` texts by name.

    Raises:
        StudyError: for a text without a name or an equals sign.
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise StudyError(f"--set {text}: expected name=value", hint="for example --set dtype=i8")
        settings[name.strip()] = value.strip()
    return settings


def execute_file(file: Path) -> ModuleType:
    """The module that a user's file is.

    Raises:
        StudyError: when there is no such file, or it does not run; it names the line.
    """
    if not file.exists():
        near = difflib.get_close_matches(
            file.name, [p.name for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
        )
        hint = (
            f"did you mean {file.parent / near[0]}?" if near else "give the path of a Python file that defines a study"
        )
        raise StudyError(f"there is no file {file}", hint=hint)
    if file.is_dir():
        raise StudyError(f"{file} is a directory", hint="give one of the Python files in it")
    lang.install()
    name = file.stem
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file.resolve()))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file.resolve())
    _look_first_in(file.resolve().parent)
    sys.modules[name] = module
    try:
        code = compile(file.read_bytes(), str(file.resolve()), "exec")
        exec(code, module.__dict__)
    except (AlloDseError, KeyboardInterrupt, SystemExit):
        raise
    except SyntaxError as error:
        raise StudyError(_syntax_text(file, error), hint="correct the study file") from error
    except BaseException as error:
        raise StudyError(_place(file, error)) from error
    return module


def _look_first_in(folder: Path) -> None:
    """Let imports find the files of a folder, even if an earlier study's files have the same names."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    others = _FOLDERS - {folder}
    for beside in folder.glob("*.py"):
        known = getattr(sys.modules.get(beside.stem), "__file__", None)
        if known and Path(known).parent in others:
            del sys.modules[beside.stem]
    _FOLDERS.add(folder)


def _syntax_text(file: Path, error: SyntaxError) -> str:
    text = f"{file}:{error.lineno}: {error.msg}"
    if error.text:
        line = error.text.rstrip("\n")
        caret = " " * max(0, (error.offset or 1) - 1) + "^"
        text += f"\n    {line}\n    {caret}"
    return text


def _place(file: Path, error: BaseException) -> str:
    """An exception in the user's file, with its line, as a compiler would report it."""
    resolved = str(file.resolve())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == resolved]
    where = f"{file}:{frames[-1].lineno}" if frames else str(file)
    line = f"\n    {frames[-1].line}" if frames and frames[-1].line else ""
    return f"{where}: {type(error).__name__}: {error}{line}"


def _study_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Functions of the file that return a study, by annotation or by being called `study`; none that begin with _."""
    found: dict[str, Callable[..., Any]] = {}
    for name, value in vars(module).items():
        if not inspect.isfunction(value) or value.__module__ != module.__name__ or name[0] == "_":
            continue
        returned = value.__annotations__.get("return")
        annotated = returned is Study or (isinstance(returned, str) and returned.split(".")[-1] == "Study")
        if annotated or name == "study":
            found[name] = value
    return found


def _refuse_unknown(settings: Mapping[str, str], functions: Mapping[str, Callable[..., Any]], file: Path) -> None:
    known = list(dict.fromkeys(p for f in functions.values() for p in inspect.signature(f).parameters))
    for name in settings:
        if name not in (*known, *_OWN_SETTINGS):
            if not known:
                raise StudyError(f"--set {name}: the studies of {file} take no settings")
            hint = f"{did_you_mean(name, known)}There are: {', '.join(known)}"
            raise StudyError(f"{file} has no setting {name!r}", hint=hint)


def _call(function: Callable[..., Any], source: StudySource) -> Study:
    study = call(function, Path(source.file), source.settings)
    if not isinstance(study, Study):
        raise StudyError(f"{source.file}: {source.function}() returned {type(study).__name__}, not a Study")
    return _with_source(study, source)


def call(function: Callable[..., Any], file: Path, settings: Mapping[str, str]) -> Any:
    """Call a function of the user's file with the settings that it takes.

    Raises:
        StudyError: if it needs others, or does not run; the message names the line.
    """
    parameters = inspect.signature(function).parameters
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in settings]
    if missing:
        raise StudyError(
            f"{file}: {function.__name__}() needs {', '.join(missing)}",
            hint=f"add --set {missing[0]}=VALUE, or begin the name of a helper with _",
        )
    arguments = {
        name: _convert_setting(parameters[name], text) for name, text in settings.items() if name in parameters
    }
    try:
        return function(**arguments)
    except (AlloDseError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        given = "".join(f" --set {n}={v}" for n, v in settings.items())
        raise StudyError(_place(file, error), hint=f"with{given}" if given else "") from error


def _with_source(study: Study, source: StudySource) -> Study:
    study.source = source
    study.target_name = source.settings.get("target", study.target_name)
    if "evaluator" in source.settings:
        from allo_dse.eval.command import Command

        study.measured_by(Command(source.settings["evaluator"]))
    # Workers on a cluster have a different working directory.
    study.reload = functools.partial(load_study, replace(source, file=str(Path(source.file).resolve())))
    return study


def _convert_setting(parameter: inspect.Parameter, text: str) -> Any:
    """Text as the type of the parameter's annotation, or else of its default."""
    wanted = getattr(parameter.annotation, "__name__", parameter.annotation)
    name = wanted if wanted in _CONVERT else type(parameter.default).__name__
    try:
        return _CONVERT.get(name, str)(text)
    except (ValueError, KeyError):
        raise StudyError(f"--set {parameter.name}={text}: not of type {name}") from None
