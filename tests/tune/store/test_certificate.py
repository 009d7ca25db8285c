"""The sentence that an exact search ends with."""

from __future__ import annotations

import msgspec
import pytest

from allo_dse.tune.store.certificate import Certificate, Gap

CLOSED = Certificate(designs=21_884, listed=True, evaluated=59, failed=0, refused=1_204, bounded=20_621, open=0)
HALF = msgspec.structs.replace(
    CLOSED,
    bounded=15_000,
    open=5_621,
    gaps=(
        Gap("latency_us", "minimize", 0.01712),
        Gap("throughput_gops", "maximize", 0.0),
        Gap("cost", "minimize", None),
    ),
    unbounded=("cost",),
)
SENTENCES = {
    "closed": (
        CLOSED,
        "complete: none of the space's 21,884 designs is better; "
        "59 evaluated, 1,204 refused by limits, 20,621 ruled out by bounds",
    ),
    "failed": (
        msgspec.structs.replace(CLOSED, failed=2, wrong=1),
        "complete but for 2 that could not be evaluated and 1 that failed verification: "
        "none of the space's 21,884 designs is better; "
        "59 evaluated, 1,204 refused by limits, 20,621 ruled out by bounds",
    ),
    "nothing feasible": (
        msgspec.structs.replace(CLOSED, feasible=False),
        "complete: none of the space's 21,884 designs is feasible; 59 evaluated, 1,204 refused by limits, 20,621 ruled "
        "out by bounds",
    ),
    "stopped": (
        HALF,
        "not complete: 5,621 of the space's 21,884 designs are open; latency_us can be 1.8 % lower at most, "
        "throughput_gops cannot be higher, nothing bounds cost; "
        "59 evaluated, 1,204 refused by limits, 15,000 ruled out by bounds (no bounds for cost)",
    ),
    "compromises": (
        msgspec.structs.replace(HALF, gaps=HALF.gaps[1:2], unbounded=()),
        "not complete: 5,621 of the space's 21,884 designs are open; throughput_gops cannot be higher: only "
        "compromises are left; 59 evaluated, 1,204 refused by limits, 15,000 ruled out by bounds",
    ),
    "listing": (
        msgspec.structs.replace(HALF, listed=False, refused=0, bounded=0, designs=300, evaluated=0, unbounded=()),
        "not complete: 300 designs of the space were listed, and there are more; 0 evaluated",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence(name: str) -> None:
    certificate, sentence = SENTENCES[name]
    assert str(certificate) == sentence


def test_progress_names_what_is_not_proved_yet() -> None:
    assert HALF.progress == "16,263 of 21,884 decided, 5,621 open; latency_us within 1.8 %"
    assert HALF.closing_seconds(2.0, 10) == pytest.approx(2 * 562.1)
    assert HALF.closing_seconds(2.0, 0) is None
    assert msgspec.json.decode(msgspec.json.encode(HALF), type=Certificate) == HALF
