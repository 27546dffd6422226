"""A run: opened by `read`, and its results as tables, maps, sentences and a page."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.errors import UserError, unknown
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import TEST_COLUMNS
from heatproof.results.ranking import RANKING_COLUMNS
from heatproof.results.summary import SUMMARY_COLUMNS
from heatproof.runs import kept, tables
from heatproof.runs.atomic import write_atomically
from heatproof.runs.directory import FOLDERS, RunDirectory
from heatproof.runs.gallery import read_gallery
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import every_axis_result, in_study_order, shown_results
from heatproof.runs.storage import Place, place
from heatproof.runs.verify import missing, missing_in_words


@dataclass(frozen=True)
class _CachedResults:
    """Results that were computed already, with the parts that they were computed from."""

    parts: list[Place]
    has_gallery: bool
    results: list[AxisResult]


class Run:
    """The results in a run directory; `packed` is the zip that it was unpacked from, beside which its report goes."""

    def __init__(self, path: Place, packed: Path | None = None) -> None:
        self.path = path
        self.packed = packed
        self.directory = RunDirectory(path)
        self.manifest: Manifest = self.directory.manifest
        self._cached_results: _CachedResults | None = None

    def table(self) -> pd.DataFrame:
        """One row per attempted pair and measure, with the columns of `heatproof.runs.tables.SCORES`.

        `status` is ok, flipped or undefined, and `reason` says why a pair has no score.
        """
        return tables.read_scores(self.path)

    def samples(self) -> pd.DataFrame:
        """One row per sample: label, prediction and probability, or why it could not be read."""
        return tables.read_samples(self.path)

    def references(self) -> pd.DataFrame:
        """What each reference sample adds to the chance levels: their sums, with which intervals are computed."""
        return tables.read_references(self.path)

    def summary(self) -> pd.DataFrame:
        """Means with intervals, chance, calibrated scores, noise floor and retention; see `heatproof.results.summary`."""
        summaries = [result.summary for result in self._every_result()]
        return _joined(summaries, SUMMARY_COLUMNS)

    def ranking(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Explainers in order of their overall score, with the uncertainty of ranks; see `heatproof.results.ranking`.

        Every evaluation, or the one named, is ranked by its headlines, or by the measure named. There are no ranks
        where a measure has no better direction, and no rows for an evaluation without a headline. `mark` is "blind" for
        an explainer whose map does not change with the model, where that was measured, whatever is ranked.
        """
        rankings = []
        for result, name in self._ranked_measures(evaluation, measure):
            ranked = result.ranking_by(name)
            marks = [result.marks.get(explainer, "") for explainer in ranked["explainer"]]
            rankings.append(ranked.assign(mark=marks))
        return _joined(rankings, [*RANKING_COLUMNS, "mark"])

    def tests(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Paired tests between explainers, corrected for all pairs (max-T), by the same measures as `ranking`."""
        ranked = self._ranked_measures(evaluation, measure)
        return _joined([result.tests_by(name) for result, name in ranked], TEST_COLUMNS)

    def _ranked_measures(
        self, evaluation: str | None, measure: str | None
    ) -> list[tuple[AxisResult, str]]:
        """Return the results with their headlines, or with the measure named; unknown names are errors."""
        evaluations = self.manifest.study.evaluations
        if evaluation is not None and evaluation not in evaluations:
            raise unknown("evaluation", evaluation, evaluations)
        results = [result for result in self._every_result() if evaluation in (None, result.label)]
        measures: set[str] = set()
        for result in results:
            measures.update(result.arrays.measures)
        if measure is not None and results and measure not in measures:
            raise unknown("measure", measure, measures)

        ranked = []
        for result in results:
            if measure is None:
                names = result.axis.headlines(result.arrays)
            else:
                names = [measure] if measure in result.arrays.measures else []
            ranked += [(result, name) for name in names]
        return ranked

    def maps(
        self,
        explainer: str,
        sample: str | None = None,
        dataset: str | None = None,
        model: str | None = None,
    ) -> Any:
        """The kept map of a sample, a float32 array in its shape; without one, {sample: map}.

        Data set and model are named where there are several. Maps are of the predicted class, as `samples` has it.

        >>> from heatproof import evaluate
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
        >>> images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> run = evaluate(net, images, ["saliency", "lrp"], [], keep_maps=True)
        >>> run.maps("saliency", "0002").shape, len(run.judge_maps({"agreement": {"agreement": {"k": 9}}}))
        ((3, 8, 8), 24)
        """
        study = self.manifest.study
        dataset = _one_of("dataset", dataset, study.datasets)
        model = _one_of("model", model, study.models)
        explainer = _one_of("explainer", explainer, study.explainers)
        map_of_sample = kept.read_maps(self.directory, dataset, model, explainer)
        if not map_of_sample:
            raise UserError(f"{self.path} holds no maps of {explainer}; {kept.ADVICE}")
        if sample is None:
            return map_of_sample
        if sample not in map_of_sample:
            raise unknown("sample with a kept map", sample, map_of_sample)
        return map_of_sample[sample]

    def judge_maps(self, evaluations: Any, data: Any = None) -> pd.DataFrame:
        """What evaluations that need maps alone say of the kept ones, in the form of `table`, without the model.

        That is agreement, and any of your own that asks its subject for `maps(explainer)` and `references.maps(explainer)`
        alone; one that asks the model is an error. Whoever needs inputs gets those of `data`. Chance comes from the
        references of the run, or from all kept samples where not all of these were kept.
        """
        return kept.evaluate_maps(self.directory, evaluations, data)

    def report(self, path: str | Place | None = None) -> Place:
        """Write the report, one HTML file that works offline, and return where it is."""
        beside = (
            self.path / "report.html" if self.packed is None else self.packed.with_suffix(".html")
        )
        target = beside if path is None else place(path)
        results = self.results(gallery=True)
        gaps = missing(self.path)
        html: str = _report("page").build_report(results, self.samples(), self.manifest, gaps)
        write_atomically(target, html.encode())
        return target

    def text(self) -> str:
        """Return the verdict as a terminal shows it: one table, one conclusion, at most five warnings."""
        view = _report("overview_text")
        lines = view.run_lines(self.results(), self.samples(), self.manifest, view.WIDTH)
        text: str = view.plain(lines)
        return self._unfinished() + text

    def markdown(self) -> str:
        """Return the verdict as Markdown, such as for the summary of a job in CI."""
        overviews = _report("overview").overviews(self.results(), self.samples(), self.manifest)
        text: str = _report("overview_markdown").markdown(overviews)
        return self._unfinished() + text

    def _unfinished(self) -> str:
        """Return the paragraph that says what is missing of the run, above the scores so far; empty if nothing is."""
        gaps = missing(self.path)
        return f"Unfinished: {missing_in_words(gaps)}.\n\n" if gaps else ""

    def proof_sheet(
        self, sample: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> Any:
        """The proof sheet of a data set and model, the first where none is named, as a drawing that notebooks show.

        `sample` is one that was kept with its maps; without it, the one nearest to the median. `.svg(alone=True)` gives
        its text, `.encoded("pdf", "Proof sheet", inches)` a file.
        """
        results = self.results(gallery=True)
        return _report("proof_sheet_drawing").proof_sheet(
            results, self.samples(), sample, dataset, model
        )

    def show(self, sample: str | None = None) -> Any:
        """Return the maps of one sample by all methods, with their scores, as a drawing that a notebook shows.

        Without a sample it is a typical one, nearest to the median score. `samples()` lists the ids; a run keeps the maps
        of some of them.
        """
        return self.proof_sheet(sample)

    def components(self, evaluation: str | None = None) -> list[Any]:
        """Return the charts, tables and galleries of the report, of one evaluation or of all, for a notebook.

        Each shows itself in a notebook; `print` writes its numbers, and `.component` has them as a data frame.
        """
        results = self.results(gallery=True)
        if evaluation is not None:
            labels = [result.label for result in results]
            if evaluation not in labels:
                raise unknown("evaluation with results", evaluation, labels)
            results = [result for result in results if result.label == evaluation]
        shown: list[Any] = _report("notebook").shown_components(results)
        return shown

    def in_study_order(self) -> pd.DataFrame:
        """The table with its conditions in the order in which the study names them, which is how people read them."""
        return in_study_order(self.compact(), self.manifest)

    def results(self, gallery: bool = False) -> list[AxisResult]:
        """Return the result of every test of every data set and model, with maps of some samples if `gallery`.

        They are computed once, as long as the run does not grow; the terminal, the page, figures and statistics read
        them.
        """
        return shown_results(self._every_result(gallery))

    def _every_result(self, gallery: bool = False) -> list[AxisResult]:
        """Return the result of every test, from the cache unless the run has other parts than when it was filled."""
        # Names of parts have a digest of their content, so equal names mean equal rows.
        parts = []
        for folder in FOLDERS:
            parts += self.directory.parts(folder)
        cached = self._cached_results
        if cached is not None and cached.parts == parts:
            has_enough = cached.has_gallery or not gallery
            if has_enough:
                return cached.results
        results = every_axis_result(
            self.in_study_order(),
            self.samples(),
            read_gallery(self.path) if gallery else [],
            self.manifest,
            self.references(),
        )
        self._cached_results = _CachedResults(parts, gallery, results)
        return results

    def compact(self) -> pd.DataFrame:
        """The table with its columns of text as categories: what statistics and the report read, a quarter the size."""
        return tables.read_scores(self.path, compact=True)

    def _repr_html_(self) -> str:
        """How a notebook shows a run: what was run, whether all of it, and the ranking of every axis."""
        html: str = _report("notebook").run_html(self)
        return html

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        study = self.manifest.study
        models, datasets = ", ".join(study.models), ", ".join(study.datasets)
        return f"Run({str(self.path)!r}: {', '.join(study.explainers)} on {models} and {datasets})"


def _joined(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """Return the rows of all frames; without any an empty frame with these columns."""
    frames = [frame for frame in frames if not frame.empty]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def _one_of(what: str, name: str | None, known: Collection[str]) -> str:
    """Return the name that was given, or the only one there is."""
    if name is None:
        if len(known) > 1:
            raise UserError(f"the run has several {what}s; name one of {', '.join(known)}")
        return next(iter(known))
    if name not in known:
        raise unknown(what, name, known)
    return name


def _report(module: str) -> Any:
    """Return a module of the report, by name: a run can show itself, and knows nothing of how that is done."""
    return importlib.import_module(f"heatproof.report.{module}")


def read(path: Run | str | Place) -> Run:
    """Open a run directory, one packed by `heatproof export --to zip`, or a run at an address of an object store.

    A `Run` stays itself.

    >>> read("no-such-run")
    Traceback (most recent call last):
    heatproof.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    if isinstance(path, Run):
        return path
    where = place(path)
    if isinstance(where, Path) and where.is_file() and where.suffix.lower() == ".zip":
        from heatproof.runs.export import unpacked

        return Run(unpacked(where), packed=where)
    return Run(where)
