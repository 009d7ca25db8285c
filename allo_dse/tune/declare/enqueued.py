"""Designs that a study begins with: by hand, known parameters, the best of another run, or measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from allo_dse.common.errors import AlloDseError, IllegalFold, StudyError
from allo_dse.common.records import Frozen
from allo_dse.mapper.fold.builder import Primitive
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.node_fold_search import NodeFold
from allo_dse.mapper.violation import Buffering
from allo_dse.space.choices.folds import Fold
from allo_dse.space.design import Design
from allo_dse.space.genes import Genes, Suggest, random_suggest, suggest_from
from allo_dse.space.space import Candidate

from ..search.lower_bounds import metric_of
from ..search.promotion import Rung, promoted
from ..search.scoring import Scorer
from ..store.log import Log, stored
from ..store.record import Record, decode_entry
from ..store.rundir import LOG, find_run, read_csv
from .spec import StudySpec

if TYPE_CHECKING:
    import optuna

    from allo_dse.mapper.program import Program

ByName: TypeAlias = Mapping[str, Any]
Wanted: TypeAlias = Design | Fold | Sequence[Primitive] | ByName | str | Path
Measured: TypeAlias = "Design | Mapping[str, Any] | str | Path | optuna.Study"

SAME = 8  # random designs with given parameters that must be the same one if the parameters decide everything
MOST_DRAWN = 1000  # attempts to find a legal design with given parameters
MOST_OF_RUN = 8  # designs to take over from another run
LOOKED_AT = 100  # designs of another run to check for legality here


def enqueue(study: StudySpec, wanted: Wanted, params: ByName) -> None:
    """Let a study begin with a design, a mapping, any legal design with given parameters, or the best of a run's
    designs; each once.

    Raises:
        StudyError: when the study's space has no such design.
    """
    found = StartingDesigns(study).genes(wanted, params)
    study.enqueued += [genes for genes in found if genes not in study.enqueued]


def attach(study: StudySpec, measured: Measured, metrics: ByName | None) -> None:
    """Take over measured designs; see `Study.attach`."""
    for wanted, found in _measurements(study, measured, metrics):
        candidate = _determined(study, wanted)
        study.attached[candidate.key] = stored(dict(found)) if found else None
        study.enqueued += [candidate.genes] if candidate.genes not in study.enqueued else []


def _determined(study: StudySpec, wanted: Design | ByName) -> Candidate:
    """Return the only design with these parameters and genes."""
    given = study.space.encode(wanted) if isinstance(wanted, Design) else _genes_of(study, wanted)
    drawn = (suggest_from(given, random_suggest(np.random.default_rng(seed))) for seed in range(SAME))
    found = {one.key: one for one in map(study.space.decode, drawn) if one is not None}
    if len(found) != 1:
        problem = "leave open how tasks are mapped" if found else "belong to no design of the space"
        raise StudyError(
            f"the values {dict(given)} {problem}", hint="attach a design, or add the genes of its mapping (fold. ...)"
        )
    return next(iter(found.values()))


def _genes_of(study: StudySpec, wanted: ByName) -> Genes:
    """Return the genes of values of parameters, and of parts of the mapping by gene or as Optuna's trials have them."""
    from .trial_parameters import TrialParameters  # imported late: Optuna is slow to import

    given = StartingDesigns(study)._positions({k: v for k, v in wanted.items() if k in study.parameters.free})
    study.space.decode(suggest_from(given))  # it learns of all genes
    names = TrialParameters(study)
    known = {names.of(name, gene).name: (name, names.of(name, gene)) for name, gene in study.space.genes.items()}
    by_gene = any(name in study.space.genes and name not in known for name in wanted)
    try:
        for name, value in wanted.items():
            if name in known and name not in study.parameters.free and not by_gene:
                gene, parameter = known[name]
                given[gene] = parameter.number(value)
            elif name not in study.parameters.free:
                given[name] = int(value)
    except ValueError as error:
        raise StudyError(f"{dict(wanted)} has values that are neither parameters nor genes: {error}") from error
    return given


def _measurements(
    study: StudySpec, measured: Measured, metrics: ByName | None
) -> Iterator[tuple[Design | ByName, ByName | None]]:
    """Yield designs, or their parameters, with metrics."""
    if isinstance(measured, str | Path):
        yield from _rows(study, Path(measured))
    elif isinstance(measured, Design | Mapping):
        yield measured, metrics
    else:
        names = [metric_of(objective) for objective in study.objectives]
        for trial in measured.trials:
            if not trial.state.is_finished() or not trial.params:
                continue
            if not trial.values:
                yield trial.params, None
                continue
            if None in names and not trial.user_attrs:
                raise StudyError(
                    "an objective of the study is computed, and Optuna's trials have no metrics",
                    hint="set them as user attributes of the trials",
                )
            values = {name: value for name, value in zip(names, trial.values, strict=True) if name}
            yield trial.params, {**trial.user_attrs.get("metrics", trial.user_attrs), **values}


