"""Make the pictures of the documentation: `docs/img/*.png`, from a real run of `studies/gemm_npu.py`.

    python docs/pictures.py [--trials 300]

Needs Chromium and the package playwright.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.server import listen
from allo_dse.dashboard.data.board import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.loader import load_studies

HERE = Path(__file__).resolve().parent
STUDY = HERE.parent / "studies" / "gemm_npu.py"
IMAGES = HERE / "img"
SIZE = {"width": 1280, "height": 860}
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
TIMEOUT_MS = 120_000


def drawn(page: Page, *plots: str) -> None:
    """Wait until plots are drawn."""
    for name in plots:
        page.wait_for_function(f"() => document.querySelector('#{name} .js-plotly-plot')?.data?.length")
    page.wait_for_timeout(1_500)


def front(page: Page, url: str) -> None:
    """The front with a selection in all views."""
    page.goto(url)
    drawn(page, "scatter")
    page.locator("#parallel").scroll_into_view_if_needed()  # drawn when it is on screen
    drawn(page, "parallel")
    page.evaluate("window.scrollTo(0, 0)")
    page.fill("#filter", "latency_us < 250000")
    page.wait_for_timeout(4_000)
    area = page.locator("#scatter .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + 8, area["y"] + 0.42 * area["height"])
    page.mouse.down()
    page.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 0.6 * area["height"])
    page.mouse.move(area["x"] + 0.62 * area["width"], area["y"] + 0.8 * area["height"])
    page.mouse.up()
    page.wait_for_function("() => document.querySelector('#selection-text').textContent.includes('selected')")
    page.wait_for_timeout(2_500)
    page.screenshot(path=IMAGES / "front.png")


def progress(page: Page, url: str) -> None:
    """How the run went."""
    page.goto(f"{url}/progress")
    drawn(page, "hv-designs", "failures", "importance", "workers")
    page.screenshot(path=IMAGES / "progress.png")


def design(page: Page, url: str, fastest: str) -> None:
    """The fastest design: its placement and its timeline."""
    page.goto(f"{url}/design#{fastest}")
    page.wait_for_function("() => document.querySelectorAll('.svg-box img').length === 3")
    drawn(page, "timeline-plot")
    page.evaluate("document.querySelectorAll('.svg-box')[2].closest('.card').scrollIntoView(); window.scrollBy(0, -60)")
    page.wait_for_timeout(1_000)
    page.screenshot(path=IMAGES / "design.png")
    page.evaluate("document.querySelector('#timeline-plot').closest('.card').scrollIntoView(); window.scrollBy(0, -60)")
    page.wait_for_timeout(1_000)
    page.screenshot(path=IMAGES / "timeline.png")


def compare(page: Page, url: str) -> None:
    """Two designs side by side."""
    page.goto(f"{url}/compare")
    drawn(page, "compare-plot")
    page.screenshot(path=IMAGES / "compare.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--run", type=Path, help="pictures of an existing run instead")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Chromium (apt-get install chromium)")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        path = options.run or Path(scratch) / "gemm_npu"
        if options.run is None:
            command = ["allo-tune", "studies/gemm_npu.py", "--trials", str(options.trials)]
            load_studies(STUDY)[0].run(trials=options.trials, run_dir=path, progress="quiet", command=command)
        board = Board.open([path])
        context = Context(board, Programs(board, STUDY))
        context.programs.load(0)
        server = listen(make_app(context), board, port=0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.set_default_timeout(TIMEOUT_MS)
            url, fastest = f"http://127.0.0.1:{server.port}", next(board.front())
            front(page, url)
            progress(page, url)
            design(page, url, board.text(fastest))
            compare(page, url)
            browser.close()
        server.shutdown()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.relative_to(HERE.parent)}  {image.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
