"""Devices: the limits that designs are checked against and the costs they are timed with.

    device = Device.load("npu1_4col")                    # a name, or the path of a device file
    device = device.with_options(clock_ghz=1.8)          # a changed copy
    device.core.memory_bytes, device.board.dram_gb_s, device.kernel_cost("i16", "i16")

docs/devices.md describes the file format. `family` says which model a file follows: "npu" or "fpga".
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import ErrorDetails

from allo_dse.common.errors import DeviceError
from allo_dse.common.notebooks import table_html
from allo_dse.common.plugins import BACKENDS, plugin
from allo_dse.common.records import JsonObject

from .fpga_model import (
    RESOURCES,
    Amounts,
    ArrayRules,
    Chip,
    Clock,
    External,
    FifoRules,
    HlsRules,
    IntegerRules,
    Operator,
    OperatorRows,
    at_clock,
)
from .model import Model, Size
from .npu_model import HOST_NUMBERS, Accuracy, Array, Board, Core, Host, Interconnect, KernelTables, MemoryTile, Tile

# Finds and reads device files: TOML, with `extends` so that a number that several devices share is written once.
#
# Nothing in a device file is ever executed; it is parsed as data, merged table by table, and handed on together with
# the file that each value came from, so that a complaint about a value can name the right file.


DEVICE_DIRECTORY = Path(__file__).parent / "files"
KeyPath = tuple[str, ...]

# A device file is a few kilobytes; anything larger is not one, and must not be read into memory.
_MAX_FILE_BYTES = 1 << 20


@dataclass
class DeviceTable:
    """The merged content of a device file and of the files it extends.

    Attributes:
        values: nested tables; arrays are tuples.
        origins: the file that set each value, by key path.
        path: the file that was asked for.
    """

    values: JsonObject
    path: Path
    origins: dict[KeyPath, Path] = field(default_factory=dict)

    def origin(self, key: KeyPath) -> Path:
        """The file that a key comes from; for a key that no file sets, the file of the table it belongs in.

        Of a table in which several files set values, it is the asked one.
        """
        while key:
            inside = [path for other, path in self.origins.items() if other[: len(key)] == key]
            if inside:
                return self.path if self.path in inside else inside[0]
            key = key[:-1]
        return self.path


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known name, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    listing = f"known: {', '.join(names)}" if names else "there are none"
    return f"did you mean {close[0]!r}? ({listing})" if close else listing


def device_names() -> tuple[str, ...]:
    """The names of the devices that come with the package."""
    return tuple(sorted(path.stem for path in DEVICE_DIRECTORY.glob("*.toml") if not path.stem.startswith("_")))


def device_file(name_or_path: str | Path, relative_to: Path | None = None) -> Path:
    """The file of a device: a name of `device_names()`, or a path (anything with a directory or ending in `.toml`).

    Raises:
        DeviceError: if there is no such device or file.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        path = (relative_to or Path()) / Path(text).expanduser()
        if not path.is_file():
            raise DeviceError(f"{path}: no such device file", hint=f"devices by name: {', '.join(device_names())}")
        return path
    path = DEVICE_DIRECTORY / f"{text}.toml"
    if not path.is_file():
        raise DeviceError(
            f"no device is named {text!r}", hint=f"{suggest(text, device_names())}; or give the path of a .toml file"
        )
    return path


def read_device_table(name_or_path: str | Path) -> DeviceTable:
    """Read a device file and everything it extends.

    Raises:
        DeviceError: if a file is missing, unreadable, not TOML, abstract, or extends itself.
    """
    path = device_file(name_or_path)
    table = _read(path, ())
    if table.values.pop("abstract", False):
        raise DeviceError(
            f"{path}: abstract: this file describes a family and not a device",
            hint=f"load one that extends it: {', '.join(device_names())}",
        )
    return table


def _read(path: Path, via: tuple[Path, ...]) -> DeviceTable:
    resolved = path.resolve()
    if resolved in via:
        cycle = " -> ".join(p.name for p in (*via[via.index(resolved) :], resolved))
        raise DeviceError(f"{path}: extends: the files extend each other: {cycle}", hint="remove one `extends`")
    own = _freeze(_parse(path))
    base_name = own.pop("extends", None)
    table = DeviceTable({}, path)
    if base_name is not None:
        if not isinstance(base_name, str):
            raise DeviceError(f"{path}: extends: must be a device name or a path, not {base_name!r}")
        try:
            base_path = device_file(base_name, relative_to=path.parent)
        except DeviceError as error:
            raise DeviceError(f"{path}: extends: {error.message}", hint=error.hint) from None
        base = _read(base_path, (*via, resolved))
        base.values.pop("abstract", None)
        table = DeviceTable(base.values, path, base.origins)
    _merge(table, table.values, own, ())
    return table


