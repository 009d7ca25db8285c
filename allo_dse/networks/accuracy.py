"""Choice of element types: the fastest ones that keep the outputs within a tolerance, and the conversions between them.

The effect of each operator on the outputs is measured: its fastest design runs in the simulator, and everything else
is computed in float32. The outputs are compared with those of float32 alone. Small deviations at most add up, so their
sum is kept within a budget. Then all designs of the composition run together, and the result corrects the budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.types import DType

from .fronts import Fronts
from .network import Array, Arrays, Convert, Host, Network, Step
from .operators.execute import Work, difference, run_program
from .solver.problem import ALLOWED

ROUNDS = 6
"""Budgets that are tried at most. All together get as much of the solver's work as the fastest composition of all."""


Composed = Callable[[Sequence[int], float, str], Any]
"""The fastest composition that some `Problem.effects` leave, found with a part of the solver's work; and what these
leave, in words."""


class Accuracy(Frozen, dict=True):
    """The required accuracy of a network's outputs, and the inputs it is measured on.

    Attributes:
        inputs: an array for each input of the network.
        limit: largest allowed deviation, relative to the largest value of an output; None for any.
    """

    fronts: Fronts
    inputs: Mapping[str, Array]
    limit: float | None = None

    @cached_property
    def exact(self) -> Arrays:
        """All tensors, computed in float32."""
        return self.fronts.network.run(self.inputs, simulated=False)

    def deviation(self, found: Mapping[str, Array]) -> float:
        """The largest difference of an output, relative to its largest value; infinite if one is not a number.

        Outputs missing from `found` count as exact.
        """
        outputs = [name for name in self.fronts.network.outputs if name in found]
        apart = [difference(found[name], self.exact[name]) for name in outputs]
        return max((one if math.isfinite(one) else math.inf for one in apart), default=0.0)

    @cached_property
    def effects(self) -> dict[tuple[str, str], float]:
        """The deviation that each candidate causes by itself, on its fastest design; by its step's name and its key."""
        found, network = {}, self.fronts.network
        for one in self.fronts.candidates:
            if not one.copy:
                design, output = self.fronts.points[one.key][-1].design.design, one.step.output
                made = run_program(design.program, one.step.given(self.exact), design.vmg)
                shaped = made.reshape(network.shapes[output])
                found[one.step.name, one.key] = self.deviation(network.changed(self.exact, output, shaped))
        return found

    def together(self, found: Any) -> float:
        """Return the sum of the effects of the operators that run."""
        return sum(self.effects[run.step.name, run.key] for run in found.runs)


def accuracy_of(fronts: Fronts, limit: float | None, inputs: Mapping[str, Array] | None) -> Accuracy | None:
    """Return the accuracy requirement, measured on random inputs by default.

    None without a limit, if all operators write one element type.
    """
    require_tolerance(limit)
    if not fronts.candidates or (limit is None and len({one.step.type for one in fronts.candidates}) < 2):
        return None
    return Accuracy(fronts, random_inputs(fronts.network) if inputs is None else inputs, limit)


def require_tolerance(limit: float | None) -> None:
    """Refuse a limit that cannot serve as a tolerance.

    Raises:
        StudyError: if it is negative, infinite or not a number.
    """
    if limit is not None and not 0 <= limit < math.inf:
        raise StudyError(
            f"tolerance={limit:g} is no share of an output's largest value",
            hint="for example 0.01; leave it out where any will do",
        )


def random_inputs(network: Network) -> Arrays:
    """Draw normal numbers for each input.

    Inputs that the host reads as whole numbers get whole ones below their bound, or 0 and 1 if it is not known.
    """
    rng, below = np.random.default_rng(0), _below(network)
    return {
        name: rng.integers(0, below[name], network.shapes[name])
        if name in below
        else rng.standard_normal(network.shapes[name]).astype(np.float32)
        for name in network.inputs
    }


def _below(network: Network) -> dict[str, int]:
    """Return exclusive upper bounds of the tensors that hold whole numbers.

    The host's steps set the bounds; they carry back to the tensors that rearrangements and host steps read.
    """
    found: dict[str, int] = {}
    for step in reversed(network.steps):
        if isinstance(step.work, Work):
            continue
        own = (step.work.below or (2,) * len(step.inputs)) if isinstance(step.work, Host) else ()
        for name, limit in zip_longest(step.inputs, own):
            limits = [one for one in (limit, found.get(step.output), found.get(name)) if one is not None]
            if limits:
                found[name] = min(limits)
    return found


