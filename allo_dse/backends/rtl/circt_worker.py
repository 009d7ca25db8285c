"""Run as a process of its own, on the MLIR of kernels in a JSON list; prints one of their SystemVerilog.

An assertion in CIRCT ends the process it happens in, so none of this is ever imported. The passes and the order that
they need (an empty run first, which loads dialects that later passes miss) were found by trying, with pycde 0.12.1.
"""

import io
import json
import sys

import pycde.circt as circt
from pycde.circt import export_verilog, ir, passmanager

_TIDY = "canonicalize{region-simplify=disabled top-down=true}"
_PASSES = (
    "builtin.module(flatten-memref,func.func(handshake-legalize-memrefs))",
    "builtin.module(lower-cf-to-handshake,handshake-lower-extmem-to-hw{wrap-esi=false})",
    f"builtin.module(handshake.func({_TIDY},handshake-materialize-forks-sinks,{_TIDY},"
    f"handshake-insert-buffers{{strategy=cycles buffer-size=1}},{_TIDY}))",
    f"builtin.module(handshake.func({_TIDY}),lower-handshake-to-hw,{_TIDY})",
    "builtin.module(lower-esi-ports,lower-esi-to-physical,lower-esi-to-hw)",
    f"builtin.module({_TIDY},hw.module(lower-seq-hlmem),hw-memory-sim,lower-seq-to-sv,hw-flatten-io,"
    f"hw.module(hw-cleanup),hw.module(hw-legalize-modules),{_TIDY},hw.module(prettify-verilog))",
)


def main() -> None:
    with ir.Context() as context, ir.Location.unknown():
        circt.register_dialects(context)
        _run("builtin.module(func.func(convert-affine-to-loopschedule))", ir.Module.parse("module {}"))
        json.dump([_verilog(kernel) for kernel in json.load(sys.stdin)], sys.stdout)


def _verilog(kernel: str) -> str:
    module = ir.Module.parse(kernel)
    for pipeline in _PASSES:
        _run(pipeline, module)
    options = ir.StringAttr.get("disallowLocalVariables,disallowPackedArrays")
    module.operation.attributes["circt.loweringOptions"] = options
    text = io.StringIO()
    export_verilog(module, text)
    return text.getvalue()


def _run(pipeline: str, module: ir.Module) -> None:
    passmanager.PassManager.parse(pipeline).run(module.operation)


if __name__ == "__main__":
    main()
