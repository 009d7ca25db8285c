"""The devices that come with the package, and what can be done with one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from allo_dse.common.errors import DeviceError
from allo_dse.device.device import Device, NpuDevice
from allo_dse.device.npu_model import type_key
from allo_dse.lang.types import DType

INT8, INT16, INT32 = (DType(f"int{bits}", "int", bits) for bits in (8, 16, 32))
BFLOAT16, FLOAT32 = DType("bfloat16", "bfloat", 16), DType("float32", "float", 32)

COLUMNS = {f"npu1_{c}col": c for c in range(1, 5)} | {f"npu2_{c}col": c for c in range(1, 8)} | {"npu2": 8}


def test_every_named_device_loads() -> None:
    assert {name: NpuDevice.load(name).array.columns for name in Device.names() if name.startswith("npu")} == COLUMNS


@pytest.mark.parametrize("name", COLUMNS)
def test_limits_of_the_array(name: str) -> None:
    device = NpuDevice.load(name)
    assert device.name == name
    assert device.compute_tiles == 4 * COLUMNS[name]
    assert device.core.memory_bytes == 65536
    assert device.core.max_neighbours == 4
    assert device.memory_tile.memory_bytes == 524288
    channels = [(t.dma_in, t.dma_out) for t in (device.core, device.memory_tile, device.shim)]
    assert channels == [(2, 2), (6, 6), (2, 2)]
    assert device.host.usable_buffers == 4


def test_descriptor_limits() -> None:
    shim = NpuDevice.load("npu1_4col").shim.descriptor
    assert (shim.max_words, shim.max_wrap, shim.max_step_words, shim.max_iterations) == (2**32 - 1, 1023, 2**20, 64)


def test_devices_of_one_family_differ_in_columns_only() -> None:
    small, large = NpuDevice.load("npu2_3col"), NpuDevice.load("npu2")
    assert small.core == large.core
    assert small.board == large.board
    assert small.key != large.key


@pytest.mark.parametrize(
    ("shape", "types", "measured"),
    [
        ((64, 216, 64), (INT8, INT8, INT16), 217.6),
        ((96, 112, 96), (INT8, INT8, INT16), 192.0),
        ((80, 104, 128), (INT8, INT8, INT16), 186.9),
        ((64, 104, 64), (BFLOAT16, BFLOAT16, BFLOAT16), 112.6),
        ((96, 56, 96), (BFLOAT16, BFLOAT16, BFLOAT16), 99.8),
        ((96, 48, 112), (BFLOAT16, BFLOAT16, BFLOAT16), 97.3),
    ],
)
def test_tuned_kernels_reproduce_the_measured_rates(
    shape: tuple[int, int, int], types: tuple[DType, ...], measured: float
) -> None:
    m, k, n = shape
    cost = NpuDevice.load("npu1_4col").kernel_cost(*types, library="tuned")
    assert m * k * n / cost.cycles(m, k, n) == pytest.approx(measured, rel=0.01)


def test_kernel_cost_picks_the_most_specific_entry() -> None:
    device = NpuDevice.load("npu1_4col")
    assert device.kernel_cost(INT16, INT16, INT32) is device.kernels["allo"]["i16"]
    assert device.kernel_cost(INT8, INT16, INT32) is device.kernels["allo"]["i16xi8"]
    assert device.kernel_cost(FLOAT32, FLOAT32, FLOAT32) is device.kernels["allo"]["other"]
    kernels = {**device.kernels["allo"], "i16xi8->i32": device.kernels["allo"]["other"]}
    own = device.model_copy(update={"kernels": {**device.kernels, "allo": kernels}})
    for types in ((INT8, INT16, INT32), (INT16, INT8, INT32)):
        assert own.kernel_cost(*types) is kernels["i16xi8->i32"]


def test_elementwise_cost_falls_back() -> None:
    device = NpuDevice.load("npu1_4col")
    assert device.elementwise_cost("add").cycles(64) == 64 / 32 + device.elementwise_cost("add").call_cycles
    assert device.elementwise_cost("no such operation") is device.elementwise["other"]


@pytest.mark.parametrize(
    ("dtype", "key"),
    [(INT8, "i8"), (BFLOAT16, "bf16"), (FLOAT32, "f32"), (DType("fixed<8, 3>", "fixed", 8, 3), "fixed<8, 3>")],
)
def test_type_keys(dtype: DType, key: str) -> None:
    assert type_key(dtype) == key


class TestOptions:
    device = NpuDevice.load("npu1_4col")

    def test_values_change_a_copy(self) -> None:
        fast = self.device.with_options(clock_ghz=1.8, dram_gb_s=20)
        assert (fast.clock_ghz, fast.board.dram_gb_s, self.device.clock_ghz) == (1.8, 20, 1.0)
        assert fast != self.device
        assert fast.key != self.device.key

    def test_variants_keep_what_they_do_not_mention(self) -> None:
        ph = self.device.with_options(board="ph")
        assert ph.clock_ghz == 1.8
        assert ph.board.reconfigure_us == self.device.board.reconfigure_us
        assert self.device.with_options(board="ph", clock_ghz=0.8).clock_ghz == 0.8

    def test_options_add_up(self) -> None:
        changed = self.device.with_options(clock_ghz=1.2).with_options(kernel_library="tuned")
        assert (changed.clock_ghz, changed.kernel_library) == (1.2, "tuned")
        assert changed.kernel_cost("i16", "i16") is self.device.kernels["tuned"]["i16"]

    def test_library_decides_the_reserved_memory(self) -> None:
        assert self.device.reserved_core_bytes == 3328
        assert self.device.with_options(kernel_library="tuned").reserved_core_bytes == 1024

    def test_same_options_same_key(self) -> None:
        assert self.device.with_options(clock_ghz=1.0) == self.device
        assert hash(self.device.with_options(clock_ghz=1.0)) == hash(self.device)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"clock_gz": 1.0}, "no option 'clock_gz'.*did you mean 'clock_ghz'"),
            ({"board": "defualt"}, "no board variant 'defualt'.*did you mean 'default'"),
            ({"kernel_library": "vendor"}, "no kernel library 'vendor'.*known: allo, convolution, iron, tuned"),
            ({"clock_ghz": -1.0}, "clock_ghz: .*greater than 0, got -1.0"),
            ({"clock_ghz": float("nan")}, "clock_ghz: .*finite"),
            ({"dram_gb_s": "fast"}, "dram_gb_s: .*valid number, got 'fast'"),
            ({"launch_us": True}, "launch_us: .*valid number, got True"),
        ],
    )
    def test_impossible_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(DeviceError, match=f"(?s){message}"):
            self.device.with_options(**options)


def test_devices_travel_to_workers() -> None:
    device = NpuDevice.load("npu2").with_options(clock_ghz=1.5)
    copy = pickle.loads(pickle.dumps(device))
    assert copy == device
    assert copy.key == device.key


@pytest.mark.parametrize(("name", "part", "number"), [("npu2", "core", "memory_bytes"), ("u280", "resources", "dsp")])
def test_a_copy_with_other_numbers_is_another_device(name: str, part: str, number: str) -> None:
    """Costs are kept by a device's key, which was asked for before."""
    device = Device.load(name)
    before, inner = device.key, getattr(device, part)
    copy = device.model_copy(update={part: inner.model_copy(update={number: getattr(inner, number) - 1})})
    assert copy.key != before
    assert copy != device
    assert copy == Device.of(
        type(device).model_validate({field: getattr(copy, field) for field in type(device).model_fields})
    )
    assert device.model_copy().key == device.key == before


def test_devices_are_immutable() -> None:
    with pytest.raises(Exception, match="frozen"):
        NpuDevice.load("npu2").name = "another"


def test_key_is_stable() -> None:
    """Caches outlive processes: the key depends on content only."""
    device = NpuDevice.load("npu1_4col")
    content = {field: getattr(device, field) for field in NpuDevice.model_fields}
    renamed = NpuDevice.model_validate({**content, "name": "mine", "description": "another text"})
    assert renamed.key == device.key
    assert renamed != device
