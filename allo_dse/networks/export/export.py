"""Compositions as files to build from, and as plain data."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from allo_dse.backends.fpga.backend import HLS
from allo_dse.backends.fpga.hls.dataflow.movers import Arrival, KernelStreams
from allo_dse.backends.fpga.hls.design_project import board_project
from allo_dse.backends.fpga.hls.project import HlsProject
from allo_dse.backends.npu.board.program_source import NotCut, function_source
from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import file_name
from allo_dse.common.records import JsonObject, replace
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.backend import Artifacts
from allo_dse.eval.design_folder import MOST_GOLDEN_ELEMENTS, design_files, tensor_facts, write_files
from allo_dse.eval.execute.rounding import unit_roundoff

from ..accuracy import random_inputs
from ..compose import Composition
from ..edges import order_of
from ..launches import Launch, Run, in_order
from ..network import Arrange, Array, Arrays, Convert, Host, Network, Reference, Step
from ..onnx.host import OnnxHost
from ..operators.execute import interface, loaded
from . import driver
from .page import page_html

# FPGA projects: one kernel for each design, all linked into one configuration. Kernels access DRAM, or stream tensors
# to each other as the composition says.


MAKEFILE = """\
# All kernels of the network in one configuration of the device, by the vendor's tools; `python run.py` needs none.
KERNELS = {kernels}
# The card's platform, such as xilinx_u280_gen3x16_xdma_1_202211_1
PLATFORM ?=
# hw or hw_emu
TARGET ?= hw
OBJECTS = $(foreach kernel,$(KERNELS),$(kernel)/hls/$(notdir $(kernel)).xo)

network.xclbin: $(OBJECTS) network.cfg
	v++ -l -t $(TARGET) --config network.cfg --platform $(PLATFORM) --kernel_frequency {mhz:.0f} -o $@ $(OBJECTS)

%.xo:
	$(MAKE) -C $(@D) $(@F)

csim:
	python3 run.py

hw: network.xclbin
	python3 run.py --xclbin network.xclbin

