"""What a record says of its design."""

from __future__ import annotations

from typing import Any

from allo_dse.space.params import plain_value
from allo_dse.space.space import Candidate

from .record import json_text


def described(candidate: Candidate) -> dict[str, Any]:
    """The fields of a record that say which design it is."""
    design = candidate.design
    return {
        "key": candidate.key,
        "genes_json": json_text(candidate.genes),
        "params_json": json_text({name: _plain(value) for name, value in candidate.params.items()}),
        "fold_json": json_text(design.fold.to_dict()),
        "buffering_json": json_text(design.buffering.to_dict()),
        "schedule_json": json_text([str(directive) for directive in design.schedule] or None),
        "depths_json": json_text(dict(design.depths) or None),
    }


def _plain(value: Any) -> Any:
    """A parameter value as JSON has it: numbers, text and truth values as they are, the rest by name."""
    return value if isinstance(value, bool | int | float | str) or value is None else plain_value(value)
