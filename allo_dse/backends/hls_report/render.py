"""A report as text for a terminal."""

from __future__ import annotations

from .model import RESOURCES, Cosim, HlsLoop, HlsReport

LOOPS_SHOWN = 40
VIOLATIONS_SHOWN = 12


def report_text(report: HlsReport) -> str:
    """The report's main figures, its loops and what the tool could not meet."""
    lines = [
        f"{report.top or 'design'} on {report.part or 'an unnamed part'}, HLS {report.tool or 'of unknown version'}"
    ]
    if report.clock_ns is not None:
        estimate = f", estimated {report.estimated_ns} ns" if report.estimated_ns is not None else ""
        lines.append(f"  clock: {report.clock_ns} ns{estimate}")
    if report.modules or report.latency.known:
        lines.append(f"  latency: {report.latency} cycles, interval: {report.interval} cycles ({report.kind or '?'})")
        lines.append(f"  resources: {_usage(report)}")
    lines += [f"  RTL co-simulation: {_cosim_text(cosim)}" for cosim in report.cosims if cosim.passed is not None]
    lines += _loop_lines(report)
    if report.fifos:
        deepest = max(report.fifos, key=lambda fifo: fifo.depth or 0)
        lines.append(f"  FIFOs: {len(report.fifos)}, deepest {deepest.name} ({deepest.depth} words)")
    lines += _limited([f"  {violation}" for violation in report.violations], VIOLATIONS_SHOWN)
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines)


def _usage(report: HlsReport) -> str:
    parts = []
    shares = report.utilization()
    for name in RESOURCES:
        amount = getattr(report.resources, name)
        if amount is not None:
            parts.append(f"{name} {amount:,}" + (f" ({shares[name]:.1%})" if name in shares else ""))
    return ", ".join(parts) or "?"


def _cosim_text(cosim: Cosim) -> str:
    outcome = "passed" if cosim.passed else "FAILED"
    cycles = f", {cosim.latency} cycles" if cosim.latency.known else ""
    return f"{outcome} ({cosim.language}){cycles}"


def _loop_lines(report: HlsReport) -> list[str]:
    rows: list[tuple[str, ...]] = [("  loop", "module", "trip", "II", "depth", "cycles")]
    for outer in report.loops:
        rows += [_loop_row(level, loop) for level, loop in outer.walk()]
    if len(rows) == 1:
        return []
    widths = [max(len(row[i]) for row in rows[: LOOPS_SHOWN + 1]) for i in range(6)]
    text = [
        "  ".join([cell.ljust(w) for cell, w in zip(row[:2], widths, strict=False)])
        + "  "
        + "  ".join(cell.rjust(w) for cell, w in zip(row[2:], widths[2:], strict=True))
        for row in rows
    ]
    return [text[0], *_limited(text[1:], LOOPS_SHOWN)]


def _loop_row(level: int, loop: HlsLoop) -> tuple[str, ...]:
    ii = "-" if loop.ii is None else str(loop.ii)
    if loop.ii_target not in (None, loop.ii):
        ii += f" (target {loop.ii_target})"
    depth = "-" if loop.depth is None else f"{loop.depth:,}"
    return "  " * (level + 1) + loop.name, loop.module, str(loop.trip_count), ii, depth, str(loop.latency)


def _limited(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"  … and {len(lines) - most} more"]
