"""Library calls, bits and divisions, for every family of types, against NumPy and Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.lang import install
from allo_dse.lang.storage import numpy_dtype

from ..support.interpreter import wrapped
from ..support.operator_tables import region

Array = Any
TYPES = ("float64", "float32", "float16", "bfloat16", "int8", "UInt(3)", "Int(5)", "int32", "uint32", "Fixed(16, 8)",
         "UFixed(8, 4)")  # fmt: skip
ROUNDOFF = {"float64": 2.0**-46, "float32": 2.0**-18, "float16": 2.0**-8, "bfloat16": 2.0**-5}
"""Relative; sums and functions of some dozen roundings."""


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: Array, g: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + g


def _windows(p: Array) -> Array:
    return np.lib.stride_tricks.sliding_window_view(p, (2, 2), axis=(2, 3))


LIBRARY: dict[str, tuple[str, str, Callable[..., Array]]] = {
    "allo.softmax(x)": ("float64", "4, 8", lambda a: _softmax(a["X"])),
    "allo.layernorm(x, g, g)": ("float64", "4, 8", lambda a: _layer_norm(a["X"], a["G"])),
    "allo.linear(x, w, b)": ("", "4, 6", lambda a: a["X"] @ a["W"].T + a["B"]),
    "allo.linear(x, w)": ("", "4, 6", lambda a: a["X"] @ a["W"].T),
    "allo.matmul(x, v)": ("", "4, 4", lambda a: a["X"] @ a["V"]),
    "allo.bmm(q, k)": ("", "2, 3, 3", lambda a: a["Q"] @ a["K"]),
    "allo.maxpool(p, f)": ("", "1, 1, 3, 7", lambda a: _windows(a["P"]).max((-2, -1))),
    "allo.sumpool(p, f)": ("", "1, 1, 3, 7", lambda a: _windows(a["P"]).sum((-2, -1))),
    "allo.transpose(x, (1, 0))": ("", "8, 4", lambda a: a["X"].T),
    "x.T": ("", "8, 4", lambda a: a["X"].T),
    "allo.view(x, (8, 4))": ("", "8, 4", lambda a: a["X"].reshape(8, 4)),
    "allo.concat(x, w, axis=0)": ("", "10, 8", lambda a: np.concatenate([a["X"], a["W"]])),
    "allo.tril(x)": ("", "4, 8", lambda a: np.tril(a["X"])),
    "allo.copy(x)": ("", "4, 8", lambda a: a["X"]),
    "allo.relu(x)": ("", "4, 8", lambda a: np.maximum(a["X"], 0)),
}
INPUTS = {"X": "4, 8", "W": "6, 8", "B": "6", "G": "8", "V": "8, 4", "Q": "2, 3, 4", "K": "2, 4, 3", "P": "1, 1, 4, 8",
          "F": "2, 2"}  # fmt: skip


def run(tensors: dict[str, str], lines: list[str], arrays: list[Array], path: Path) -> Any:
    """Run one kernel of some lines; tensors are known there by their names in small letters."""
    outer, inner = (", ".join(f"{f(n)}: {t}" for n, t in tensors.items()) for f in (str, str.lower))
    text = "import allo\nimport allo.dataflow as df\nfrom allo.ir.types import *\n\n@df.region()\n"
    text += f"def top({outer}):\n    @df.kernel(mapping=[1], args=[{', '.join(tensors)}])\n    def core({inner}):\n"
    program = dse.load_program(region(text + "".join(f"        {line}\n" for line in lines), path))
    if arrays:
        dse.simulate(program, *arrays)
    return program


@pytest.fixture(autouse=True, scope="module")
def _language() -> None:
    install()


@pytest.mark.parametrize("name", TYPES)
def test_library_calls(name: str, tmp_path: Path) -> None:
    wide = "float64" if "loat" in name or "ixed" in name else "int64"
    tensors = {n: f"{name}[{shape}]" for n, shape in INPUTS.items()}
    tensors |= {f"Y{k}": f"{result or wide}[{shape}]" for k, (result, shape, _) in enumerate(LIBRARY.values())}
    lines = [f"y{k}[{', '.join(':' for _ in LIBRARY[call][1].split(','))}] = {call}" for k, call in enumerate(LIBRARY)]
    program = run(tensors, lines, [], tmp_path / "program.py")
    rng = np.random.default_rng(0)
    arrays, exact = [], {}
    for tensor in program.tensors:
        dtype, kind = tensor.dtype, numpy_dtype(tensor.dtype)
        if tensor.name not in INPUTS:
            made = np.zeros(tensor.shape, kind)
        elif dtype.is_float:
            made = rng.standard_normal(tensor.shape).astype(kind)
        else:
            count = min(8, 1 << (dtype.bits - dtype.is_signed))
            made = (rng.integers(0, count, tensor.shape) - (count // 2 if dtype.is_signed else 0)).astype(kind)
        arrays.append(made)
        exact[tensor.name] = made.astype(np.float64) / (1 << dtype.fraction_bits if dtype.is_fixed else 1)
    dse.simulate(program, *arrays)
    fraction = program.tensors[0].dtype.fraction_bits if "ixed" in name else None
    for k, (call, (result, _, reference)) in enumerate(LIBRARY.items()):
        wanted, found = reference(exact), arrays[len(INPUTS) + k]
        off = np.abs(found - wanted)
        if name in ROUNDOFF:
            assert (off <= ROUNDOFF[name] * (1 + np.abs(wanted))).all(), call
        elif result:  # computed in float32
            assert (off <= ROUNDOFF["float32"] * (1 + np.abs(wanted))).all(), call
        else:  # products of fixed-point numbers are rounded down, each of 8 at most
            assert (off <= (0 if fraction is None else 9 * 2.0**-fraction)).all(), call


@pytest.mark.parametrize("bits", [3, 8, 13, 33, 64])
@pytest.mark.parametrize("signed", [True, False])
def test_bits_of_integers(bits: int, signed: bool, tmp_path: Path) -> None:
    name, machine = f"{'Int' if signed else 'UInt'}({bits})", next(b for b in (8, 16, 32, 64) if b >= bits)
    low, high = 1, bits - 1
    tensors = {"X": f"{name}[8]", **{f"Y{k}": "uint64[8]" for k in range(6)}, "Z": f"{name}[8]"}
    lines = [
        "for i in range(8):",
        f"    v: {name} = x[i]",
        *(
            f"    y{k}[i] = {text}"
            for k, text in enumerate(
                [
                    f"v[{low}:{high}]",
                    f"v[{bits - 1}]",
                    "v[0]",
                    f"v[i % {bits}]",
                    f"v[{low}:{high}].reverse()",
                    "v.reverse()",
                ]
            )
        ),
        f"    w: {name} = x[i]",
        f"    w[{low}:{high}] = 1",
        "    z[i] = w",
    ]
    rng = np.random.default_rng(bits)
    x = [wrapped(int.from_bytes(rng.bytes(8), "little"), bits, signed=signed) for _ in range(6)]
    x += [0, wrapped(-1, bits, signed=signed)]
    kind = f"{'int' if signed else 'uint'}{machine}"
    arrays = [np.array(x, kind), *(np.zeros(8, np.uint64) for _ in range(6)), np.zeros(8, kind)]
    run(tensors, lines, arrays, tmp_path / "program.py")
    for i, value in enumerate(x):
        raw = value & ((1 << bits) - 1)
        part, width = raw >> low & ((1 << high - low) - 1), high - low
        turned = wrapped(int(f"{raw:0{bits}b}"[::-1], 2), bits, signed=signed)
        wanted = [part, raw >> bits - 1, raw & 1, raw >> i % bits & 1, int(f"{part:0{width}b}"[::-1], 2)]
        assert [int(one[i]) for one in arrays[1:6]] == wanted
        assert int(arrays[6][i]) == turned & ((1 << 64) - 1)
        cleared = raw & ~(((1 << width) - 1) << low) | 1 << low
        assert int(arrays[7][i]) == wrapped(cleared, bits, signed=signed)


@pytest.mark.parametrize(("floats", "integers"), [("float64", "int64"), ("float32", "uint32"), ("float16", "int16")])
def test_bit_casts(floats: str, integers: str, tmp_path: Path) -> None:
    given = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-3], floats)
    arrays = [given, np.zeros(8, integers), np.zeros(8, floats)]
    lines = [
        "for i in range(8):",
        f"    v: {integers} = f[i].bitcast()",
        "    o[i] = v",
        "    b[i] = v.bitcast()",
    ]
    run({"F": f"{floats}[8]", "O": f"{integers}[8]", "B": f"{floats}[8]"}, lines, arrays, tmp_path / "program.py")
    assert (arrays[1] == given.view(integers)).all()
    assert (arrays[2].view(integers) == given.view(integers)).all()


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_divisions_of_special_values(name: str, tmp_path: Path) -> None:
    large = float(np.finfo(name).max)
    special = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 3, -7.5, np.inf, -np.inf, np.nan, 1e-5, large, -large], name)
    a, b = (one.ravel() for one in np.meshgrid(special, special))
    arrays = [a, b, np.zeros_like(a), np.zeros_like(a)]
    lines = [f"for i in range({len(a)}):", "    q[i] = a[i] // b[i]", "    r[i] = a[i] % b[i]"]
    run({n: f"{name}[{len(a)}]" for n in ("A", "B", "Q", "R")}, lines, arrays, tmp_path / "program.py")
    wide = np.float32 if name == "float16" else np.dtype(name)
    with np.errstate(all="ignore"):
        wanted = [f(a.astype(wide), b.astype(wide)).astype(name) for f in (np.floor_divide, np.remainder)]
    for found, right in zip(arrays[2:], wanted, strict=True):
        same = (found == right) & (np.signbit(found) == np.signbit(right)) | (np.isnan(found) & np.isnan(right))
        assert same.all(), (a[~same], b[~same], found[~same], right[~same])
