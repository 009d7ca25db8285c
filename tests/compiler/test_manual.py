"""The programs of the dataflow manual, taken from it as they stand: they build, run, and compute what NumPy computes.

The manual is not ours and not part of the project; without it these tests are skipped. What it describes is tested
with programs of our own in the other modules.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse
import allo_dse.lang

from ..support.others_data import SHARED, requires

allo_dse.lang.install()

MANUAL = SHARED / "seeds" / "allo_dataflow_programming.txt"
pytestmark = [
    requires(MANUAL),
    pytest.mark.filterwarnings("ignore::allo_dse.common.errors.ProgramWarning"),  # parts of programs
]

Run = Callable[..., dict[str, Any]]
RNG = np.random.default_rng(0)
SETUP = "from allo.ir.types import *"
"""The manual leaves out imports of types, and sizes."""


def section(heading: str, until: str) -> str:
    """The text between two headings."""
    text = MANUAL.read_text()
    found = re.search(rf"^{re.escape(heading)}\n(.*?)^{re.escape(until)}\n", text, re.DOTALL | re.MULTILINE)
    assert found, heading
    return found.group(1)


def program(heading: str, until: str, begin: str = "@df.region()") -> str:
    """A section's code, from the first line that begins so to the last that can still be Python."""
    lines = section(heading, until).splitlines()
    lines = lines[next(n for n, line in enumerate(lines) if line.startswith(begin)) :]
    while True:
        text = "\n".join(lines)
        try:
            compile(text, heading, "exec")
        except SyntaxError:
            lines.pop()
        else:
            return text


