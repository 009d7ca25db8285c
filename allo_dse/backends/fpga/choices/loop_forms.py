"""Forms of a kernel's loops: as written, or restructured where dependences allow."""

from __future__ import annotations

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Kernel
from allo_dse.compiler.schedule.restructure import (
    ALL_ORDERS,
    MOST_CUT,
    MOST_STRIP,
    Rewrite,
    cuts,
    every_order,
    fusible,
    has_triangles,
    orders,
    strips,
)
from allo_dse.mapper.program import Program
from allo_dse.space.choice import Ask, Question, QuestionChoice
from allo_dse.space.design import Design, Draft
from allo_dse.space.genes import Genes

SHAPES = ("as written", "rectangle")
MERGES = ("apart", "fused")


class LoopForms(QuestionChoice):
    """Restructures loops before they are scheduled.

    Genes: `loops.KERNEL.shape` for kernels whose loops have varying bounds, `loops.KERNEL.NEST.strip` for loops around
    floating-point sums, `loops.KERNEL.NEST.fuse` for nests with the rounds of the nest before, and, if a nest's
    innermost loop carries a value from round to round, `loops.KERNEL.NEST.cut` if some of its statements carry none,
    and `loops.KERNEL.NEST.LOOPS.order` if another order does not. Programs that customize kernels, and those that are
    timed on inputs, stay as they are.
    """

    reads = frozenset({"program"})
    writes = frozenset({"program"})

    def __init__(self) -> None:
        self._offered: dict[str, None] = {}

    @property
    def scope(self) -> str:
        """The transformations that the space had so far, for the sentence that a search ends with."""
        return f"loops as written{''.join(f', {name}' for name in sorted(self._offered))}" if self._offered else ""

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        program = draft.compiled
        if program.schedule or program.runs:
            return draft
        rewrites: list[Rewrite] = []
        for kernel in program.kernels:
            if len(kernel.classes) == 1:
                self._restructure(program, kernel.name, rewrites, ask)
        return replace(draft, program=program.rewritten(tuple(rewrites))) if rewrites else draft

    def _restructure(self, program: Program, name: str, rewrites: list[Rewrite], ask: Ask) -> None:
        """Add the rewrites of a kernel: rectangles, strips, fused nests or else distributed ones, then orders."""

        def kernel() -> Kernel:
            return program.rewritten(tuple(rewrites)).kernel(name)

        def answer(form: str, question: Question) -> str:
            self._offered[form] = None
            return str(ask(question))

        gene = f"loops.{name}"
        shape = Question.word(f"{gene}.shape", SHAPES, SHAPES)
        if has_triangles(kernel()) and answer("as rectangles", shape) == "rectangle":
            rewrites.append(Rewrite(name, "rectangle"))
        for nest, widths in reversed(strips(kernel())):
            strip = Question.number(f"{gene}.{nest}.strip", (0, *widths), MOST_STRIP, 0)
            if width := int(answer("in strips inside sums", strip)):
                rewrites.append(Rewrite(name, "strip", nest, width=width))
        gone, fused = 0, set[int]()
        for nest in fusible(kernel()):
            merge = Question.word(f"{gene}.{nest}.fuse", MERGES, MERGES)
            if nest - gone in fusible(kernel()) and answer("fused", merge) == "fused":
                rewrites.append(Rewrite(name, "fuse", nest - gone))
                gone += 1
                fused.add(nest - gone)
        for nest, legal in reversed(cuts(kernel())):
            question = Question.number(f"{gene}.{nest}.cut", (0, *legal), MOST_CUT, 0)
            if nest not in fused and (cut := int(answer("distributed", question))):
                rewrites.append(Rewrite(name, "distribute", nest, cut=cut))
        for nest, found in orders(kernel()):
            words = [" ".join(order) for order in every_order(found[0])]
            question = Question.word(f"{gene}.{nest}.{'_'.join(found[0])}.order", [" ".join(o) for o in found], words)
            if (chosen := answer("in orders without a sum innermost", question)) != words[0]:
                rewrites.append(Rewrite(name, "order", nest, tuple(chosen.split(" "))))

    def encode(self, draft: Draft, design: Design) -> Genes:
        for option, genes in self.options(draft):
            if option is not None and option.compiled.rewrites == design.program.rewrites:
                return genes
        raise StudyError("the design's loops have none of the forms that the study chooses from")

    def describe(self) -> dict[str, object]:
        return {"loops": [*SHAPES, *MERGES, "strips", MOST_STRIP, "cuts", MOST_CUT, "orders", ALL_ORDERS]}
