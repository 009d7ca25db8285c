"""Build this design with Allo, run it on the NPU, check its results and time it.

    python build.py                 # says what it finds
    python build.py --json          # metrics as one JSON object, in the last line
    python build.py --build-only    # stops before it needs a device

Needs Allo with its AIE backend (MLIR_AIE_INSTALL_DIR, PEANO_INSTALL_DIR, RUNTIME_LIB_DIR as Allo's guide sets them),
XRT and NumPy. Nothing else:
`program.py` has the program, `mapping.py` its mapping, `design.json` what was decided, `golden.npz` expected results
where the program has no NumPy reference, `limits.npz` the largest allowed error of each element for seed 0. Other
inputs have the limits of whole tensors in `design.json`; `not_taken` there lists what Allo decides by itself.
`allo_folding.py` makes Allo fold large programs in less time; without it Allo does the same, in minutes.

Exit codes: 0 fine; 65 Allo refuses the design; 66 wrong results; 1 anything else.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import importlib.util
import json
import os
import re
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
REFUSED, WRONG = 65, 66
LAST_FILE = "top.mlir"  # what Allo writes right before it calls the vendor's tools
# Allo's own examples set these; values that are set already are kept.
ENVIRONMENT = {"ENABLE_AGGRESSIVE_PORT_UTILIZATION_PATCH": "1"}
LOCK = Path(os.environ.get("ALLO_NPU_LOCK", "/tmp/allo-npu.lock"))  # TMPDIR is each user's and job's own
TIME = re.compile(r"^(Avg |Min )?NPU execution time: ([0-9.eE+-]+) ?us", re.MULTILINE)

Tensors = Sequence[Mapping[str, Any]]
Tolerances = Mapping[str, Mapping[str, float]]


class WrongResults(Exception):
    """The device computed something else than the reference."""


def main() -> int:
    """Build, run, check and time as the command line requests; return the exit code."""
    options = options_of("Build this design with Allo and run it.")
    design = json.loads((HERE / "design.json").read_text())["allo"]
    try:
        found = _measure(design, options)
    except WrongResults as wrong:
        print(f"wrong results: {wrong}", file=sys.stderr)
        return WRONG
    print(json.dumps(found) if options.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    return 0


def options_of(description: str, parents: Sequence[argparse.ArgumentParser] = ()) -> argparse.Namespace:
    """Parse the command line, with the options of other parsers too."""
    parser = argparse.ArgumentParser(description=description, parents=parents)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
    parser.add_argument("--build-only", action="store_true", help="stop when it is built")
    parser.add_argument("--warmup", type=int, default=20, help="calls before those that are timed")
    parser.add_argument("--iterations", type=int, default=100, help="timed calls per repetition")
    parser.add_argument("--repetitions", type=int, default=5, help="their median is the latency")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--project", default=str(HERE / "top.prj"), help="where Allo builds")
    parser.add_argument("--progress", help="file that gets a line per stage: building, waiting, running, done")
    return parser.parse_args()


def _measure(design: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    _progress(options, "building")
    started = time.monotonic()
    module, program = build(design, options)
    found: dict[str, Any] = {"build_s": round(time.monotonic() - started, 3)}
    if options.build_only:
        return found
    tensors: Tensors = design["tensors"]
    arrays = make_arrays(tensors, options.seed)
    _progress(options, "waiting")
    with only_user():
        _progress(options, "running")
        means, least = run(module, [arrays[t["name"]] for t in tensors], Path(options.project), options.repetitions)
    found |= checked(program, tensors, arrays, options.seed, design["tolerance"])
    _progress(options, "done")
    median = statistics.median(means)
    return {
        "latency_us": median,
        "latency_spread": (max(means) - min(means)) / median if median else 0.0,
        "latency_min_us": min(least),
        "latency_means_us": means,
        "iterations": options.iterations,
        **found,
    }


def _progress(options: argparse.Namespace, stage: str) -> None:
    if options.progress:
        with open(options.progress, "a") as file:
            file.write(f"{stage}\n")


def build(design: Mapping[str, Any], options: argparse.Namespace) -> tuple[Any, ModuleType]:
    """Return Allo's module of the design, and its program; a refusal exits with a code of its own."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        df = importlib.import_module("allo.dataflow")
    except ModuleNotFoundError as missing:
        needed = "this needs Allo with its AIE backend, github.com/cornell-zhang/allo"
        raise SystemExit(f"{sys.executable} has no module {missing.name!r}; {needed}") from None
    program, mapping = _own("program"), _own("mapping")
    if (HERE / "allo_folding.py").exists():
        _own("allo_folding").install()
    profile = {"profile": True, "warmup": options.warmup, "num_iters": options.iterations}
    project = Path(options.project)
    (project / LAST_FILE).unlink(missing_ok=True)
    log = project.parent / "allo_build.log"
    with _output_to(log):
        try:
            return df.build(
                program.region(), target="aie", project=options.project, device_type=design["device"],
                mapping_primitives=mapping.mapping_primitives(), **profile,
            ), program  # fmt: skip
        except (AssertionError, ValueError, TypeError, NotImplementedError, Warning) as refusal:
            error: BaseException = refusal
        except (Exception, SystemExit) as failure:  # the front end prints what it does not know and exits with 1
            if (project / LAST_FILE).exists():  # the vendor's tools had begun
                raise
            error = failure
    traceback.print_exception(error)
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SystemExit):
        printed = re.findall(r"^\w+(?:Error|Exception)\b.*", log.read_text(errors="replace"), re.MULTILINE)
        said = printed[-1] if printed else "its front end exited"
    print(f"Allo refuses the design: {said}", file=sys.stderr)
    raise SystemExit(REFUSED)


