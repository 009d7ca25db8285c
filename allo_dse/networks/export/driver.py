"""Run this network launch by launch, check its results and time it: with Allo on the NPU; of an FPGA its kernels in
C simulation, or on the card.

    python run.py                   # prints results and times
    python run.py --json            # as one JSON object, in the last line
    python run.py --build-only      # stops before it needs a device
    python run.py --inputs my.npz --outputs made.npz     # inputs of your own; see --help for --check
    python run.py --xclbin FILE     # FPGA: on the card, with what `make network.xclbin` has made

On an NPU it needs what `launch_*/*/build.py` need: Allo with its AIE backend, XRT and NumPy. Of an FPGA it needs make
and a C++ compiler, and for the card XRT. `network.json` has the launches and the steps, `inputs.npz` and
`constants.npz` what the network reads, `expected.npz` its outputs as its operators' references compute them,
`limits.npz` how far each element may be off,
`orders.npz` where the elements of each rearrangement come from (from 1; 0 is a zero), `host_*.py` what the host
computes. Allo's tensors are stored row by row.

Allo's host program runs one region, and configures the array for each of its calls. So every design is a build of its
own, and the operators of a launch run one after another. The time of a launch is the sum of its calls, without
configuring the array.

For the runtime "sequence" the programs that Allo has generated become devices of one module, `network.mlir`, and
`network.elf`. A call is a runtime sequence that configures the array for one program after another. This needs an
mlir-aie with `aiex.configure` beside the one that Allo needs (AIECC is its command line), and pyxrt with ELF files.

Kernels on a card share one configuration and run one after another as well, except kernels that
stream to each other: these are called at once, each by a process of its own. In C simulation they run one after
another, and a stream is a file with the elements in order of arrival.

Exit codes: 0 fine; 65 Allo refuses a design; 66 wrong results; 1 anything else.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
WRONG = 66
AIECC = "aiecc --get-full-elf --full-elf-name=network.elf --alloc-scheme=basic-sequential"

Array = NDArray[Any]
Facts = Mapping[str, Any]
Buffer = tuple[str, str]


class WrongResults(Exception):
    """The device computed something else than a reference."""


class Built:
    """A design that Allo has built."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.project = folder / "top.prj"
        self.tools = _module(folder / "build.py")
        self.facts: Facts = json.loads((folder / "design.json").read_text())["allo"]
        self.check = options.check
        own = argparse.Namespace(**{**vars(options), "project": str(self.project)})
        self.module, self.program = self.tools.build(self.facts, own)

    def start(self, given: Sequence[Array | None], repetitions: int) -> None:
        """Run it on the arrays that the program reads, in order.

        Raises:
            WrongResults: where the program's own reference computes something else from them.
        """
        tensors, left = self.facts["tensors"], iter(given)
        arrays = {}
        for tensor in tensors:
            one = np.asarray(np.zeros(tensor["shape"]) if tensor["written"] else next(left)).reshape(tensor["shape"])
            arrays[tensor["name"]] = np.ascontiguousarray(one.astype(self.tools.dtype_of(tensor["dtype"])))
        with self.tools.only_user():
            means, _ = self.tools.run(self.module, list(arrays.values()), self.project, repetitions)
        self.result = next(arrays[t["name"]] for t in tensors if t["written"]), statistics.median(means)
        if not self.check:
            return
        try:
            self.tools.checked(self.program, tensors, arrays, None, self.facts["tolerance"])
        except self.tools.WrongResults as wrong:
            raise WrongResults(str(wrong)) from None

    def finish(self) -> tuple[Array, float]:
        """Return the outputs, and the device's time in us."""
        return self.result