def fastest_within(accuracy: Accuracy, first: Any, composed: Composed) -> Any:
    """Return the fastest composition found whose outputs are within the limit, as its designs compute them.

    It is never slower than a composition of a single type that is within the limit.

    Args:
        first: the fastest of all.

    Raises:
        StudyError: if none is within the limit, with the best deviation that was reached.
    """
    limit, candidates = accuracy.limit, accuracy.fronts.candidates
    if limit is None or first.deviation <= limit:
        return first
    tried = [first]
    for own in {one.step.type: None for one in candidates}:
        if set(first.types.values()) != {own}:
            with suppress(StudyError):  # some operator has no design in it
                tried.append(
                    composed([0 if one.step.type == own else ALLOWED + 1 for one in candidates], 1.0, f" in {own}")
                )
    tried += _within_budgets(accuracy, limit, first, composed)
    held = [one for one in tried if one.deviation <= limit]
    if not held:
        best = min(tried, key=lambda one: one.deviation)
        raise StudyError(
            f"{accuracy.fronts.network.name}: no element types keep the outputs within {limit:g}: at best they are "
            f"{best.deviation:.2g} off, with {in_words(best.types)}",
            hint="allow a larger tolerance, or a wider element type",
        )
    return min(held, key=lambda one: one.takes_us)


def in_words(types: Mapping[str, str]) -> str:
    """Return the types of operators in words; the most frequent type of several comes without their names."""
    found = []
    for at, (most, count) in enumerate(Counter(types.values()).most_common()):
        names = ", ".join(name for name, own in types.items() if own == most)
        found.append(f"{most} for {f'{count} operators' if count > 1 and not at else names}")
    return "; ".join(found) if len(found) > 1 else f"{next(iter(types.values()))} for all operators"


def _within_budgets(accuracy: Accuracy, limit: float, first: Any, composed: Composed) -> Iterator[Any]:
    """Yield the fastest compositions for budgets of effects, until their deviation comes near the limit."""
    effects, candidates = accuracy.effects, accuracy.fronts.candidates
    own = [[effects[o.step.name, o.key] for o in candidates if o.names == (step.name,)] for step, _ in
           accuracy.fronts.network.worked]  # fmt: skip
    low, high = sum(map(min, own)), accuracy.together(first)
    if not math.isfinite(low):  # no budget suffices
        return
    budget, held = min(limit, high * limit / first.deviation), False
    for round_ in range(ROUNDS):
        last = round_ == ROUNDS - 1 and not held  # fall back to the most accurate
        budget = low if last else max(low, budget)
        shares = [_share(effects[one.step.name, one.key], budget) for one in candidates]
        try:
            found = composed(shares, 1 / ROUNDS, f" whose effects on the outputs add up to at most {budget:.2g}")
        except StudyError:  # the remaining designs exceed the device
            return
        yield found
        total, within = accuracy.together(found), found.deviation <= limit
        held |= within
        low, high = (budget, high) if within else (low, min(high, total))
        if last or high - low < 0.02 * limit:
            return
        aim = total * limit / max(found.deviation, 1e-30)
        budget = aim if low < aim < high else (low + high) / 2


def _share(effect: float, budget: float) -> int:
    """Return the share of a budget that an effect uses, in units of `ALLOWED` and at most `ALLOWED + 1`."""
    return 0 if effect <= 0 else math.floor(min(ALLOWED * effect / budget, ALLOWED + 1)) if budget else ALLOWED + 1


def converted(network: Network, runs: Mapping[str, Step]) -> Network:
    """Return the network of the operators that run, in which each reads the types of its program.

    A step converts tensors that another operator wrote in another type. Rearrangements are made in the type that is
    read.

    Args:
        runs: the steps that run, by the tensor that they write.
    """
    made, steps, shapes = {step.output: step for step in network.steps}, dict[str, Step](), dict(network.shapes)

    def of_type(name: str, dtype: DType | None) -> str:
        """Return a tensor's name in a type, or as it is if None, and add the steps that this takes."""
        step = made.get(name)
        if step is None or (name in runs and dtype in (None, runs[name].writes)):
            return name
        inside = None if isinstance(step.work, Host) else dtype  # the host reads any type and writes the wanted one
        inputs = (name,) if name in runs else tuple(of_type(one, inside) for one in step.inputs)
        if dtype is not None and (name in runs or inputs != step.inputs):
            work = Convert.to(dtype) if name in runs else step.work
            label = f"{step.name} as {dtype.name}"
            step = replace(step, name=label, work=work, inputs=inputs, output=f"{name} as {dtype.name}", others=())
            shapes[step.output] = shapes[name]
        steps[step.output] = step
        return step.output

    for step in network.steps:
        if step.output in runs:
            run = runs[step.output]
            inputs = tuple(of_type(*one) for one in zip(run.inputs, run.reads, strict=True))
            steps[step.output] = replace(run, inputs=inputs)
    for name in network.outputs:
        of_type(name, None)
    return replace(network, steps=list(steps.values()), shapes=shapes)
