"""Finding from the stability scores: chance, controls, and the FASS diagnosis of how a map fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from holdfast.axes.contract import Finding
from holdfast.axes.stability.perturbations import title
from holdfast.axes.stability.words import Findings
from holdfast.drawing.prose import above, difference, each, listing, records, some, with_interval
from holdfast.models.spoken import spoken, spoken_kind
from holdfast.report.advice_contract import evaluations, milder, name_in_study, settings_of
from holdfast.statistics import is_control

NEGLIGIBLE = 0.1
"""A calibrated score whose interval stays below this is next to nothing."""
LOW = 0.5
"""A component is called low when its whole interval is below this."""

SALIENT, ORDINAL, SPATIAL = "jaccard", "spearman", "ssim"
FAILURES = {
    SPATIAL: "Spatial failure: the picture of the map moves",
    ORDINAL: "Ordinal failure: the order of the features changes",
    SALIENT: "Salient-region failure: the top spots jump",
}


def stability_advice(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of one dataset and model, in no particular order."""
    yield from _at_chance(found, manifest)
    yield from _at_chance_under(found, manifest)
    beaten = list(_controls(found, manifest))
    yield from beaten
    yield from _diagnosis(found, manifest)
    if not beaten and "faithfulness" not in evaluations(manifest) and len(_methods(found)) > 1:
        yield _unchecked()


def _methods(found: Findings) -> pd.DataFrame:
    rows = found.ranking
    return rows[rows["score"].notna() & ~rows["control"].astype(bool)]


def _no_better(found: Findings) -> pd.DataFrame:
    """Methods whose overall interval stays next to chance, or below it."""
    rows = _methods(found)
    return rows[rows["high"] < NEGLIGIBLE] if found.calibrated else rows.iloc[:0]


def _at_chance(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    rows = _no_better(found)
    if len(rows):
        names = tuple(rows["explainer"])
        seen = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in records(rows))
        words = spoken(found.cube)
        yield Finding(
            "stability",
            "act",
            "Hardly more stable than unrelated maps",
            f"Over all perturbations the calibrated score is {seen}; 0 is what maps of different samples score.",
            "After a change that the model itself ignores, these maps look almost like those of another "
            f"{words.sample}. What they show of a {words.sample} is hardly there when it is taken again.",
            f"Do not show these maps for single {words.samples}; use a method higher in the ranking. Milder "
            f"perturbations tell whether anything holds: {words.milder}. {_smoothing(names, manifest)}".strip(),
            names,
        )


