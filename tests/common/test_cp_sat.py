"""Searches of CP-SAT that signals end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest
from ortools.sat.python import cp_model

from allo_dse.common.cp_sat import answer


def long_model() -> cp_model.CpModel:
    """Packing of squares into a square that is slightly too small: nobody proves that soon."""
    model = cp_model.CpModel()
    sizes = range(1, 25)
    places = [[model.new_int_var(0, 70 - n, "") for _ in "xy"] for n in sizes]
    across, down = (
        [model.new_fixed_size_interval_var(place[axis], n, "") for place, n in zip(places, sizes, strict=True)]
        for axis in (0, 1)
    )
    model.add_no_overlap_2d(across, down)
    return model


def catches_ctrl_c() -> bool:
    with open("/proc/self/status") as status:
        (caught,) = [line.split()[1] for line in status if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C is heard, also where tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_ends_a_search_and_is_pythons_afterwards() -> None:
    main, ended = threading.main_thread().ident, threading.Event()
    assert main is not None

    def insist() -> None:  # a KeyboardInterrupt that comes during garbage collection is lost
        while not ended.wait(0.3):
            signal.pthread_kill(main, signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not ended.is_set():
            raise KeyboardInterrupt

    def end() -> None:
        try:
            answer(long_model(), work=1e6)
        finally:
            ended.set()

    insisting = threading.Thread(target=insist)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        insisting.start()
        with pytest.raises(KeyboardInterrupt):
            end()
    finally:
        ended.set()
        insisting.join()
        signal.signal(signal.SIGINT, before)
    assert catches_ctrl_c()
    status, solver = answer(cp_model.CpModel(), work=1.0)
    assert status == cp_model.OPTIMAL
    assert solver.objective_value == 0
    assert catches_ctrl_c()


def test_what_is_wrong_with_a_model_is_said() -> None:
    model = cp_model.CpModel()
    model.proto.constraints.add().linear.vars.append(7)
    status, _ = answer(model, work=1.0)
    assert status == cp_model.MODEL_INVALID
