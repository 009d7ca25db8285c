"""One partition of a tensor for all kernels that use it: no bank gets more accesses in a cycle than it has ports."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.memory import Storage
from allo_dse.backends.fpga.mapping import FpgaMapping, partition_conflicts
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design
from allo_dse.tune.results.explain import explain

install()

import allo.dataflow as df
from allo.ir.types import int32

N = 16
U280 = FpgaDevice.load("u280")


def shared() -> Any:
    @df.region()
    def top(A: int32[N, N], B: int32[N, N], C: int32[N, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def rows(a: int32[N, N], b: int32[N, N]):
            for i in range(N):
                for j in range(N):
                    b[i, j] = a[i, j]

        @df.kernel(mapping=[1], args=[A, C])
        def columns(a: int32[N, N], c: int32[N, N]):
            for i in range(N):
                for j in range(N):
                    c[j, i] = a[j, i] + a[N - 1 - j, i]

    return top


READS = {
    "rows": lambda i, j: {(i, j)},
    "columns": lambda i, j: {(j, i), (N - 1 - j, i)},
}


@cache
def program() -> dse.Program:
    return dse.load_program(shared)


def mapped_design(schedule: tuple[Directive, ...]) -> Design:
    return Design(program(), unfolded(program()), dse.Buffering(), U280, schedule=schedule)


def mapped(schedule: tuple[Directive, ...]) -> FpgaMapping:
    return FpgaMapping.of(mapped_design(schedule))


def bank(storage: Storage, address: tuple[int, ...]) -> tuple[int, ...]:
    """The bank that an element is in, by the definition of cyclic and block partitions."""
    found = []
    for at, split in zip(address, storage.splits, strict=True):
        if split is not None:
            found.append(at // -(-N // split.factor) if split.kind == "block" else at % split.factor)
    return tuple(found)


factors = st.sampled_from([1, 2, 3, 4, 8, 16])
schedules = st.tuples(
    st.dictionaries(st.sampled_from([1, 2]), st.tuples(factors, st.sampled_from(["cyclic", "block"])), max_size=2),
    st.fixed_dictionaries({name: st.sampled_from([1, 2, 4, 8]) for name in READS}),
).map(
    lambda drawn: (
        *(
            Directive("partition", "top", "A", {"dim": dim, "factor": factor, "partition_type": kind})
            for dim, (factor, kind) in sorted(drawn[0].items())
        ),
        *(Directive("place", "top", name, {"memory": "register"}) for name in "BC"),
        *(Directive("pipeline", name, "j", {"initiation_interval": 1}) for name in READS),
        *(Directive("unroll", name, "j", {"factor": copies}) for name, copies in drawn[1].items()),
    )
)


@given(schedules)
def test_no_bank_is_used_more_than_its_ports_allow_in_any_cycle(schedule: tuple[Directive, ...]) -> None:
    mapping = mapped(schedule)
    copies = {d.scope: int(d.options["factor"]) for d in schedule if d.kind == "unroll"}
    storages, limited = {}, set()
    for kernel in mapping.vmg.program.kernels:
        cost = mapping.cost(kernel.classes[0])
        (loop,) = cost.loops
        storage = storages[kernel.name] = cost.storages["a"]
        if loop.limit == "ports of a":
            limited.add(kernel.name)
        if storage.in_registers:
            continue
        used: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
        for number in range(N * N // copies[kernel.name]):
            i, first = divmod(number * copies[kernel.name], N)
            addresses = {a for j in range(first, first + copies[kernel.name]) for a in READS[kernel.name](i, j)}
            asked = Counter(bank(storage, address) for address in addresses)
            # A bank hands out what a round asks of it in as many cycles as it takes, from the round's start on.
            for where, count in asked.items():
                for n in range(count):
                    used[number * loop.ii + n // U280.arrays.ports][where] += 1
        assert max(max(banks.values()) for banks in used.values()) <= U280.arrays.ports
    assert storages["rows"].splits == storages["columns"].splits
    conflicts = partition_conflicts(mapping)
    assert [re.findall(r"of (\w+)", conflict)[0] for conflict in conflicts] == (["A"] if limited else [])
    assert {kernel for conflict in conflicts for kernel in re.findall(r"too few for (\w+)", conflict)} == limited


def test_a_conflict_names_both_uses() -> None:
    schedule = (
        Directive("partition", "top", "A", {"dim": 2, "factor": 8, "partition_type": "cyclic"}),
        *(Directive("place", "top", name, {"memory": "register"}) for name in "BC"),
        *(Directive("pipeline", name, "j", {"initiation_interval": 1}) for name in READS),
        *(Directive("unroll", name, "j", {"factor": 8}) for name in READS),
    )
    (said,) = partition_conflicts(mapped(schedule))
    assert re.match(r"the 8 banks of A serve rows \([^)]*test_shared_partitions.py:", said)
    assert "are too few for columns (" in said
    assert "whose loop j waits for their ports (interval 8)" in said
    assert said in explain(mapped_design(schedule), {})
