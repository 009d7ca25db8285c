"""Contents of `allo.ir.utils` for programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MockBuffer:
    """Names an array of a kernel in a schedule: `MockBuffer("gemm", "local_A")`."""

    func: str
    name: str
    idx: int | None = None

    @property
    def function(self) -> str:
        return self.func

    def __str__(self) -> str:
        return f"{self.func}:{self.name}"
