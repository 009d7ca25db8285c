"""A recorded run in words and tables."""

from __future__ import annotations

from ...eval.simulator.explain import Explanation
from ..recordings import Recorded
from .timeline import MAX_ROWS

MAX_CONTRIBUTORS = 10
_KINDS = {"work": "work", "service": "served by DRAM", "token": "tokens on their way", "room": "full buffers"}


def timeline_words(found: Recorded) -> str:
    """What was run, what sets its pace, and that not all rows are shown, if so."""
    parts = [found.words]
    worst = found.explanation.bottleneck if found.explanation is not None else None
    if worst is not None:
        cycles = found.timeline.cycles / found.ticks_per_cycle
        share = f"{100 * worst.share:.1f} % of its {cycles:,.0f} cycles"
        parts.append(f"{worst.name} sets the pace of the {found.span}: {share}.")
    count = found.timeline.network.node_count
    if count > MAX_ROWS:
        parts.append(f"{MAX_ROWS} of {count:,} rows are shown: those on the critical path and the busiest.")
    return " ".join(parts)


def totals_words(found: Recorded) -> str:
    """What the totals are of."""
    return f"Of the whole {'period' if found.span == 'period' else 'run'}, by kind."


def path_words(found: Explanation) -> str:
    """What the critical path consists of."""
    return ", ".join(f"{_KINDS[kind]} {100 * share:.1f} %" for kind, share in found.shares.items() if share)


def path_rows(found: Recorded, why: Explanation) -> list[list[str]]:
    """Who is on the critical path for longest: name, cycles and share."""
    per = found.ticks_per_cycle
    return [[b.name, f"{b.cycles / per:,.0f}", f"{100 * b.share:.1f} %"] for b in why.contributors[:MAX_CONTRIBUTORS]]
