"""FPGA devices: what their files say, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from allo_dse.common.errors import DeviceError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import Device, FpgaDevice, NpuDevice
from allo_dse.device.fpga_model import Operator, Resources, at_clock
from allo_dse.mapper.fold.fold_space import unfolded
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ..support.programs import gemm_program

AVAILABLE = {
    "u280": (1303680, 2607360, 9024, 4032, 960),
    "u55c": (1303680, 2607360, 9024, 4032, 960),
    "u250": (1728000, 3456000, 12288, 5376, 1280),
    "u200": (1182240, 2364480, 6840, 4320, 960),
    "zcu102": (274080, 548160, 2520, 1824, 0),
    "zcu104": (230400, 460800, 1728, 624, 96),
    "z7020": (53200, 106400, 220, 280, 0),
    "z7045": (218600, 437200, 900, 1090, 0),
}


@pytest.mark.parametrize("name", AVAILABLE)
def test_resources_are_those_that_reports_print(name: str) -> None:
    device = Device.load(name)
    chip = FpgaDevice.of(device).resources
    assert (chip.lut, chip.ff, chip.dsp, chip.bram18, chip.uram) == AVAILABLE[name]
    assert device.family == "fpga"
    assert device.max_nodes > 100


def test_families_are_told_apart() -> None:
    assert Device.load("npu2").family == "npu"
    assert isinstance(Device.load("npu2"), NpuDevice)
    with pytest.raises(DeviceError, match=r"npu2 is of family 'npu', and this needs 'fpga'"):
        FpgaDevice.load("npu2")
    with pytest.raises(DeviceError, match=r"u280 is of family 'fpga', and this needs 'npu'"):
        NpuDevice.load("u280")


@pytest.mark.parametrize(
    ("device", "mhz", "add", "fabric", "mul"),
    [
        ("u280", 300, 6, 4, 3),
        ("u55c", 250, 6, 3, 3),
        ("u55c", 220, 4, 3, 3),
        ("vu11p", 100, 2, 2, 1),
        ("z7020", 100, 4, 4, 3),
    ],
)
def test_operators_follow_the_clock(device: str, mhz: float, add: int, fabric: int, mul: int) -> None:
    chip = FpgaDevice.load(device).with_options(clock_mhz=mhz)
    found = [chip.operator("f32", name) for name in ("add", "add_fabric", "mul")]
    assert [row.latency for row in found if row] == [add, fabric, mul]
    assert [row.dsp for row in found if row] == [2, 0, 3]


def test_beyond_the_fastest_row_latency_is_stretched() -> None:
    rows = (Operator(mhz=300.0, latency=6), Operator(mhz=100.0, latency=2))
    assert [at_clock(rows, mhz).latency for mhz in (50, 100, 101, 300.3, 600)] == [2, 2, 2, 6, 12]
    assert at_clock(rows, 120).latency == 6


def test_options_change_clock_and_limits() -> None:
    u280 = FpgaDevice.load("u280")
    assert (u280.clock_ghz, u280.limit("lut"), u280.limit("dsp")) == (0.3, 1303680 - 107629, 9024)
    changed = u280.with_options(clock_mhz=250, dsp=2560, lut=10**6)
    assert (changed.clock_ghz, changed.limit("lut"), changed.limit("dsp")) == (0.25, 10**6, 2560)
    assert changed.key != u280.key
    for options, message in (
        ({"clok_mhz": 3}, r"u280: no option 'clok_mhz'.*did you mean 'clock_mhz'"),
        ({"clock_mhz": -1}, r"mhz: .*greater than 0"),
        ({"dsp": 1.5}, r"dsp: .*integer"),
    ):
        with pytest.raises(DeviceError, match=f"(?s){message}"):
            u280.with_options(**options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[resources]\nlut = 0", r"resources: lut must be positive"),
        ("[resources]\ndsp = 12.5", r"bad\.toml: resources\.dsp: .*integer"),
        ("[shell]\ndsp = 10000", r"shell\.dsp exceeds resources\.dsp"),
        ("[clock]\nuncertainty = 1.0", r"clock\.uncertainty: .*less than 1"),
        ("[clock]\nmhzz = 1.0", r"clock\.mhzz: unknown key.*'mhz'"),
        ("[array]\ncolumns = 3", r"bad\.toml: array: unknown key"),
        ("[operators.f32]\nadd = []", r"operators\.f32\.add: .*at least 1 item"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f'extends = "u280"\n{text}\n', encoding="utf-8")
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        Device.load(path)


def test_block_ram_is_counted_in_its_cheapest_shape() -> None:
    arrays = FpgaDevice.load("u280").arrays
    assert [arrays.bram18(words, 32) for words in (160, 512, 1024, 2048, 4096)] == [1, 1, 2, 4, 8]
    assert arrays.bram18(768, 512) == 29  # by shape; HLS reports print 15, ignoring depth
    assert arrays.bram18(16384, 1) == 1


def test_resources_add_up() -> None:
    part = Resources(lut=3, dsp=1)
    assert Resources.total([part * 2, part]) == Resources(lut=9, dsp=3)


def test_schedule_and_depths_are_part_of_a_design() -> None:
    program = Program.of(gemm_program())
    device = Device.load("u280")
    plain = Design(program, unfolded(program), Buffering(), device)
    directive = Directive("pipeline", "gemm", "k", {"initiation_interval": 1})
    scheduled = Design(program, unfolded(program), Buffering(), device, (directive,), (("pipe", 4),))
    assert len({plain.key, scheduled.key}) == 2
    assert "schedule" not in plain.to_dict()
    assert scheduled.to_dict()["depths"] == {"pipe": 4}
    assert scheduled.to_dict()["schedule"] == ["pipeline(gemm:k, initiation_interval=1)"]
