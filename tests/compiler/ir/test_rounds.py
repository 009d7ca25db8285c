"""Rounds of loops whose bounds and conditions depend on the loops around them."""

from __future__ import annotations

import pytest

from allo_dse.compiler.ir.affine import Around, Compare, Linear, Path, Under, rounds

ROW, COLUMN, PID = (Linear.variable(number) for number in range(3))
ZERO = Linear(())
OUTER = Around(0, ZERO, Linear((), 8), 1)
TRIANGLE = Around(1, ZERO, ROW + Linear((), 1), 1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), 1),
        ((OUTER, TRIANGLE), 36),
        ((OUTER, Around(1, ROW, Linear((), 6), 2)), 12),
        ((OUTER, TRIANGLE, Around(3, ZERO, COLUMN, 1)), 84),
        ((OUTER, Under(Compare("slt", ROW + PID.scaled(-1)), True), Around(1, ZERO, Linear((), 100), 1)), 300),
        ((OUTER, Under(Compare("slt", ROW + PID.scaled(-1)), False)), 5),
        ((OUTER, Under(None, True)), None),
        ((OUTER, Around(1, None, ROW, 1)), None),
        ((OUTER, Around(1, ZERO, Linear.variable(9), 1)), None),
        ((Around(0, ROW, ROW, 1), Under(None, True)), None),
        ((Around(0, ZERO, ZERO, 1), Under(None, True)), 0),
        ((Around(0, ZERO, Linear((), 1 << 20), 1), TRIANGLE), None),
    ],
)
def test_rounds_are_counted_where_data_does_not_decide(path: Path, expected: int | None) -> None:
    assert rounds(path, {2: 3}, iter(range(1000))) == expected
