"""Designs built with Allo and measured on the NPU of the machine."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from allo_dse.common.processes import Overdue, tail
from allo_dse.eval.command import ERRORS, LOG, Command, CommandError, last_words

from . import build

PROGRESS = "progress.txt"
TOOLCHAIN = ("MLIR_AIE_INSTALL_DIR", "PEANO_INSTALL_DIR")
"""Variables that Allo's AIE backend reads to find the vendor's tools (allo/backend/aie/README.md)."""
DRIVER_WORDS = ("DRM_IOCTL_AMDXDNA", "ERT_CMD_STATE", "Kernel did not complete", "failed to open device")
"""Messages of driver, XRT and Allo's host program when the device no longer answers (mlir-aie issue 1539,
xdna-driver PR 51, `codegen_host` of Allo)."""
RECOVER = (
    "see `xrt-smi examine` and `dmesg`; `sudo modprobe -r amdxdna && sudo modprobe amdxdna` loads the driver and its "
    "firmware again; where that does not help, reboot. If other designs run, this one deadlocks, or a call of it takes "
    "longer than the driver allows (tdr_timeout_ms, 2 s by default; older drivers: timeout_in_sec)"
)


class DeviceWedged(CommandError):
    """The NPU does not answer, or the design deadlocks on it."""


class NpuRun(Command):
    """Builds a design with Allo, runs it on the NPU, checks its results and times it.

        Study(..., rungs=[NpuRun(top=16)])

    `latency_us` is the median over repetitions of the mean of `iterations` calls after `warmup` ones; `latency_spread`
    their range relative to it. Builds and logs are kept in `directory`, by the design's key. One run at a time uses the
    device, whoever started it (a lock that goes with its process).

    Args:
        python: an interpreter that has Allo; by default this one.
        build_seconds, run_seconds: limits per design; waiting for the device counts as neither.
        calls: warm-up calls, timed calls per repetition, and repetitions.
        device_node: of the NPU's driver.
    """

    def __init__(
        self,
        *,
        python: str | Path = sys.executable,
        build_seconds: float = 1800.0,
        run_seconds: float = 120.0,
        calls: tuple[int, int, int] = (20, 100, 5),
        directory: str | Path = "runs/.npu",
        top: int | None = None,
        device_node: str | Path = "/dev/accel/accel0",
    ) -> None:
        warmup, iterations, repetitions = calls
        command = (
            f"{shlex.quote(str(python))} {{design}}/{Path(build.__file__).name} --json "
            f"--progress {{design}}/{PROGRESS} --warmup {warmup} --iterations {iterations} --repetitions {repetitions}"
        )
        source = Path(build.__file__).read_text() + command.partition(" ")[2]
        version = hashlib.sha256(source.encode()).hexdigest()[:8]
        super().__init__(command, name="npu_run", version=version, resource="npu", directory=directory, top=top)
        self.build_seconds, self.run_seconds, self.device_node = build_seconds, run_seconds, Path(device_node)

    @property
    def deadline_s(self) -> float:
        """No total limit: build and run have limits of their own, and others may use the device for long."""
        return math.inf

    def unavailable(self) -> str | None:
        """Return a sentence on the first missing requirement; None if nothing is missing."""
        python = self._program()
        if python is None:
            return f"there is no Python interpreter {self.words[0]}"
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('allo') is None)"
        if subprocess.run([python, "-c", code], capture_output=True).returncode:
            return f"Allo is missing: {python} cannot import it (github.com/cornell-zhang/allo)"
        missing = [name for name in TOOLCHAIN if name not in os.environ]
        if missing:
            return f"Allo's AIE backend is not set up: {' and '.join(missing)} not set (allo/backend/aie/README.md)"
        if shutil.which("xrt-smi") is None and "XILINX_XRT" not in os.environ:
            return "XRT is missing: no xrt-smi on PATH and XILINX_XRT is not set (source /opt/xilinx/xrt/setup.sh)"
        if not self.device_node.exists():
            return f"there is no NPU: {self.device_node} does not exist (is the amdxdna driver loaded?)"
        return None

    def _overdue(self, folder: Path) -> Overdue:
        """Limit each stage by itself; its time begins when it is first seen."""
        progress = folder / PROGRESS
        progress.unlink(missing_ok=True)
        limits = {"building": (self.build_seconds, "to build"), "running": (self.run_seconds, "on the device")}
        began: dict[str, float] = {}

        def overdue(passed: float) -> str:
            stage = _stage(progress)
            seconds, what = limits.get(stage, (math.inf, ""))
            late = passed - began.setdefault(stage, passed) > seconds
            return f"took longer than {seconds:g} s {what}" if late else ""

        return overdue

    def _complain(self, code: int | str, folder: Path) -> NoReturn:
        said = tail(folder / LOG) + tail(folder / ERRORS)
        running = _stage(folder / PROGRESS) == "running"
        driver = next((word for word in DRIVER_WORDS if word.lower() in said.lower()), None)
        if running and (isinstance(code, str) or driver):
            why = code if isinstance(code, str) else f"the driver says {driver}"
            raise DeviceWedged(f"{self.name}: the device does not answer: {why}", hint=RECOVER)
        if code == build.WRONG:
            raise CommandError(f"{self.name} computed wrong numbers: {last_words(folder)}", hint=f"see {folder}")
        super()._complain(code, folder)


def _stage(progress: Path) -> str:
    """The last stage that the run has named."""
    try:
        return progress.read_text().split()[-1]
    except (FileNotFoundError, IndexError):
        return "building"
