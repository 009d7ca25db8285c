"""Turns what the device models reject into a `DeviceError` that names the file, the key, the reason and the way out."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from allo_dse.common.errors import DeviceError

from .loader import DeviceTable, KeyPath, suggest


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
