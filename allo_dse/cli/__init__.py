"""The command line: `allo-tune STUDY.py` runs studies, `allo-tune COMMAND` looks at runs.

`main` dispatches to the commands in `commands`. The other modules are shared by commands: opening runs, facts about
them, printing. Each command imports what it needs when it is called, so that help stays fast.

Imports: allo_dse, backends, common, dashboard, device, eval, networks, simulator, tune.
Imported by: allo_dse.
"""

import sys
from types import SimpleNamespace
from typing import Any

# Rich imports attrs to print its classes, and Typer's help Markdown: a fourth of the time of `--help`, for neither.
_spared: dict[str, Any] = {"attr": None, "rich.markdown": SimpleNamespace(Markdown=None)}
_spared = {name: _spared[name] for name in _spared.keys() - sys.modules.keys()}
sys.modules.update(_spared)
import rich.pretty  # noqa: E402, F401

if "--help" in sys.argv:
    import typer.rich_utils  # noqa: F401
for _name in _spared:
    del sys.modules[_name]
from .main import main as main  # noqa: E402
