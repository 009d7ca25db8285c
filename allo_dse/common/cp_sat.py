"""Solving models with CP-SAT: the same answer every time, and Ctrl-C means there what it means everywhere."""

from __future__ import annotations

import threading
from contextlib import suppress

from ortools.sat.python import cp_model


def answer(
    model: cp_model.CpModel, *, work: float, seconds: float | None = None, gap: float = 0.0, linear: int = 1
) -> tuple[cp_model.CpSolverStatus, cp_model.CpSolver]:
    """What a search finds, and the solver that knows the values.

    What a handler of a signal raises ends the search. Left to itself, CP-SAT takes Ctrl-C for the end of its time, and
    from then on Ctrl-C ends the process.

    Args:
        work: CP-SAT's deterministic time, about seconds of an idle machine.
        seconds: of the clock, after which an answer may not be the same every time.
        gap: to the best, relative, that will do.
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

    # Python's handlers run in the main thread only, which waits here where they can.
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
