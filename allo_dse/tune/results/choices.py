"""What was chosen of a design, flat: one named value per parameter, axis, buffer and directive."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from allo_dse.common.aliases import JsonObject

from ..store.record import Record, json_value

TEXTS = ("params", "fold", "buffering", "schedule", "depths")
"""What describes a design. Many designs share each."""


def choices_of(record: Record) -> dict[str, object]:
    """Everything that was chosen of a design, by name."""
    texts = (record.fold_json, record.buffering_json, record.schedule_json, record.depths_json)
    mapped = (_known_choices(part, bytes(text)) for part, text in zip(TEXTS[1:], texts, strict=True))
    found = {**record.params, **{name: value for pairs in mapped for name, value in pairs}}
    return {name: str(value) if isinstance(value, list | dict) else value for name, value in found.items()}


@lru_cache(maxsize=4096)
def _known_choices(part: str, text: bytes) -> tuple[tuple[str, object], ...]:
    return tuple(mapping_choices(part, json_value(msgspec.Raw(text))))


def mapping_choices(part: str, value: object) -> list[tuple[str, object]]:
    """How the program is mapped: the fold of each kernel axis, buffers, and whatever else decides a design."""
    if part == "fold":
        return [*_fold(value.get("kernels", [])), *_chains(value.get("chains", []))] if isinstance(value, dict) else []
    if isinstance(value, dict):
        prefix = "" if part == "buffering" else f"{part}."
        return [(f"{prefix}{name}", inner) for name, inner in value.items() if not isinstance(inner, dict | list)]
    return list(_directives(value)) if isinstance(value, list) else []


def _fold(kernels: list[JsonObject]) -> Iterator[tuple[str, object]]:
    for kernel in kernels:
        for position, axis in enumerate(kernel.get("axes", ())):
            prefix = f"{kernel.get('kernel')}.axis{position}"
            for part in ("spatial", "how", "pattern"):
                if part in axis:
                    yield f"{prefix}.{part}" if part != "spatial" else f"{prefix}.nodes", axis[part]
        if kernel.get("order"):
            yield f"{kernel.get('kernel')}.order", " ".join(map(str, kernel["order"]))


def _chains(chains: list[list[str]]) -> Iterator[tuple[str, object]]:
    """Which kernels each kernel is folded together with."""
    return ((f"{kernel}.with", " ".join(chain)) for chain in chains for kernel in chain)


def _directives(directives: list[str]) -> Iterator[tuple[str, object]]:
    """A column per directive, its options as the value: `pipeline(mm:k, initiation_interval=2)` is 2 in pipeline.mm.k.

    A second directive of the same kind and target, such as a partition of another dimension, is added to the first.
    """
    found: dict[str, list[str]] = {}
    for directive in directives:
        head, _, options = directive.removesuffix(")").partition(", ")
        values = ", ".join(option.partition("=")[2] for option in options.split(", "))
        found.setdefault(head.replace("(", ".", 1).replace(":", ".", 1), []).append(values)
    for name, said in found.items():
        yield name, int(said[0]) if len(said) == 1 and said[0].isdecimal() else "; ".join(said)
