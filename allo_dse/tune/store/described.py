"""What a record says of its design."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from allo_dse.space.gene import Genes
from allo_dse.space.params import plain_value
from allo_dse.space.space import Candidate

from .record import json_text


class Bred(NamedTuple):
    """A new and legal design that a worker has bred: what a driver is to know of it, who need not decode it.

    Attributes:
        texts: by field of a record, what describes the design.
        program: digest of its program.
    """

    key: str
    genes: Genes
    texts: dict[str, bytes]
    program: str


def described(candidate: Candidate | Bred) -> dict[str, Any]:
    """The fields of a record that say which design it is."""
    if isinstance(candidate, Bred):
        return {"key": candidate.key, **{name: msgspec.Raw(text) for name, text in candidate.texts.items()}}
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


def bred(candidate: Candidate | Bred) -> Bred:
    """A design that was bred here, for a driver elsewhere."""
    if isinstance(candidate, Bred):
        return candidate
    texts = {name: bytes(text) for name, text in described(candidate).items() if name.endswith("_json")}
    return Bred(candidate.key, candidate.genes, texts, candidate.design.program.digest)


def _plain(value: Any) -> Any:
    """A parameter value as JSON has it: numbers, text and truth values as they are, the rest by name."""
    return value if isinstance(value, bool | int | float | str) or value is None else plain_value(value)