class Elf:
    """Programs that Allo has generated, in one ELF file: each call of it is a runtime sequence.

    Buffers have a tensor's name and its element type. Constants stay in theirs from call to call.

    Attributes:
        calls: the designs that run, each with its buffers.
        kinds: types of buffers in MLIR. written: buffers that designs write.
    """

    def __init__(self, network: Facts, built: Mapping[str, Any], free: Mapping[str, str]) -> None:
        self.calls: dict[int, list[tuple[str, list[Buffer]]]] = {}
        self.kinds, self.written, self.buffers = dict[Buffer, str](), set[Buffer](), dict[Buffer, Any]()
        reads, devices = {step["name"]: step["inputs"] for step in network["steps"]}, dict[str, str]()
        for run in (run for launch in network["launches"] for run in launch["runs"]):
            name, own, left = run["design"], built[run["folder"]], iter(reads[run["step"]])
            devices[name] = devices.get(name) or _device(name, own.project)
            kinds = re.findall(r"memref<[^>]*>", devices[name].partition("@run(")[2].partition(") {")[0])
            if len(kinds) != len(own.facts["tensors"]):
                raise SystemExit(f"{own.project}: its runtime sequence has other arguments than the program's tensors")
            given = []
            for tensor, kind in zip(own.facts["tensors"], kinds, strict=True):
                source = run["writes"] if tensor["written"] else next(left)
                while source in free:  # in another shape
                    source = free[source]
                given.append((source, tensor["dtype"]))
                self.kinds[given[-1]] = kind
                self.written |= {given[-1]} if tensor["written"] else set()
            self.calls.setdefault(run["call"], []).append((name, given))
        kind = re.findall(r"aie\.device(\(\w+\))", "".join(devices.values()))[0]
        main = [f"aie.device{kind} @main {{", *map(self._sequence, self.calls), "}\n"]
        (HERE / "network.mlir").write_text("\n".join([*devices.values(), *main]))
        command = [*shlex.split(os.environ.get("AIECC", AIECC)), "network.mlir"]
        subprocess.run(command, cwd=HERE, check=True, stdout=sys.stderr)

    def _arguments(self, call: int) -> dict[Buffer, str]:
        given = dict.fromkeys(one for _, own in self.calls[call] for one in own)
        return {one: f"%arg{number}" for number, one in enumerate(given)}

    def _sequence(self, call: int) -> str:
        """The runtime sequence of a call; programs in a row that are alike share a configuration."""
        names = self._arguments(call)
        given = ", ".join(f"{name}: {self.kinds[one]}" for one, name in names.items())
        lines = [f"  aie.runtime_sequence @call_{call}({given}) {{"]
        for design, runs in groupby(self.calls[call], lambda one: one[0]):
            lines.append(f"    aiex.configure @{design} {{")
            for _, own in runs:
                passed, kinds = (", ".join(by[one] for one in own) for by in (names, self.kinds))
                lines.append(f"      aiex.run @run({passed}) : ({kinds})")
            lines.append("    }")
        return "\n".join([*lines, "  }"])

    def run(self, call: int, known: Mapping[str, Array], repetitions: int) -> tuple[dict[str, Array], float]:
        """Return the tensors that a call writes, and its time in us."""
        xrt, given = importlib.import_module("pyxrt"), self._arguments(call)
        if not self.buffers:
            self.device = xrt.device(0)
            self.context = xrt.hw_context(self.device, xrt.elf(str(HERE / "network.elf")))
        run = xrt.run(xrt.ext.kernel(self.context, f"main:call_{call}"))
        to_device, to_host = (getattr(xrt.xclBOSyncDirection, f"XCL_BO_SYNC_BO_{to}_DEVICE") for to in ("TO", "FROM"))
        for number, (tensor, dtype) in enumerate(given):
            if (tensor, dtype) not in self.buffers:
                size = int(re.findall(r"\d+", self.kinds[tensor, dtype])[0])
                first = np.zeros(size, _dtype(dtype)) if tensor not in known else known[tensor].astype(_dtype(dtype))
                self.buffers[tensor, dtype] = made = xrt.ext.bo(self.device, first.nbytes)
                made.write(first.tobytes(), 0)
                made.sync(to_device)
            run.set_arg(number, self.buffers[tensor, dtype])
        times = []
        for _ in range(repetitions):
            begun = time.perf_counter()
            run.start()
            if run.wait() != xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED:
                raise SystemExit(f"call {call} was not completed")
            times.append((time.perf_counter() - begun) * 1e6)
        found = {}
        for tensor, dtype in self.written.intersection(given):
            self.buffers[tensor, dtype].sync(to_host)
            found[tensor] = np.frombuffer(self.buffers[tensor, dtype].map(), _dtype(dtype)).copy()
        return found, statistics.median(times)


