"""What a device file of the family "cgra" says."""

from __future__ import annotations

from typing import Any, Literal

from allo_dse.device.device import Device
from allo_dse.device.model import Count, Positive


class CgraDevice(Device):
    """A mesh of elements, each with a scratchpad; all share one port to DRAM.

    Attributes:
        macs_per_cycle: multiply-accumulates, or other operations, that an element does in a cycle.
        scratchpad_bytes: of one element.
        links: neighbours that an element can exchange tokens with.
        dram_bytes_per_cycle: rate of the port.
    """

    family: Literal["cgra"]
    rows: Count
    columns: Count
    clock_mhz: Positive
    macs_per_cycle: Count
    scratchpad_bytes: Count
    links: Count
    dram_bytes_per_cycle: Count

    def with_options(self, **options: Any) -> CgraDevice:
        """Return a copy with other numbers."""
        return type(self).model_validate({**self.model_dump(), **options})

    @property
    def max_nodes(self) -> int:
        return self.rows * self.columns

    @property
    def clock_ghz(self) -> float:
        return self.clock_mhz / 1e3

    @property
    def _has(self) -> dict[str, object]:
        return {"elements": self.max_nodes, "scratchpad (bytes)": f"{self.scratchpad_bytes:,}"}
