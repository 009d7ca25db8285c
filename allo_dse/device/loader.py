"""Finds and reads device files: TOML, with `extends` so that a number that several devices share is written once.

Nothing in a device file is ever executed; it is parsed as data, merged table by table, and handed on together with the
file that each value came from, so that a complaint about a value can name the right file.
"""

from __future__ import annotations

import difflib
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from allo_dse.common.errors import DeviceError
from allo_dse.common.records import JsonObject

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
        """The file that a key comes from; for a key that no file sets, the file of the table it belongs in."""
        while key:
            if key in self.origins:
                return self.origins[key]
            inside = [path for other, path in self.origins.items() if other[: len(key)] == key]
            if inside:
                return inside[0]
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
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(table, into[key], value, where)
        elif isinstance(value, dict):
            into[key] = {}
            table.origins[where] = table.path
            _merge(table, into[key], value, where)
        else:
            into[key] = value
            table.origins[where] = table.path


# Turns what the device models reject into a `DeviceError` that names the file, the key, the reason and the way out.


def device_error(error: ValidationError, model: type[BaseModel], table: DeviceTable) -> DeviceError:
    """All complaints of a failed validation, one per line, and a hint for the first that has one."""
    lines, hints = [], []
    for detail in error.errors():
        key = tuple(str(part) for part in detail["loc"])
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
