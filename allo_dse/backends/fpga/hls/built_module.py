"""The result of `df.build` for HLS targets: generated C++ to call with a program's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.built_module import Built, missing_results, returned_values, show_warnings
from allo_dse.eval.execute.run import folding_of
from allo_dse.mapper.program import load_program

from .build_modes import CSIM, CSimulation, check_mode, run_mode
from .project import emit_project


class HlsModule(Built):
    """The result of `df.build` for the targets "vhls" and "vitis_hls": generated C++, which can be run.

    Args:
        mode: "csim", "csynth", "cosim", "hw_emu" or "hw".
        project: a directory, written at once.

    Attributes:
        hls_project: all files; `hls_code` is the kernel.
    """

    def __init__(
        self,
        region: Any,
        *,
        mode: str | None = None,
        project: str | None = None,
        mapping_primitives: Any = None,
        depths: Mapping[str, int] | None = None,
        device: FpgaDevice | str | None = None,
        **_options: Any,
    ) -> None:
        check_mode(mode)
        self.program = load_program(region)
        show_warnings(self.program)
        target = None if device is None else FpgaDevice.of(device)
        folded = self.program.vmg.apply(mapping_primitives) if mapping_primitives else self.program.vmg
        folding = folding_of(folded, depths)
        self.hls_project = emit_project(self.program, depths=depths, device=target, folding=folding)
        self.mode, self.directory = mode, project
        self._simulation: CSimulation | None = None
        if project is not None:
            self.hls_project.write(project)

    def __repr__(self) -> str:
        return self.hls_code

    @property
    def hls_code(self) -> str:
        """The kernel's C++."""
        return self.hls_project.hls_code

    def __call__(self, *arrays: Any) -> Any:
        """Run on arrays, which are written in place: C simulation by g++ or clang++, without the vendor's tool.

        Modes other than "csim" run the tool in the project directory.

        Returns:
            The results of a plain function, when the arrays for them are not given; else None.

        Raises:
            AlloDseError: when the mode needs the tool and it is absent, or a run fails.
        """
        returned = missing_results(self.program, arrays)
        if self.mode not in (None, CSIM):
            run_mode(self.hls_project, self.mode, self.directory, (*arrays, *returned))
            return returned_values(self.program, arrays, returned)
        if self._simulation is None:
            print("allo-dse: C simulation with the headers of allo-dse, without the vendor's tool")
            self._simulation = CSimulation(self.hls_project)
        self._simulation(*arrays, *returned)
        return returned_values(self.program, arrays, returned)