def _parse(path: Path) -> JsonObject:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise DeviceError(f"{path}: larger than {_MAX_FILE_BYTES} bytes, not a device file")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DeviceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeviceError(f"{path}: not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise DeviceError(f"{path}: not valid TOML: {error}", hint="see docs/devices.md for the format") from None


def _freeze(value: Any) -> Any:
    """Arrays as tuples, so that what is read can be kept in immutable models."""
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _merge(table: DeviceTable, into: JsonObject, own: JsonObject, prefix: KeyPath) -> None:
    """Lay the values of a file over those of the file it extends: tables key by key, anything else whole."""
    for key, value in own.items():
        where = (*prefix, key)
        is_table = isinstance(value, dict)
        if not (is_table and isinstance(into.get(key), dict)):
            into[key] = {} if is_table else value
            table.origins[where] = table.path
        if is_table:
            _merge(table, into[key], value, where)


# Turns what the device models reject into a `DeviceError` that names the file, the key, the reason and the way out.


def device_error(error: ValidationError, model: type[BaseModel], table: DeviceTable) -> DeviceError:
    """All complaints of a failed validation, one per line, and a hint for the first that has one."""
    lines, hints = [], []
    for detail in error.errors():
        key = tuple(map(str, detail["loc"]))
        lines.append(f"{table.origin(key)}: {'.'.join(key) or 'device'}: {_reason(detail)}")
        hints.append(_hint(detail, key, model))
    return DeviceError("\n".join(lines), hint=next((hint for hint in hints if hint), ""))


def option_error(error: ValidationError) -> DeviceError:
    """The complaints about values that were passed in a call."""
    return DeviceError("; ".join(f"{d['loc'][-1] if d['loc'] else 'option'}: {_reason(d)}" for d in error.errors()))


def _reason(detail: ErrorDetails) -> str:
    if detail["type"] == "extra_forbidden":
        return "unknown key"
    if detail["type"] == "missing":
        return "missing"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message if detail["type"] == "value_error" else f"{message}, got {detail['input']!r}"


def _hint(detail: ErrorDetails, key: KeyPath, model: type[BaseModel]) -> str:
    if detail["type"] == "extra_forbidden":
        return suggest(key[-1], _known_keys(model, key[:-1]))
    return (
        "a key that all devices of a family share belongs in the file they extend"
        if detail["type"] == "missing"
        else ""
    )


def _known_keys(model: type[BaseModel], key: KeyPath) -> list[str]:
    """The keys that the table at a key path may have."""
    current: object = model
    for part in key:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[part].annotation
        elif typing.get_origin(current) is Mapping:
            current = typing.get_args(current)[1]
        while typing.get_origin(current) is typing.Annotated:
            current = typing.get_args(current)[0]
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


_LUT_PER_NODE = 100


class Device(Model):
    """Common part of the devices of all families.

    Attributes:
        family: "npu" or "fpga": which model the device follows (`NpuDevice`, `FpgaDevice`).
        architecture: "xdna1", "ultrascale+", ... : what kernels are compiled for.
    """

    name: str
    family: str
    architecture: str
    description: str

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """The device of a name (`Device.names()`) or of a device file; `NpuDevice.load` takes NPUs only.

        Raises:
            DeviceError: naming the file, the key and the reason.
        """
        named = isinstance(name_or_path, str) and name_or_path in device_names()
        return cls.of(_load_named(str(name_or_path)) if named else _load(name_or_path))

    @classmethod
    def of(cls, device: Device | str | Path) -> Self:
        """The same device, known to be of this family; or that of a name or path.

        Raises:
            DeviceError: when it is of another one, or no device.
        """
        if isinstance(device, cls):
            return device
        if isinstance(device, str | Path):
            return cls.load(device)
        if not isinstance(device, Device):
            hint = 'give its name, as "npu1_4col", or Device.load(...)'
            if isinstance(device, list | tuple) or callable(device):
                hint = "give one; extra_choices=[dse.clock([100, 300])] varies the clock of an FPGA"
            raise DeviceError(f"{device!r} is not a device", hint=hint)
        wanted = next(family for family, model in FAMILIES.items() if issubclass(model, cls))
        raise DeviceError(
            f"{device.name} is of family {device.family!r}, and this needs {wanted!r}",
            hint=f"devices by name: {', '.join(device_names())}",
        )

    @staticmethod
    def names() -> tuple[str, ...]:
        """The devices that come with the package."""
        return device_names()

    def with_options(self, **options: object) -> Self:
        """A copy with other values of what may differ from board to board; which ones depends on the family."""
        raise NotImplementedError

    @property
    def max_nodes(self) -> int:
        """The most processing elements a design can have."""
        raise NotImplementedError

    @property
    def clock_ghz(self) -> float:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return a table of the device's properties, for a notebook."""
        facts = {"device": self.name, "what": self.description, "architecture": self.architecture}
        return table_html({**facts, "clock (GHz)": self.clock_ghz, **self._has})

    @property
    def _has(self) -> dict[str, object]:
        """Resources that designs can use, by name."""
        raise NotImplementedError

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything that can change what a design is worth on this device; names and prose do not count."""
        return self._hash_without(dict.fromkeys(self._prose, True))

    def _hash_without(self, fields: dict[str, Any]) -> str:
        """Hash of all numbers but some, in Pydantic's form."""
        content = self.model_dump(mode="json", exclude=fields)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def _prose(self) -> set[str]:
        """Fields that change no result."""
        return {"name", "description"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name and self.key == other.key

    def __hash__(self) -> int:
        return hash((self.name, self.key))

    def __str__(self) -> str:
        return repr(self)


class NpuDevice(Device, KernelTables):
    """An NPU: its tiles, its kernels' costs (see `KernelTables`), and what its board makes of them.

    Attributes:
        boards: named variants of everything that differs by board; `board_name` selects `board`.
        reserved_bytes: data memory of a core that buffers cannot use (stack, and what the tools put beside it), by
            kernel library, because it depends on the tools that build the kernels.
        accuracy: how good the predictions made with these numbers are, where they were compared with measurements.
        unmeasured_percent: how good they are for another board, kernel library or program, in per cent.
    """

    family: Literal["npu"]
    array: Array
    core: Core
    memory_tile: MemoryTile
    shim: Tile
    interconnect: Interconnect
    host: Host
    boards: Mapping[str, Board]
    board_name: str = "default"
    board: Board
    reserved_bytes: Mapping[str, Size]
    accuracy: tuple[Accuracy, ...] = ()
    unmeasured_percent: float = 100.0

    @model_validator(mode="after")
    def _leaves_memory(self) -> NpuDevice:
        for library in self.kernels:
            reserved = self.reserved_bytes.get(library)
            if reserved is None:
                raise ValueError(f"reserved_bytes.{library}: missing; every kernel library needs one")
            if not self.core.stack_bytes <= reserved < self.core.memory_bytes:
                raise ValueError(
                    f"reserved_bytes.{library}: {reserved} is not between core.stack_bytes {self.core.stack_bytes} "
                    f"and core.memory_bytes {self.core.memory_bytes}"
                )
        return self

    def with_options(self, **options: Any) -> Self:
        """A copy with another board variant (`board="ph"`), kernel library (`kernel_library="tuned"`) or board values.

        Board values (`clock_ghz=1.8`, `dram_gb_s=17.5`, ...) apply on top of the selected variant.

        Raises:
            DeviceError: for an unknown option or variant, or an impossible value.
        """
        board_name = options.pop("board", self.board_name)
        library = options.pop("kernel_library", self.kernel_library)
        if board_name not in self.boards:
            raise DeviceError(
                f"{self.name}: no board variant {board_name!r}", hint=suggest(str(board_name), self.boards)
            )
        if library not in self.kernels:
            raise DeviceError(f"{self.name}: no kernel library {library!r}", hint=suggest(str(library), self.kernels))
        for option in options:
            if option not in Board.model_fields:
                known = ["board", "kernel_library", *Board.model_fields]
                raise DeviceError(f"{self.name}: no option {option!r}", hint=suggest(option, known))
        base = self.board if board_name == self.board_name else self.boards[board_name]
        fields = {field: getattr(self, field) for field in type(self).model_fields}
        try:
            board = Board.model_validate({**base.model_dump(), **options})
        except ValidationError as error:
            raise option_error(error) from None
        return type(self).model_validate(
            {**fields, "board_name": board_name, "board": board, "kernel_library": library}
        )

    @property
    def compute_tiles(self) -> int:
        """Number of cores, which is also the largest number of nodes in a design."""
        return self.array.columns * self.array.core_rows

    @property
    def reserved_core_bytes(self) -> int:
        """Data memory of a core that buffers cannot use, with the selected kernel library."""
        return self.reserved_bytes[self.kernel_library]

    @property
    def max_nodes(self) -> int:
        return self.compute_tiles

    @property
    def clock_ghz(self) -> float:
        return self.board.clock_ghz

    @property
    def _prose(self) -> set[str]:
        return {"name", "description", "boards", "board_name", "accuracy", "unmeasured_percent"}

    @functools.cached_property
    def array_key(self) -> str:
        """Hash of what decides the time between two interventions of the host: of `key` all but the host's numbers."""
        return self._hash_without({**dict.fromkeys(self._prose, True), "board": set(HOST_NUMBERS)})

    def accuracy_of(self, operations: tuple[str, ...], element: str, latency_us: float) -> Accuracy | None:
        """Return the accuracy of predictions for programs with these operations; None if it is unknown.

        A board whose numbers were changed is none that was compared with measurements.
        """
        if self.board != self.boards[self.board_name]:
            return None
        known = (a for a in self.accuracy if a.board == self.board_name and a.kernels in ("", self.kernel_library))
        fitting = [a for a in known if (a.operations, a.element) == (operations, element) and a.least_us <= latency_us]
        return max(fitting, key=lambda a: a.least_us, default=None)

    @property
    def launch_us(self) -> float:
        """Overhead of one call on this device's columns, host to host."""
        return self.board.host_us(self.array.columns, tensor_bytes=0, rewrites=0)

    @property
    def _has(self) -> dict[str, object]:
        return {
            "board": self.board_name,
            "kernels": self.kernel_library,
            "columns": self.array.columns,
            "cores": self.max_nodes,
            "memory of a core (bytes)": f"{self.core.memory_bytes:,}",
            "memory of a memory tile (bytes)": f"{self.memory_tile.memory_bytes:,}",
        }

    def __repr__(self) -> str:
        return f"NpuDevice({self.name!r}, board={self.board_name!r}, key={self.key})"


class FpgaDevice(Device):
    """An FPGA: its resources, its clock, and what operators, arrays and streams cost at that clock.

    Attributes:
        part: the vendor's part number.
        resources: of the chip. shell: what the platform takes of them.
        operators: by element type ("f32") and operator ("add", "mul", "exp", ...) its implementations by clock;
            "add_fabric" is the adder without DSPs.
        tool: version of the HLS tool that builds designs. tools: by version, tables of what differs from it on.
    """

    family: Literal["fpga"]
    part: str
    resources: Chip
    shell: Amounts
    clock: Clock
    external: External
    operators: Mapping[str, Mapping[str, OperatorRows]]
    integer: IntegerRules
    fifo: FifoRules
    arrays: ArrayRules
    hls: HlsRules
    tool: str
    tools: Mapping[str, Mapping[str, Mapping[str, Any]]]

    @model_validator(mode="before")
    @classmethod
    def _as_the_tool(cls, values: Any) -> Any:
        """Apply the changes of all versions of the tool that are not newer, in order."""
        if not isinstance(values, dict) or not isinstance(values.get("tools"), Mapping) or not values["tools"]:
            return values
        known = sorted(values["tools"], key=_version)
        said, found = _version(str(values.get("tool"))), dict(values)
        for version in known[:1] + [one for one in known[1:] if _version(one) <= said]:
            for table, own in values["tools"][version].items():
                before = found.get(table, {})
                found[table] = {**(before.model_dump() if isinstance(before, BaseModel) else before), **own}
        return found

    @model_validator(mode="after")
    def _is_consistent(self) -> FpgaDevice:
        for resource in RESOURCES:
            if getattr(self.shell, resource) > getattr(self.resources, resource):
                raise ValueError(f"shell.{resource} exceeds resources.{resource}")
        if missing := {"add", "add_fabric", "mul"} - self.operators.get("f32", {}).keys():
            raise ValueError(f"operators.f32: missing {', '.join(sorted(missing))}")
        return self

    def with_options(self, **options: Any) -> Self:
        """A copy with another clock (`clock_mhz=250`, `uncertainty=0.2`), other resources (`dsp=2560`, `lut=...`), or
        another version of the HLS tool (`tool="2021.1"`).

        Raises:
            DeviceError: for an unknown option or an impossible value.
        """
        clock_fields = {"clock_mhz": "mhz", "uncertainty": "uncertainty"}
        for option in options:
            if option not in clock_fields and option not in (*RESOURCES, "tool"):
                raise DeviceError(
                    f"{self.name}: no option {option!r}", hint=suggest(option, [*clock_fields, *RESOURCES, "tool"])
                )
        if not re.fullmatch(r"\d{4}\.\d+(\.\d+)?", str(options.get("tool", self.tool))):
            raise DeviceError(f"{self.name}: tool: no version {options['tool']!r}", hint='such as "2022.2"')
        clock = {clock_fields[o]: float(v) for o, v in options.items() if o in clock_fields}
        limits = {option: value for option, value in options.items() if option in RESOURCES}
        fields = {field: getattr(self, field) for field in type(self).model_fields}
        try:
            fields["tool"] = options.get("tool", self.tool)
            fields["clock"] = Clock.model_validate({**self.clock.model_dump(), **clock})
            fields["resources"] = Chip.model_validate({**self.resources.model_dump(), **limits})
            if limits:  # a stated limit is what designs may use
                fields["shell"] = Amounts.model_validate({**self.shell.model_dump(), **dict.fromkeys(limits, 0)})
            return type(self).model_validate(fields)
        except ValidationError as error:
            raise option_error(error) from None

    def limit(self, resource: str) -> int:
        """Return the amount of a resource ("lut", "ff", "dsp", "bram18", "uram") that designs may use."""
        found: int = getattr(self.resources, resource) - getattr(self.shell, resource)
        return found

    def operator(self, element: str, name: str) -> Operator | None:
        """The implementation of a floating-point operator at this clock; None for one without figures."""
        rows = self.operators.get(element, {}).get(name)
        return None if rows is None else at_clock(rows, self.clock.mhz)

    @property
    def beyond_figures(self) -> str:
        """Sentence about operators whose latency at this clock is extrapolated; empty if there are none."""
        known = min(max(row.mhz for row in self.operators["f32"][name]) for name in ("add_fabric", "mul"))
        if self.clock.mhz <= known:
            return ""
        return f"latencies at {self.clock.mhz:g} MHz are extrapolated: figures of f32 operators end at {known:g} MHz"

    @property
    def max_nodes(self) -> int:
        """A processing element has a state machine and an operator at least: about 100 LUTs."""
        return max(1, self.limit("lut") // _LUT_PER_NODE)

    @property
    def clock_ghz(self) -> float:
        return self.clock.mhz / 1e3

    @property
    def _has(self) -> dict[str, object]:
        return {
            "part": self.part,
            **{f"{name} for designs": f"{self.limit(name):,}" for name in type(self.resources).model_fields},
        }

    def __repr__(self) -> str:
        return f"FpgaDevice({self.name!r}, {self.clock.mhz:g} MHz, key={self.key})"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


FAMILIES: dict[str, type[Device]] = {"npu": NpuDevice, "fpga": FpgaDevice}
"""Models of device files by family; `register_backend` adds those of other kinds."""


def _model_of(family: str) -> type[Device] | None:
    """Return the model of a family's device files, also of one that another installed package adds; None if unknown."""
    if family not in FAMILIES and (backend := plugin(BACKENDS, family)) is not None:
        FAMILIES[family] = backend.device_model
    return FAMILIES.get(family)


def _load(name_or_path: str | Path) -> Device:
    table = read_device_table(name_or_path)
    values = {"name": table.path.stem, **table.values}
    model = _model_of(str(values.get("family")))
    if model is None:
        said = f"unknown family {values['family']!r}" if "family" in values else "missing"
        raise DeviceError(f"{table.origin(('family',))}: family: {said}", hint=f"known: {', '.join(FAMILIES)}")
    if model is NpuDevice:
        _add_boards(values, table)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise device_error(error, model, table) from None


_load_named = functools.cache(_load)


def _add_boards(values: dict[str, object], table: DeviceTable) -> None:
    """Complete an NPU's board variants and select the default one."""
    for derived in ("board", "board_name"):
        if derived in values:
            raise DeviceError(
                f"{table.origin((derived,))}: {derived}: unknown key",
                hint="board values belong in [boards.default] or in a named variant [boards.<name>]",
            )
    values["boards"] = boards = _complete_boards(values.get("boards"))
    if "default" not in boards:
        raise DeviceError(f"{table.origin(('boards',))}: boards.default: missing", hint="see docs/devices.md")
    values["board"] = boards["default"]


def _complete_boards(boards: object) -> dict[str, object]:
    """Board variants with the values they do not mention taken from [boards.default]."""
    if not isinstance(boards, dict) or not isinstance(boards.get("default"), dict):
        return boards if isinstance(boards, dict) else {}
    return {
        name: {**boards["default"], **board} if isinstance(board, dict) else board for name, board in boards.items()
    }
