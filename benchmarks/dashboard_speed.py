"""How fast the dashboard is on a long run.

    python benchmarks/dashboard_speed.py [--designs 50000] [--no-browser]

A made-up run is written through the real log. Shown are the time to read it, to build each view on the server and its
size on the wire, and, in a headless Chromium: first paint in stages (the page's frame, the drawn scatter, the filled
table), where that time goes (answers of the server, transfer, scripts and drawing in the browser), and how long after a
gesture the linked views show its effect; that of the filter has the 0.2 s in it that it waits for more typing. The
browser draws WebGL in software here: parallel coordinates and scatters in space are faster with a graphics card.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from plotly.utils import PlotlyJSONEncoder

from allo_dse.dashboard.data.board import Board
from allo_dse.dashboard.data.grid import Grid, Query
from allo_dse.dashboard.data.progress import timeline
from allo_dse.dashboard.data.selection import Selection
from allo_dse.dashboard.figures.parallel import parallel_figure
from allo_dse.dashboard.figures.progress import failures_figure, hypervolume_figure
from allo_dse.dashboard.figures.scatter import View, front_figure
from allo_dse.dashboard.figures.style import LIGHT
from tests.dashboard.conftest import ARGUMENTS, CHROMIUM, served
from tests.dashboard.synthetic import append, write_run

REPEATS = 5
SOURCE = "bram18 < 60 and latency_us < 20000"
STAGES = {
    "frame": "document.querySelector('#scatter')",
    "scatter": "document.querySelector('#scatter .js-plotly-plot')?.data?.length",
    "table": "document.querySelectorAll('.ag-center-cols-container .ag-row').length > 3",
}
WATCH = (
    """window.busy = 0; window.stages = {};
    new PerformanceObserver(l => l.getEntries().forEach(e => { window.busy += e.duration; }))
        .observe({type: 'longtask', buffered: true});
    setInterval(() => { const seen = {"""
    + ", ".join(f"{name}: () => {test}" for name, test in STAGES.items())
    + """}; for (const name in seen) if (!(name in stages) && seen[name]()) stages[name] = performance.now(); }, 10);"""
)
DRAWN = f"() => Object.keys(window.stages).length === {len(STAGES)}"
SPENT = """() => { const all = performance.getEntriesByType('resource'), sum = f => all.reduce((t, e) => t + f(e), 0);
    return {server: sum(e => e.responseStart - e.requestStart), transfer: sum(e => e.responseEnd - e.responseStart),
            bytes: sum(e => e.transferSize), busy: window.busy, requests: all.length}; }"""


def timed(call):
    """The median time in milliseconds, and the result."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), result


def server_side(board):
    """What each view costs the server."""
    half = Selection((("latency_us", ((0.0, 20_000.0),)), ("bram18", ((0.0, 100.0),))))
    views = {
        "scatter": lambda: front_figure(board, View("latency_us", "bram18"), LIGHT).figure,
        "scatter, selected": lambda: front_figure(board, View("latency_us", "bram18", selection=half), LIGHT).figure,
        "scatter, filtered": lambda: front_figure(board, View("latency_us", "bram18", filter=SOURCE), LIGHT).figure,
        "scatter in space": lambda: front_figure(board, View("latency_us", "bram18", "dsp"), LIGHT).figure,
        "parallel coordinates": lambda: parallel_figure(board, LIGHT, selection=half),
        "table, sorted": lambda: Grid(board).window(Query(sort=(("bram18", True),)), 0, 100),
        "hypervolume": lambda: hypervolume_figure(board, LIGHT),
        "failures over time": lambda: failures_figure(timeline(board.runs[0]), LIGHT),
    }
    for name, view in views.items():
        milliseconds, made = timed(view)
        size = len(json.dumps(made, cls=PlotlyJSONEncoder))
        print(f"  {name:<22} {milliseconds:7.1f} ms   {size / 1e3:7.0f} kB")


