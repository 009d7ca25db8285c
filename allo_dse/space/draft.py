"""A design while it is being decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.node_fold import NodeFold
from allo_dse.mapper.model.buffering import Buffering
from allo_dse.mapper.program import Program
from allo_dse.program.directive import Directive

from .design import Design
from .params import Assignment

if TYPE_CHECKING:
    from allo_dse.device.device import Device


@dataclass(frozen=True)
class Draft:
    """What is decided of a design so far.

    Attributes:
        program, fold: None until the parameters, and how they are folded, are chosen.
        schedule: directives beside those of the program itself.
        depths: stream depths by array name, in order of names, where they differ from the declared ones.
        slowdown: share of its cycles that a design's FIFOs may cost, where their depths are solved.
        literal: whether folds are those that genes say, also where what builds the design is known to refuse them.
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
        """The program, which a choice that reads it may rely on."""
        if self.program is None:
            raise AlloDseError("a choice that needs the program comes before that of the parameters")
        return self.program

    def design(self) -> Design:
        """The design, when all of it is decided.

        Raises:
            StudyError: when two choices decide the depths of streams.
        """
        if self.fold is None:
            raise AlloDseError("no choice of the space decides the fold")
        if self.depths and self.slowdown is not None:
            raise StudyError("StreamDepths and stream_depth(...) both decide depths", hint="take one of them")
        return Design(self.compiled, self.fold, self.buffering, self.device, self.schedule, self.depths, self.slowdown)
