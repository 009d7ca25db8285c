"""A calibrated device as a device file that extends the one it was fitted from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from allo_dse.common.errors import DeviceError
from allo_dse.common.files import write_whole
from allo_dse.common.records import JsonObject

from .device import Device, FpgaDevice, NpuDevice

_TABLES = ("kernels", "elementwise", "scalar_loop")


def device_text(device: NpuDevice, base: NpuDevice, extends: str, comments: Mapping[str, str]) -> str:
    """TOML of what differs from another device; the device's board becomes the default one.

    Args:
        base: what the file extends. extends: how it is named there, or its path from where the text will be.
        comments: by name of a number ("board.launch_us"), what to write beside it.
    """
    changed: JsonObject = {name: _plain(getattr(device, name)) for name in _TABLES}
    before: JsonObject = {name: _plain(getattr(base, name)) for name in _TABLES}
    changed["boards"] = {"default": _plain(device.board)}
    before["boards"] = {"default": _plain(base.boards["default"])}
    lines = [f"extends = {_toml(extends)}", f"description = {_toml(device.description + ', calibrated')}"]
    if device.kernel_library != base.kernel_library:
        lines.append(f"kernel_library = {_toml(device.kernel_library)}")
    lines.append(f"accuracy = [{', '.join(map(_inline, device.accuracy))}]")
    written: dict[tuple[str, ...], list[str]] = {}
    for path, value in _differences(changed, before, ()):
        name = ".".join(("board", *path[2:]) if path[0] == "boards" else path)
        comment = f" # {comments[name]}" if name in comments else ""
        written.setdefault(path[:-1], []).append(f"{_key(path[-1])} = {_toml(value)}{comment}")
    for table, entries in written.items():
        lines += ["", f"[{'.'.join(map(_key, table))}]", *entries]
    return "\n".join(lines) + "\n"


def fpga_text(device: FpgaDevice, base: FpgaDevice, extends: str, comments: Mapping[str, str]) -> str:
    """TOML of the operators that differ from another device.

    Args:
        base, extends: as of `device_text`. comments: by operator ("f32.add"), what its rows are from.
    """
    lines = [f"extends = {_toml(extends)}", f"description = {_toml(device.description + ', calibrated')}"]
    for element, table in device.operators.items():
        known = base.operators.get(element, {})
        changed = {name: rows for name, rows in table.items() if rows != known.get(name)}
        lines += ["", f"[operators.{_key(element)}]"] if changed else []
        for name, rows in changed.items():
            lines += [f"{_key(name)} = [ # [calibrated] {comments[f'{element}.{name}']}"]
            lines += [*(f"    {_inline(row, exclude_defaults=True)}," for row in rows), "]"]
    return "\n".join(lines) + "\n"


def require_writable(path: Path, *read: Path) -> None:
    """See that a file can be written, before it is known what, and is none of those that are read for it.

    Raises:
        DeviceError: when it cannot.
    """
    there = path if path.exists() else path.parent
    if there.is_dir() is path.exists():
        problem = "is a directory" if path.is_dir() else "there is no such directory"
    elif not os.access(there, os.W_OK):
        problem = "no permission"
    elif path.exists() and any(one.exists() and path.samefile(one) for one in read):
        problem = "it is what is read"
    else:
        return
    raise DeviceError(f"cannot write {path}: {problem}", hint="name another file with -o")


def write_device(path: Path, text: str) -> None:
    """Write a device file; what it says is read back, so that a file that cannot be loaded is never left unnoticed.

    Raises:
        DeviceError: when it cannot be loaded.
    """
    write_whole(path, text)
    Device.load(path)


def _inline(value: BaseModel, *, exclude_defaults: bool = False) -> str:
    """A model as a table in one line."""
    fields = value.model_dump(mode="json", exclude_defaults=exclude_defaults)
    return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in fields.items()) + " }"


def _plain(value: object) -> object:
    """Models as dictionaries."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _differences(changed: object, before: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(changed, Mapping):
        for key, value in changed.items():
            yield from _differences(value, before.get(key) if isinstance(before, Mapping) else None, (*path, key))
    elif changed != before:
        yield path, changed


def _toml(value: object) -> str:
    """A value as TOML writes it: as JSON, but TOML has no pairs of surrogates and wants DEL escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    """A key as TOML writes it."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)
