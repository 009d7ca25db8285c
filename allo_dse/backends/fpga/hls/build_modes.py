"""The modes of `df.build(..., target="vitis_hls", mode=...)` that need the vendor's tools."""

from __future__ import annotations

import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.compiler.model.arguments import Arguments
from allo_dse.lang.storage import storage_dtype, stored

from .evaluator import find_tool, run_steps
from .project import HlsProject

# C simulation without the vendor's tool: the project is compiled by g++ or clang++ against this package's headers.
#
# Processes of the dataflow region are coroutines with streams of the declared depths. So feedback works, and a deadlock
# is an error with the waiting processes' names.


COMPILERS = ("g++", "clang++")
FLAGS = ("-std=c++14", "-O0", "-fwrapv", "-ffp-contract=off", "-w", "-I.", "-Icsim")
DEADLOCK_EXIT_CODE = 43
COMPILE_SECONDS = 300


def find_compiler(wanted: str | None = None) -> str:
    """The path of a C++ compiler.

    Raises:
        SimulationError: if there is none.
    """
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise SimulationError(
        f"C simulation needs a C++ compiler; {wanted or ' and '.join(COMPILERS)} not found",
        hint="install one: apt-get install g++",
    )


def csim(
    project: HlsProject, *arrays: ArrayLike, compiler: str | None = None, seconds: float = 60.0
) -> tuple[NDArray[np.generic], ...]:
    """Run a project once on copies of the arrays.

    Args:
        arrays: the region's arguments in order, as for `simulate`.
        compiler: "g++" or "clang++"; the first that is found by default.
        seconds: time limit of the run.

    Returns:
        The arguments after the run.

    Raises:
        SimulationError: without a compiler, for arguments that do not fit, when the kernel deadlocks, at the limit.
    """
    copies = tuple(np.array(array, copy=True) if isinstance(array, np.ndarray) else array for array in arrays)
    with CSimulation(project, compiler=compiler, seconds=seconds) as simulation:
        simulation(*copies)
    return tuple(np.asarray(copy) for copy in copies)


def save_arguments(project: HlsProject, arrays: Sequence[ArrayLike], directory: Path) -> Arguments:
    """Check the region's arguments and write those that the kernel uses as files of the test bench."""
    arguments = Arguments(project.program, arrays)
    for buffer in project.buffers:
        if buffer.file in arguments.by_name:
            arguments.by_name[buffer.file].tofile(directory / f"{buffer.file}.bin")
    for one in project.program.shared:  # keeps its contents from call to call
        path = directory / f"{one.tensor.name}.bin"
        if not path.exists():
            stored(one.initial, one.tensor.dtype).tofile(path)
    return arguments


def load_results(project: HlsProject, arguments: Arguments, directory: Path) -> None:
    """Read what the kernel has written back into the caller's arrays."""
    dtypes = {tensor.name: storage_dtype(tensor.dtype) for tensor in project.program.tensors}
    for buffer in project.buffers:
        if buffer.writes and buffer.file in dtypes:
            dtype = dtypes[buffer.file]
            values = np.fromfile(directory / f"{buffer.file}.bin", dtype)
            arguments.by_name[buffer.file].reshape(-1).view(dtype)[:] = values
    arguments.write_back()


class CSimulation:
    """A compiled project; called with arrays, it runs on them in place. Variables of tasks live as long as it does."""

    def __init__(self, project: HlsProject, *, compiler: str | None = None, seconds: float = 60.0) -> None:
        if project.externals:
            raise SimulationError(
                f"C simulation: {project.top} calls vendor kernels, which have no C++ here",
                hint="compile the written project together with their sources",
            )
        self.project = project
        self.seconds = seconds
        self._directory = tempfile.TemporaryDirectory(prefix="allo_csim_")
        self._path = Path(self._directory.name)
        self._process: subprocess.Popen[str] | None = None
        project.write(self._path)
        _compile(find_compiler(compiler), self._path)

    def __enter__(self) -> CSimulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and remove the files."""
        self._stop()
        self._directory.cleanup()

    def _stop(self) -> None:
        if self._process is not None:
            with self._process as process:  # which closes its pipes
                process.kill()
            self._process = None

    def __call__(self, *arrays: ArrayLike) -> None:
        """Run once; arrays are written in place."""
        arguments = save_arguments(self.project, arrays, self._path)
        self._run()
        load_results(self.project, arguments, self._path)

    def _run(self) -> None:
        """Have the process run on the files."""
        if self._process is None:
            self._process = subprocess.Popen(
                ["./testbench", "-"],
                cwd=self._path,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(".\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self.seconds)
        if not ready:
            self._end("the time limit was reached", f"it is {self.seconds} s; a process may poll a stream for ever")
        if process.stdout.readline() != "done\n":
            self._failed()

    def _failed(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        code, message = self._process.wait(), self._process.stderr.read().strip()
        if code == DEADLOCK_EXIT_CODE:
            self._end(message.removeprefix("error: "), "deeper streams may help: depths={...}")
        self._end(f"the program ended with code {code}: {message[-2000:]}", "")

    def _end(self, message: str, hint: str) -> None:
        self._stop()
        raise SimulationError(f"C simulation of {self.project.top}: {message}", hint=hint)


def _compile(compiler: str, path: Path) -> None:
    command = [compiler, *FLAGS, "-o", "testbench", "kernel.cpp", "testbench.cpp"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=path, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        raise SimulationError(
            f"{Path(compiler).name} does not compile the kernel ({time.monotonic() - start:.1f} s): "
            f"{done.stderr.strip()[:4000]}",
            hint="this is an error of the code generator; please report the program",
        )


CSIM = "csim"
STEPS = {"csyn": ("csynth",), "debug": ("csynth",), "csynth": ("csynth",), "cosim": ("csynth", "cosim")}
"""Steps of the project's script, by mode."""
MAKE = ("hw_emu", "hw")
"""Modes that link the kernel and run it, through the project's Makefile."""
TOOL_SECONDS = 24 * 3600.0


def check_mode(mode: str | None) -> None:
    """Refuse an unknown mode.

    Raises:
        AlloDseError: naming those that exist.
    """
    known = (CSIM, *STEPS, *MAKE)
    if mode is not None and mode not in known:
        raise AlloDseError(f"unknown mode {mode!r} of HLS", hint=f"known modes: {', '.join(known)}")


def run_mode(project: HlsProject, mode: str, directory: str | None, arrays: Sequence[ArrayLike]) -> None:
    """Run a mode in the project's directory; "hw_emu" and "hw" write the arrays in place.

    Raises:
        AlloDseError: without the tool or a directory, or when it fails.
    """
    missing = shutil.which("v++") is None if mode in MAKE else find_tool() is None
    if missing:
        raise AlloDseError(
            f'mode "{mode}" needs AMD Vitis, which is not on the search path',
            hint='source its settings64.sh, or build with mode="csim", which runs without it',
        )
    if directory is None:
        raise AlloDseError(f'mode "{mode}" needs a directory', hint='df.build(..., project="gemm.prj")')
    data = Path(directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    arguments = save_arguments(project, arrays, data) if arrays else None
    if mode in STEPS:
        run_steps(Path(directory), STEPS[mode], seconds=TOOL_SECONDS)
        return
    done = subprocess.run(["make", mode], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr)[-2000:].strip()
        raise AlloDseError(f"`make {mode}` failed in {directory}: {output}")
    if arguments is not None:
        load_results(project, arguments, data)