def region(kernel: str, tensors: str, streams: str = "") -> str:
    """A region around a kernel that the manual shows alone."""
    return f"@df.region()\ndef top({tensors}):\n" + textwrap.indent(f"{streams}\n{kernel}\n", "    ")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Executes texts as one file of a user; gives the names it defines."""
    monkeypatch.chdir(tmp_path)

    def execute(*texts: str, **names: Any) -> dict[str, Any]:
        path = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
        path.write_text(
            "\n\n".join([SETUP, program("Import the Dataflow Module", "Basic Structure", "import"), *texts])
        )
        exec(compile(path.read_text(), str(path), "exec"), names)
        return names

    return execute


def random(*shape: int) -> Any:
    return RNG.random(shape, dtype=np.float32)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def integers(*shape: int) -> Any:
    return RNG.integers(-99, 99, shape).astype(np.int32)


def build(names: dict[str, Any], **options: Any) -> Any:
    return names["df"].build(names["top"], **options)


def test_basic_structure(run: Run) -> None:
    names = run(program("Basic Structure", "Regions"), M=4, N=8)
    mod = build(names)
    assert any("stream `pipe` is never used" in text for text in mod.program.warnings)
    a, b = random(4, 8), random(4, 8)
    before = b.copy()
    mod(a, b)
    np.testing.assert_array_equal(b, before)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_kernel_position(run: Run, rank: int) -> None:
    line = re.findall(r"^p?i.* = df.get_pid\(\)$", section("Getting Kernel Position", "Streams"), re.MULTILINE)[
        rank - 1
    ]
    mesh = (4, 3, 2)[:rank]
    target = line.split(" = ")[0]
    kernel = f"@df.kernel(mapping={list(mesh)}, args=[A])\ndef core(a: int32{list(mesh)}):\n    {line}\n"
    weights = (1, 10, 100)[:rank][::-1]
    kernel += f"    a[{target}] = " + " + ".join(f"{w} * {p}" for w, p in zip(weights, target.split(", "), strict=True))
    a = np.zeros(mesh, np.int32)
    build(run(region(kernel, f"A: int32{list(mesh)}")))(a)
    np.testing.assert_array_equal(a, sum(w * i for w, i in zip(weights, np.indices(mesh), strict=True)))


def test_every_stream_declaration(run: Run) -> None:
    text = section("Stream Declaration", "Stream Operations")
    lines = re.findall(r"^\w+: Stream.*$", text, re.MULTILINE)
    found = []
    for line in lines:
        kernel = "@df.kernel(mapping=[1], args=[A])\ndef core(a: int32[4]):\n    a[0] = 1"
        names = run(region(kernel, "A: int32[4]", line), M=4, N=8, Mt=2, Nt=2, P0=3, P1=5)
        (stream,) = build(names).program.streams
        found.append((str(stream.dtype), stream.block, stream.depth, stream.shape))
    assert found == [
        ("float32", (), 4, ()),
        ("uint16", (), 4, ()),
        ("float32", (), 4, (3, 5)),
        ("float32", (), 4, (3, 5)),
        ("int16", (4, 8), 4, ()),
        ("float32", (4,), 4, ()),
        ("float32", (2, 2), 2, (3, 5)),
    ]


def test_every_stream_operation(run: Run) -> None:
    """The two lists of operations as the bodies of two kernels, with a stream of the right kind for each."""
    text = section("Stream Operations", "Systolic Array Patterns")
    puts, gets = text.split("Get (Receive):")
    bodies = []
    for part in (puts, gets):
        _, scalar, indexed, block = re.split(r"^# .*\n", part, flags=re.MULTILINE)
        bodies.append((scalar, indexed, block.partition("\n\n")[0].replace("pipe.", "blocks.")))
    (put, put_to, put_block), (get, get_from, get_block) = bodies
    send = f"a: float32 = local_A[1, 1]\nvalue: float32 = local_A[0, 0]\n{put}\n{put_to}\nfor i in range(2):\n"
    send += textwrap.indent(put_block, "    ")
    receive = f"{get}\n{get_from}\nfor t in range(2):\n" + textwrap.indent(get_block, "    ")
    receive += "\n    for m, n in allo.grid(M, N):\n        local_B[t * M + m, n] = block[m, n] + data + a"
    kernels = ""
    for name, tensor, at, body in (("send", "A", "0, 1", send), ("receive", "B", "0, 2", receive)):
        kernels += f"@df.kernel(mapping=[1], args=[{tensor}])\ndef {name}(local_{tensor}: float32[2 * M, N]):\n"
        kernels += (
            f"    i: ConstExpr[int32] = {at[0]}\n    j: ConstExpr[int32] = {at[-1]}\n"
            + textwrap.indent(body, "    ")
            + "\n"
        )
    streams = "pipe: Stream[float32, 4]\nfifo_A: Stream[float32, 4][2, 3]\nblocks: Stream[float32[M, N], 4]"
    names = run(region(kernels, "A: float32[2 * M, N], B: float32[2 * M, N]", streams), M=4, N=4)
    a, b = random(8, 4), zeros(8, 4)
    build(names, target="simulator")(a, b)
    np.testing.assert_allclose(b, a + a[0, 0] + a[1, 1], rtol=1e-6)


def test_systolic_array(run: Run) -> None:
    M, N, K = 4, 3, 8
    text = program("Basic Systolic Structure", "Tiled Computation")
    names = run(text, M=M, N=N, K=K, P0=M + 2, P1=N + 2)
    a, b, c = random(M, K), random(K, N), zeros(M, N)
    text = program("Build for Simulation", "Build for LLVM", "sim_mod")
    run(text, top=names["top"], A=a, B=b, C=c, np=np)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_tiled_computation(run: Run) -> None:
    names = run(program("Tiled Computation", "Hierarchical Regions", "M, N, K"))
    a, b, c = random(32, 32), random(32, 32), zeros(32, 32)
    run(program("Build for LLVM", "Build for HLS", "mod"), top=names["top"], A=a, B=b, C=c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def by_function(text: str) -> str:
    """Before Python 3.12, a region has type parameters by being made by a function of them."""
    text = re.sub(r"inner\[(\d), (\d)\]\(", r"inner(\1, \2)(", text)
    inner, top = text.split("\n\n@df.region()\ndef top")
    inner = inner.replace("def inner[P0, P1](", "def inner(")
    return f"def inner(P0, P1):\n{textwrap.indent(inner, '    ')}\n    return inner\n\n@df.region()\ndef top{top}"


def hierarchical() -> str:
    return section("Hierarchical Regions", "Building and Execution").partition("decomposition:")[2].strip()


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(
            lambda text: text,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12 syntax"),
        ),
        by_function,
    ],
    ids=["type-parameters", "function"],
)
def test_hierarchical_regions(run: Run, written: Callable[[str], str]) -> None:
    mod = build(run(written(hierarchical()), M=16, N=16, K=16), target="simulator")
    assert [k.mesh for k in mod.program.kernels] == [(2, 2), (4, 4)]
    a, b, c1, c2 = random(16, 16), random(16, 16), zeros(16, 16), zeros(16, 16)
    mod(a, b, c1, c2)
    np.testing.assert_allclose(c1, a @ b, rtol=1e-5)
    np.testing.assert_allclose(c2, a @ b, rtol=1e-5)


COMPLETE = ("Complete Example: Producer-Consumer", "Tensor Layouts", "import")


def test_complete_example(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(program(*COMPLETE))
    assert "Passed!" in capsys.readouterr().out


def test_builds_for_hls(run: Run, tmp_path: Path) -> None:
    """Code generation and C simulation; hardware emulation writes the project and says what it needs."""
    names = run(program(*COMPLETE))
    code, simulation, emulation = re.split(
        r"\n\n(?=# )", program("Build for HLS", "Customization (Schedule Primitives)", "#")
    )
    scope = {"top": names["top"], "A": random(16, 16), "B": zeros(16, 16), "C": zeros(16, 16)}
    assert "#pragma HLS dataflow" in run(code, **scope)["mod"].hls_code
    two = {"mod(A, B, C)": "mod(A, B)"}  # the region of the complete example has two arguments
    if shutil.which("g++") is not None:
        run(replaced(simulation, two), **scope)
        np.testing.assert_allclose(scope["B"], scope["A"] + 1)
    if shutil.which("vitis_hls") is None:
        with pytest.raises(allo_dse.AlloDseError, match="needs AMD Vitis"):
            run(replaced(emulation, two), **scope)
    assert (tmp_path / "myproject.prj" / "kernel.cpp").exists()


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def test_customization(run: Run) -> None:
    names = run(program("Tiled Computation", "Hierarchical Regions", "M, N, K"))
    text = program("Customization (Schedule Primitives)", "Complete Example: Producer-Consumer", "s =")
    mod = run(text, top=names["top"])["mod"]
    assert [str(directive) for directive in mod.program.schedule] == [
        "partition(top:A, dim=1, factor=2, partition_type=complete)",
        "partition(top:B, dim=2, factor=2, partition_type=complete)",
        "partition(top:C, dim=0, factor=2, partition_type=complete)",
    ]
    assert "#pragma HLS array_partition variable=local_A dim=1 complete" in mod.hls_code


def test_layout_of_a_vector(run: Run) -> None:
    layout, kernel = program("1D Tensor Sharding:", "2D Tensor Row Sharding:", "# Vector").split("\n\n")
    mod = build(run(layout, region(kernel, "A: int32[M], B: int32[M]"), M=16))
    a, b = integers(16), np.zeros(16, np.int32)
    mod(a, b)
    np.testing.assert_array_equal(b, a + 1)
    assert [p.tile_shape for p in mod.program.kernels[0].classes[0].tensor_ports] == [(4,), (4,)]


@pytest.mark.parametrize(
    ("heading", "until", "tensor", "tile"),
    [
        ("2D Tensor Row Sharding:", "2D Tensor Column Sharding:", "A", (4, 8)),
        ("2D Tensor Column Sharding:", "2D Tensor Full Sharding (GEMM Example):", "B", (16, 2)),
    ],
)
def test_layout_of_rows_and_columns(run: Run, heading: str, until: str, tensor: str, tile: tuple[int, int]) -> None:
    layout, kernel = program(heading, until, "# Matrix").split("\n\n")
    kernel = kernel.replace("    pass", f"    p = df.get_pid()\n    local_{tensor}[:, :] = p")
    mod = build(run(layout, region(kernel, f"{tensor}: Ty[M, N]"), M=16, N=8, Ty=allo_dse.lang.types.int32))
    a = np.zeros((16, 8), np.int32)
    mod(a)
    assert mod.program.kernels[0].classes[0].tensor_ports[0].tile_shape == tile
    pieces = [
        a[at : at + tile[0]] if tile[0] < 16 else a[:, at : at + tile[1]]
        for at in range(0, 16 if tile[0] < 16 else 8, min(tile))
    ]
    assert [np.unique(piece).tolist() for piece in pieces] == [[0], [1], [2], [3]]


def test_layout_of_a_gemm(run: Run) -> None:
    text = program(
        "2D Tensor Full Sharding (GEMM Example):", "3D Sharding for Temporal Reduction (Split-K GEMM):", "M, N, K"
    )
    a, b, c = integers(64, 64), integers(64, 64), np.zeros((64, 64), np.int32)
    build(run(text, Ty=allo_dse.lang.types.int32))(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_layout_of_a_split_k_gemm(run: Run) -> None:
    """The manual ends where the partial sums would be added up; here they go along the axis of K."""
    text = program("3D Sharding for Temporal Reduction (Split-K GEMM):", "Understanding Mesh Axis Mapping", "M, N, K")
    layouts, kernel = text.split("\n\n@df.kernel")
    kernel = f"@df.kernel{kernel}\n" + textwrap.indent(textwrap.dedent("""
        total: Ty[32, 32] = allo.matmul(local_A, local_B)
        with allo.meta_if(pk > 0):
            total[:, :] = allo.add(total, partial[pk - 1, pm, pn].get())
        with allo.meta_if(pk < Pk - 1):
            partial[pk, pm, pn].put(total)
        with allo.meta_else():
            local_C[:, :] = total
    """), "    ")  # fmt: skip
    tensors, streams = "A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]", "partial: Stream[Ty[32, 32], 2][Pk - 1, Pm, Pn]"
    a, b, c = integers(64, 128), integers(128, 64), np.zeros((64, 64), np.int32)
    build(run(layouts, region(kernel, tensors, streams), Ty=allo_dse.lang.types.int32))(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_local_shapes(run: Run) -> None:
    text = section("How Layouts Compute Local Shapes", "Best Practices")
    shape, layout, mesh = (re.search(rf"# {name}: *(\[.*?\])(?= |$)", text, re.MULTILINE)[1]
                           for name in ("Global tensor", "Layout", "Mapping"))  # fmt: skip
    local = re.search(r"= (\[\d+, \d+\])$", text, re.MULTILINE)[1]
    kernel = f"@df.kernel(mapping={mesh}, args=[A])\ndef core(a: float32{shape} @ {layout}):\n    a[:, :] = 1"
    port = build(run(region(kernel, f"A: float32{shape}"))).program.kernels[0].classes[0].tensor_ports[0]
    assert str(list(port.tile_shape)) == local == "[16, 32]"
