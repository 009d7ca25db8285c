"""NPU designs in words."""

from __future__ import annotations

from allo_dse.device.device import NpuDevice
from allo_dse.eval.backend import Words
from allo_dse.space.design import Design

from .movement.layout_plan import layouts_on
from .movement.movement import LayoutChoice


def npu_words(design: Design) -> Words:
    """Return the buffering, changes of layout and kernel library of a design."""
    buffered = "single-buffered output" if design.buffering.output_depth == 1 else "double-buffered output"
    layouts = [str(choice) for choice in layouts_of(design) if choice.place != "nowhere"]
    return Words("core", (buffered, *layouts, *_library_words(NpuDevice.of(design.device))), _counted_once(design))


def layouts_of(design: Design) -> tuple[LayoutChoice, ...]:
    """Return the changes of layout of a design's tensors."""
    return layouts_on(design.program.vmg.graph, NpuDevice.of(design.device)).choices


def _counted_once(design: Design) -> tuple[str, ...]:
    """Warn if the model counts loops once because data decides how often they run."""
    classes = (cls for kernel in design.program.kernels for cls in kernel.by_work[0])
    if all(op.count is not None for cls in classes for op in cls.work):
        return ()
    return ("data decides how often some loops run, which count once: latency is a lower bound",)


def _library_words(device: NpuDevice) -> list[str]:
    """Describe the kernel library, unless it is the first in the device file."""
    if device.kernel_library == next(iter(device.kernels)):
        return []
    return [f"kernels of the library {device.kernel_library!r}"]
