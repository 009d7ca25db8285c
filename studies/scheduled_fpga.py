"""A plain function and its schedules on an FPGA: the order of a product's loops, its tiles and its memory's banks.

    allo-tune studies/scheduled_fpga.py

The program is a function that returns a schedule; what it is given are the parameters of the search.
"""

import allo
from allo.ir.types import float32

import allo_dse as dse

SIZE = 64


def product(A: float32[SIZE, SIZE], B: float32[SIZE, SIZE]) -> float32[SIZE, SIZE]:
    C: float32[SIZE, SIZE] = 0
    for i, j in allo.grid(SIZE, SIZE, name="product"):
        for k in allo.reduction(SIZE):
            C[i, j] += A[i, k] * B[k, j]
    return C


def scheduled(rows_first=True, tile=8, banks=4):
    s = allo.customize(product)
    s.split("j", tile)
    if rows_first:  # neighbours in a row are summed up in turn: no sum waits for its last addition
        s.reorder("k", "j.outer", "j.inner")
        s.buffer_at(s.C, axis="i")
        s.partition("C_buffer", partition_type="cyclic", factor=tile)
        s.pipeline("j.outer")
    else:
        s.pipeline("k")
    s.partition(s.A, partition_type="cyclic", dim=2, factor=banks)
    s.partition(s.B, partition_type="cyclic", dim=2, factor=banks)
    return s


def study(device: str = "u280") -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    return dse.Study(
        "scheduled_fpga",
        program=scheduled,
        params={
            "rows_first": dse.choices([False, True]),
            "tile": dse.powers_of_two(2, 32),
            "banks": dse.powers_of_two(2, 32),
        },
        device=device,
        objectives=[dse.minimize("latency_cycles"), dse.minimize("dsp")],
        reference=lambda A, B: A @ B,
        trials=50,
    )