def _device(name: str, project: Path) -> str:
    """Return a program of Allo's as a device with a name; its objects are copied, and have names of their own as well.

    Aliases of attributes come before it: the parser wraps what a file has into a module.
    """
    text = (project / "top.mlir").read_text()
    for alias in re.findall(r"^[#!](\w+) =", text, re.MULTILINE):
        text = re.sub(rf"([#!]){alias}\b", rf"\1{name}_{alias}", text)
    for file in set(re.findall(r'link_with = "([^"]+)"', text)):
        shutil.copy(project / file, HERE / f"{name}_{file}")
        text = text.replace(f'"{file}"', f'"{name}_{file}"')
    text = re.sub(r"aie\.device(\(\w+\))(?: @\w+)?", rf"aie.device\1 @{name}", text, count=1)
    text = re.sub(r"aiex?\.runtime_sequence(?: @\w+)?\s*\(", "aie.runtime_sequence @run(", text, count=1)
    return text.partition("module")[0] + text[text.find("aie.device") : text.rfind("}")].rstrip()


class Kernel:
    """An FPGA's kernel, in C simulation or on the card."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder / "hls"
        self.tensors = json.loads((folder / "design.json").read_text())["tensors"]
        self.on_card = bool(options.xclbin)
        self.command = ["./host", str(Path(options.xclbin).resolve())] if options.xclbin else ["./testbench"]
        subprocess.run(["make", "-s", self.command[0][2:]], cwd=self.folder, check=True, stdout=sys.stderr)

    def start(self, given: Sequence[Array | None], repetitions: int) -> None:
        """Call the kernel with the arrays that it reads, in order; on the card None for a stream."""
        data, left = self.folder / "run", iter(given)
        data.mkdir(exist_ok=True)
        for tensor in self.tensors:
            one = np.zeros(tensor["shape"]) if tensor["written"] else next(left)
            if one is not None:
                one.astype(_dtype(tensor["dtype"])).tofile(data / f"{tensor['name']}.bin")
        command = [*self.command, "run", *([str(repetitions)] if self.on_card else [])]
        self.running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)

    def finish(self) -> tuple[Array, float | None]:
        """Return the outputs, without streams on the card, and the card's time in us."""
        said, _ = self.running.communicate()
        if self.running.returncode:
            raise subprocess.CalledProcessError(self.running.returncode, self.running.args)
        written = next(tensor for tensor in self.tensors if tensor["written"])
        made = np.fromfile(self.folder / "run" / f"{written['name']}.bin", _dtype(written["dtype"]))
        return made, float(json.loads(said.splitlines()[-1])["latency_us"]) if self.on_card else None


def main() -> int:
    """Build and run as the command line says; returns the exit code."""
    network = json.loads((HERE / "network.json").read_text())
    folders = {run["folder"]: HERE / run["folder"] for launch in network["launches"] for run in launch["runs"]}
    tools = next(iter(folders.values()), HERE) / "build.py"
    parse = _module(tools).options_of if tools.exists() else _options
    own = argparse.ArgumentParser(add_help=False)  # which every device has
    own.add_argument("--inputs", metavar="FILE", type=Path, help="inputs of your own, by name")
    own.add_argument("--outputs", metavar="FILE", type=Path, help="where outputs are written, by name")
    own.add_argument("--check", action="store_true", help="compare programs with their references on --inputs too")
    options = parse("Run this network.", [own])
    if options.inputs and not options.inputs.exists():
        raise SystemExit(f"{options.inputs}: no such file")
    if options.check and options.inputs and not tools.exists():
        raise SystemExit("--check compares programs with their references, which kernels of an FPGA come without")
    options.check |= options.inputs is None
    started = time.monotonic()
    make = Built if tools.exists() else Kernel
    built = {name: make(folder, options) for name, folder in folders.items()}
    elf = None
    if network["runtime"] == "sequence" and built:
        free = {name for name, order in _arrays("orders").items() if not order.size}
        same = {step["output"]: step["inputs"][0] for step in network["steps"] if step["name"] in free}
        elf = Elf(network, built, same)
    found: dict[str, Any] = {"build_s": round(time.monotonic() - started, 3)}
    if not options.build_only:
        try:
            timed, made = _run(network, built, elf, options.repetitions, options.inputs)
            found |= timed
            if options.outputs:
                plain = {name: one.astype(np.float32) if one.dtype.kind == "V" else one for name, one in made.items()}
                options.outputs.parent.mkdir(parents=True, exist_ok=True)
                np.savez(options.outputs, **plain)  # type: ignore[arg-type]  # NumPy's files have no narrow floats
            if options.inputs is None:
                found |= _checked(network["outputs"], made)
        except WrongResults as wrong:
            print(f"wrong results: {wrong}", file=sys.stderr)
            return WRONG
    print(json.dumps(found) if options.json else "\n".join(_said(found)))
    return 0


