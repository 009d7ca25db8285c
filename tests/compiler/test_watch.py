"""What is shown of a program while it is compiled holds of the program that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pytest

import allo_dse.lang

allo_dse.lang.install()

from allo_dse.compiler import compile_region
from allo_dse.compiler.program.compiled import Hopeless
from allo_dse.compiler.program.tensors import TensorPort
from studies.attention_npu import attention

from . import samples
from .test_called_regions import interpreter

PROGRAMS: list[Callable[..., Any]] = [
    samples.gemm, samples.systolic, samples.hierarchical, samples.everything, interpreter, attention
]  # fmt: skip


class Witness:
    """Keeps what it is shown, and has enough of it after so many times."""

    def __init__(self, enough: int = 1 << 30) -> None:
        self.counts: list[int] = []
        self.shown: list[tuple[TensorPort, ...]] = []
        self.enough = enough

    def tasks(self, count: int) -> None:
        self.counts.append(count)
        self._stop()

    def ports(self, ports: Sequence[TensorPort]) -> None:
        self.shown.append(tuple(ports))
        self._stop()

    def _stop(self) -> None:
        if len(self.counts) + len(self.shown) == self.enough:
            raise Hopeless("enough")


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.__name__)
def test_what_is_shown_is_part_of_the_program(source: Callable[..., Any]) -> None:
    witness = Witness()
    program = compile_region(source, watch=witness)
    assert witness.counts[0] == sum(map(prod, _meshes(source)))
    assert max(witness.counts) <= program.task_count
    classes = [cls.tensor_ports for cls in program.task_classes]
    assert all(ports in classes for ports in witness.shown)
    alone = compile_region(source)
    assert [cls.body.mlir for cls in program.task_classes] == [cls.body.mlir for cls in alone.task_classes]


def _meshes(source: Callable[..., Any]) -> list[tuple[int, ...]]:
    """Of the kernels that a region itself has, whatever they call."""
    from allo_dse.compiler.regions.read_regions import read_region
    from allo_dse.lang.region import as_region

    region = as_region(source())
    assert region is not None
    return [kernel.mesh for kernel in read_region(region).kernels]


@pytest.mark.parametrize("enough", [1, 2, 3])
def test_nothing_is_compiled_once_it_is_hopeless(enough: int) -> None:
    witness = Witness(enough)
    with pytest.raises(Hopeless, match="enough"):
        compile_region(samples.gemm, watch=witness)
    assert len(witness.counts) + len(witness.shown) == enough
