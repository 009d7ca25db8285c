"""Make the pictures of the documentation: `docs/img/*.png`, from real runs of `studies/gemm_npu.py` and, for the design
of an FPGA, `studies/systolic_fpga.py`.

    python docs/pictures.py [--trials 300]

Needs Chromium and the package playwright.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import listen
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.study import load_studies

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parent / "studies"
NPU, FPGA = STUDIES / "gemm_npu.py", STUDIES / "systolic_fpga.py"
FPGA_SETTINGS = {"size": "32", "depth": "64"}
FPGA_TRIALS = 40
IMAGES = HERE / "img"
WIDTH = 1280
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
TIMEOUT_MS = 120_000


def drawn(page: Page, *plots: str) -> None:
    """Wait until plots are drawn."""
    for name in plots:
        page.wait_for_function(f"() => document.querySelector('#{name} .js-plotly-plot')?.data?.length")
    page.wait_for_timeout(1_500)


def save(page: Page, name: str, height: int) -> None:
    """A picture of the upper part of a page."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_timeout(1_500)
    page.screenshot(path=IMAGES / name)


def save_card(page: Page, inside: str, name: str) -> None:
    """A picture of the whole card that something is in."""
    card = page.locator(f".card:has({inside})").first
    page.set_viewport_size({"width": WIDTH, "height": 1_400})
    page.wait_for_timeout(1_500)
    page.evaluate("document.querySelector('header').style.position = 'static'")  # it would cover what scrolls below it
    card.screenshot(path=IMAGES / name)


def front(page: Page, url: str) -> None:
    """The front with a selection in all views."""
    page.goto(url)
    drawn(page, "scatter")
    page.set_viewport_size({"width": WIDTH, "height": 1_200})  # parallel coordinates are drawn when in view
    drawn(page, "parallel")
    page.fill("#filter", "latency_us < 250000")
    page.wait_for_function("() => document.querySelector('#table-note').textContent.includes(' designs')")
    page.wait_for_timeout(4_000)
    area = page.locator("#scatter .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + 8, area["y"] + 0.42 * area["height"])
    page.mouse.down()
    page.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 0.6 * area["height"])
    page.mouse.move(area["x"] + 0.62 * area["width"], area["y"] + 0.8 * area["height"])
    page.mouse.up()
    page.wait_for_function("() => document.querySelector('#selection-text').textContent.includes('selected')")
    page.mouse.move(5, 5)
    page.wait_for_timeout(2_500)
    save(page, "front.png", 1_180)


def progress(page: Page, url: str) -> None:
    """How the run went."""
    page.goto(f"{url}/progress")
    drawn(page, "history", "hypervolume", "designs-time", "importance")
    save(page, "progress.png", 990)


def compiled(page: Page, url: str, ref: str) -> None:
    """A design's page with everything that its program gives."""
    page.goto(f"{url}/design?design={ref}")
    page.wait_for_selector("canvas[data-id]", state="attached")
    drawn(page, "timeline-plot", "totals-plot")


def design(page: Page, url: str, fastest: str) -> None:
    """The fastest design: its placement and its timeline."""
    compiled(page, url, fastest)
    page.wait_for_selector(".svg-box img", state="attached")
    save_card(page, "h2:text-is('Placement on the array')", "design.png")
    save_card(page, "#timeline-plot", "timeline.png")


def compare(page: Page, url: str) -> None:
    """Two designs side by side."""
    page.goto(f"{url}/compare")
    drawn(page, "compare-plot")
    save(page, "compare.png", 1_060)


def fpga(page: Page, url: str, fastest: str) -> None:
    """The fastest design on an FPGA: its resources, and its timeline."""
    compiled(page, url, fastest)
    save_card(page, "#resources", "resources.png")
    save_card(page, "#overview-plot", "whole_run.png")
    save_card(page, "#timeline-plot", "fpga.png")


@contextmanager
def dashboard(file: Path, path: Path) -> Iterator[tuple[str, str]]:
    """The address of a dashboard on a run, whose program is compiled, and the best design in the first objective."""
    board = Board.open([path])
    context = Context(board, Programs(board, file))
    context.programs.load(0)
    server = listen(make_app(context), port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.port}", board.text(next(board.front()))
    finally:
        server.shutdown()


def run(file: Path, settings: dict[str, str], trials: int, path: Path) -> None:
    """Run a study."""
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = ["allo-tune", f"studies/{file.name}", *sets, "--trials", str(trials)]
    load_studies(file, settings)[0].run(trials=trials, run_dir=path, progress="quiet", command=command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Chromium (apt-get install chromium-headless-shell)")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as p:
        npu, array = Path(scratch) / "gemm_npu", Path(scratch) / "systolic_fpga"
        run(NPU, {}, options.trials, npu)
        run(FPGA, FPGA_SETTINGS, FPGA_TRIALS, array)
        browser = p.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 860}, color_scheme="light")
        page.set_default_timeout(TIMEOUT_MS)
        with dashboard(NPU, npu) as (url, fastest):
            front(page, url)
            progress(page, url)
            design(page, url, fastest)
            compare(page, url)
        with dashboard(FPGA, array) as (url, fastest):
            fpga(page, url, fastest)
        browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.relative_to(HERE.parent)}  {image.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
