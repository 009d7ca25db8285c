"""Filter expressions: what they mean, what they refuse, and that they never execute anything."""

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.dashboard.data.columns import Column
from allo_dse.dashboard.data.filters import FilterError, parse_filter


class Designs:
    """Four designs; the last has no latency."""

    values: ClassVar[dict[str, list[Any]]] = {
        "latency_us": [100.0, 900.0, 2000.0, None],
        "bram18": [10, 80, 200, 5],
        "how": ["chain", "bundle", "Chain2", None],
        "bound.DMA channel": [0.1, 0.2, 0.3, 0.4],
    }

    def __init__(self) -> None:
        self.columns = {}
        for name, values in self.values.items():
            self.columns[name] = Column(name, "metric")
            for value in values:
                self.columns[name].append(value)

    def __len__(self) -> int:
        return 4

    def column(self, name: Any) -> Column | None:
        return self.columns.get(name)


def kept(source: Any) -> Any:
    return np.flatnonzero(parse_filter(source)(Designs())).tolist()


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("", [0, 1, 2, 3]),
        ("bram18 < 80 and latency_us < 900", [0]),
        ("bram18 < 80 or latency_us >= 2000", [0, 2, 3]),
        ("not latency_us < 900", [1, 2, 3]),
        ("not (bram18 < 80 or how == 'bundle')", [2]),
        ("10 < bram18 <= 80", [1]),
        ("latency_us * bram18 / 1e3 <= 72", [0, 1]),
        ("(bram18 + 20) * 2 > 100", [1, 2]),
        ("((bram18)) > -3", [0, 1, 2, 3]),
        ('how == "chain"', [0]),
        ("how != 'chain'", [1, 2]),
        ("'CHAIN' in how", [0, 2]),
        ("'chain' not in how", [1, 3]),
        ("how in ('chain', 'bundle')", [0, 1]),
        ("how not in ['chain']", [1, 2, 3]),
        ("bram18 in (10, 200)", [0, 2]),
        ("`bound.DMA channel` > .25", [2, 3]),
        (" latency_us == 900 and\nbram18 == 80 ", [1]),
        ("'a`b' == how or `bram18` == -(-10)", [0]),
        ("latency_us != 900", [0, 2]),
        ("bram18 / 0 > 1", [0, 1, 2, 3]),
    ],
)
def test_meaning(source: str, rows: Any) -> None:
    assert kept(source) == rows


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("latency_us <", "not an expression"),
        ("latency_us", "expected a comparison"),
        ("how in chain < 3", "expected a value"),
        ("a; b", "not an expression"),
        ("__import__('os').system('true')", "expected a comparison"),
        ("how == print(3)", "expected a column"),
        ("(lambda: 1)() < 2", "expected a column"),
        ("how is 3", "compares nothing"),
        ("how < 'b'", "not a number|no order"),
        ("how > 3", "not a number"),
        ("(" * 400 + "1 < 2" + ")" * 400, "not an expression"),
        ("-" * 990 + "1 < 2", "nested too deeply|not an expression"),
        ("1 < 2 and " * 300 + "1 < 2", "longer than"),
    ],
)
def test_mistakes_are_named_with_their_place(source: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        kept(source)


@pytest.mark.parametrize(
    ("source", "character"),
    [
        ("latency_us <", 13),
        ("latency_us < 3 bram18 > 2", 16),
        ("bram18 < 3)", 11),
        ("how == 'μs' and `bound.DMA channel`", 17),
        ("  bram18 < 3 and bram18 < (not how)", 28),
        ("bram18 in (how,)", 12),
        ("bram18 == 3 and how > 3", 17),
        ("bram18 ** 2 < 3", 1),
        ("3 < bram18 if how else 3", 1),
    ],
)
def test_places_of_mistakes(source: str, character: int) -> None:
    with pytest.raises(FilterError, match=f"at character {character}:"):
        kept(source)


def test_unknown_columns_are_refused_with_the_nearest_names() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("latencyus < 3").check(["latency_us", "bram18"])
    assert "latency_us" in caught.value.hint


@given(st.text(alphabet="abh. `'\"()<>=~+-*/,0123456789andornti\\\n;:[]{}", max_size=80))
def test_any_text_is_either_understood_or_refused(source: Any) -> None:
    try:
        found = parse_filter(source)(Designs())
    except FilterError:
        return
    assert found.dtype == bool
    assert found.shape == (4,)


@given(
    st.recursive(
        st.sampled_from(["bram18 < 80", "latency_us >= 900", "how == 'chain'"]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
            inner.map(lambda t: f"not ({t})"),
        ),
        max_leaves=8,
    )
)
def test_logic_is_pythons(source: Any) -> None:
    designs = [
        {name: values[row] for name, values in Designs.values.items() if name.isidentifier()} for row in range(4)
    ]
    expected = []
    for row, values in enumerate(designs):
        latency = values["latency_us"] if values["latency_us"] is not None else float("nan")
        if eval(source, {}, {**values, "latency_us": latency}):
            expected.append(row)
    assert kept(source) == expected
