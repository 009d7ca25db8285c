"""Types that several packages share: what JSON decoders and NumPy give, whose contents are known at run time only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
"""An array of any element type; a text at run time, so that commands without numbers do without NumPy."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it is written and read; whoever reads it checks what is in it."""
