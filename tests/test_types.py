"""How much of the package has no type."""

import re
from pathlib import Path

import allo_dse

MOST_PER_1000_LINES = 8


def test_few_values_have_no_type() -> None:
    texts = [path.read_text() for path in Path(allo_dse.__file__).parent.rglob("*.py")]
    lines = sum(text.count("\n") for text in texts)
    untyped = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    assert 1000 * untyped <= MOST_PER_1000_LINES * lines, f"{untyped} times Any in {lines} lines"
