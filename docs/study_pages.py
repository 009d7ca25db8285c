"""Make a page for each study of `studies/`, with the front that a short run finds, as picture and table.

python docs/study_pages.py                     # all of them, some minutes
python docs/study_pages.py gemm_npu ffn_npu    # some
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
from pathlib import Path

from allo_dse.drawing import points_svg
from allo_dse.tune.declare.spec import StudySpec
from allo_dse.tune.results.result import Result
from allo_dse.tune.study import load_studies, study_functions

ROOT = Path(__file__).parent.parent
TRIALS = 60
MOST_ROWS = 12
PAGES = ROOT / "docs" / "studies"
INTRODUCTION = "Made by `python docs/study_pages.py`: {trials} designs at most, seed 0, fronts as predicted."


def family(name: str) -> str:
    return "npu" if name.endswith("_npu") else "fpga"


def names() -> list[str]:
    """Files that define a study."""
    return sorted(p.stem for p in (ROOT / "studies").glob("*.py") if p.stem not in ("__init__", "hand_made"))


def page(name: str, result: Result, picture: str) -> str:
    """The page of a study, with what a run has found."""
    study = result.study
    lines = [
        f"# {name}",
        first_paragraph(name),
        f"```console\n$ allo-tune studies/{name}.py\n```",
        INTRODUCTION.format(trials=TRIALS),
        table(["", ""], facts(name, study)),
    ]
    if picture:
        lines.append(f"![The front of {name}]({picture})")
    columns = list(result.front[0].values) if result.front else []
    free = [n for n in study.parameters.free if any(n in d.params for d in result.front)]
    rows = [
        [d.key[:8], *(f"{v:,.6g}" for v in d.values.values()), *(str(d.params.get(n, "")) for n in free)]
        for d in result.front[:MOST_ROWS]
    ]
    lines.append(table(["design", *columns, *free], rows))
    if len(result.front) > MOST_ROWS:
        lines.append(f"{len(result.front) - MOST_ROWS} more designs are on the front.")
    if result.front:
        lines.append(f"The first of them: {result.front[0].explain()}.")
    if result.certificate is not None:
        lines.append(f"How much of the space that is: {result.certificate}.")
    if result.ruled_out:
        lines.append("Ruled out: " + ", ".join(f"{limit} {count:,}" for limit, count in result.ruled_out.items()) + ".")
    return "\n\n".join(lines) + "\n"


def first_paragraph(name: str) -> str:
    """What the study's file says of itself."""
    text = ast.get_docstring(ast.parse((ROOT / "studies" / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0]


def facts(name: str, study: StudySpec) -> list[list[str]]:
    """Settings with their defaults, parameters, device and objectives."""
    (function,) = study_functions(ROOT / "studies" / f"{name}.py")
    settings = [f"`--set {p.name}={p.default}`" for p in inspect.signature(function).parameters.values()]
    found = [
        ["settings", ", ".join(settings) or "none"],
        ["device", f"`{study.device.name}`"],
        ["varies", ", ".join(f"`{n}`" for n in study.parameters.free) + " and how tasks are folded"],
        ["wanted", ", ".join(f"{o.direction} `{o.name}`" for o in study.objectives)],
    ]
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def make(name: str) -> None:
    """Run a study for a while and write its page and its picture."""
    study = load_studies(ROOT / "studies" / f"{name}.py", {})[0]
    with tempfile.TemporaryDirectory() as folder:
        result = study.run(TRIALS, run_dir=folder, progress="quiet", verify=False)
        if result.stopped not in ("trials", "exhausted"):
            raise SystemExit(f"{name}: stopped by {result.stopped}, no page is written")
        folder_of = PAGES / family(name)
        folder_of.mkdir(parents=True, exist_ok=True)
        objectives = [o.name for o in study.objectives]
        picture = ""
        if len(objectives) > 1 and result.front:
            images = ROOT / "docs" / "img" / family(name)
            images.mkdir(parents=True, exist_ok=True)
            points = [(d.values[objectives[0]], d.values[objectives[1]]) for d in result.front]
            (images / f"{name}.svg").write_text(
                points_svg(points, objectives[0], objectives[1], [d.key[:8] for d in result.front]), encoding="utf-8"
            )
            picture = f"../../img/{family(name)}/{name}.svg"
        (folder_of / f"{name}.md").write_text(page(name, result, picture), encoding="utf-8")


def main() -> None:
    for name in sys.argv[1:] or names():
        make(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
