"""Contents of `allo.backend.aie` for programs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from allo_dse.common.errors import ProgramError


def is_available() -> bool:
    """Return whether the compiler for the AI engines is on the search path."""
    return shutil.which("aiecc.py") is not None or shutil.which("aiecc") is not None


@dataclass(frozen=True)
class ExternalModule:
    """A vendor kernel that a program calls.

    Attributes:
        top: the name of its function.
        impl_path: its source file.
        input_idx, output_idx: positions of the arguments that it reads and writes.
    """

    top: str
    impl_path: str = ""
    input_idx: Sequence[int] = ()
    output_idx: Sequence[int] = ()

    def __call__(self, *args: object) -> NoReturn:
        raise ProgramError(f"external kernel {self.top} can only be called inside a kernel")
