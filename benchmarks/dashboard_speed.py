"""How fast the dashboard is on a long run.

    python -m benchmarks.dashboard_speed [--designs 50000] [--no-browser]

A made-up run is written through the real log. Shown are the time to read it; how long after the command its page is
there, and the run has been read; the time to build each view on the server and its size on the wire; and, in a headless
Chromium, how long after the page was asked for its frame, the drawn scatter and the filled table have been painted, and
how long after a gesture each view that it changes has. Times end with the frame that shows the result.

The browser is one that DevTools do not look into (they double what scripts cost to start), with a profile of its own:
its first visit has nothing cached, later ones have scripts and, from the third on, their compiled code. It draws by
software; the processor time of its drawing process says how much of it that is.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

from plotly.utils import PlotlyJSONEncoder

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import listen
from allo_dse.dashboard.data.grid import Grid, Query
from allo_dse.dashboard.data.progress import timeline
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.data.selection import Selection
from allo_dse.dashboard.figures.parallel import parallel_figure
from allo_dse.dashboard.figures.progress import designs_figure, hypervolume_figure
from allo_dse.dashboard.figures.scatter import View, front_figure
from allo_dse.dashboard.figures.style import LIGHT
from allo_dse.dashboard.programs import Programs
from tests.dashboard.conftest import ARGUMENTS, CHROMIUM
from tests.dashboard.synthetic import append, write_run

REPEATS = 5
VISITS = 4
ROUNDS = 5
SOURCE = "bram18 < 60 and latency_us < 20000"
NEW = 100
"""Designs that are added while the page is open."""
_PLOT = "document.querySelector('#{} .js-plotly-plot')"
SCATTER, PARALLEL = _PLOT.format("scatter"), _PLOT.format("parallel")
ROWS = "document.querySelector('#table .ag-center-cols-container').textContent"
TABLE = "document.querySelector('#table-note').innerText"
SELECTED = "document.querySelector('#selection-text').innerText"
CLEAR = "document.querySelector('#clear').click()"
BOX = f"{SCATTER}.emit('plotly_selected', {{points: [], range: {{x: [1000, 8000], y: [10, 100]}}}})"
BRUSH = "[{'dimensions[0].constraintrange': [[31, 65]]}, [0]]"
NEXT = "document.querySelector('#next-design').click()"
INFEASIBLE = "document.querySelector('#show label:nth-of-type(2) input').click()"
GESTURES = (
    ("next design: its card", NEXT, "document.querySelector('#design-words').innerText"),
    ("next design: ring in the scatter", NEXT, f"{SCATTER}.data"),
    ("infeasible on", INFEASIBLE, f"{SCATTER}.data.length"),
    ("infeasible off", INFEASIBLE, f"{SCATTER}.data.length"),
    ("filter: scatter", f"dash_clientside.set_props('filter', {{value: '{SOURCE}'}})", f"{SCATTER}.data"),
    ("filter taken back: table", "dash_clientside.set_props('filter', {value: ''})", TABLE),
    ("filter: table", f"dash_clientside.set_props('filter', {{value: '{SOURCE}'}})", TABLE),
    ("filter taken back: scatter", "dash_clientside.set_props('filter', {value: ''})", f"{SCATTER}.data"),
    ("box in the scatter: scatter", BOX, f"{SCATTER}.data.length"),
    ("selection cleared: table", CLEAR, TABLE),
    ("box in the scatter: table", BOX, TABLE),
    ("selection cleared: scatter", CLEAR, f"{SCATTER}.data.length"),
)
"""What is done in the page, and what changes when it has had its effect."""
ON_PARALLEL = (
    ("brush on an axis: scatter", f"{PARALLEL}.emit('plotly_restyle', {BRUSH})", f"{SCATTER}.data.length"),
    ("selection cleared: words", CLEAR, SELECTED),
    ("brush on an axis: table", f"{PARALLEL}.emit('plotly_restyle', {BRUSH})", TABLE),
    ("selection cleared: words", CLEAR, SELECTED),
)
_TAB = "document.querySelector('#tab-{}').click()"
PAGES = (
    ("next design: its page", f"{NEXT}; {_TAB.format('design')}", f"{_PLOT.format('bound')}?.data"),
    ("front page again", _TAB.format("front"), "document.querySelector('#page-front').style.display"),
)
DRIVER = """<head><script>
const query = (selector) => document.querySelector(selector);
const stages = {
  frame: () => query("#scatter"),
  scatter: () => query("#scatter .js-plotly-plot:not(.dash-graph--pending)")?.data?.length,
  table: () => document.querySelectorAll(".ag-center-cols-container .ag-row").length > 3,
};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))));
const report = (values) => fetch("/report", { method: "POST", body: JSON.stringify(values) });
async function until(test) {
  const end = performance.now() + 30000;
  while (!test() && performance.now() < end) await sleep(4);
  return painted();
}
async function gestures(list, took) {
  for (const [name, act, effect] of list) {
    const look = new Function("return " + effect), before = look(), start = performance.now();
    new Function(act)();
    (took[name] ||= []).push((await until(() => look() !== before)) - start);
    const shown = ROWS;
    await sleep(1500);
    if (effect === TABLE && ROWS !== shown) (took["(rows that came after the time was taken)"] ||= []).push(1);
  }
}
(async () => {
  const visit = Number(sessionStorage.visit || 0), at = {};
  await Promise.all(Object.entries(stages).map(async ([name, test]) => { at[name] = await until(test); }));
  await sleep(2000);
  await report(at);
  sessionStorage.visit = visit + 1;
  if (visit + 1 < VISITS) return location.reload();
  const took = {};
  for (let round = 0; round < ROUNDS; round++) await gestures(GESTURES, took);
  query("#parallel").scrollIntoView();
  const start = performance.now();
  const drawn = () => PARALLEL?.data?.[0]?.dimensions;
  took["(parallel coordinates scrolled to)"] = [(await until(drawn)) - start];
  await sleep(3000);
  for (let round = 0; round < ROUNDS; round++) await gestures(ON_PARALLEL, took);
  for (let round = 0; round < ROUNDS; round++) await gestures(PAGES, took);
  await report(took);
  const designs = query("#status").innerText;
  await report({ grown: (await until(() => query("#status").innerText !== designs)) && Date.now() / 1000 });
})();
</script>"""


def timed(call: Callable[..., Any]) -> Any:
    """The median time in milliseconds, and the result."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), result