def _own(name: str) -> ModuleType:
    """A module of this folder, whatever modules of that name other folders have."""
    sys.path.insert(0, str(HERE))
    try:
        spec = importlib.util.spec_from_file_location(f"{HERE.parent.name}_{HERE.name}_{name}", HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where data classes look for it
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(HERE))
        for other, loaded in list(sys.modules.items()):
            places = (getattr(loaded, "__file__", None), *getattr(loaded, "__path__", ()))
            if any(str(place).startswith(f"{HERE}{os.sep}") for place in places):
                del sys.modules[other]
    return module


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect the output of this process and its children to a file, and copy that to standard error afterwards."""
    sys.stdout.flush()
    kept = os.dup(1)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        sys.stderr.write(log.read_text(errors="replace"))
        sys.stderr.flush()


@contextmanager
def only_user() -> Iterator[None]:
    """Hold the device: one run at a time, whoever started it. The lock goes with the process, however that ends."""
    try:
        descriptor = os.open(LOCK, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = os.open(LOCK, os.O_RDONLY | os.O_CREAT)
        os.fchmod(descriptor, 0o666)  # for other users, whatever this one's umask is
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def run(module: Any, arrays: list[Any], project: Path, repetitions: int) -> tuple[list[float], list[float]]:
    """Return mean and least time of each repetition, in us, as Allo's host program prints them."""
    means, least = [], []
    for number in range(repetitions):
        log = project.parent / f"allo_run_{number}.log"
        with _output_to(log):
            module(*arrays)
        times = {kind.strip(): float(value) for kind, value in TIME.findall(log.read_text(errors="replace"))}
        if "Avg" not in times and "" not in times:
            raise RuntimeError(f"the run did not say how long it took: see {log}")
        means.append(times.get("Avg", times.get("", 0.0)))
        least.append(times.get("Min", means[-1]))
    return means, least


def make_arrays(tensors: Tensors, seed: int) -> dict[str, Any]:
    """Inputs from one seed, and zeros for results, by name.

    Whole numbers of 3 to 4 bits, as in Allo's own examples, so that long sums stay in range; floats of both signs.
    """
    random = np.random.default_rng(seed)
    arrays = {}
    for tensor in tensors:
        dtype = dtype_of(tensor["dtype"])
        if tensor["written"]:
            arrays[tensor["name"]] = np.zeros(tensor["shape"], dtype)
        elif tensor["float"]:
            arrays[tensor["name"]] = np.asarray(random.standard_normal(tensor["shape"])).astype(dtype)
        else:
            low, high = {"int8": (-4, 4), "uint8": (0, 8)}.get(str(dtype), (-8, 8) if dtype.kind == "i" else (0, 16))
            arrays[tensor["name"]] = random.integers(low, high, tensor["shape"]).astype(dtype)
    return arrays


def dtype_of(name: str) -> np.dtype[Any]:
    """Return NumPy's type of a name; `ml_dtypes` has types that NumPy lacks."""
    own = getattr(np, name, None)
    found: np.dtype[Any] = np.dtype(own if own is not None else getattr(importlib.import_module("ml_dtypes"), name))
    return found


