"""Arithmetic of integers wider than a machine word."""

from __future__ import annotations

import random

import numpy as np
import pytest

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.simulator.network.network import NetworkBuilder


def run(engine: Engine, name: str, values: list[int], *, signed: bool = False) -> list[int]:
    """What a body makes of an array, its only argument."""
    size = engine.signatures[name].parameters[0].element_bytes
    memory = b"".join(value.to_bytes(size, "little", signed=signed) for value in values)
    array = np.frombuffer(bytearray(memory), np.dtype(f"V{size}"))
    net = NetworkBuilder()
    net.tasks(name, engine.signatures[name].words(1, [Tiles(net.tensor(array), 0, (1,))]))
    engine.run(net.build())
    return [int.from_bytes(element.tobytes(), "little", signed=signed) for element in array]


@pytest.mark.parametrize("bits", [8, 33, 64, 65, 71, 130, 901])
def test_division_rounds_down_at_any_width(bits: int) -> None:
    """MLIR's `arith-expand` alone is off by 2**64 for negative quotients of more than 64 bits."""
    wide = 1 << (bits - 1).bit_length()
    store = f"i{max(wide, 8)}"
    text = f"""
    func.func @divide(%x: memref<3x{store}>) {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %p = memref.load %x[%zero] : memref<3x{store}>
      %q = memref.load %x[%one] : memref<3x{store}>
      %a = arith.trunci %p : {store} to i{bits}
      %b = arith.trunci %q : {store} to i{bits}
      %r = arith.floordivsi %a, %b : i{bits}
      %s = arith.extsi %r : i{bits} to {store}
      memref.store %s, %x[%two] : memref<3x{store}>
      return
    }}"""
    if wide == bits:
        text = text.replace("arith.trunci", "arith.bitcast").replace("arith.extsi", "arith.bitcast")
    engine = compile_bodies([Body("divide", text)])
    rng = random.Random(bits)
    for a, b in [
        (7, 2),
        (-7, 2),
        (7, -2),
        (-8, 2),
        *((rng.getrandbits(bits - 2), -3), (-rng.getrandbits(bits - 2), 5)),
    ]:
        assert run(engine, "divide", [a, b, 0], signed=True)[2] == a // b


@pytest.mark.parametrize("bits", [33, 65, 72, 96, 129, 136, 200])
def test_arrays_of_any_width_hold_their_elements(bits: int) -> None:
    """An element takes as many bytes as the processor aligns it to, and so does an array on the heap."""
    count, store = 700, f"i{1 << (bits - 1).bit_length()}"
    text = f"""
    func.func @turn(%x: memref<{count}x{store}>) {{
      %last = arith.constant {count - 1} : index
      %a = memref.alloc() : memref<{count}xi{bits}>
      %b = memref.alloc() : memref<{count}xi{bits}>
      affine.for %i = 0 to {count} {{
        %v = memref.load %x[%i] : memref<{count}x{store}>
        %t = arith.trunci %v : {store} to i{bits}
        memref.store %t, %a[%i] : memref<{count}xi{bits}>
      }}
      affine.for %i = 0 to {count} {{
        %j = arith.subi %last, %i : index
        %v = memref.load %a[%j] : memref<{count}xi{bits}>
        memref.store %v, %b[%i] : memref<{count}xi{bits}>
      }}
      affine.for %i = 0 to {count} {{
        %v = memref.load %b[%i] : memref<{count}xi{bits}>
        %w = memref.load %a[%i] : memref<{count}xi{bits}>
        %s = arith.xori %v, %w : i{bits}
        %e = arith.extui %s : i{bits} to {store}
        memref.store %e, %x[%i] : memref<{count}x{store}>
      }}
      memref.dealloc %a : memref<{count}xi{bits}>
      memref.dealloc %b : memref<{count}xi{bits}>
      return
    }}"""
    rng = random.Random(bits)
    values = [rng.getrandbits(bits) for _ in range(count)]
    turned = [v ^ w for v, w in zip(values, reversed(values), strict=True)]
    assert run(compile_bodies([Body("turn", text)]), "turn", values) == turned
