"""AXI ports: the cost model counts those that the generated C++ has."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.hls.project import emit_kernel
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.run import folding_of
from allo_dse.mapper.fold.fold_space import fold_choices

from ...support.operator_tables import region

U280 = FpgaDevice.load("u280")

TEXT = """
import allo.dataflow as df
from allo.ir.types import Layout, int32

S, R = Layout.Shard, Layout.Replicate
P, N = {tasks}, 8

@df.region()
def top(A: int32[P * N], B: int32[P * N], C: int32[P * N]):
    @df.kernel(mapping=[P], args=[A, B, C])
    def one(a: int32[P * N], b: int32[P * N], c: int32[P * N] @ [{c}]):
        p = df.get_pid()
        for i in range(N):
            b[{b}] {op} a[{a}]
            c[i] = i
{second}
"""
SECOND = """
    @df.kernel(mapping=[P], args=[{tensor}])
    def two(x: int32[P * N]):
        p = df.get_pid()
        for i in range(N):
            x[p * N + i] += 1
"""
OWN, ALL, DATA = "p * N + i", "i", "a[i] % N"


@settings(max_examples=20)
@given(
    tasks=st.integers(1, 4),
    a=st.sampled_from([OWN, ALL]),
    b=st.sampled_from([OWN, ALL, DATA]),
    op=st.sampled_from(["=", "+="]),
    c=st.sampled_from(["S(0)", "R"]),
    second=st.sampled_from(["", "A", "B", "C"]),
    number=st.integers(0, 99),
)
def test_ports_and_loads_of_the_model_are_those_of_the_code(
    tasks: int, a: str, b: str, op: str, c: str, second: str, number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = TEXT.format(tasks=tasks, a=a, b=b, op=op, c=c, second=SECOND.format(tensor=second) if second else "")
    program = dse.load_program(region(text, tmp_path_factory.mktemp("ports") / "program.py"))
    folds = list(islice(fold_choices(program), 20))
    mapping = FpgaMapping(program.vmg.fold(folds[number % len(folds)]), U280)
    kernel = emit_kernel(program, folding=folding_of(mapping.vmg), port_bits=512)
    bundles = set(re.findall(r"bundle=(\w+)", "".join(kernel.pragmas)))
    assert sum(map(mapping.ports, mapping.tensors)) == len(bundles)
    loads = {name for name in "ABC" if f"ALLO_PROCESS(load_{name}," in "".join(kernel.body)}
    assert {use.tensor.name for use in mapping.tensors if use.reads and use.place != "direct"} == loads
