"""XRT as the driver of a runtime sequence uses it: an "ELF" is the module, and its programs run in the simulator."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.eval.execute.run import run_graph
from allo_dse.mapper.program import load_program

xclBOSyncDirection = SimpleNamespace(XCL_BO_SYNC_BO_TO_DEVICE=0, XCL_BO_SYNC_BO_FROM_DEVICE=1)
ert_cmd_state = SimpleNamespace(ERT_CMD_STATE_COMPLETED=4)


def device(number):
    return number


def elf(path):
    return Path(path)


def hw_context(device, elf):
    return elf


class Buffer:
    def __init__(self, device, size):
        self.memory, self.device = bytearray(size), bytearray(size)

    def write(self, data, offset):
        self.memory[offset : offset + len(data)] = data

    def sync(self, direction):
        source, target = (self.device, self.memory) if direction else (self.memory, self.device)
        target[:] = source

    def map(self):
        return self.memory


def kernel(context, name):
    return context, name.removeprefix("main:")


ext = SimpleNamespace(bo=Buffer, kernel=kernel)


class run:
    def __init__(self, kernel):
        (self.elf, self.name), self.given = kernel, {}

    def set_arg(self, number, buffer):
        self.given[f"%arg{number}"] = buffer

    def start(self):
        body = self.elf.read_text().partition(f"@{self.name}(")[2].partition("\n  }")[0]
        design = ""
        for line in body.splitlines():
            if found := re.search(r"aiex.configure @(\w+)", line):
                design = found[1]
            elif found := re.search(r"aiex.run @run\((.*?)\)", line):
                self._call(design, [self.given[one] for one in found[1].split(", ")])

    def _call(self, design, buffers):
        file = next(self.elf.parent.glob(f"launch_*/{design}/program.py"))
        spec = importlib.util.spec_from_file_location(f"on_device_{design}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        program = load_program(module.region)
        types = [numpy_dtype(tensor.dtype) for tensor in program.tensors]
        pairs = zip(buffers, types, program.tensors, strict=True)
        run_graph(program.vmg, *(np.frombuffer(own.device, dtype).reshape(t.shape) for own, dtype, t in pairs))

    def wait(self):
        return ert_cmd_state.ERT_CMD_STATE_COMPLETED
