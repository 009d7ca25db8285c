"""A recorded run in words and tables."""

from __future__ import annotations

from ..recordings import Part, Recorded
from .timeline import MAX_ROWS

MAX_CONTRIBUTORS = 10
MAX_BUFFERS = 12
_KINDS = {"work": "work", "service": "served by DRAM", "token": "tokens on their way", "room": "full buffers"}


def whole_words(found: Recorded) -> str:
    """Describe the whole run and its busiest element."""
    name, share = found.busiest
    return f"{_whole(found)} {name} is the busiest: it works {100 * share:.1f} % of them."


def _whole(found: Recorded) -> str:
    of = f" ({found.note})" if found.note else " of the run"
    return f"All {found.cycles:,.0f} cycles{of}{_costs(found)}."


def _costs(found: Recorded) -> str:
    return f", {found.costs}" if found.costs else ""


def part_words(found: Recorded, part: Part) -> str:
    """Describe the shown part of a run, its bottleneck, and the omitted rows, if any."""
    per, line = found.ticks_per_cycle, part.timeline
    if part.is_whole:
        parts = [_whole(found)]
    else:
        note = f" ({found.note})" if found.note else ""
        full = ": more operations are not kept at a time" if line.end < part.asked[1] else ""
        low, high = found.shown(part)
        span = f"Cycles {low:,} to {high:,} of {found.cycles:,.0f}"
        parts = [f"{span}{note}{_costs(found)}{full}."]
    worst = part.explanation.bottleneck
    if worst is not None:
        share = f"{100 * worst.share:.1f} % of these {line.cycles / per:,.0f} cycles"
        parts.append(f"{worst.name} sets the pace: {share}.")
    count = line.network.node_count
    if count > MAX_ROWS:
        parts.append(f"{MAX_ROWS} of {count:,} rows are shown: those on the critical path and the busiest.")
    return " ".join(parts)


def totals_words(found: Recorded) -> str:
    """Explain the basis of the totals."""
    return f"Of all {found.cycles:,.0f} cycles, mean over the elements of a kind."


def path_title(part: Part) -> str:
    """Return the title of the critical path."""
    return "Critical path of the run" if part.is_whole else "Critical path of the part that is shown"


def path_words(part: Part) -> str:
    """Describe the composition of the critical path."""
    return ", ".join(f"{_KINDS[kind]} {100 * share:.1f} %" for kind, share in part.explanation.shares.items() if share)


def path_rows(found: Recorded, part: Part) -> list[list[str]]:
    """Return the elements that are longest on the critical path: name, cycles and share."""
    per = found.ticks_per_cycle
    most = part.explanation.contributors[:MAX_CONTRIBUTORS]
    return [[b.name, f"{b.cycles / per:,.0f}", f"{100 * b.share:.1f} %"] for b in most]


HELP_HEAD = ["twice as fast", "the run takes (cycles)", "change"]
HELP_WORDS = (
    "What the whole run would take if all of a kind worked twice as fast and everything else as it does, by simulation."
)


def help_rows(found: Recorded) -> list[list[str]]:
    """Return the run's predicted length per kind of element made faster, in the order of `helps`."""
    return [
        [f.name, f"{f.share * found.cycles:,.0f}", f"{100 * (f.share - 1):z.1f} %".replace("-", "−")]
        for f in found.helps
    ]


HELD_HEAD = ["buffer", "how many", "most held", "room", "tokens in all"]


def held_rows(found: Recorded) -> list[list[str]]:
    """Over the whole run the most that buffers have held, the fullest first."""
    shown = found.held[:MAX_BUFFERS]
    return [[h.name, f"{h.count:,}", f"{h.most:,}", f"{h.depth:,}", f"{h.tokens:,}"] for h in shown]