def expected_of(function: Any, tensors: Tensors, arrays: Mapping[str, Any]) -> list[Any]:
    """Compute a reference's results from the inputs; floats narrower than 32 bits are passed to it as float32."""
    given = [arrays[t["name"]] for t in tensors if not t["written"]]
    wide = [a.astype(np.float32) if a.dtype.itemsize < 4 and a.dtype.kind in "fV" else a for a in given]
    expected = function(*wide)
    return list(expected) if isinstance(expected, tuple) else [expected]


def checked(
    program: ModuleType, tensors: Tensors, arrays: Mapping[str, Any], seed: int | None, tolerance: Tolerances
) -> dict[str, Any]:
    """Compare results with a reference or golden results, and return the errors found.

    Args:
        seed: of the inputs; None for others.

    Returns:
        Whether results were checked, against what, and how far they are off.

    Raises:
        WrongResults: if they differ.
    """
    written = [t for t in tensors if t["written"]]
    golden, limits = (_archive(name) if seed == 0 else {} for name in ("golden.npz", "limits.npz"))
    if hasattr(program, "reference"):
        expected, by = expected_of(program.reference, tensors, arrays), "reference"
    elif golden:
        expected, by = [golden[t["name"]] for t in written], "golden.npz"
    else:
        return {"checked": False}
    errors: dict[str, dict[str, Any]] = {}
    for tensor, wanted in zip(written, expected, strict=True):
        name, found = tensor["name"], arrays[tensor["name"]]
        allowed, limit = tolerance.get(name), limits.get(name)
        wrong = wrong_elements(found, np.asarray(wanted), allowed, limit)
        said = {} if allowed is None else error_of(found, np.asarray(wanted), allowed, limit)
        if wrong:
            off = ", ".join(f"{key} {value}" for key, value in said.items())
            raise WrongResults(f"{name} differs in {wrong} of {found.size} elements{off and f' ({off})'}")
        errors |= {name: said} if said else {}
    return {"checked": True, "checked_by": by, **({"errors": errors} if errors else {})}


def _archive(name: str) -> dict[str, Any]:
    """Return the arrays of a file of this folder; none if there is no such file."""
    if not (HERE / name).exists():
        return {}
    try:
        with np.load(HERE / name, allow_pickle=False) as data:
            return dict(data)
    except Exception as error:  # NumPy, zipfile and zlib each raise their own kinds
        raise SystemExit(f"{HERE / name} is damaged ({error}); export the design again, or remove it") from None


def wrong_elements(found: Any, wanted: Any, tolerance: Mapping[str, float] | None, limit: Any = None) -> int:
    """Return the number of elements that differ; all if their root mean square error is too large.

    Args:
        tolerance: for floats, relative to the root mean square of finite expected values: of the largest difference,
            and of the root mean square of all differences.
        limit: largest difference of each element, absolute, in place of the tensor's.
    """
    if tolerance is None:
        whole = wanted.astype(np.int64) if wanted.dtype.kind == "f" else wanted  # from which what does not fit wraps
        return int(np.count_nonzero(found != whole.astype(found.dtype)))
    off, scale = _off(found, wanted)
    wrong = int(np.count_nonzero(~(off <= (tolerance["largest"] * scale if limit is None else limit))))
    return wrong or (off.size if off.size and _rms(off) > tolerance["rms"] * scale else 0)


def error_of(found: Any, wanted: Any, tolerance: Mapping[str, float], limit: Any = None) -> dict[str, Any]:
    """Return the largest difference, its place, and what is allowed there, over the root mean square expected value."""
    off, scale = _off(found, wanted)
    if not off.size:
        return {}
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    return {
        "largest": float(f"{off[at] / scale:.3g}"), "at": [int(one) for one in at],
        "allowed": tolerance["largest"] if limit is None else float(f"{limit[at] / scale:.3g}"),
        "rms": float(f"{_rms(off) / scale:.3g}"), "rms_allowed": tolerance["rms"],
    }  # fmt: skip


def _off(found: Any, wanted: Any) -> tuple[Any, float]:
    """Return each element's absolute error, and the root mean square of the finite expected values."""
    own, exact = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.where((own == exact) | (np.isnan(own) & np.isnan(exact)), 0.0, np.abs(own - exact))
    return off, max(1e-30, _rms(exact[np.isfinite(exact)]))


def _rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


if __name__ == "__main__":
    sys.exit(main())
