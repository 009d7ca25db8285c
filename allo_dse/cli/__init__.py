"""The command line: `allo-tune STUDY.py` runs studies, `allo-tune COMMAND` looks at runs.

`main` dispatches to the commands in `commands`. The other modules are shared by commands: opening runs, facts about
them, printing. Each command imports what it needs when it is called, so that help stays fast.

Imports: allo_dse, backends, common, dashboard, device, eval, networks, simulator, tune.
Imported by: allo_dse.
"""

from allo_dse.common.imports import standing_in

try:
    with standing_in({"attr": None}):  # Rich imports attrs to print its classes, which takes longer than the rest of it
        import rich.pretty  # noqa: F401

    from .main import main as main
except KeyboardInterrupt:
    raise SystemExit(130) from None