def server_side(board: Board) -> None:
    """What each view costs the server."""
    half = Selection((("latency_us", ((0.0, 20_000.0),)), ("bram18", ((0.0, 100.0),))))
    views = {
        "scatter": lambda: front_figure(board, View("latency_us", "bram18"), LIGHT).figure,
        "scatter, selected": lambda: front_figure(board, View("latency_us", "bram18", selection=half), LIGHT).figure,
        "scatter, filtered": lambda: front_figure(board, View("latency_us", "bram18", filter=SOURCE), LIGHT).figure,
        "parallel coordinates": lambda: parallel_figure(board, LIGHT, selection=half),
        "table, sorted": lambda: Grid(board).window(Query(sort=(("bram18", True),)), 0, 50),
        "hypervolume": lambda: hypervolume_figure(board, LIGHT),
        "designs over time": lambda: designs_figure(timeline(board.runs[0]), LIGHT),
    }
    for name, view in views.items():
        milliseconds, made = timed(view)
        size = len(json.dumps(made, cls=PlotlyJSONEncoder))
        print(f"  {name:<22} {milliseconds:7.1f} ms   {size / 1e3:7.0f} kB")


def from_the_command(path: Path) -> None:
    """How long after the command a browser gets the page, and what it shows."""
    code = "from allo_dse.cli import main; main()"
    command = [sys.executable, "-c", code, "dashboard", str(path), "--no-browser", "--port", "0"]
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = re.search(r"http://\S+", process.stderr.readline())
        assert url is not None
        for name, page in (("the page", ""), ("what it shows", "/_dash-layout")):
            urllib.request.urlopen(url[0] + page).read()
            print(f"from the command until {name} is there: {time.perf_counter() - start:.1f} s")
        process.terminate()


