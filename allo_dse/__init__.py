"""allo-dse: an autotuner and design-space explorer for dataflow accelerator programs.

    import allo_dse as dse

    program = dse.load_program(gemm, Pm=32, Pn=32, Pk=32)     # a region, or a function that returns one
    folded = program.vmg.apply(mapping_primitives)            # the virtual mapping graph, folded
    dse.check(folded, dse.Device.load("npu1_4col"))           # violations of the device's limits; empty when it fits
    dse.place(folded, "npu1_4col")                            # tiles, routes and channels, or what forbids them
    dse.simulate(program, A, B, C)                            # numbers and cycles in one run
    dse.equivalent(program, folded)                           # whether they compute the same from all inputs
    dse.Trace.load("x.npz").replay(depths)                    # another tool's trace at other stream depths
    dse.read_hls_report("solution1")                          # what an HLS tool reported: loops, FIFOs, resources
    dse.Study("gemm", program=gemm, params={...}, device="npu1_4col", objectives=[dse.minimize("latency_us")]).run(500)

Names are imported when first used, so that `import allo_dse` costs nothing.
"""

from __future__ import annotations

from .common.imports import lazy_exports
from .common.plugins import register_target
from .space.backend import add_backend

__version__ = "0.2.0"

_names, __getattr__ = lazy_exports(__name__, __file__)
__all__ = [*_names, "__version__"]


for _kind, _class in (("npu", "npu.backend:NpuBackend"), ("fpga", "fpga.backend:FpgaBackend")):
    add_backend(_kind, f"allo_dse.backends.{_class}")
for _target in ("simulator", "llvm"):
    register_target(_target, "allo_dse.eval.execute.built_module:SimulatorModule")
for _target in ("aie", "aie-mlir"):
    register_target(_target, "allo_dse.eval.execute.built_module:build_aie")
for _target in ("vhls", "vitis_hls"):
    register_target(_target, "allo_dse.backends.fpga.hls.built_module:HlsModule")


def __dir__() -> list[str]:
    return __all__
