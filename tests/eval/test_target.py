"""Targets and their rules about programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from allo_dse.backends.npu.allo.rule import Subject
from allo_dse.backends.npu.allo.rules import ALLO_RULES, core_ports
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram, Hopeless
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.device.device import Device, NpuDevice
from allo_dse.eval.backend import Buildable, target
from allo_dse.eval.target import MODEL
from allo_dse.lang import install
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program, load_program
from allo_dse.mapper.violation import CONSTRAINTS, REFUSALS, TARGET_CONSTRAINTS, Buffering

from ..support.programs import FLOAT32, INT16, gemm_program

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, int16, int32
from allo.memory import Layout

NPU = NpuDevice.load("npu1_4col")
S = Layout.Shard


def refused(program: CompiledProgram | Program, device: NpuDevice = NPU) -> dict[str, str]:
    """What target "allo" says about an unfolded program, by constraint."""
    vmg = program.vmg if hasattr(program, "vmg") else VMG.of(program)
    return {v.constraint: str(v) for v in ALLO.check(NpuMapping(vmg, device))}


def test_npus_are_built_for_by_allo_unless_the_study_says_otherwise() -> None:
    assert target(None, NPU).name == "allo"
    assert target("model", NPU).rules == ()
    assert target(None, Device.load("u280")).name == "model"


def test_unknown_targets_are_refused_with_the_known_ones() -> None:
    with pytest.raises(AlloDseError, match="no target 'vitis'") as error:
        target("vitis", NPU)
    assert error.value.hint == "targets are allo, model"
    with pytest.raises(AlloDseError, match="no target 'allo' for u280"):
        target("allo", Device.load("u280"))


def test_the_model_knows_the_limits_of_the_device_and_nothing_else() -> None:
    vmg = VMG.of(gemm_program(Pm=8, Pn=8, Pk=1))
    mapping = NpuMapping(vmg, NPU)
    assert MODEL.check(mapping) == list(mapping.violations)


def test_every_rule_has_a_known_name_a_source_and_a_place_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "allo_target.md").read_text()
    for rule in ALLO_RULES:
        assert rule.name in {**CONSTRAINTS, **TARGET_CONSTRAINTS}
        assert rule.source
        assert f"`{rule.name}`" in page
    assert [name for name in TARGET_CONSTRAINTS if f"`{name}`" not in page] == []
    assert {**CONSTRAINTS, **TARGET_CONSTRAINTS}.keys() >= REFUSALS


def test_more_tasks_than_allo_folds_in_minutes() -> None:
    found = refused(gemm_program(Pm=128, Pn=64, Pk=64))
    assert found["allo_tasks"].startswith("tasks that Allo folds on gemm: needs 524,288, has 262,144")


@pytest.mark.parametrize(
    ("size", "inputs", "what"),
    [
        (4, 3, "DMA in-channels on a core: needs 3, has 2 (A, B, C)"),
        (8192, 1, "data memory on a core: needs 68,864 bytes, has 65,536 bytes (tiles of A, D)"),
    ],
)
def test_what_no_core_can_hold_is_named_before_a_program_is_compiled(size: int, inputs: int, what: str) -> None:
    @df.region()
    def some(A: int16[size], B: int16[size], C: int16[size], D: int16[size]):
        @df.kernel(mapping=[1], args=[A, B, C, D])
        def core(a: int16[size], b: int16[size], c: int16[size], d: int16[size]):
            with allo.meta_if(inputs == 3):
                d[:] = allo.add(allo.add(a, b), c)
            with allo.meta_else():
                d[:] = a

    program = load_program(some)
    used = [port for port in program.tensor_ports if port.reads or port.writes]
    with pytest.raises(Hopeless) as error:
        Buildable(ALLO, NPU, Buffering()).ports(used)
    assert error.value.message == what


def test_tensors_of_one_type_and_direction_share_a_host_buffer() -> None:
    @df.region()
    def six(A: int16[4], B: int16[4], C: int16[4], D: int16[4], E: int16[4], F: int16[4]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def first(a: int16[4], b: int16[4], c: int16[4]):
            c[:] = allo.add(a, b)

        @df.kernel(mapping=[1], args=[D, E, F])
        def second(d: int16[4], e: int16[4], f: int16[4]):
            f[:] = allo.add(d, e)

    program = load_program(six)
    assert [v.constraint for v in NpuMapping(program.vmg, NPU).violations] == ["host_buffers"]
    assert refused(program) == {}


def test_a_host_buffer_that_stays_empty_comes_after_those_in_use() -> None:
    """Of four, two go to each kind, by turns: one input leaves the third empty, and two outputs need the fourth."""

    @df.region()
    def outputs_last(X: int16[8], Y: int16[8], Z: int16[8]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def core(x: int16[8], y: int16[8], z: int16[8]):
            y[:] = allo.add(x, 1)
            z[:] = allo.sub(x, 1)

    @df.region()
    def outputs_first(Y: int16[8], Z: int16[8], X: int16[8]):
        @df.kernel(mapping=[1], args=[Y, Z, X])
        def core(y: int16[8], z: int16[8], x: int16[8]):
            y[:] = allo.add(x, 1)
            z[:] = allo.sub(x, 1)

    assert refused(load_program(outputs_first)) == {}
    assert refused(load_program(outputs_last))["host_buffers"].endswith("come first, of int16 in, int16 out)")


def test_tiles_of_two_types_are_no_operands_of_one_function() -> None:
    @df.region()
    def top(A: int16[8], B: float32[8], C: float32[8]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: int16[8], b: float32[8], c: float32[8]):
            x: float32 = 2
            wide: int32[8] = a + a  # integers of one type, or of two
            c[:] = allo.mul(b, x)
            c[:] = a * b
            c[:] = allo.sub(b, wide)

    texts = [one.text for one in load_program(top).constructs if one.kind == "tiles of two types"]
    assert texts == ["a * b", "allo.sub(b, wide)"]


def test_tensors_of_more_than_two_dimensions_and_unused_ones() -> None:
    program = gemm_program(Pm=1, Pn=1, Pk=1)
    more = (Tensor("batch", INT16, (2, 2, 2)), Tensor("bias", FLOAT32, (4,)))
    found = refused(replace(program, tensors=(*program.tensors, *more)))
    assert found["allo_tensor_rank"] == "dimensions that Allo moves on tensor batch: needs 3, has 2"
    assert found["allo_unused_tensor"].startswith("tensor bias: no kernel reads or writes it")


def test_single_values_are_no_tensors() -> None:
    @df.region()
    def top(n: int32, B: int32[16]):
        @df.kernel(mapping=[2], args=[n, B])
        def core(n: int32, b: int32[16] @ [S(0)]):
            for i in range(8):
                b[i] = n

    found = refused(load_program(top))
    assert "tensor n: " in found["allo_tensor_rank"]
    assert "a vector of one element" in found["allo_tensor_rank"]


def test_what_the_front_end_of_allo_refuses_is_named_with_its_line() -> None:
    def twice(x: float32) -> float32:
        return x * 2

    @df.region()
    def top(A: float32[8], B: float32[8]):
        pipe: Stream[float32, 2][4]

        @df.kernel(mapping=[1], args=[A])
        def send(a: float32[8]):
            for i in range(4):
                pipe[i].put(max(a[i], 0.0))

        @df.kernel(mapping=[1], args=[B])
        def receive(b: float32[8]):
            with allo.meta_for(4) as i:
                b[i] = twice(pipe[i].get())

    program = load_program(top)
    kinds = [(one.kind, one.text) for one in program.constructs]
    assert kinds == [("max", "max(a[i], 0.0)"), ("stream index", "pipe[i]"), ("call", "twice(pipe[i].get())")]
    texts = [str(v) for v in ALLO.check(NpuMapping(program.vmg, NPU)) if v.constraint == "allo_source"]
    assert len(texts) == 3
    line = program.constructs[1].location.line
    assert any(f"test_target.py:{line}:" in text and "allo.meta_for(n)" in text for text in texts)


def test_operations_without_code() -> None:
    @df.region()
    def top(A: float32[4, 4], B: float32[4, 4]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: float32[4, 4], b: float32[4, 4]):
            b[:, :] = allo.gelu(a)

    assert "`allo.gelu` has no code for the AI engine in Allo" in refused(load_program(top))["allo_source"]


def test_two_shapes_of_a_product_need_kernels_that_allo_has_for_xdna1_only() -> None:
    @df.region()
    def top(A: int16[8, 8], B: int16[8, 16]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int16[8, 8], b: int16[8, 16]):
            square: int16[8, 8] = allo.matmul(a, a)
            b[:, :] = allo.matmul(square, b)

    program = load_program(top)
    assert refused(program) == {}
    assert "needs 2, has 1 (8x8x8, 8x8x16)" in refused(program, NpuDevice.load("npu2"))["allo_kernel_shapes"]


def test_streams_that_no_bundle_merges_are_fifos_of_their_own() -> None:
    @df.region()
    def top(A: int16[8], B: int16[8]):
        pipe: Stream[int16[8], 2][8]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int16[8]):
            with allo.meta_for(8) as i:
                pipe[i].put(a)

        @df.kernel(mapping=[1], args=[B])
        def receive(b: int16[8]):
            with allo.meta_for(8) as i:
                b[:] = pipe[i].get()

    program = load_program(top)
    assert NpuMapping(program.vmg, NPU).violations == ()
    assert refused(program) == {"core_locks": "locks on core send_0: needs 18, has 16 (8 FIFOs of pipe)"}
    chained = program.vmg.chain("send_0", "receive_0")
    (violation,) = ALLO.check(NpuMapping(chained, NPU))
    assert violation.constraint == "allo_rolled_streams"


def test_bundled_producers_run_in_the_order_of_the_reads() -> None:
    @df.region()
    def top(A: int16[4, 8], B: int16[8]):
        p: Stream[int16[8], 2][4]

        @df.kernel(mapping=[4], args=[A])
        def src(a: int16[4, 8] @ [S(0), Layout.Replicate]):
            i = df.get_pid()
            p[i].put(a[0, :])

        @df.kernel(mapping=[1], args=[B])
        def reader(b: int16[8]):
            total: int16[8] = 0
            with allo.meta_for(4) as i:
                total[:] = allo.add(total, p[i].get())
            b[:] = total

    program = load_program(top)
    names = [f"src_{i}" for i in range(4)]
    assert ALLO.check(NpuMapping(program.vmg.bundle(names), NPU)) == []
    (violation,) = ALLO.check(NpuMapping(program.vmg.bundle(names[::-1]), NPU))
    assert violation.constraint == "allo_token_order"
    assert str(violation).endswith("FIFO of p: is read as p[0] where p[3] was written before")


def test_a_core_has_two_tensors_in_each_direction() -> None:
    @df.region()
    def two(A: int16[4], B: int16[4], D: int16[4]):
        @df.kernel(mapping=[1], args=[A, B, D])
        def core(a: int16[4], b: int16[4], d: int16[4]):
            d[:] = allo.add(a, b)

    @df.region()
    def three(A: int16[4], B: int16[4], C: int16[4], D: int16[4]):
        @df.kernel(mapping=[1], args=[A, B, C, D])
        def core(a: int16[4], b: int16[4], c: int16[4], d: int16[4]):
            d[:] = allo.add(allo.add(a, b), c)

    def ports(region: Callable[..., object]) -> list[str]:
        return [str(v) for v in core_ports.check(Subject(NpuMapping(load_program(region).vmg, NPU)))]

    assert ports(two) == []
    (reason,) = ports(three)
    assert reason.startswith("tensors that Allo gives a core on core core_0: needs 3, has 2 (A, B, C)")


@pytest.mark.parametrize("name", ["int64", "Fixed(16, 8)", "Int(5)", "UInt(4)", "int4", "uint8", "float16", "bfloat16"])
def test_tensors_are_of_types_that_object_fifos_have(name: str) -> None:
    """Allo's front end builds some others; its AIE backend stops at "Unsupported dtype"."""
    Ty = eval(name, vars(allo.ir.types))

    @df.region()
    def top(X: Ty[8, 8], Y: Ty[8, 8]):
        @df.kernel(mapping=[2], args=[X, Y])
        def core(x: Ty[8, 8] @ [S(0), Layout.Replicate], y: Ty[8, 8] @ [S(0), Layout.Replicate]):
            for i, j in allo.grid(4, 8):
                y[i, j] = x[i, j]

    said = refused(load_program(top)).get("allo_source", "")
    assert bool(said) == (name in {"int64", "Fixed(16, 8)", "Int(5)", "UInt(4)"})
    assert not said or said.startswith("tensor Y: Allo has no FIFOs of") or "fixed-point" in said