def _options(description: str, parents: Sequence[argparse.ArgumentParser]) -> argparse.Namespace:
    """Parse the command line of an FPGA's driver."""
    parser = argparse.ArgumentParser(description=description, parents=parents)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")
    parser.add_argument("--build-only", action="store_true", help="stop when it is built")
    parser.add_argument("--repetitions", type=int, default=20, help="timed calls per kernel; the median counts")
    parser.add_argument("--xclbin", help="run on the card, configured with this file")
    return parser.parse_args()


def _run(
    network: Facts, built: Mapping[str, Any], elf: Elf | None, repetitions: int, inputs: Path | None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Times of everything that runs, in its order, and the outputs."""
    runs = {run["step"]: (launch["number"], run) for launch in network["launches"] for run in launch["runs"]}
    exported = _arrays("inputs")
    known = {**_arrays("constants"), **(_loaded(inputs) if inputs else exported)}
    written = {step["output"] for step in network["steps"]}
    missing = {name for step in network["steps"] for name in step["inputs"]} - known.keys() - written
    if missing:
        raise SystemExit(f"{inputs or HERE}: has no {', '.join(sorted(missing))}")
    for name, one in exported.items():
        if known.get(name, one).shape != one.shape:
            raise SystemExit(f"{inputs}: {name} needs an array of {one.shape}, got {known[name].shape}")
    orders = _arrays("orders")
    times: list[list[dict[str, Any]]] = [[] for _ in network["launches"]]
    host_us, calls_us = {}, dict[int, float]()
    groups, called = _groups(network["launches"]), set[str]()
    reads = {step["name"]: step["inputs"] for step in network["steps"]}
    for step in network["steps"]:
        name = step["name"]
        number, run = runs.get(name, (-1, {}))
        if run and elf is not None:
            if run["call"] not in calls_us:
                results, calls_us[run["call"]] = elf.run(run["call"], known, repetitions)
            made, us = results[run["writes"]], None
        elif run:
            design = built[run["folder"]]
            at_once = groups[name] if isinstance(design, Kernel) and design.on_card else [name]
            try:
                for one in sorted(set(at_once) - called):
                    # A tensor that comes as a stream on a card is not known.
                    built[runs[one][1]["folder"]].start([*map(known.get, reads[one])], repetitions)
                    called.add(one)
            except WrongResults as wrong:
                raise WrongResults(f"launch {number}: {name}: {wrong}") from None
            made, us = design.finish()
        else:
            started, given = time.perf_counter(), [known[one] for one in step["inputs"]]
            if "dtype" in step:
                made = _converted(step, given[0])
            elif name in orders:
                made = _moved(given, orders[name])
            else:  # the host gets narrow floats as float32
                wide = [
                    one.astype(np.float32) if one.dtype.kind in "fV" and one.dtype.itemsize < 4 else one
                    for one in given
                ]
                made = np.asarray(_module(HERE / step["host"]).function(*wide))
            host_us[name] = round((time.perf_counter() - started) * 1e6, 1)
        if run:
            times[number].append({"step": name, "latency_us": us, "predicted_us": run["latency_us"]})
        free = "host" in step and made.size != np.prod(step["shape"])  # its shape depends on elements
        known[step["output"]] = made if free else made.reshape(step["shape"])
    launches: list[Facts] = [
        {"launch": number, "latency_us": _sum(own, groups), "runs": own} for number, own in enumerate(times)
    ]
    found = {
        "latency_us": sum(calls_us.values()) if elf else _total([one["latency_us"] for one in launches]),
        "calls_us": list(calls_us.values()),
        "launches": launches,
        "host_us": host_us,
    }
    return found, {name: known[name] for name in network["outputs"]}


def _groups(launches: Sequence[Facts]) -> dict[str, frozenset[str]]:
    """The steps that stream to each other and are called at once, by each of them."""
    groups = {run["step"]: frozenset([run["step"]]) for launch in launches for run in launch["runs"]}
    for stream in (one for launch in launches for one in launch["streams"]):
        joined = groups[stream["from"]] | groups[stream["to"]]
        groups |= dict.fromkeys(joined, joined)
    return groups


def _sum(runs: Sequence[Facts], groups: Mapping[str, frozenset[str]]) -> float | None:
    """Time of runs: the slowest of those called at once counts; None in simulation."""
    times: dict[frozenset[str], list[float]] = {}
    for run in runs:
        times.setdefault(groups[run["step"]], []).append(run["latency_us"])
    return _total([None if None in own else max(own) for own in times.values()])


def _total(times: Sequence[float | None]) -> float | None:
    """Return the sum of the times; None unless all are known."""
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


def _dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of a name; `ml_dtypes` has the narrow ones."""
    found: np.dtype[Any] = np.dtype(getattr(np if hasattr(np, name) else importlib.import_module("ml_dtypes"), name))
    return found


def _arrays(name: str) -> dict[str, Array]:
    """The arrays of a file; none where there is no file."""
    return _loaded(HERE / f"{name}.npz")


def _loaded(file: Path) -> dict[str, Array]:
    """The arrays of a file, by name; none where there is no file."""
    if not file.exists():
        return {}
    try:
        with np.load(file, allow_pickle=False) as data:
            return dict(data)
    except Exception as error:  # NumPy, zipfile and zlib each raise their own kinds
        raise SystemExit(f"{file} is damaged ({error}); export the network again, or write it anew") from None


def _moved(given: Sequence[Array], order: Array) -> Array:
    """The elements of some arrays in another order; none are moved where it is empty."""
    if not order.size:
        return given[0]
    return np.concatenate([np.zeros(1, given[0].dtype), *(one.ravel() for one in given)])[order]


def _converted(step: Facts, array: Array) -> Array:
    """The elements of an array in another type.

    Raises:
        WrongResults: where one is farther off than a rounding: of the largest, or to a whole number.
    """
    made = array.astype(_dtype(step["dtype"]))
    apart, largest = _apart(made, array)
    if not (apart <= (step["rounding"] * largest if step["rounding"] else 1)).all():
        raise WrongResults(f"{step['name']}: {apart.max():.2g} off, where the largest element is {largest:.2g}")
    return made


def _apart(found: Array, wanted: Array) -> tuple[Array, float]:
    """Each difference, where equal infinities do not differ, and the largest finite element that is wanted."""
    own, exact = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(own == exact, 0, np.abs(own - exact))
    return apart, float(np.abs(exact[np.isfinite(exact)]).max(initial=1e-30))


def _checked(outputs: Mapping[str, float | None], known: Mapping[str, Array]) -> dict[str, Any]:
    """Return the largest error of each output, relative to the largest expected value.

    Args:
        outputs: the largest allowed error, relative to the same; None if only `limits.npz` counts.

    Raises:
        WrongResults: where an element is farther off than allowed.
    """
    expected, limits = _arrays("expected"), _arrays("limits")
    differences = {}
    for name, share in outputs.items():
        if name not in expected:
            continue
        apart, largest = _apart(known[name], expected[name])
        allowed = np.full(apart.shape, np.inf if share is None else share * largest)
        if name in limits:
            allowed = np.minimum(allowed, limits[name].reshape(apart.shape))
        differences[name] = float(apart.max(initial=0)) / largest
        wrong = ~(apart <= allowed)
        if wrong.any():
            at = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(apart, nan=np.inf), -1))), apart.shape)
            raise WrongResults(
                f"output {name} is {apart[at] / largest:.2g} off at {[int(one) for one in at]}, where "
                f"{allowed[at] / largest:.2g} is allowed; {np.count_nonzero(wrong)} of {wrong.size} elements differ"
            )
    return {"checked": len(differences) == len(outputs), "differences": differences}


def _said(found: Facts) -> list[str]:
    lines = [f"{name}: {value}" for name, value in found.items() if name != "launches" and value is not None]
    for launch in found.get("launches", ()):
        lines.append(f"launch {launch['launch']}: {_time(launch)}")
        lines += [f"  {run['step']}: {_time(run)} ({run['predicted_us']} predicted)" for run in launch["runs"]]
    return lines


def _time(part: Facts) -> str:
    return "not timed" if part["latency_us"] is None else f"{part['latency_us']} us"


def _module(file: Path) -> ModuleType:
    """A module of a file, whatever other files are called."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