.PHONY: csim hw
"""


def write_project(composition: Composition, device: FpgaDevice, folder: Path) -> list[Path]:
    """Write every design's mapping, parameters and HLS project, with a top function by its name, and what links them.

    Every tensor of each kernel has a memory port of its own, by turns where there are more of them than ports, or is a
    stream from kernel to kernel.
    """
    runs = composition.launches[0].designs
    written: list[Path] = []
    linked, ports = ["[connectivity]"], 0
    sent: dict[str, tuple[str, Arrival]] = {}
    for name, run in runs.items():  # senders start before their receivers
        received = {own: sent[tensor] for own, tensor in run.streams.items() if tensor != run.step.output}
        arrivals = {own: arrival for own, (_, arrival) in received.items()}
        project = _kernel(run, arrivals, composition.network.constants, device)
        place = folder / "launch_0" / name
        facts = {
            "tensors": [
                {**one, "stream": one["name"] in run.streams} for one in tensor_facts(run.point.design.design.program)
            ],
            "predicted": dict(run.point.design.values),
        }
        written += write_files(design_files(run.point.design.design, Artifacts({}), facts=facts), place)
        written += project.write(place / HLS)
        lines = [line for line in project.files["connectivity.cfg"].splitlines() if line.startswith(("nk=", "sp="))]
        banks = list(dict.fromkeys(line.rpartition(":")[2] for line in lines if line.startswith("sp=")))
        for line in lines:
            argument, _, bank = line.rpartition(":")
            linked.append(f"{argument}:{device.external.bank_of(ports + banks.index(bank))}" if bank in banks else line)
        ports += len(banks)
        for buffer in project.buffers:
            port = f"{name}_1.{buffer.argument}"
            if buffer.file in received:
                linked.append(f"sc={received[buffer.file][0]}:{port}")
            elif buffer.stream is not None:
                sent[run.step.output] = port, buffer.stream
    makefile = MAKEFILE.format(kernels=" ".join(f"launch_0/{name}" for name in runs), mhz=device.clock.mhz)
    return [*written, *write_files({"Makefile": makefile, "network.cfg": "\n".join(linked) + "\n"}, folder)]


def _kernel(
    run: Run, received: Mapping[str, Arrival], constants: Mapping[str, Array], device: FpgaDevice
) -> HlsProject:
    best, study = run.point.design, run.point.design.study
    design = replace(best.design, program=replace(best.design.program, name=run.design))
    depths = best.metrics.get("stream_depths")
    sent = frozenset(run.streams) - frozenset(received)
    reads = interface(design.program)[0]
    tables = {
        reads[at].name: constants[name].reshape(reads[at].shape).astype(numpy_dtype(reads[at].dtype))
        for at, name in run.constants.items()
    }
    memory = "uram" if device.limit("uram") else "bram"
    streams = KernelStreams(sent, received, memory, tables) if run.streams or tables else None
    return board_project(design, depths, reference=study.reference, verify_with=study.verify_with, streams=streams)


RUN, PAGE = "run.py", "network.html"

BATCHES = (1, 16)
"""Batches of inputs with a reported throughput; a batch goes through a launch before the next launch begins."""


def facts_of(composition: Composition) -> JsonObject:
    """Return a composition as JSON data; times are in microseconds."""
    return {
        "latency_us": round(composition.latency_us, 1),
        "bound_us": round(composition.bound_us, 1),
        "simulated_us": round(composition.simulated_us, 1),
        "runtime": composition.runtime,
        "exported": composition.exported,
        "configuring_us": round(composition.configuring_us, 1),
        "called_us": {runtime: round(composition.called_us(runtime), 1) for runtime in ("calls", "packets")},
        "overdue": composition.overdue,
        "inputs_per_s": {str(batch): round(composition.inputs_per_s(batch), 1) for batch in BATCHES},
        "columns": composition.columns,
        "certificate": composition.certificate,
        **(
            {"accuracy": {"deviation": float(f"{composition.deviation:.4g}"), "limit": composition.accuracy.limit}}
            if composition.accuracy
            else {}
        ),
        "widened": composition.widened,
        "host_us": {name: round(us, 1) for name, us in composition.host_us.items()},
        "why_host": composition.why_host,
        "device_share": round(composition.device_share, 4),
        "time_us": {name: round(us, 1) for name, us in composition.time_us.items()},
        "launches": [_launch(launch) for launch in composition.launches],
    }


def keep_page(composition: Composition, cache: Path, front: Sequence[Composition] = ()) -> Path:
    """Write the page of a composition, and its facts, where `allo-tune dashboard` lists them; returns the page.

    Args:
        cache: as for `search_fronts`. front: compositions on less of the device.
    """
    whole, device = composition.fronts.network, composition.fronts.device.name
    steps = [(step.name, step.work.kind, step.inputs, whole.shapes[step.output]) for step in whole.steps]
    weights = [zlib.crc32(array.tobytes()) for array in whole.constants.values()]
    digest, network = hashlib.sha256(repr([steps, whole.outputs, weights]).encode()).hexdigest()[:6], whole.name
    folder = cache / "pages" / file_name(f"{network}-{digest}-{device}")  # models may share a name
    facts = {"network": network, "device": device, **facts_of(composition)}
    files: dict[str, str | bytes] = {PAGE: page_html(composition, front), "composition.json": json.dumps(facts)}
    return write_files(files, folder)[0]


def _launch(launch: Launch) -> JsonObject:
    return {
        "number": launch.number,
        "start_us": round(launch.start_us, 1),
        "end_us": round(launch.end_us, 1),
        "columns": launch.columns,
        "runs": [
            {
                "step": run.step.name,
                "kind": run.step.work.kind,
                "reads": list(run.step.inputs),
                "writes": run.step.output,
                "design": run.design,
                "folder": _folder(launch, run),
                "call": run.call,
                "params": {k: v for k, v in run.point.design.params.items() if isinstance(v, int | float | str)},
                "first_column": run.first_column,
                "columns": run.point.columns,
                "element": run.step.writes.name,
                "cores": run.point.cores,
                "latency_us": round(run.point.latency_us, 1),
                "start_us": round(run.start_us, 1),
                "end_us": round(run.end_us, 1),
                "dram_bytes": run.dram_bytes,
                **({"resources": dict(run.point.resources)} if run.point.resources else {}),
                "on_chip": list(run.constants.values()),
                "bound": dict(run.point.bound),
            }
            for run in launch.runs
        ],
        "streams": [
            {"tensor": name, "from": source.step.name, "to": target.step.name}
            for name, (source, target) in launch.streams.items()
        ],
        **({"resources": launch.resources} if launch.resources else {}),
    }


def _folder(launch: Launch, run: Run) -> str:
    return f"launch_{launch.number}/{run.design}"


def require_folder(folder: Path) -> Path:
    """Return a folder to write into, which need not exist.

    Raises:
        StudyError: if it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file", hint="a network is written into a folder of its own")
    return folder


