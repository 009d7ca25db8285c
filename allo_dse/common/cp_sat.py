"""Solving models with CP-SAT: the same answer every time, and Ctrl-C keeps its usual meaning."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress

from .imports import standing_in


class _Pandas:
    """pandas, imported when something of it is used: the solver needs it for models of whole series only."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # asked by the import system, while this stands in for the module
            raise AttributeError(name)
        return getattr(importlib.import_module("pandas"), name)


_PANDAS = _Pandas()
_PANDAS.__dict__.update(Index=type("Index", (), {}), Series=type("Series", (), {}))  # for annotations
with standing_in({"pandas": _PANDAS}):  # its import takes longer than most placements
    from ortools.sat.python import cp_model as cp_model
_PANDAS.__dict__.clear()


def answer(
    model: cp_model.CpModel, *, work: float, seconds: float | None = None, gap: float = 0.0, linear: int = 1
) -> tuple[cp_model.CpSolverStatus, cp_model.CpSolver]:
    """Solve a model; returns the status and the solver, which has the values.

    An exception raised by a signal handler ends the search. CP-SAT by itself would treat Ctrl-C as the end of its time,
    and from then on Ctrl-C would end the process.

    Args:
        work: CP-SAT's deterministic time, about seconds of an idle machine.
        seconds: limit of wall-clock time; with one, answers may differ between runs.
        gap: relative distance to the optimum that is good enough.
        linear: how much of the model is in the linear relaxation that bounds it: 0 for nothing, 2 for all.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    solver.parameters.relative_gap_limit = gap
    solver.parameters.linearization_level = linear
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    solver.parameters.catch_sigint_signal = False
    found: list[cp_model.CpSolverStatus | BaseException] = []

    def run() -> None:
        try:
            found.append(solver.solve(model))
        except BaseException as error:
            found.append(error)

    # Python runs signal handlers in the main thread only. It waits here, where they can run.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        while thread.is_alive():
            with suppress(KeyboardInterrupt):
                solver.stop_search()
                thread.join(0.05)
        raise
    (result,) = found
    if isinstance(result, BaseException):
        raise result
    return result, solver
