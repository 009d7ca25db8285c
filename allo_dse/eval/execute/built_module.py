"""Results of `df.build` and `allo.customize(...).build`: modules to call with a program's arguments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from allo_dse.common.errors import ProgramWarning, SimulationError
from allo_dse.common.records import Array
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.schedule.mlir_text import PrintedModule
from allo_dse.lang.region import as_region, rules_of
from allo_dse.mapper.program import Program, load_program

if TYPE_CHECKING:
    from allo_dse.simulator.engine.run_result import RunResult


def show_warnings(program: Program) -> None:
    """Issue the compiler's warnings as Python warnings, at their places in the user's source."""
    for text in program.warnings:
        place, _, message = text.partition(": warning: ")
        file, line, _column = place.rsplit(":", 2)
        warnings.warn_explicit(message, ProgramWarning, file, int(line))


class Built:
    """Common base of built modules."""

    program: Program

    @property
    def module(self) -> PrintedModule:
        """The program as MLIR."""
        return PrintedModule(self.program)

    @property
    def top_func_name(self) -> str:
        """The name of the outermost function or region."""
        return self.program.name


class SimulatorModule(Built):
    """The result of `df.build(region)` for the targets "simulator" and "llvm": call it with the region's arguments.

    Variables that persist from call to call live as long as the module. Tokens that a call leaves in a stream are a
    warning, or an error if the module was built with `strict=True`.

    Args:
        depths: stream depths by name, where they differ from the declared ones.
    """

    def __init__(
        self,
        region: Any,
        *,
        mapping_primitives: Any = None,
        depths: Mapping[str, int] | None = None,
        **_options: Any,
    ) -> None:
        self.program = load_program(region)
        self._depths = self.program.depths_with(depths or {})
        self._rules = rules_of(as_region(region))
        show_warnings(self.program)
        self.vmg = self.program.vmg.apply(mapping_primitives) if mapping_primitives else self.program.vmg
        self.result: RunResult | None = None
        """The last call's cycles, stalls and occupancies."""
        self._state: Any = None

    def __call__(self, *arrays: Any) -> Any:
        """Run the program; arrays are written in place.

        Returns:
            What a plain function returns, when the arrays for its results are not given; else None.
        """
        from .run import initial_state, run_graph

        if self._state is None:
            self._state = initial_state(self.program)
        returned = missing_results(self.program, arrays)
        self.result = run_graph(self.vmg, *arrays, *returned, depths=self._depths, state=self._state)
        for stream, tokens in self.result.left.items():
            self._tell_of_left(stream, tokens)
        return returned_values(self.program, arrays, returned)

    def _tell_of_left(self, stream: str, tokens: int) -> None:
        """Report tokens that the run has left in a stream, unless the compiler has done so."""
        if any(f"`{stream}" in warning for warning in self.program.warnings):
            return
        (where,) = (one.location for one in self.program.streams if one.name == stream)
        message = f"stream `{stream}` holds {tokens} tokens at the end"
        if self._rules.strict:
            raise SimulationError(f"{where}: {message}", hint="every token that is put must be taken out")
        if where is not None:
            warnings.warn_explicit(f"{message}; they are lost", ProgramWarning, where.file, where.line)


def missing_results(program: CompiledProgram, arrays: tuple[Any, ...]) -> list[Array]:
    """Return arrays for the results of a plain function, if the caller gives none; fixed-point ones are floats."""
    from allo_dse.compiler.model.arguments import numpy_dtype

    tensors, results = program.tensors, len(program.results)
    own = tensors[len(tensors) - results :] if len(arrays) == len(tensors) - results else ()
    return [np.zeros(t.shape, np.float64 if t.dtype.is_fixed else numpy_dtype(t.dtype)) for t in own]


def returned_values(program: CompiledProgram, arrays: tuple[Any, ...], returned: list[Array]) -> Any:
    """Return the results of a program as its caller gets them: nothing, one value, or a tuple.

    A returned argument is the caller's own array.
    """
    given = {t.name: a for t, a in zip(program.tensors, arrays, strict=False) if isinstance(a, np.ndarray)}
    places = [given.get(name or "", array) for name, array in zip(program.results, returned, strict=False)]
    values = [array if array.ndim else array.item() for array in places]
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def build_aie(region: Any, **options: Any) -> SimulatorModule:
    """Build for the target "aie" without NPU tools: the folded design runs in the simulator, with a note."""
    print('allo-dse: no NPU tools here; target "aie" runs the folded design in the simulator')
    return SimulatorModule(region, **options)
