"""The result of a run that was made earlier, or elsewhere."""

from __future__ import annotations

from pathlib import Path

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import full_name

from .declare.spec import StudySource, StudySpec
from .results.result import Result
from .run.restore import read_history
from .search.scoring import Scorer
from .search.screening import Screen
from .search.tally import Tally
from .store.log import read_log, sensible
from .store.run_info import RunInfo, read_info
from .store.rundir import LOG, find_run


def open_run(path: str | Path | None = None, *, study: StudySpec | str | Path | None = None) -> Result:
    """Return the result of a run from its directory: front, best designs, tables. Nothing is evaluated.

    The study file is executed to rebuild designs.

    Args:
        path: run directory; by default the newest in `runs`.
        study: the study itself, if the run was started from Python; or the new path of a study file that was moved.

    Raises:
        StudyError: if it is not a run directory, or its study is not known.
    """
    directory = find_run(None if path is None else Path(path))
    info = read_info(directory)
    spec = study if isinstance(study, StudySpec) else study_of(info, None if study is None else Path(study), directory)
    scorer, tally = Scorer(spec.objectives, spec.constraints), Tally(spec.objectives)
    names = [full_name(evaluator) for evaluator in spec.make_evaluators()]
    log = directory / LOG
    with sensible(log):
        screen = Screen(spec.space, spec.check)
        history = read_history(read_log(log).lines, scorer, screen, names)
    history.count(tally, scorer)
    return Result(
        spec,
        tally.records,
        tally.final_values,
        history.verified,
        stopped="",
        run_dir=directory,
        placed=history.placed,
        correction=history.correction,
        certificate=info.certificate,
        limits=dict(screen.killed),
        enqueued=history.enqueued,
    )


def study_of(info: RunInfo, study_file: Path | None, path: Path) -> StudySpec:
    """The study of a run, from its file.

    Raises:
        StudyError: when the run did not come from a study file, or the file has moved, and none is named.
    """
    from .study import load_study

    stored = info.study_source or {"file": "", "function": info.study, "settings": {}}
    file = str(study_file or stored["file"])
    if study_file is None and not Path(file).is_file():
        raise StudyError(
            f"{path} was made with {file}, which is not there" if file else f"{path} was not made from a study file",
            hint="name the file that defines it with --study; in Python give the study: dse.open_run(path, study=...)",
        )
    return load_study(StudySource(file, stored["function"], stored["settings"]))
