"""Hand-written task bodies for tests of the run engine."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.simulator.network.network import IntArray, Network, NetworkBuilder


def processing_element(k: int) -> Body:
    """One cell of an output-stationary systolic array."""
    return Body(
        "pe",
        f"""
        func.func @pe(%a_in: index, %b_in: index, %a_out: index, %b_out: index, %c: memref<f32>) {{
          %zero = arith.constant 0.0 : f32
          %sum = affine.for %k = 0 to {k} iter_args(%acc = %zero) -> f32 {{
            %a = "df.get"(%a_in) {{op = 0}} : (index) -> f32
            %b = "df.get"(%b_in) {{op = 1}} : (index) -> f32
            %p = arith.mulf %a, %b : f32
            %s = arith.addf %acc, %p : f32
            "df.put"(%a_out, %a) {{op = 2}} : (index, f32) -> ()
            "df.put"(%b_out, %b) {{op = 3}} : (index, f32) -> ()
            "df.cost"() {{site = 0}} : () -> ()
            affine.yield %s : f32
          }}
          memref.store %sum, %c[] : memref<f32>
          return
        }}""",
    )


def loader(k: int) -> Body:
    tile = f"memref<{k}xf32, strided<[?], offset: ?>>"
    return Body(
        "load",
        f"""
        func.func @load(%a: {tile}, %out: index) {{
          affine.for %k = 0 to {k} {{
            %v = affine.load %a[%k] : {tile}
            "df.put"(%out, %v) {{op = 0}} : (index, f32) -> ()
            "df.cost"() {{site = 0}} : () -> ()
          }}
          return
        }}""",
    )


def drain(k: int) -> Body:
    return Body(
        "drain",
        f"""
        func.func @drain(%in: index) {{
          affine.for %k = 0 to {k} {{
            %v = "df.get"(%in) {{op = 0}} : (index) -> f32
            "df.cost"() {{site = 0}} : () -> ()
          }}
          return
        }}""",
    )


def compiled(bodies: Iterable[Body], *, record: bool = False) -> Engine:
    """The engine of a random program, whose first run is such; every other one has code that is not optimized, made in
    half of the time."""
    made = list(bodies)
    few = zlib.crc32("".join(body.mlir for body in made).encode()) % 2
    return compile_bodies(made, elements=0 if few else None, record=record)


def systolic_bodies(k: int) -> list[Body]:
    return [processing_element(k), loader(k), drain(k)]


def systolic_engine(k: int) -> Engine:
    return compile_bodies(systolic_bodies(k))


def systolic_network(
    engine: Engine, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, depth: int, latency: int | None = None
) -> Network:
    """A P x P array that multiplies a (P, K) by b (K, P) into c: PEs row by row, then loaders, then drains."""
    size, k = a.shape
    net = NetworkBuilder()
    count = size * (size + 1)
    across = net.streams(np.full(count, depth), token_bytes=4, latency=latency).reshape(size, size + 1)
    down = net.streams(np.full(count, depth), token_bytes=4, latency=latency).reshape(size + 1, size)
    site = net.costs([1])

    def add(body: str, n: int, *arguments: Any) -> IntArray:
        return net.tasks(body, engine.signatures[body].words(n, arguments, cost_site=site))

    tiles = Tiles(net.tensor(c), np.arange(size * size), ())
    add("pe", size * size, across[:, :-1].ravel(), down[:-1].ravel(), across[:, 1:].ravel(), down[1:].ravel(), tiles)
    add("load", size, Tiles(net.tensor(a), np.arange(size) * k, (1,)), across[:, 0])
    add("load", size, Tiles(net.tensor(b), np.arange(size), (size,)), down[0])
    add("drain", size, across[:, -1])
    add("drain", size, down[-1])
    return net.build()


def matrices(size: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (size, k)), rng.integers(-8, 8, (k, size))
    return a.astype(np.float32), b.astype(np.float32), np.zeros((size, size), np.float32)
