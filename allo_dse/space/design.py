"""Decided designs (program, fold, buffering, device), and drafts that are still being decided."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.notebooks import table_html
from allo_dse.common.records import replace
from allo_dse.mapper.violation import Buffering

from .backend import backend_of
from .params import Assignment

if TYPE_CHECKING:
    from allo_dse.compiler.program.compiled import Directive
    from allo_dse.device.device import Device
    from allo_dse.mapper.fold.fold import MeshFold
    from allo_dse.mapper.fold.node_fold_search import NodeFold
    from allo_dse.mapper.fold.vmg import VMG
    from allo_dse.mapper.program import Program

    from .backend import DeviceMapping, Maps

_text = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True, eq=False)
class Design:
    """One point of the space: everything an evaluator needs, and nothing else.

    Attributes:
        schedule: directives beyond those of the program itself; only for FPGA designs.
        depths: stream depths by array name, in order of names, where they differ from the declared ones.
        slowdown: share of its cycles that its FIFOs may cost, for evaluators that solve their depths; only for FPGA
            designs.
    """

    program: Program
    fold: MeshFold | NodeFold
    buffering: Buffering
    device: Device
    schedule: tuple[Directive, ...] = ()
    depths: tuple[tuple[str, int], ...] = ()
    slowdown: float | None = None

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self.program.params.items())
        return f"Design({self.key[:8]}, {self.program.name}({params}), {self.device.name})"

    def _repr_html_(self) -> str:
        """Parameters and graph, in a notebook."""
        facts = {"design": self.key, "program": self.program.name, **self.program.params, "device": self.device.name}
        return table_html(facts) + self.vmg._repr_html_()

    @cached_property
    def vmg(self) -> VMG:
        """The program's folded graph. It is cheap: the tasks of a node are computed on demand."""
        return self.program.vmg.fold(self.fold)

    @cached_property
    def mapping(self) -> DeviceMapping:
        """The folded graph on the device, with everything that checks, evaluators and exports derive from it."""
        return self.backend.map(self.vmg, self.device, self.buffering, self.schedule, self.depths, self.slowdown)

    @property
    def backend(self) -> Maps:
        """The backend of its device."""
        return backend_of(self.device)

    @property
    def as_built(self) -> Design:
        """The design with the stream depths that it is timed and built with."""
        found = {} if self.depths else self.backend.built_depths(self.mapping)
        return replace(self, depths=tuple(sorted(found.items()))) if found else self

    def on(self, device: Device) -> Design:
        """Return the design on another device of the same kind; results of the folded graph alone are reused."""
        moved = replace(self, device=device)
        vars(moved).update(vmg=self.vmg, mapping=self.mapping.on(device))
        return moved

    @property
    def mapping_primitives(self) -> list[tuple[str, list[Any]]]:
        """The `bundle`/`chain` sequence that folds the program's graph into this design, in Allo's form."""
        return self.vmg.mapping_primitives

    @cached_property
    def key(self) -> str:
        """Hash of everything that decides a design's metrics: program, fold, buffering, device, schedule, depths."""
        # The fold's text is by far the longest part, and late in a search most proposals have a known fold. No text
        # within the others looks like its place, as its quotes would be escaped.
        text = _text({**self._beside_fold(), "fold": None}).replace('"fold": null', f'"fold": {self.fold.text}')
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, JSON-serialisable."""
        return {**self._beside_fold(), "fold": self.fold.to_dict()}

    def _beside_fold(self) -> dict[str, Any]:
        decided: dict[str, Any] = {
            "program": self.program.name,
            "params": {name: str(value) for name, value in self.program.params.items()},
            "buffering": self.buffering.to_dict(),
            "device": self.device.name,
            "device_key": self.device.key,
        }
        # Without them the key must not change, because results are stored under it.
        if self.schedule:
            decided["schedule"] = [str(directive) for directive in self.schedule]
        if self.program.apart:
            decided["parts"] = "at once"
        if self.program.rewrites:
            decided["loops"] = [str(rewrite) for rewrite in self.program.rewrites]
        if self.depths:
            decided["depths"] = dict(self.depths)
        if self.slowdown is not None:
            decided["slowdown"] = self.slowdown
        return decided


@dataclass(frozen=True)
class Draft:
    """A design while it is being decided.

    Attributes:
        program, fold: None until the parameters and their fold are chosen.
        schedule: directives beyond those of the program itself.
        depths: stream depths by array name, in order of names, where they differ from the declared ones.
        slowdown: share of its cycles that a design's FIFOs may cost, where their depths are solved.
        literal: keep folds as the genes describe them, even if the builder is known to reject them.
    """

    device: Device
    params: Assignment = field(default_factory=lambda: Assignment({}))
    program: Program | None = None
    fold: MeshFold | NodeFold | None = None
    buffering: Buffering = field(default_factory=Buffering)
    schedule: tuple[Directive, ...] = ()
    depths: tuple[tuple[str, int], ...] = ()
    slowdown: float | None = None
    literal: bool = False

    @property
    def compiled(self) -> Program:
        """The program, once the parameters are chosen.

        Raises:
            AlloDseError: when a choice asks for it before that.
        """
        if self.program is None:
            raise AlloDseError("a choice that needs the program comes before that of the parameters")
        return self.program

    def design(self) -> Design:
        """Return the design, when everything is decided.

        Raises:
            StudyError: when two choices decide the depths of streams.
        """
        if self.fold is None:
            raise AlloDseError("no choice of the space decides the fold")
        if self.depths and self.slowdown is not None:
            raise StudyError("StreamDepths and stream_depth(...) both decide depths", hint="take one of them")
        return Design(self.compiled, self.fold, self.buffering, self.device, self.schedule, self.depths, self.slowdown)
