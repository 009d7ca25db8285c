"""Device files of users: what they can say, and what they are told when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from allo_dse.common.errors import DeviceError
from allo_dse.device.device import DEVICE_DIRECTORY, Device, NpuDevice, read_device_table


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_extends_a_named_device(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mini.toml",
        """
        extends = "npu1_4col"
        [array]
        columns = 2
        [boards.default]
        clock_ghz = 1.6
        [boards.quiet]
        clock_ghz = 0.8
        """,
    )
    device = NpuDevice.load(path)
    assert (device.name, device.compute_tiles, device.clock_ghz) == ("mini", 8, 1.6)
    assert device.with_options(board="quiet").clock_ghz == 0.8
    assert device.core == NpuDevice.load("npu1_4col").core
    assert NpuDevice.load(str(path)) == device


def test_a_file_extends_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", 'extends = "npu2"\nabstract = true\n[host]\nbuffers = 7\n')
    path = write(tmp_path / "mine.toml", 'extends = "base.toml"\nname = "bench"\n')
    device = NpuDevice.load(path)
    assert (device.name, device.host.usable_buffers) == ("bench", 6)
    with pytest.raises(DeviceError, match=r"base\.toml: abstract"):
        Device.load(tmp_path / "base.toml")


def test_origins_name_the_file_of_each_value(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", 'extends = "npu1_4col"\n[array]\ncolumns = 2\n')
    table = read_device_table(path)
    assert table.origin(("array", "columns")) == path
    assert table.origin(("array", "core_rows")) == DEVICE_DIRECTORY / "_npu.toml"
    assert table.origin(("core", "nothing")) == DEVICE_DIRECTORY / "_npu.toml"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("npu1_4cols", "no device is named 'npu1_4cols'.*did you mean 'npu1_4col'"),
        ("_npu1", r"_npu1\.toml: abstract.*npu1_4col"),
        ("nowhere/x.toml", r"nowhere/x\.toml: no such device file.*npu1_1col"),
        ("x.toml", "no such device file"),
    ],
)
def test_unknown_devices(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        Device.load(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[core]\nmemory_byte = 1", r"bad\.toml: core\.memory_byte: unknown key.*did you mean 'memory_bytes'"),
        ("[core]\nmemory_bytes = -1", r"bad\.toml: core\.memory_bytes: .*greater than 0, got -1"),
        ("[core]\nmemory_bytes = 65536.0", r"core\.memory_bytes: .*valid integer, got 65536.0"),
        ("[core]\nmemory_bytes = true", r"core\.memory_bytes: .*valid integer, got True"),
        ("[core]\nstack_bytes = 4000", r"reserved_bytes\.allo: 3328 is not between core\.stack_bytes 4000"),
        ("[core]\nneighbours = ['up']", r"core\.neighbours\.0: .*pattern"),
        ("[array]\ncolumns = 5", r"bad\.toml: array: columns 5 exceeds usable_columns 4"),
        ("[host]\nbuffers = 1", "host: reserved_buffers 1 leaves none of 1 buffers"),
        ("[memory_tile]\nbuffer_descriptors = 47", "memory_tile: 47 buffer_descriptors do not divide into 2 banks"),
        ("[boards.default]\nclock_ghz = nan", r"bad\.toml: boards\.default\.clock_ghz: .*"),
        ("[boards.default]\nclock_ghz = 1e9", r"clock_ghz: .*less than or equal to 10"),
        ("[boards.mine]\nclok_ghz = 1.0", r"boards\.mine\.clok_ghz: unknown key.*did you mean 'clock_ghz'"),
        ("[board]\nclock_ghz = 1.0", r"board: unknown key.*\[boards\.default\]"),
        ("boards = 3", r"boards\.default: missing"),
        (
            "[kernels.allo.i8]\npeek_mac_per_cycle = 1.0",
            r"kernels\.allo\.i8\.peek_mac_per_cycle: unknown key.*'peak_mac_per_cycle'",
        ),
        (
            "[kernels.mine.i4]\npeak_mac_per_cycle = 1.0",
            r"bad\.toml: kernels\.mine\.i4\.efficiency: missing(?s:.*)kernels\.mine\.i4\.call_cycles: missing",
        ),
        ("[kernels.allo.i8]\nefficiency = 1.5", r"kernels\.allo\.i8\.efficiency: .*less than or equal to 1"),
        ("kernel_library = 'mine'", "kernel_library 'mine' is not in kernels"),
        ("family = 'gpu'", r"bad\.toml: family: unknown family 'gpu'.*known: npu, fpga"),
        ("speed = 3", r"bad\.toml: speed: unknown key"),
        ("[core", r"bad\.toml: not valid TOML: .*line"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "bad.toml", f'extends = "npu1_4col"\n{text}\n')
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        Device.load(path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "marked.toml", '\ufeffextends = "npu1_4col"\n')
    assert Device.load(path).max_nodes == Device.load("npu1_4col").max_nodes


def test_a_library_needs_its_other_entry_and_its_reserved_bytes(tmp_path: Path) -> None:
    cost = "{ peak_mac_per_cycle = 1.0, efficiency = 1.0, accumulate_cycles_per_element = 0.0, call_cycles = 0.0 }"
    path = write(tmp_path / "bad.toml", f'extends = "npu2"\n[kernels.mine]\ni8 = {cost}\n')
    with pytest.raises(DeviceError, match=r"kernels\.mine: needs an entry 'other'"):
        Device.load(path)
    write(path, f'extends = "npu2"\n[kernels.mine]\nother = {cost}\n')
    with pytest.raises(DeviceError, match=r"reserved_bytes\.mine: missing"):
        Device.load(path)


def test_a_file_that_extends_nothing_must_say_everything(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"alone\.toml: family: missing"):
        Device.load(write(tmp_path / "alone.toml", "[array]\ncolumns = 1\n"))
    text = 'family = "npu"\n[boards.default]\nclock_ghz = 1.0\n'
    with pytest.raises(DeviceError, match=r"(?s)alone\.toml: array: missing.*core: missing"):
        Device.load(write(tmp_path / "alone.toml", text))


def test_cycles_are_reported_as_a_path(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", 'extends = "b.toml"\n')
    write(tmp_path / "b.toml", 'extends = "a.toml"\n')
    with pytest.raises(DeviceError, match=r"a\.toml -> b\.toml -> a\.toml"):
        Device.load(tmp_path / "a.toml")
    with pytest.raises(DeviceError, match=r"self\.toml -> self\.toml"):
        Device.load(write(tmp_path / "self.toml", 'extends = "self.toml"\n'))


@pytest.mark.parametrize(
    ("value", "message"),
    [('"npu9"', r"mine\.toml: extends: no device is named 'npu9'"), ("3", "extends: must be a device name or a path")],
)
def test_bad_extends(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        Device.load(write(tmp_path / "mine.toml", f"extends = {value}\n"))


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeviceError, match="not a text file in UTF-8"):
        Device.load(path)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(DeviceError, match="not a device file"):
        Device.load(path)
    with pytest.raises(DeviceError, match="no such device file"):
        Device.load(tmp_path)


def test_every_number_has_a_source() -> None:
    """Values of device files say where they come from: a `[source]` on the line or in the comment above the table."""
    for path in sorted(DEVICE_DIRECTORY.glob("_*.toml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        comment = ""
        for line in lines:
            if line.startswith("#"):
                comment = f"{comment} {line}"
            elif not line:
                comment = ""
            elif "=" in line and line.split()[0] not in {
                "abstract",
                "extends",
                "family",
                "architecture",
                "kernel_library",
            }:
                assert "[" in line.partition("#")[2] or "[" in comment, f"{path.name}: {line}"
