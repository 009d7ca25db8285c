"""Floating-point units of a design, as reports name them: `fadd_32ns_32ns_32_7_full_dsp_1_U4` has seven stages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from .parts import NO_AMOUNTS, HlsOperator, Resources

_UNIT = re.compile(r"(?:^|_)([a-z]+)(?:_\d+n?s?)*_\d+_(\d+)_(full|max|med|no)_dsp(?:_|$)")
_IMPLEMENTATIONS = {"full": "fulldsp", "max": "maxdsp", "med": "meddsp", "no": "fabric"}


def named_operator(unit: str, rtl_module: str, module: str, resources: Resources) -> HlsOperator | None:
    """The operator that an instance of an RTL module is; None where it is no floating-point one."""
    found = _UNIT.search(rtl_module)
    if found is None:
        return None
    operation, stages, dsps = found.groups()
    return HlsOperator(unit, module, operation, _IMPLEMENTATIONS[dsps], int(stages) - 1, resources)


def merged_operators(known: Iterable[HlsOperator], others: Iterable[HlsOperator]) -> tuple[HlsOperator, ...]:
    """Units that either report has; XML does not say flip-flops and LUTs, and text does not say all units."""
    found = {(one.module, one.name): one for one in known}
    for other in others:
        key = other.module, other.name
        mine = found.get(key, other)
        found[key] = replace(mine, resources=mine.resources.filled(other.resources))
    return tuple(found.values())


def bound_operators(module: str, nodes: Iterable[dict[str, str]]) -> Iterator[HlsOperator]:
    """The units that an XML report binds a module's operations to, each once."""
    seen = set()
    for node in nodes:
        name, latency, dsp = (node.get(key, "") for key in ("RTLNAME", "LATENCY", "DSP"))
        if node.get("BINDTYPE") != "op" or name in seen or not latency.isdecimal():
            continue
        seen.add(name)
        resources = Resources(dsp=int(dsp)) if dsp.isdecimal() else NO_AMOUNTS
        yield HlsOperator(name, module, node.get("OPTYPE", ""), node.get("IMPL", ""), int(latency), resources)
