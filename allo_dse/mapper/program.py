"""Programs as users hold them: compiled, with their virtual mapping graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram, Watch, program_digest

from .fold.vmg import VMG

if TYPE_CHECKING:
    from allo_dse.compiler.schedule.restructure import Rewrite


@dataclass(frozen=True, eq=False)
class Program(CompiledProgram):
    """A compiled program and its graph; immutable, and independent of any mapping or device.

    Attributes:
        source: the region, or the function that returned it for `params`.
        apart: parts of its kernels that do not depend on each other are kernels of their own.
        rewrites: how its loops were restructured. written: the program before that.
    """

    source: Callable[..., object] | None = None
    apart: bool = False
    rewrites: tuple[Rewrite, ...] = ()
    written: Program | None = None

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self.params.items())
        return f"Program({self.name}({params}), {self.task_count:,} tasks)"

    def _repr_html_(self) -> str:
        return self.vmg._repr_html_()

    @staticmethod
    def of(compiled: CompiledProgram, source: Callable[..., object] | None = None, *, apart: bool = False) -> Program:
        """The same program, with a graph."""
        return Program(**compiled.compiled_fields, source=source, apart=apart)

    def with_params(self, **changes: object) -> Program:
        """The program that the same source gives for other parameters."""
        assert self.source is not None, "only a loaded program can be loaded again"
        loaded = load_program(self.source, **{**self.params, **changes})
        return (loaded.split if self.apart else loaded).rewritten(self.rewrites)

    @property
    def as_written(self) -> Program:
        """The program with its loops as they are in the source."""
        return self.written or self

    def rewritten(self, rewrites: tuple[Rewrite, ...]) -> Program:
        """The program with restructured loops; made once for each list of rewrites."""
        if not rewrites:
            return self
        if rewrites not in self._rewritten:
            from allo_dse.compiler.schedule.restructure import restructured  # slow to import

            made = Program.of(restructured(self, rewrites), self.source, apart=self.apart)
            self._rewritten[rewrites] = replace(made, rewrites=rewrites, written=self)
        return self._rewritten[rewrites]

    @cached_property
    def _rewritten(self) -> dict[tuple[Rewrite, ...], Program]:
        return {}

    @cached_property
    def split(self) -> Program:
        """The same program, whose kernels' parts that do not depend on each other run at once, each as a kernel."""
        assert self.source is not None, "only a loaded program can be loaded again"
        return Program.of(_compiled(self.source, self.params, apart=True), self.source, apart=True)

    @cached_property
    def digest(self) -> str:
        """Hash of what the program computes and how: the key of stored results."""
        return program_digest(self)

    @cached_property
    def vmg(self) -> VMG:
        """The unfolded virtual mapping graph: every task on a node of its own."""
        return VMG.of(self)


def load_program(region: Callable[..., object], /, **params: object) -> Program:
    """Compile a region, or the region that a function returns for `params`.

    Raises:
        ProgramError: when the program is wrong; it names the place in the user's source.
    """
    return load_watched(region, params, None)


def load_watched(region: Callable[..., object], params: Mapping[str, object], watch: Watch | None) -> Program:
    """The same, with something that looks at the program while it is compiled.

    Raises:
        Hopeless: when it says that it need not be compiled.
    """
    params = dict(params)
    if isinstance(region, FunctionType):
        with suppress(TypeError):  # compilation reports parameters that do not fit
            bound = inspect.signature(region).bind(**params)
            bound.apply_defaults()
            params = dict(bound.arguments)
    return Program.of(_compiled(region, params, watch=watch), region)


def _compiled(
    source: Callable[..., object], params: Mapping[str, object], *, apart: bool = False, watch: Watch | None = None
) -> CompiledProgram:
    from allo_dse.compiler.compiler import compile_region  # lazy: workers may get compiled programs

    return compile_region(source, params, apart=apart, watch=watch)
