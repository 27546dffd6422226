"""A run: opened by `read`, and its results as tables, maps, sentences and a page."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from heatproof import axes, statistics
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Better
from heatproof.runs import digests, directory, kept, tables
from heatproof.runs.atomic import write_atomically
from heatproof.runs.pictures import read_exhibits
from heatproof.runs.storage import Place, place
from heatproof.runs.verify import missing
from heatproof.statistics.cubes import Cube


class Run:
    """The results in a run directory; `packed` is the zip that it was unpacked from, beside which its report goes."""

    def __init__(self, path: Place, packed: Path | None = None) -> None:
        self.path = path
        self.packed = packed
        self.manifest = directory.read_manifest(path)
        self._arranged: tuple[list[Place], list[Cube]] | None = None

    def table(self) -> pd.DataFrame:
        """One row per attempted pair and measure, with the columns of `heatproof.runs.tables.SCORES`.

        `status` is ok, flipped or undefined, and `reason` says why a pair has no score.
        """
        return tables.read_scores(self.path)

    def samples(self) -> pd.DataFrame:
        """One row per sample: label, prediction and probability, or why it could not be read."""
        return tables.read_samples(self.path)

    def summary(self) -> pd.DataFrame:
        """Means with intervals, chance, calibrated and aligned scores, noise floor and retention; see `statistics`."""
        return statistics.summary(self._cubes())

    def ranking(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Explainers in order of their overall score, with the uncertainty of their ranks; see `statistics.ranking`.

        Every evaluation, or the one named, is ranked by its headlines, or by the measure named. There are no ranks
        where a measure has no better direction, and no rows for an evaluation without a headline. `mark` is "blind" for
        an explainer whose map does not change with the model, where that was measured, whatever is ranked.
        """
        measured = self._measured(evaluation, measure)
        blocks = [
            statistics.ranking([cube], name, better=better) for cube, name, better in measured
        ]
        ranked = pd.concat(blocks, ignore_index=True) if blocks else statistics.ranking([], "")
        words = axes.marked(self._cubes(), self.manifest)
        places = zip(ranked["dataset"], ranked["model"], ranked["explainer"], strict=True)
        return ranked.assign(
            mark=[words[dataset, model].get(name, "") for dataset, model, name in places]
        )

    def tests(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Paired tests between explainers, with Holm's correction, by the same measures as `ranking`."""
        blocks = [
            statistics.paired_tests([cube], name)
            for cube, name, _ in self._measured(evaluation, measure)
        ]
        return pd.concat(blocks, ignore_index=True) if blocks else statistics.paired_tests([], "")

    def _measured(
        self, evaluation: str | None, measure: str | None
    ) -> list[tuple[Cube, str, Better]]:
        """Each evaluation of each dataset and model with its headlines and which way is better, or what is named."""
        known = self.manifest["study"]["evaluations"]
        if evaluation is not None and evaluation not in known:
            raise unknown("evaluation", evaluation, known)
        cubes = [cube for cube in self._cubes() if evaluation in (None, cube.evaluation)]
        measures = {name for cube in cubes for name in cube.measures}
        if measure is not None and cubes and measure not in measures:
            raise unknown("measure", measure, measures)
        chosen: list[tuple[Cube, str, Better]] = []
        for cube in cubes:
            axis = axes.axis_of(cube.evaluation, self.manifest, cube.values)
            for name in axis.headlines(cube) if measure is None else {measure} & set(cube.measures):
                declared = axis.measure(name)
                chosen.append((cube, name, declared.better if declared else "neither"))
        return chosen

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
        ((3, 8, 8), 48)
        """
        study, place = self.manifest["study"], []
        for section, given in (("datasets", dataset), ("models", model), ("explainers", explainer)):
            if given is None and len(study[section]) > 1:
                raise UserError(
                    f"the run has several {section}; name one of {', '.join(study[section])}"
                )
            place.append(given or next(iter(study[section])))
            if place[-1] not in study[section]:
                raise unknown(section.removesuffix("s"), given, study[section])
        found = kept.read_maps(self.path, *place)
        if not found:
            raise UserError(f"{self.path} holds no maps of {explainer}; {kept.ADVICE}")
        if sample is not None and sample not in found:
            raise unknown("sample with a kept map", sample, found)
        return found if sample is None else found[sample]

    def judge_maps(self, evaluations: Any, data: Any = None) -> pd.DataFrame:
        """What evaluations that need maps alone say of the kept ones, in the form of `table`, without the model.

        That is agreement, and any of your own that asks its subject for `clean(explainer)` and `reference(explainer)`
        alone; one that asks the model is an error. Whoever needs inputs gets those of `data`. Chance comes from the
        references of the run, or from all kept samples where not all of these were kept.
        """
        return kept.judged(self.path, self.manifest, evaluations, data)

    def report(self, path: str | Place | None = None) -> Place:
        """Write the report, one HTML file that works offline, and return where it is."""
        facts = {**self.manifest, "missing": missing(self.path)}
        beside = (
            self.path / "report.html" if self.packed is None else self.packed.with_suffix(".html")
        )
        target = beside if path is None else place(path)
        html: str = _report().build_report(
            self.in_study_order(), self.samples(), read_exhibits(self.path), facts
        )
        write_atomically(target, html.encode())
        return target

    def text(self) -> str:
        """The verdict and the ranking for a terminal."""
        text: str = _report().text_summary(self.in_study_order(), self.samples(), self.manifest)
        return text

    def proof_sheet(
        self, sample: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> Any:
        """The proof sheet of a data set and model, the first where none is named, as a drawing that notebooks show.

        `sample` is one that was kept with its maps; without it, the one nearest to the median. `.svg(alone=True)` gives
        its text, `.encoded("pdf", "Proof sheet", inches)` a file.
        """
        shown = read_exhibits(self.path)
        return _report().proof_sheet(
            self.in_study_order(), self.samples(), shown, self.manifest, sample, dataset, model
        )

    def in_study_order(self) -> pd.DataFrame:
        """The table with its conditions in the order in which the study names them, which is how people read them."""
        evaluations = self.manifest["study"]["evaluations"].values()
        named = dict.fromkeys(
            condition for facts in evaluations for condition, _ in facts.get("conditions", [])
        )
        number = {condition: i for i, condition in enumerate(named)}
        rows = self.compact()
        by_code = np.array(
            [number.get(c, len(number)) for c in rows["condition"].cat.categories], dtype=np.int64
        )
        return rows.iloc[by_code[rows["condition"].cat.codes].argsort(kind="stable")]

    def _cubes(self) -> list[Cube]:
        parts = [
            path for kind in ("parts", "samples") for path in digests.parts(self.path / kind)
        ]  # named by content
        if self._arranged is None or self._arranged[0] != parts:
            self._arranged = parts, axes.arrange(self.compact(), self.manifest, self.samples())
        return self._arranged[1]

    def compact(self) -> pd.DataFrame:
        """The table with its columns of text as categories: what statistics and the report read, a quarter the size."""
        return tables.read_scores(self.path, compact=True)

    def _repr_html_(self) -> str:
        """How a notebook shows a run: what was run, whether all of it, and the ranking of every axis."""
        from heatproof.drawing import methods, prose, tables

        gaps, named = missing(self.path), methods.looks(self.manifest["study"]["explainers"])
        columns = ["explainer", "rank", "score", "dataset", "model", "evaluation", "measure"]
        rows = []
        for r in self.ranking().to_dict("records"):
            r |= {
                "explainer": named[r["explainer"]].name,
                "score": prose.with_interval(r["score"], r["low"], r["high"], r["samples"]),
            }
            r["rank"] = "–" if pd.isna(r["rank"]) else f"{r['rank']:.0f}"
            rows.append(tables.Row([str(r[column]) for column in columns]))
        state = f"So far: {len(gaps)} parts are not computed yet." if gaps else "Complete."
        return Markup("<p>{}<br>{}</p>{}").format(
            self, state, tables.grid(columns, rows, "Ranking")
        )

    def __repr__(self) -> str:
        study = self.manifest["study"]
        names = {
            key: ", ".join(study[key])
            for key in ("models", "datasets", "explainers", "evaluations")
        }
        return f"Run({str(self.path)!r}: {names['explainers']} on {names['models']} and {names['datasets']})"


def _report() -> Any:
    """The report, by name: a run can show itself, and knows nothing of how that is done."""
    return importlib.import_module("heatproof.report")


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
