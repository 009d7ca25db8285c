"""Networks that were mapped: a list of them at /networks, and the page of each, as `allo-tune network` keeps them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import flask
import jinja2
from dash import Dash

from allo_dse.common.records import Frozen

from ..data.runs import Board

KEPT = Path(".networks/pages")
"""Folder of their pages, in the folder of runs; `allo-tune network --cache` names another."""
_HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>networks</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/assets/style.css"><script>
document.documentElement.dataset.theme =
  localStorage.alloTheme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
</script></head><body><header class="top"><div class="title"><span class="brand">allo-dse</span><h1>Networks</h1></div>
{% if runs %}<nav class="tabs"><a class="tab" href="/front">Front</a></nav>{% endif %}</header>
<main id="pages"><div class="card"><div class="table-box"><table><thead><tr>
<th>network</th><th>device</th><th>runtime</th><th>latency (us)</th><th>launches</th><th>mapped</th><th>proved</th>
</tr></thead><tbody>
{% for name, one in kept.items() %}
<tr><td><a href="/networks/{{ name | urlencode }}">{{ one.words[0] }}</a></td>
{% for word in one.words[1:-1] %}<td>{{ word }}</td>{% endfor %}
<td style="white-space: normal">{{ one.words[-1] }}</td></tr>
{% endfor %}
</tbody></table></div></div></main></body></html>
"""


class MappedNetwork(Frozen):
    """A mapped network: its page, and its entry in the list."""

    page: Path
    words: tuple[str, ...]


def kept_networks(board: Board) -> dict[str, MappedNetwork]:
    """By a name for addresses, the newest first: those beside the runs of a board, and in `runs`."""
    folders = {(folder / KEPT).resolve() for folder in (Path("runs"), *(run.path.parent for run in board.runs))}
    facts = [file for folder in folders for file in folder.glob("*/composition.json")]
    facts.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    found = ((f"{file.parent.name}-{number}", _kept(file)) for number, file in enumerate(facts))
    return {name: one for name, one in found if one is not None}


def _kept(file: Path) -> MappedNetwork | None:
    """Read a mapped network's file; None if it is damaged, or just being written."""
    try:
        facts = json.loads(file.read_text())
        words = [facts["network"], facts["device"], facts["runtime"], f"{facts['latency_us']:,.0f}"]
        at = f"{datetime.fromtimestamp(file.stat().st_mtime):%Y-%m-%d %H:%M}"
        words += [str(len(facts["launches"])), at, facts["certificate"]]
        return MappedNetwork(file.with_name("network.html"), tuple(words))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def register(app: Dash, board: Board) -> None:
    """Add the addresses to an app. Without runs the list is its first page."""

    @app.server.route("/networks")
    def networks() -> str:
        return str(jinja2.Template(_HTML, autoescape=True).render(kept=kept_networks(board), runs=board.runs))

    @app.server.route("/networks/<name>")
    def network(name: str) -> str:
        found = kept_networks(board).get(name)
        # Serve only files that `allo-tune network` has written: reject symbolic links.
        if found is None or not found.page.is_file() or found.page.resolve() != found.page:
            flask.abort(404)
        return found.page.read_text()

    @app.server.before_request
    def first() -> flask.Response | None:
        at_home = flask.request.path == "/" and not board.runs
        return flask.redirect("/networks") if at_home else None  # type: ignore[return-value]  # werkzeug's