def export(
    composition: Composition,
    directory: str | Path,
    inputs: Mapping[str, Array] | None = None,
    front: Sequence[Composition] = (),
) -> list[Path]:
    """Write the driver that runs the network launch by launch, its data, and a folder for each design.

    A design's folder has its program, mapping and placement.

    Args:
        inputs: an array for each input of the network, for the driver to run on; random ones by default.
        front: compositions on less of the device, for the page to compare with.

    Returns:
        the files.

    Raises:
        StudyError: if the directory is a file, or a step of the host has no source of its own.
    """
    folder = require_folder(Path(directory))
    network, whole, accuracy = composition.network, composition.fronts.network, composition.accuracy
    given = random_inputs(whole) if inputs is None else inputs
    limits, allowed = composition.limits(given), None if accuracy is None else accuracy.limit
    if not limits and allowed is None:
        allowed = whole.tolerance
    hosts = {step.name: f"host_{number}.py" for number, step in enumerate(network.steps) if isinstance(step.work, Host)}
    facts = {
        "network": network.name,
        "device": composition.fronts.device.name,
        **facts_of(composition),
        "outputs": dict.fromkeys(network.outputs, allowed),
        "steps": [
            {"name": step.name, "kind": step.work.kind, "inputs": step.inputs, "output": step.output,
             "shape": network.shapes[step.output], **({"host": hosts[step.name]} if step.name in hosts else {}),
             **({"dtype": step.work.dtype.name, "rounding": unit_roundoff(step.work.dtype)
                if step.work.dtype.is_float else 0.0} if isinstance(step.work, Convert) else {})}
            for step, _ in in_order(network, composition.launches)
        ],
    }  # fmt: skip
    arrays: dict[str, Mapping[str, Array]] = {
        "constants": network.constants,
        "inputs": given,
        "orders": _orders(network),
        **_expected(whole, given),
        "limits": limits,
    }
    files: dict[str, str | bytes] = {
        "network.json": json.dumps(facts, indent=1) + "\n",
        PAGE: page_html(composition, front),
        RUN: Path(driver.__file__).read_text(),
        **{f"{name}.npz": _archive(own) for name, own in arrays.items() if own},
        **{name: text for step in network.steps if step.name in hosts for name, text in _host(network, step, hosts)},
    }
    for name in ("expected.npz", "limits.npz"):
        (folder / name).unlink(missing_ok=True)  # it may belong to other inputs
    written = write_files(files, folder)
    if composition.fronts.launches.linked:
        return written + write_project(composition, FpgaDevice.of(composition.fronts.device), folder)
    for launch in composition.launches:
        for run in launch.designs.values():
            written += run.point.design.export(folder / _folder(launch, run))
    return written


def _orders(network: Network) -> Arrays:
    """Return the source position of every element of each rearrangement.

    Positions count from 1 over the elements of all inputs; 0 stands for a zero. The array of a free rearrangement
    is empty.
    """
    orders: Arrays = {}
    for step in network.steps:
        if isinstance(step.work, Arrange) and not isinstance(step.work, Convert):
            shapes = [network.shapes[name] for name in step.inputs]
            orders[step.name] = np.zeros(0, np.int32) if step.work.free else order_of(step.work, shapes, step.name)
    return orders


def _expected(network: Network, inputs: Mapping[str, Array]) -> dict[str, Arrays]:
    """The outputs from some inputs; none where too much would have to be simulated for them."""
    unknown = [step for step, work in network.worked if work.reference is None]
    if sum(math.prod(network.shapes[step.output]) for step in unknown) > MOST_GOLDEN_ELEMENTS:
        return {}
    found = network.run(inputs, simulated=False)
    return {"expected": {name: found[name] for name in network.outputs}}


HOST_MODEL = """from pathlib import Path

MODEL = str(Path(__file__).with_suffix(".onnx"))
INPUTS = {inputs}

try:
    import onnxruntime

    SESSION = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
except ImportError:
    from onnx.reference import ReferenceEvaluator

    SESSION = ReferenceEvaluator(MODEL)


def function(*arrays):
    given = {{name: array.astype(dtype) for (name, dtype), array in zip(INPUTS, arrays)}}
    return SESSION.run(None, given)[0]
"""


SHAPED = """
def function(*arrays):
    return whole(*(one.reshape(shape) for one, shape in zip(arrays, {shapes})))
"""


def _host(network: Network, step: Step, names: Mapping[str, str]) -> list[tuple[str, str | bytes]]:
    """The files of a step of the host: its source, or an ONNX model and what runs it."""
    assert isinstance(step.work, Host)
    name, function = names[step.name], step.work.function
    if isinstance(function, OnnxHost):
        inputs = [(own, dtype.name) for own, dtype in function.dtypes.items()]
        return [(name, HOST_MODEL.format(inputs=inputs)), (str(Path(name).with_suffix(".onnx")), function.model)]
    try:
        if isinstance(function, Reference) and function.work.reference is not None:
            shapes = [tensor.shape for tensor in interface(loaded(function.work))[0]]
            source = function_source(function.work.reference).replace("def function(*arrays):", "def whole(*arrays):")
            return [(name, f"{source}\n{SHAPED.format(shapes=shapes)}")]
        return [(name, function_source(function))]
    except NotCut as problem:
        place = f"{network.name}: step {step.name!r} of the host"
        raise StudyError(f"{place}: {problem.message}", hint="define it at the top of a file of its own") from None


def _archive(arrays: Mapping[str, Array]) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **dict(arrays))  # type: ignore[arg-type]
    return data.getvalue()