def test_streams_of_other_types_stay_inside_a_core() -> None:
    @df.region()
    def top(X: int16[8], Y: int16[8]):
        pipe: Stream[allo.ir.types.int64[8], 2]

        @df.kernel(mapping=[1], args=[X])
        def give(x: int16[8]):
            wide: allo.ir.types.int64[8] = 0
            for i in range(8):
                wide[i] = x[i]
            pipe.put(wide)

        @df.kernel(mapping=[1], args=[Y])
        def take(y: int16[8]):
            got: allo.ir.types.int64[8] = pipe.get()
            for i in range(8):
                y[i] = got[i]

    vmg = load_program(top).vmg
    apart, chained = (ALLO.check(NpuMapping(graph, NPU)) for graph in (vmg, vmg.chain("give_0", "take_0")))
    assert [str(v) for v in apart if v.where == "stream pipe"]
    assert not [v for v in chained if v.where == "stream pipe"]


def test_regions_that_tasks_call_are_not_built_for_the_ai_engine() -> None:
    @df.region()
    def inner(A: int16[4, 8], B: int16[4, 8]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int16[4, 8], b: int16[4, 8]):
            b[:, :] = a

    @df.region()
    def top(X: int16[8, 8], Y: int16[8, 8]):
        @df.kernel(mapping=[2], args=[X, Y])
        def outer(x: int16[8, 8] @ [S(0), Layout.Replicate], y: int16[8, 8] @ [S(0), Layout.Replicate]):
            inner(x, y)

    assert "`inner(x, y)`: Allo builds no regions that tasks call" in refused(load_program(top))["allo_source"]
