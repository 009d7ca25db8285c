"""Forms of a kernel's loops: as written, or restructured where dependences allow."""

from __future__ import annotations

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.schedule.restructure import ALL_ORDERS, Rewrite, has_triangles, orders
from allo_dse.space.choice import Ask, Genes, Question, QuestionChoice
from allo_dse.space.design import Design, Draft

SHAPES = ("as written", "rectangle")


class LoopForms(QuestionChoice):
    """Restructures loops before they are scheduled.

    Genes: `loops.KERNEL.shape` for kernels whose loops have varying bounds, and `loops.KERNEL.NEST.order` for nests
    whose innermost loop carries a value from round to round, if another order does not. Programs that customize
    kernels, and those that are timed on inputs, stay as they are.
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
            question = Question.word(f"loops.{kernel.name}.shape", SHAPES, SHAPES)
            if has_triangles(kernel):
                self._offered["as rectangles"] = None
                if ask(question) == "as written":
                    continue
                rewrites.append(Rewrite(kernel.name, "rectangle"))
        for kernel in program.rewritten(tuple(rewrites)).kernels:
            for nest, legal in orders(kernel):
                self._offered["in orders without a sum innermost"] = None
                words = [" ".join(order) for order in legal]
                chosen = ask(Question.word(f"loops.{kernel.name}.{nest}.order", words, words))
                if chosen != words[0]:
                    rewrites.append(Rewrite(kernel.name, "order", nest, legal[words.index(str(chosen))]))
        return replace(draft, program=program.rewritten(tuple(rewrites))) if rewrites else draft

    def encode(self, draft: Draft, design: Design) -> Genes:
        for option, genes in self.options(draft):
            if option is not None and option.compiled.rewrites == design.program.rewrites:
                return genes
        raise StudyError("the design's loops have none of the forms that the study chooses from")

    def describe(self) -> dict[str, object]:
        return {"loops": [*SHAPES, "orders", ALL_ORDERS]}
