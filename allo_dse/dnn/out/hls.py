"""A composition for an FPGA as one project: a kernel for each design, all linked into one configuration.

Kernels read and write DRAM, or what the composition says streams from kernel to kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allo_dse.backends.hls import Arrival, HlsProject, KernelStreams
from allo_dse.common.records import replace
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.hardware.design_folder import HLS, design_files, tensor_facts, write_files
from allo_dse.eval.hls.design_project import board_project

from ..compose import Composition
from ..launches import Run

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
    for name, run in runs.items():  # whoever sends starts before whoever receives
        received = {own: sent[tensor] for own, tensor in run.streams.items() if tensor != run.step.output}
        project = _kernel(run, {own: arrival for own, (_, arrival) in received.items()}, device)
        place = folder / "launch_0" / name
        facts = {
            "tensors": [
                {**one, "stream": one["name"] in run.streams} for one in tensor_facts(run.point.design.design.program)
            ],
            "predicted": dict(run.point.design.values),
        }
        written += write_files(design_files(run.point.design.design, facts=facts, hls=False), place)
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


def _kernel(run: Run, received: Mapping[str, Arrival], device: FpgaDevice) -> HlsProject:
    best, study = run.point.design, run.point.design.study
    design = replace(best.design, program=replace(best.design.program, name=run.design))
    depths = best.metrics.get("stream_depths")
    sent = frozenset(run.streams) - frozenset(received)
    streams = KernelStreams(sent, received, "uram" if device.limit("uram") else "bram") if run.streams else None
    return board_project(design, depths, reference=study.reference, verify_with=study.verify_with, streams=streams)