class Driven:
    """The dashboard with a driver in its page; `reports` has what the driver says."""

    def __init__(self, board: Board) -> None:
        values = {
            "VISITS": VISITS,
            "ROUNDS": ROUNDS,
            "ROWS": ROWS,
            "PARALLEL?": f"{PARALLEL}?",
            "TABLE": json.dumps(TABLE),
        }
        lists = {"GESTURES": json.dumps(GESTURES), "ON_PARALLEL": json.dumps(ON_PARALLEL), "PAGES": json.dumps(PAGES)}
        self._driver = DRIVER
        for name, value in {**values, **lists}.items():
            self._driver = self._driver.replace(name, str(value))
        app = make_app(Context(board, Programs(board, None)))
        self._app, app.server.wsgi_app = app.server.wsgi_app, self
        self.reports: Queue[Any] = Queue()
        self.server = listen(app, port=0)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        path, html = environ["PATH_INFO"], [("Content-Type", "text/html")]
        if path == "/report":
            self.reports.put(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
            start_response("204 No Content", [])
            return [b""]
        if path == "/begin":  # so that the browser's own start is not measured
            start_response("200 OK", html)
            return [b"<link rel=icon href=data:,><script>setTimeout(() => location = '/front', 1000)</script>"]
        if path != "/front":
            return self._app(environ, start_response)
        page = b"".join(self._app(environ, lambda *_: None)).replace(b"<head>", self._driver.encode(), 1)
        start_response("200 OK", [*html, ("Content-Length", str(len(page)))])
        return [page]


@contextmanager
def browser(address: Any) -> Iterator[Any]:
    """A browser that opens an address; its process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", *ARGUMENTS, "--no-first-run", "--window-size=1440,900", f"--user-data-dir={profile}"]
        assert CHROMIUM is not None
        process = subprocess.Popen(
            [CHROMIUM, *options, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # Debian's command is a script, which has started the browser
            process.wait()


def processor_time(root: Any) -> Counter[str]:
    """Seconds that the processes of a browser have used so far: those of the page, of drawing, and others."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            parents[int(entry.name)] = int(_status(entry.name)[1] or 0)
    spent: Counter[str] = Counter()
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root:
            line = Path(f"/proc/{pid}/cmdline").read_text() if Path(f"/proc/{pid}").exists() else ""
            kind = "page" if "--type=renderer" in line else "drawing" if "--type=gpu" in line else "others"
            spent[kind] += sum(map(int, _status(pid)[11:13])) / os.sysconf("SC_CLK_TCK")  # type: ignore[assignment]
    return spent


def _status(pid: Any) -> Any:
    """The fields of /proc/PID/stat after the name; zeros when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def in_browser(path: Path, board: Board, designs: Any) -> None:
    """What a person waits for."""
    driven = Driven(board)
    with browser(f"http://127.0.0.1:{driven.server.port}/begin") as process:
        time.sleep(0.9)
        before = processor_time(process.pid)
        for visit in range(VISITS):
            stages = driven.reports.get(timeout=120)
            now = processor_time(process.pid)
            times = ", ".join(f"{stage} {1e-3 * at:.2f} s" for stage, at in stages.items())
            spent = ", ".join(f"{kind} {1e3 * (now[kind] - before[kind]):.0f} ms" for kind in now)
            print(f"  visit {visit + 1}: {times}   (processor: {spent})")
            before = now
        took = driven.reports.get(timeout=300)
        now = processor_time(process.pid)
        for name, times in took.items():
            spread = f"of {len(times)}: {min(times):.0f} to {max(times):.0f}"
            print(f"  {name:<36} {statistics.median(times):6.0f} ms   ({spread})")
        print("  processor: " + ", ".join(f"{kind} {now[kind] - before[kind]:.1f} s" for kind in now))
        time.sleep(1)
        append(path, range(designs, designs + NEW))
        written = time.time()
        print(f"  {'new designs are shown after':<36} {driven.reports.get(timeout=60)['grown'] - written:6.2f} s")
    driven.server.shutdown()


def main() -> None:
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
        from_the_command(path)
        print("on the server, and on the wire:")
        server_side(board)
        if CHROMIUM is None or options.no_browser:
            print("no browser (apt-get install chromium-headless-shell)")
            return
        print("in the browser:")
        in_browser(path, board, options.designs)


if __name__ == "__main__":
    main()
