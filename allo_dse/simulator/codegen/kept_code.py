"""Task bodies compiled, or read from disk where an earlier process has compiled the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from allo_dse.ir import kept
from allo_dse.ir.machine_code import processor

from .lowering.signature import Body, CompiledBodies
from .run_time.variant import PLAIN, Variant

_KIND = "code"


def compiled_bodies(bodies: Sequence[Body], variant: Variant = PLAIN) -> CompiledBodies:
    """As `lowering.bodies.compile_bodies`, which says what it raises."""
    content = msgspec.msgpack.encode((_compiler(), variant, bodies))
    found = kept.known(_KIND, content)
    if found is not None:
        return msgspec.msgpack.decode(found, type=CompiledBodies)
    from .lowering.bodies import compile_bodies

    compiled = compile_bodies(bodies, variant)
    kept.keep(_KIND, content, msgspec.msgpack.encode(compiled))
    return compiled


@cache
def _compiler() -> tuple[object, ...]:
    """What machine code depends on beside the bodies: code generation as it is now, MLIR, the processor.

    The same in every copy of the package: of its files the texts count and not the times.
    """
    package = Path(__file__).parent.parent.parent
    sources = sorted([*package.glob("ir/*.py"), *package.glob("simulator/**/*.py")])
    texts = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    return _mlir_version(), processor(), texts


def _mlir_version() -> str:
    for name in ("mlir-python-bindings", "torch-mlir"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return ""
