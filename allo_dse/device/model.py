"""The base of all parts of a device, and the ranges that their numbers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(gt=0, le=1 << 40)]


Size = Annotated[int, Field(ge=0, le=1 << 50)]


Bits = Annotated[int, Field(gt=0, le=64)]


Positive = Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False)]


NotNegative = Annotated[float, Field(ge=0, lt=1e15, allow_inf_nan=False)]


Share = Annotated[float, Field(gt=0, le=1)]


class Model(BaseModel):
    """Base of all parts of a device: immutable, no conversions between types, no unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, not checked; Pydantic's would keep what was computed of the old ones, as a device's
        key."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied
