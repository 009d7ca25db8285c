"""Task bodies and the run time compiled, or read from disk where an earlier process has compiled the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from allo_dse.common.mlir import jit
from allo_dse.common.mlir.jit import MachineCode, processor

from ..run_time.fifo import PLAIN, Variant
from .compile_child import Request
from .compile_server import compiled
from .signature import Body, CompiledBodies

_KIND = "code"


def compiled_bodies(bodies: Sequence[Body], variant: Variant = PLAIN, *, optimize: bool = True) -> CompiledBodies:
    """Compile bodies as `bodies.compile_bodies` does, with the same errors, under the limits of `compile_server`."""
    if not bodies:
        return CompiledBodies(b"", (), (), (), ())

    def made() -> bytes:
        return compiled(Request(tuple(bodies), variant, optimize))

    return msgspec.msgpack.decode(_kept((_compiler(), variant, optimize, bodies), made), type=CompiledBodies)


@cache
def run_time(variant: Variant) -> MachineCode:
    """The scheduler and the table process, once in each process."""

    def made() -> bytes:
        from .bodies import compile_runtime

        return compile_runtime(variant)

    return MachineCode(_kept((_compiler(), variant), made))


def _kept(key: object, made: Callable[[], bytes]) -> bytes:
    """Return the stored bytes of an equal key, or make and store them."""
    content = msgspec.msgpack.encode(key)
    found = jit.known(_KIND, content)
    if found is None:
        found = made()
        jit.keep(_KIND, content, found)
    return found


@cache
def _compiler() -> tuple[object, ...]:
    """Return the inputs of machine code besides the bodies: code generation as it is now, MLIR, the processor.

    The same in every copy of the package: of its files the texts count and not the times.
    """
    package = Path(__file__).parent.parent.parent
    sources = sorted([*package.glob("common/mlir/*.py"), *package.glob("simulator/**/*.py")])
    texts = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return _mlir_version(), processor(), texts


def _mlir_version() -> str:
    for name in ("mlir-python-bindings", "torch-mlir"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return ""
