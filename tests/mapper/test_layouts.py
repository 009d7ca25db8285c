"""Laws of layouts: canonical forms agree with NumPy, inverses cancel, equal arrangements are equal values."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.backends.npu.movement.layout_plan import DescriptorLoops, descriptor_walk
from allo_dse.common.errors import AlloDseError
from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.layouts import Arrangement, Loop, Walk

from ..support.strategies import of, orders

NPU = NpuDevice.of(Device.load("npu1_4col"))
Steps = list[tuple[str, tuple[Any, ...]]]
EXTENTS = [1, 2, 3, 4, 6, 8, 12]


def same(one: Arrangement, other: Arrangement) -> bool:
    """Whether both put the same elements in the same places of the same shape."""
    return (one.source, one.shape, one.walks) == (other.source, other.shape, other.walks)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


SHAPES = st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)


@st.composite
def shapes(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    result: list[int] = []
    while size > 1 and len(result) < 4:
        extent = draw(of(*divisors(size)))
        result.append(extent)
        size //= extent
    return (*result, size)


@st.composite
def operations(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:
    """A layout operation that a shape allows."""
    if draw(st.booleans()):
        return "transpose", (tuple(draw(orders(len(shape)))),)
    return "reshape", (draw(shapes(math.prod(shape))),)


def numpy_of(kind: str, arguments: tuple[Any, ...], array: np.ndarray) -> np.ndarray:
    return array.transpose(*arguments) if kind == "transpose" else array.reshape(*arguments)


def inverse_of(kind: str, arguments: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:
    if kind == "transpose":
        return kind, (tuple(int(a) for a in np.argsort(arguments[0])),)
    return "reshape", (shape,)


def packed(array: Arrangement, tile: tuple[int, ...]) -> Arrangement:
    """Tiles one after the other, each row by row: [M, N] becomes [M/m, N/n, m, n]."""
    split = tuple(part for n, t in zip(array.shape, tile, strict=True) for part in (n // t, t))
    rank = len(tile)
    return array.reshape(split).transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])


@st.composite
def compositions(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[Any, ...]]]]:
    shape = tuple(draw(SHAPES))
    steps, array = [], np.empty(shape)
    for _ in range(draw(st.integers(0, 5))):
        step = draw(operations(array.shape))
        steps.append(step)
        array = numpy_of(*step, array)
    return shape, steps


def arranged(shape: tuple[int, ...], steps: Steps) -> Arrangement:
    result = Arrangement.of(shape)
    for kind, arguments in steps:
        result = getattr(result, kind)(*arguments)
    return result


@settings(max_examples=300)
@given(compositions())
def test_a_composition_is_what_numpy_makes_of_it(case: Any) -> None:
    shape, steps = case
    array = np.arange(math.prod(shape)).reshape(shape)
    expected = array
    for kind, arguments in steps:
        expected = numpy_of(kind, arguments, expected)
    found = arranged(shape, steps)
    assert found.shape == expected.shape
    assert np.array_equal(found.apply(array), expected)


@settings(max_examples=200)
@given(compositions())
def test_inverse_operations_cancel(case: Any) -> None:
    shape, steps = case
    result, current, undo = Arrangement.of(shape), shape, []
    for kind, arguments in steps:
        undo.append(inverse_of(kind, arguments, current))
        result = getattr(result, kind)(*arguments)
        current = result.shape
    for kind, arguments in reversed(undo):
        result = getattr(result, kind)(*arguments)
    assert result.walks == ()
    assert result.shape == shape
    assert same(result, Arrangement.of(shape))


@settings(max_examples=200)
@given(compositions(), st.data())
def test_equal_arrangements_are_equal_values(case: Any, data: DataObject) -> None:
    """Single walks that read the same elements in the same order are the same walk, whatever operations made them."""
    shape, steps = case
    found = arranged(shape, steps)
    if len(found.walks) != 1:
        return
    (walk,) = found.walks
    addresses = walk.addresses()
    assert not any(outer.step == inner.step * inner.extent for outer, inner in pairwise(walk.loops))
    again = found.reshape((math.prod(found.shape),))
    detour = data.draw(shapes(math.prod(found.shape)))
    assert again.reshape(detour).reshape((math.prod(found.shape),)).walks == found.walks
    assert np.array_equal(again.apply(np.arange(math.prod(shape)).reshape(shape)), addresses)


def test_a_transpose_is_two_loops() -> None:
    assert Arrangement.of((64, 32)).transpose((1, 0)).walks == (Walk(2048, (Loop(32, 1), Loop(64, 32))),)


def test_a_reshape_moves_nothing() -> None:
    assert Arrangement.of((64, 32)).reshape((32, 64)).reshape((2048,)).walks == ()


def test_packing_and_transposing_is_one_walk() -> None:
    """Blocks of 8 x 4 of a transposed matrix, as a matrix unit takes them."""
    found = packed(Arrangement.of((64, 32)).transpose((1, 0)), (8, 4))
    assert found.shape == (4, 16, 8, 4)
    assert found.walks == (Walk(2048, (Loop(4, 8), Loop(16, 128), Loop(8, 1), Loop(4, 32))),)
    assert same(found, packed(Arrangement.of((64, 32)), (4, 8)).transpose((1, 0, 3, 2)))


def test_a_view_across_digits_is_a_second_walk_until_it_is_undone() -> None:
    """[2, 3] transposed is [3, 2]; seen as [2, 3] and transposed again, no single nest of loops describes it."""
    turned = Arrangement.of((2, 3)).transpose((1, 0))
    twice = turned.reshape((2, 3)).transpose((1, 0))
    assert len(twice.walks) == 2
    assert same(twice.transpose((1, 0)).reshape((3, 2)), turned)
    assert twice.transpose((1, 0)).reshape((3, 2)).transpose((1, 0)).walks == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a.transpose((0, 0)),
        lambda a: a.transpose((0,)),
        lambda a: a.reshape((5, 5)),
        lambda a: a.reshape((64, 1, 0)),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Callable[..., Any]) -> None:
    with pytest.raises(AlloDseError):
        wrong(Arrangement.of((8, 8)))


# -- descriptors -------------------------------------------------------------------------------------------------------


def generated(loops: DescriptorLoops) -> np.ndarray:
    """The word addresses that a channel's address generator produces."""
    result = np.zeros(1, np.int64)
    for extent, step in reversed(loops):
        result = (result[:, None] + np.arange(extent) * step).ravel()
    return result