def in_browser(path, designs):
    """What a person waits for."""
    from playwright.sync_api import sync_playwright

    with served(path) as (url, _), sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(60_000)
        context.add_init_script(WATCH)
        for name in ("first paint, cold", "first paint, scripts cached"):
            page = context.new_page()
            page.goto(url)
            page.wait_for_function(DRAWN)
            stages, spent = page.evaluate("window.stages"), page.evaluate(SPENT)
            print(f"  {name:<32}", ", ".join(f"{stage} {1e-3 * stages[stage]:.2f} s" for stage in STAGES))
            print(
                f"    {spent['requests']} requests, {spent['bytes'] / 1e6:.1f} MB; server {spent['server']:.0f} ms, "
                f"transfer {spent['transfer']:.0f} ms; browser busy in long tasks {spent['busy']:.0f} ms"
            )
        page.wait_for_timeout(1500)
        for name, act, done in (
            ("filter: table and scatter", lambda: page.fill("#filter", SOURCE), effect(page, "#table-note")),
            ("filter taken back", lambda: page.fill("#filter", ""), effect(page, "#table-note")),
            ("next design of the front", lambda: page.keyboard.press("j"), effect(page, "#design-words")),
            ("infeasible on", lambda: page.click("#show label:nth-of-type(2)"), traces(page)),
            ("(parallel coordinates scrolled to)", lambda: page.evaluate(SCROLL), parallel_drawn(page)),
            ("selection by brush", lambda: page.evaluate(BRUSH), effect(page, "#selection-text")),
            ("selection cleared", lambda: page.click("#clear"), effect(page, "#selection-text")),
        ):
            print(f"  {name:<32} {1e3 * done(act):6.0f} ms")
            page.evaluate("document.activeElement.blur()")
            page.wait_for_timeout(700)
        append(path, range(designs, designs + 100))
        start = time.perf_counter()
        page.wait_for_function(f"() => document.querySelector('#status').textContent.includes('{designs + 100:,}')")
        print(f"  {'new designs are shown after':<32} {time.perf_counter() - start:6.2f} s")
        browser.close()


BRUSH = """() => Plotly.restyle(document.querySelector('#parallel .js-plotly-plot'),
    {'dimensions[0].constraintrange': [[31, 65]]}, [0])"""


SCROLL = "() => document.querySelector('#parallel').scrollIntoView()"


def parallel_drawn(page):
    """Measures until the parallel coordinates are there."""

    def measure(act):
        start = time.perf_counter()
        act()
        page.wait_for_function(
            "() => document.querySelector('#parallel .js-plotly-plot')?.data?.[0]?.dimensions", polling=10
        )
        return time.perf_counter() - start

    return measure


def effect(page, selector):
    """Measures until an element's text has changed."""

    def measure(act):
        before = page.inner_text(selector)
        start = time.perf_counter()
        act()
        page.wait_for_function(
            "([s, t]) => document.querySelector(s).innerText !== t", arg=[selector, before], polling=10
        )
        return time.perf_counter() - start

    return measure


def traces(page):
    """Measures until the scatter has another number of traces."""
    count = "document.querySelector('#scatter .js-plotly-plot').data.length"

    def measure(act):
        before = page.evaluate(count)
        start = time.perf_counter()
        act()
        page.wait_for_function(f"n => {count} !== n", arg=before, polling=10)
        return time.perf_counter() - start

    return measure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--designs", type=int, default=50_000)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = write_run(Path(scratch) / "long", options.designs)
        size = (path / "log.jsonl").stat().st_size
        start = time.perf_counter()
        board = Board.open([path])
        print(f"{options.designs:,} designs, {size / 1e6:.0f} MB of log, read in {time.perf_counter() - start:.1f} s")
        print("on the server, and on the wire:")
        server_side(board)
        if CHROMIUM is None or options.no_browser:
            print("no browser (apt-get install chromium)")
            return
        print("in the browser:")
        in_browser(path, options.designs)


if __name__ == "__main__":
    main()