def _rows(study: StudySpec, file: Path) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Yield parameters and metrics of the rows of a CSV file."""
    free, hint = study.parameters.free, f"it needs {', '.join(study.parameters.free)}"
    columns, table = read_csv(file, hint)
    if missing := [name for name in free if table and name not in columns]:
        raise StudyError(f"{file} has no column for the parameter {missing[0]!r}", hint=hint)
    judged = {metric_of(objective) for objective in study.objectives}
    texts = {name: {str(value): value for value in parameter.values} for name, parameter in free.items()}
    for where, row in table:
        params: dict[str, Any] = {}
        metrics: dict[str, float] = {}
        for name, text in row.items():
            if name in free:
                if text in texts[name]:
                    params[name] = texts[name][text]
                elif text or not free[name].when:
                    known = ", ".join(texts[name])
                    raise StudyError(f"{where}: {name} has no value {text!r}", hint=f"one of {known}")
            elif "." in name and text.isdigit():
                params[name] = int(text)
            elif name not in study.parameters.parameters:
                try:
                    if math.isfinite(value := float(text)):
                        metrics[name] = value
                except ValueError:
                    if text and name in judged:
                        raise StudyError(f"{where}: {name}: {text!r} is no number, nor empty for a failure") from None
        yield params, metrics


class StartingDesigns(Frozen):
    """Genes of the designs that a study begins with.

    Raises:
        StudyError: by its methods, when the study's space has no such design.
    """

    study: StudySpec

    def genes(self, wanted: Wanted, params: ByName) -> list[Genes]:
        """The genes of a design, a mapping, any legal design with given parameters, or the best of a run's designs."""
        if isinstance(wanted, str | Path):
            return self._of_run(Path(wanted))
        if isinstance(wanted, Mapping):
            return [self._with_parameters({**wanted, **params})]
        if isinstance(wanted, Design):
            return [self.study.space.encode(wanted)]
        return [self._mapped(wanted, self._positions(params))]

    def _positions(self, params: ByName) -> Genes:
        """The genes of values of parameters."""
        given: Genes = {}
        free = self.study.parameters.free
        for name, value in params.items():
            values = free[name].values if name in free else ()
            if value not in values:
                hint = f"one of {', '.join(map(str, values))}" if values else f"there are {', '.join(free)}"
                raise StudyError(f"no parameter {name}={value!r} can be enqueued", hint=hint)
            given[f"param.{name}"] = free[name].position(value)
        return given

    def _with_parameters(self, params: ByName) -> Genes:
        given, rng = self._positions(params), np.random.default_rng(0)
        for _ in range(MOST_DRAWN):
            found = self._legal(suggest_from(given, random_suggest(rng)))
            if found is not None:
                return found
        raise StudyError(f"no legal design with {dict(params)} was found in {MOST_DRAWN} attempts")

    def _legal(self, suggest: Suggest) -> Genes | None:
        try:
            candidate = self.study.space.decode(suggest)
            return candidate.genes if candidate is not None and not self.study.check(candidate.design) else None
        except AlloDseError:  # does not compile, or cannot be folded
            return None

    def _mapped(self, mapping: Fold | Sequence[Primitive], given: Genes) -> Genes:
        """The first program with the given parameters that a mapping fits, on the study's device."""
        reason = "no parameters satisfy the study's conditions"
        for option, genes in self.study.space.choices[0].options(self.study.space.start):
            if option is None or not given.items() <= genes.items():
                continue
            try:
                fold = self._fold(option.compiled, mapping)
                return self.study.space.encode(Design(option.compiled, fold, Buffering(), self.study.device))
            except IllegalFold as error:
                reason = error.message
        raise StudyError(f"no program of the study takes the mapping: {reason}")

    def _fold(self, program: Program, mapping: Fold | Sequence[Primitive]) -> Fold:
        """A mapping as a fold; of a list the one that makes the same graph."""
        if isinstance(mapping, MeshFold):
            return mapping.normalised(program.vmg.graph)
        if isinstance(mapping, NodeFold):
            return mapping
        wanted = program.vmg.apply(mapping)
        for fold in self.study.folds.folds(program):
            made = program.vmg.fold(fold)
            if made.node_count == wanted.node_count and made.key == wanted.key:
                return fold
        raise IllegalFold("the list makes a graph that is none of the study's folds")

    def _of_run(self, run: Path) -> list[Genes]:
        """Return the best designs of a run of any size and device that are legal here.

        Tiles may correspond by their number or by their position among a parameter's values; both are tried.
        """
        found: dict[tuple[tuple[str, int], ...], Genes] = {}
        for record in self._best_of(find_run(run)):
            for genes in (record.genes, {**record.genes, **self._nearest(record)}):
                legal = self._legal(suggest_from(genes))
                if legal is not None and len(found) < MOST_OF_RUN:
                    found.setdefault(tuple(sorted(legal.items())), legal)
        if not found:
            raise StudyError(f"{run} has no design among its best that is legal in study {self.study.name!r}")
        return list(found.values())

    def _best_of(self, run: Path) -> Iterator[Record]:
        """The feasible designs by the objectives of this study: its front first, then the front of the rest."""
        scorer, known = Scorer(self.study.objectives, self.study.constraints), dict[str, Record]()
        for line in Log(run / LOG):
            entry = decode_entry(line)
            if isinstance(entry, Record) and entry.evaluated and not entry.rung:
                known[entry.key] = scorer.scored(entry)
        values = {key: found for key, record in known.items() if (found := scorer.values(record)) is not None}
        best = Rung(lambda: self.study.make_evaluator(), best=1.0, at_most=LOOKED_AT)
        yield from (known[key] for key in promoted(best, values, tuple(o.sign for o in self.study.objectives)))

    def _nearest(self, record: Record) -> Genes:
        """Genes of the values of parameters that are nearest to a design's, in ratios."""
        found: Genes = {}
        for name, parameter in self.study.parameters.free.items():
            numbers = [v for v in parameter.values if isinstance(v, int | float) and v > 0]
            wanted = record.params.get(name)
            if isinstance(wanted, int | float) and wanted > 0 and len(numbers) == len(parameter.values):
                found[f"param.{name}"] = min(
                    range(len(numbers)), key=lambda n: max(numbers[n] / wanted, wanted / numbers[n])
                )
        return found