@settings(max_examples=300)
@given(compositions(), st.sampled_from([np.int8, np.int16, np.int32, np.int64]))
def test_a_descriptor_moves_exactly_the_right_elements(case: Any, dtype: type[np.integer[Any]]) -> None:
    shape, steps = case
    found = arranged(shape, steps)
    if len(found.walks) != 1:
        return
    array = np.arange(math.prod(shape), dtype=np.int64).astype(dtype).reshape(shape)
    bits = array.itemsize * 8
    plan = descriptor_walk(found.walks[0], bits, NPU.memory_tile.descriptor)
    if isinstance(plan, str):
        words = np.arange(math.prod(shape) * array.itemsize).reshape(*shape, array.itemsize)
        moved = found.apply(words.reshape(-1, array.itemsize)[:, 0].reshape(shape)).ravel()
        whole = _words_stay_whole(moved, array.itemsize)
        loops = len(found.walks[0].loops) + (array.itemsize > 4 and found.walks[0].loops[-1].step > 1)
        assert not whole or loops > NPU.memory_tile.descriptor.dims
        return
    assert len(plan) <= NPU.memory_tile.descriptor.dims
    memory = array.tobytes() + bytes(-array.nbytes % 4)
    moved = np.frombuffer(memory, np.uint32)[generated(plan)]
    assert moved.tobytes() == found.apply(array).tobytes()


def _words_stay_whole(first_bytes: np.ndarray, size: int) -> bool:
    """Whether the elements of the result, given by their first bytes, make up whole words that were whole before."""
    every = (first_bytes[:, None] + np.arange(size)).ravel()
    if len(every) % 4:
        return False
    words = every.reshape(-1, 4)
    return bool((words[:, 0] % 4 == 0).all() and (words == words[:, :1] + np.arange(4)).all())


@pytest.mark.parametrize(("bits", "fits"), [(8, False), (16, False), (32, True), (64, True)])
def test_transposing_takes_elements_of_whole_words(bits: int, fits: bool) -> None:
    (walk,) = Arrangement.of((64, 32)).transpose((1, 0)).walks
    assert isinstance(descriptor_walk(walk, bits, NPU.memory_tile.descriptor), tuple) == fits


def test_reasons_are_given() -> None:
    (turned,) = Arrangement.of((64, 32)).transpose((1, 0)).walks
    assert descriptor_walk(turned, 8, NPU.core.descriptor) == "it takes 1-byte pieces, and DMA moves 4-byte words"
    (blocks,) = packed(Arrangement.of((4, 6, 8, 10)).transpose((3, 1, 2, 0)), (2, 2, 4, 2)).walks
    assert "more than the 3 loops" in str(descriptor_walk(blocks, 32, NPU.core.descriptor))


def test_packing_bytes_fits_where_runs_are_words() -> None:
    """Blocks of 8 x 8 bytes: runs of two words, four loops of which the memory tile has four and a core three."""
    (walk,) = packed(Arrangement.of((64, 64)), (8, 8)).walks
    plan = descriptor_walk(walk, 8, NPU.memory_tile.descriptor)
    assert plan == ((2, 1), (8, 16), (8, 2), (8, 128))
