"""The headers that stand for the vendor's, against Python's integers and NumPy's numbers."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from allo_dse.backends.fpga.hls.build_modes import FLAGS

INCLUDE = Path(__file__).parents[4] / "allo_dse" / "backends" / "fpga" / "hls" / "include"
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C++ compiler is installed")
WIDTHS = ((7, True), (8, False), (33, True), (64, False), (64, True), (65, False), (100, True), (300, False))


def run(lines: list[str], directory: Path, compiler: str) -> list[str]:
    """Compile statements that print a line each, and return what they print."""
    show = (
        "template <int N, bool S> void show(const ap_int_base<N, S> &x) {\n"
        '  printf("%s%d ", S ? "i" : "u", N);\n'
        '  for (int i = x.words - 1; i >= 0; i--) printf("%016llx", (unsigned long long)x.word[i]);\n'
        '  printf("\\n");\n}\n'
    )
    parts = [f"static void f{n}() {{\n" + "\n".join(lines[n : n + 50]) + "\n}\n" for n in range(0, len(lines), 50)]
    calls = "".join(f"  f{n}();\n" for n in range(0, len(lines), 50))
    includes = '#include <cstdio>\n#include "allo_hls.h"\n#include <ap_axi_sdata.h>\n'
    source = f"{includes}{show}{''.join(parts)}int main() {{\n{calls}}}\n"
    (directory / "t.cpp").write_text(source)
    command = [compiler, *FLAGS, f"-I{INCLUDE}", "-o", "t", "t.cpp"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return subprocess.run(["./t"], cwd=directory, capture_output=True, text=True, check=True).stdout.splitlines()


def wrap(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def number(text: str) -> tuple[bool, int, int]:
    """Sign, width and value of a shown number."""
    type_, digits = text.split()
    bits, signed = int(type_[1:]), type_[0] == "i"
    return signed, bits, wrap(int(digits, 16), bits, signed)


def literal(value: int, bits: int, signed: bool) -> str:
    """An expression of an ap type, put together from 32-bit pieces."""
    name = f"ap_{'' if signed else 'u'}int<{bits}>"
    raw = value & ((1 << bits) - 1)
    pieces = [f"({name}({raw >> s & 0xFFFFFFFF}u) << {s})" for s in range(0, bits, 32)]
    return f"{name}({' | '.join(pieces)})"


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def expected(op: str, a: int, b: int) -> int:
    if op in "/%":
        quotient = truncated(a, b)
        return quotient if op == "/" else a - quotient * b
    return {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_integers_compute_and_grow_as_documented(tmp_path: Path, compiler: str) -> None:
    rng = random.Random(1)
    lines, wanted = [], []
    for _ in range(120):
        (n, s), (m, t) = rng.choice(WIDTHS), rng.choice(WIDTHS)
        a, b = wrap(rng.getrandbits(n), n, s), wrap(rng.getrandbits(rng.randint(1, m)), m, t)
        op = rng.choice("+-*/%&|^")
        if op in "/%" and b == 0:
            continue
        lines.append(f"show({literal(a, n, s)} {op} {literal(b, m, t)});")
        wanted.append((op, n, s, m, t, expected(op, a, b)))
    for text, (op, n, s, m, t, value) in zip(run(lines, tmp_path, compiler), wanted, strict=True):
        signed, bits, got = number(text)
        assert got == value, (op, n, s, m, t)
        if op == "*":
            assert (bits, signed) == (n + m, s or t)
        if op in "+-":
            assert bits == max(n + (t and not s), m + (s and not t)) + 1
            assert signed == (s or t or op == "-")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_bits_ranges_shifts_and_comparisons(tmp_path: Path, compiler: str) -> None:
    rng = random.Random(2)
    lines, wanted = [], []
    for _ in range(40):
        n, s = rng.choice(WIDTHS)
        a = wrap(rng.getrandbits(n), n, s)
        low = rng.randrange(n)
        high = rng.randrange(low, n)
        value = rng.getrandbits(high - low + 1)
        shift = rng.randrange(n)
        x = f"ap_{'' if s else 'u'}int<{n}> x = {literal(a, n, s)};"
        mask = ((1 << (high - low + 1)) - 1) << low
        changed = (a & ~mask) | (value << low)
        lines += [
            f"{{ {x} show(ap_uint<{n}>(x.range({high}, {low}))); }}",
            f"{{ {x} x({high}, {low}) = {literal(value, n, False)}; show(x); }}",
            f"{{ {x} x[{low}] = !x[{low}]; show(x); }}",
            f"{{ {x} show(x << {shift}); }}",
            f"{{ {x} show(x >> {shift}); }}",
            f"{{ {x} show(~x); }}",
            f"{{ {x} show(ap_uint<1>(x < {low} && !(x >= {low}))); }}",
            f"{{ {x} show(ap_uint<{n}>(x)); }}",
        ]
        wanted += [
            (a & mask) >> low,
            wrap(changed, n, s),
            wrap(a ^ (1 << low), n, s),
            wrap(a << shift, n, s),
            a >> shift,
            wrap(~a, n, s),  # AMD's UG1399: "the same width and signedness"
            int(a < low),
            wrap(a, n, False),
        ]
    for text, value, line in zip(run(lines, tmp_path, compiler), wanted, lines, strict=True):
        assert number(text)[2] == value, line


def toward_zero(x: Fraction) -> int:
    """To the nearest integer, halves towards zero."""
    magnitude = (abs(x) - Fraction(1, 2)).__ceil__()
    return -magnitude if x < 0 else magnitude


ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "AP_TRN": lambda x: x.__floor__(),
    "AP_TRN_ZERO": lambda x: int(x),
    "AP_RND": lambda x: (x + Fraction(1, 2)).__floor__(),
    "AP_RND_ZERO": toward_zero,
    "AP_RND_INF": lambda x: (x - Fraction(1, 2)).__ceil__() if x < 0 else (x + Fraction(1, 2)).__floor__(),
    "AP_RND_MIN_INF": lambda x: (x - Fraction(1, 2)).__ceil__(),
    "AP_RND_CONV": lambda x: round(x),
}


@pytest.mark.parametrize("compiler", COMPILERS[:1])
def test_fixed_point_rounds_and_saturates_as_documented(tmp_path: Path, compiler: str) -> None:
    rng = random.Random(3)
    lines, wanted = [], []
    for mode, rounded in ROUNDINGS.items():
        for sixteenths in [-40, -24, -8, -7, -9, 0, 8, 24, 40, *(rng.randrange(-900, 900) for _ in range(6))]:
            exact = Fraction(sixteenths, 16)
            source = f"ap_fixed<20, 16>({sixteenths / 16!r})"
            lines.append(f"show(ap_fixed<8, 8, {mode}, AP_WRAP>({source}).raw);")
            wanted.append(wrap(rounded(exact), 8, True))
            lines.append(f"show(ap_ufixed<5, 5, {mode}, AP_SAT>({source}).raw);")
            wanted.append(min(31, max(0, rounded(exact))))
    for a, b in [(1.5, -2.25), (-3.75, -0.5), (100.25, 3.0)]:
        x, y = f"ap_fixed<16, 8>({a!r})", f"ap_fixed<12, 6>({b!r})"
        lines += [f"show(({x} * {y}).raw);", f"show(({x} + {y}).raw);", f"show(({x} - {y}).raw);"]
        wanted += [round(a * b * 2**14), round((a + b) * 2**8), round((a - b) * 2**8)]
    for text, value, line in zip(run(lines, tmp_path, compiler), wanted, lines, strict=True):
        assert number(text)[2] == value, line


@pytest.mark.parametrize("compiler", COMPILERS[:1])
def test_half_and_bfloat16_round_to_nearest_even(tmp_path: Path, compiler: str) -> None:
    import ml_dtypes

    rng = np.random.default_rng(4)
    values = np.concatenate(
        [rng.normal(0, 1, 40), rng.normal(0, 1e-6, 20), [0.0, 65519.0, 65520.0, 1e-8, 2049.0, 2051.0]]
    )
    values = values.astype(np.float32)
    lines = [f"show(ap_uint<16>(half({float(v)!r}f).bits));" for v in values]
    lines += [f"show(ap_uint<16>(allo::bfloat16({float(v)!r}f).bits));" for v in values]
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16).view(np.uint16).tolist()
    wanted = [*halves, *values.astype(ml_dtypes.bfloat16).view(np.uint16).tolist()]
    assert [number(text)[2] for text in run(lines, tmp_path, compiler)] == wanted


@pytest.mark.parametrize("compiler", COMPILERS)
def test_ranges_of_bits_become_machine_numbers(tmp_path: Path, compiler: str) -> None:
    value = 0x8001_F00D_1234_8765
    source = f"ap_uint<100> a = {literal(value, 100, False)}; const ap_uint<100> c = a;"
    lines = [
        f"{{ {source} int16_t b = a(15, 0); show(ap_int<16>(b)); }}",
        f"{{ {source} int16_t b = c.range(15, 0); show(ap_int<16>(b)); }}",
        f"{{ {source} uint32_t b = 1; b += a(31, 16); show(ap_uint<32>(b)); }}",
        f"{{ {source} show(ap_uint<1>(a(47, 44) ? 1 : 0)); }}",
        f"{{ {source} show(ap_uint<1>(a(95, 64) ? 1 : 0)); }}",
        f"{{ {source} float f = a(7, 4); show(ap_uint<8>(int(f))); }}",
        f"{{ {source} ap_uint<8> b = a(7, 0); show(b); }}",
        f"{{ {source} show(ap_uint<1>(a(7, 0) == a(7, 0) && a(7, 0) == 0x65)); }}",
    ]
    wanted = [wrap(0x8765, 16, True), wrap(0x8765, 16, True), 0x1235, 1, 0, 6, 0x65, 1]
    assert [number(text)[2] for text in run(lines, tmp_path, compiler)] == wanted


@pytest.mark.parametrize("compiler", COMPILERS)
def test_axi_stream_words_have_their_side_channels(tmp_path: Path, compiler: str) -> None:
    stream = "hls::stream<ap_axis<24, 2, 5, 6>> s; ap_axis<24, 2, 5, 6> w;"
    fill = "w.data = -3; w.keep_all(); w.strb = 5; w.user = 7; w.set_last(true); w.id = 33; w.dest = 63; s.write(w);"
    lines = [
        f"{{ {stream} {fill} auto r = s.read(); show(r.{part}); }}"
        for part in ("data", "keep", "strb", "user", "last", "id", "dest")
    ]
    lines.append("{ ap_axiu<512, 0, 0, 0> w; w.data = 1; w.data <<= 511; w.last = 0; show(w.data); }")
    lines.append("{ hls::axis<float, 0, 0, 0> w; w.keep_all(); show(w.keep); }")
    wanted = [-3, 7, 5, 3, 1, 1, 63, 1 << 511, 15]
    assert [number(text)[2] for text in run(lines, tmp_path, compiler)] == wanted