def _at_chance_under(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    cells = found.cells()
    cells = cells[cells["calibrated"].notna() & (cells["best_high"] < NEGLIGIBLE)]
    told = [str(e) for e in _no_better(found)["explainer"]]
    cells = cells[~cells["explainer"].map(lambda e: is_control(e) or e in told).astype(bool)]
    if cells.empty:
        return
    names = tuple(dict.fromkeys(cells["explainer"]))
    conditions = list(dict.fromkeys(zip(cells["condition"], cells["level"], strict=True)))
    said = "; ".join(
        f"{title(c, x)}: "
        + each((r.explainer, with_interval(r.best, r.best_low, r.best_high)) for r in records(cells[here]))
        for c, x in conditions[:3]
        for here in [(cells["condition"] == c) & (cells["level"] == x)]
    )
    sweeps = [s for c, x in conditions if (s := milder(c, x))]
    where = some([title(c, x) for c, x in conditions], 3)
    yield Finding(
        "stability",
        "mind",
        f"Next to chance under {where}",
        f"Calibrated scores under {said}{_more(conditions[3:])}.",
        "The prediction survives this change, the maps do not: they are hardly more alike than those of different "
        "samples.",
        (
            f"Find the strength at which they break: {listing(sweeps[:2])} in perturbations draws the curve. "
            if sweeps
            else ""
        )
        + _smoothing(names, manifest),
        names,
    )


def _controls(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    methods, controls = _methods(found), found.ranking[found.ranking["control"].astype(bool)]
    for control in records(controls[controls["score"].notna()]):
        if control.explainer.startswith("random"):
            continue
        beaten = [r for r in records(methods) if above(found.tests, control.explainer, r.explainer)]
        if not beaten:
            continue
        names = tuple(r.explainer for r in beaten)
        gaps = {name: difference(found.tests, control.explainer, name) or {} for name in names}
        said = each((n, f"by {with_interval(g['difference'], g['low'], g['high'])}") for n, g in gaps.items())
        checked = "faithfulness" in evaluations(manifest)
        yield Finding(
            "stability",
            "mind",
            f"{control.explainer} holds better",
            f"The control {control.explainer}, which never sees the model, scores "
            f"{with_interval(control.score, control.low, control.high)} and is ahead of {said}.",
            "Edges of a picture hardly move when it is disturbed, so a map that only shows edges is very stable and "
            "explains nothing. A high stability score alone is therefore no reason to choose a method.",
            "Choose by both axes: the chart of stability against faithfulness has them side by side."
            if checked
            else "Add faithfulness to the evaluations; the report then shows both axes side by side.",
            names,
        )


def _diagnosis(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Which of the components gives way, where their intervals say so; of a table they are Spearman and Jaccard."""
    needed = {ORDINAL, SALIENT} if spoken_kind(found.cube) == "table" else set(FAILURES)
    if set(found.components) != needed or not found.calibrated:
        return
    scores = {name: rows.set_index("explainer") for name, rows in found.components.items()}
    failing: dict[str, list[str]] = {}
    for explainer in _methods(found)["explainer"]:
        if explainer in set(_no_better(found)["explainer"]):
            continue
        own = {name: rows.loc[explainer] for name, rows in scores.items()}
        lowest = min(own, key=lambda name: own[name]["score"] if np.isfinite(own[name]["score"]) else math.inf)
        rest = [name for name in own if name != lowest]
        if own[lowest]["high"] < LOW and all(own[lowest]["high"] < own[name]["low"] for name in rest):
            failing.setdefault(lowest, []).append(str(explainer))
    others = "the other two" if len(needed) > 2 else "the other"
    for component, explainers in failing.items():
        names = tuple(explainers)
        said = "; of ".join(e + _three(scores, e) for e in names[:3]) + _more(names[3:])
        yield Finding(
            "stability",
            "mind",
            FAILURES[component],
            f"Calibrated components of {said}.",
            _MEANS[component].format(k=_top(found, manifest), others=others),
            _remedy(found, component, names, manifest),
            names,
        )


def _three(scores: dict[str, pd.DataFrame], explainer: str) -> str:
    titles = {SPATIAL: "SSIM", ORDINAL: "Spearman", SALIENT: "Jaccard"}
    rows = {name: records(scores[name].loc[[explainer]])[0] for name in titles if name in scores}
    return ": " + ", ".join(f"{titles[n]} {with_interval(r.score, r.low, r.high)}" for n, r in rows.items())


_MEANS = {
    SPATIAL: "SSIM, which looks at the map as a picture, gives way more than {others}: the order of the features "
    "and the top spots survive better than the shape they are drawn in.",
    ORDINAL: "Spearman, which looks at the order of all features, gives way more than {others}: about the same "
    "places light up, but which of them matters more changes.",
    SALIENT: "Jaccard, which looks at {k} only, gives way more than {others}: the map as a whole holds better "
    "than the spots that the eye goes to first.",
}


def _top(found: Findings, manifest: Mapping[str, Any]) -> str:
    asked = ((manifest.get("study") or {}).get("evaluations") or {}).get(found.cube.evaluation) or {}
    k = asked.get("k", 100)
    return f"the {k} largest values" if isinstance(k, int) else f"the largest {100 * float(k):g} % of the values"


def _remedy(found: Findings, component: str, names: tuple[str, ...], manifest: Mapping[str, Any]) -> str:
    kind, places = spoken_kind(found.cube), spoken(found.cube).places
    kinds = [name_in_study(manifest, name) for name in names]
    if component == SALIENT:
        single = (
            f"{'This method does' if len(names) == 1 else 'These methods do'} not say which single {places} matter."
        )
        if kind != "image":
            return f"Do not read much into the first few {places}; k: 0.3 compares more of them. {single}"
        return (
            "Read regions and not single spots. If regions are what you show, score them so: k: 0.05 compares the top "
            f"5 %. {single}"
        )
    if component == ORDINAL:
        steps = next((n for n in names if "steps" in settings_of(manifest, n)), "")
        more = f"More steps may help: {name_in_study(manifest, steps)}: {{steps: 64}}. " if steps else ""
        return f"{more}Show which places matter and not their order, or one colour above a threshold in place of ranks."
    cut = [n for n, kind in zip(names, kinds, strict=True) if kind in ("lime", "kernel_shap", "occlusion")]
    if cut and kind == "image":
        return (
            "Superpixels are cut anew for every picture and come out differently after a change. Fixed patches do not: "
            f"{name_in_study(manifest, cut[0])}: {{features: {{patches: {{size: 16}}}}}}."
        )
    return f"Smooth the maps before they are shown. {_smoothing(names, manifest)}".strip()


def _smoothing(names: tuple[str, ...], manifest: Mapping[str, Any]) -> str:
    """How to average the first of the methods that follow gradients over noise."""
    kinds = (name_in_study(manifest, name) for name in names)
    kind = next((kind for kind in kinds if "gradient" in kind or kind in ("saliency", "deep_lift", "lrp")), "")
    return f"Averaging over noise may help: smoothgrad: {{of: {kind}}} among the explainers." if kind else ""


def _more(rest: Sequence[object]) -> str:
    return f"; and {len(rest)} more" if rest else ""


def _unchecked() -> Finding:
    return Finding(
        "stability",
        "note",
        "Stability alone cannot choose a method",
        "This run did not test faithfulness.",
        "A map can hold perfectly still and have nothing to do with the model.",
        "Add faithfulness to the evaluations of the study before you choose.",
    )
