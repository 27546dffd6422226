"""Findings about symmetry: methods that break a symmetry of the model, models that have none, chance, noise and bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.guidelines import GUIDELINES, remedies
from heatproof.axes.symmetry.summaries import CLOSE_TO_ONE, SymmetrySummary, summarise
from heatproof.explainers import EXPLAINERS
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.estimates import interval
from heatproof.text import each, number, plural, records, with_interval

TOO_ROUGH = 0.05
"""The uncertainty of one sample's score from which more elements are worth their cost."""
NOISE_MARGIN = 0.01
"""How far a score must be above its noise floor for the report to say that the draws cost more than the symmetry."""
PIXEL_GROUP = {"dihedral": {"n": 4}}
"""A group that only permutes pixels."""

BROKEN = finding_template(
    "broken-symmetry",
    axis=Symmetry.name,
    title="{breaks} a symmetry that the model has",
    seen="Mean {measure} under {group}: {scores}. The model’s own invariance is {model}.",
    means="{guideline.should} This model is, so the fault is the method’s (guidelines {guideline.number} and 4 of the "
    "invariance paper).",
    do="{advice} {symmetrise} In Python: heatproof.symmetrise(explainer, {study_group}).{moved_back} Symmetrising enforces "
    "the symmetry; it does not make the explanation more faithful.",
)
OWN_GROUP = "your group"
MOVED_BACK = " Maps are moved back before they are averaged."
SYMMETRISE = "Or symmetrise it ({symmetrised})."
SYMMETRISE_UNTRIED = "Or symmetrise it; `repair: [4, 8]` shows how many elements that takes."
LOOSE_MODEL = finding_template(
    "model-not-invariant",
    axis=Symmetry.name,
    title="The model itself does not keep the symmetry",
    seen="Model invariance under {group} is {model}{agreement}.{lowest}",
    means="An explanation need not keep a symmetry that the model breaks, so a low score alone is no fault of the "
    "method. The two are not related linearly either: on an almost invariant model some explanations keep the symmetry "
    "and others do not (guideline 5).",
    do="Do not symmetrise these methods: that would hide what the model does (guideline 4). If the symmetry should hold, "
    "fix the model first: train on moved inputs, or use an invariant architecture. The ranking holds for this model only.",
)
AGREEMENT = "; its prediction stays the same for {share} % of the moved inputs"
LOWEST = " The lowest score of an explanation is {score}, of {method}."
AT_CHANCE = finding_template(
    "not-above-chance",
    axis=Symmetry.name,
    title="Not significantly above chance",
    seen="{scores}.",
    means="Explanations of other samples agree as well, so the score says nothing about symmetry.",
    do="Do not read these scores as symmetry. Test more samples, or more elements of the group.",
)
DRAWS = finding_template(
    "noisy-draws",
    axis=Symmetry.name,
    title="Random draws change the explanation more than the group does",
    seen="Two draws on the same input agree only to {floors}.",
    means="Both explanations of a pair use the same random draws. With another seed they agree less, however symmetric "
    "the method is.",
    do="Give the method more samples, and report the noise floor beside the score.",
)
INTERPOLATES = finding_template(
    "interpolating-group",
    axis=Symmetry.name,
    title="The group interpolates",
    seen="{group} moves pixels to places between pixels.",
    means="No method can score 1, and small differences may come from the interpolation.",
    do="For exact statements, use a group that only permutes pixels.",
)
FEW_ELEMENTS = finding_template(
    "few-elements",
    axis=Symmetry.name,
    title="Few elements of the group were tried",
    seen="With {n} elements, the score of a single sample is uncertain by ±{error} (median).",
    means="Scores of single samples are rough. Means over samples are less so, and their intervals include it.",
    do="Use {more} elements: half the uncertainty at four times the cost.",
)


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what only symmetry can find, in no particular order."""
    summary = summarise(result)
    if summary is None or summary.methods.empty:
        return
    low = summary.methods[summary.methods["high"] < CLOSE_TO_ONE]
    if summary.is_model_invariant:
        yield from _broken_symmetry(summary, low[~low["within_noise"].astype(bool)])
    elif summary.is_model_invariant is False:
        yield _model_not_invariant(summary, low)
    yield from _not_above_chance(summary)
    yield from _noisy_draws(summary)
    if summary.interpolates:
        change = _symmetry_change({"group": PIXEL_GROUP})
        yield INTERPOLATES.filled({"group": summary.group_title}, change=change)
    yield from _few_elements(summary)


def _symmetry_change(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what to write into a study file for other settings of symmetry."""
    return {"evaluations": [{Symmetry.name: settings}]}


def _score(row: Any) -> str:
    """Return the score of a row of `SymmetrySummary.explainers` with its interval."""
    return with_interval(row.score, row.low, row.high)


def _broken_symmetry(summary: SymmetrySummary, low: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for the methods in `low` that break a symmetry of the model, one for each remedy.

    They follow guidelines 1 to 4 of Crabbé and van der Schaar (2023).
    """
    group = summary.study_group
    remedy_of = remedies(summary)
    advice = [remedy_of[name].advice for name in low["explainer"]]
    symmetrised = [remedy_of[name].symmetrised for name in low["explainer"]]
    low = low.assign(advice=advice, symmetrised=symmetrised)

    model = summary.model_invariance
    for (kind, sentence, tried), rows in low.groupby(["kind", "advice", "symmetrised"], sort=False):
        names = tuple(rows["explainer"])
        named_rows = records(summary.result.unmarked(rows))
        words = {
            "breaks": plural(names, "This method breaks", "These methods break"),
            "measure": rows["measure"].iloc[0],
            "group": summary.group_title,
            "scores": each((row.explainer, _score(row)) for row in named_rows),
            "model": with_interval(model.score, model.low, model.high),
            "guideline": GUIDELINES[str(kind)],
            "advice": sentence,
            "symmetrise": SYMMETRISE.format(symmetrised=tried) if tried else SYMMETRISE_UNTRIED,
            "study_group": OWN_GROUP if group is None else json.dumps(group),
            "moved_back": MOVED_BACK if kind == "feature" else "",
        }
        change = {} if group is None else _symmetrised_change(summary.result, names, group)
        yield BROKEN.filled(words, names, change=change)


def _symmetrised_change(
    result: AxisResult, explainers: Iterable[str], group: Any
) -> dict[str, Any]:
    """Return the lines of a study file that replace explainers by symmetrised ones; empty if it cannot name any of them."""
    names = [result.registered_name(explainer) for explainer in explainers]
    symmetrised = [
        {"symmetrised": {"of": name, "group": group}} for name in names if name in EXPLAINERS
    ]
    return {"explainers": symmetrised} if symmetrised else {}


def _model_not_invariant(summary: SymmetrySummary, low: pd.DataFrame) -> Finding:
    """Return the finding that the model itself does not keep the symmetry, so low scores alone are no fault of a method.

    `low` are the methods with a low score. It follows guideline 5 of Crabbé and van der Schaar (2023), and the caveat of
    guideline 4.
    """
    model, agreement = summary.model_invariance, summary.model_agreement
    words = {
        "group": summary.group_title,
        "model": with_interval(model.score, model.low, model.high),
        "agreement": "",
        "lowest": "",
    }
    if math.isfinite(agreement.score):
        percent = (100 * agreement.score, 100 * agreement.low, 100 * agreement.high)
        words["agreement"] = AGREEMENT.format(share=with_interval(*percent))
    if len(low):
        lowest = records(summary.result.unmarked(low.nsmallest(1, "score")))[0]
        words["lowest"] = LOWEST.format(score=_score(lowest), method=lowest.explainer)
    return LOOSE_MODEL.filled(words, low["explainer"])


def _not_above_chance(summary: SymmetrySummary) -> Iterator[Finding]:
    """Yield the methods whose score is not significantly above chance."""
    at_chance: list[str] = []
    for measure in summary.result.headlines:
        at_chance += summary.result.verdict(measure).as_random
    methods = summary.methods[summary.methods["explainer"].isin(at_chance)]
    if len(methods):
        scores = [
            (row.explainer, f"{_score(row)} (chance {number(row.chance)})")
            for row in records(summary.result.unmarked(methods))
        ]
        yield AT_CHANCE.filled({"scores": each(scores)}, methods["explainer"])


def _noisy_draws(summary: SymmetrySummary) -> Iterator[Finding]:
    """Yield a finding for methods whose random draws change the explanation more than moving the input does.

    Their symmetry score is significantly above the noise floor, which is the similarity of two draws on one input.
    """
    noisy = []
    for method in records(summary.methods[summary.methods["noise_floor"].notna()]):
        samples = summary.samples[summary.samples["explainer"] == method.explainer]
        above_floor = (samples["value"] - samples["noise_floor"]).to_numpy(dtype=np.float64)
        low, _ = interval(above_floor[None])
        if low[0] > NOISE_MARGIN:
            text = f"{number(method.noise_floor)} (score {number(method.score)})"
            noisy.append((method.explainer, text))
    if noisy:
        names = summary.result.unmarked_names
        floors = each((names[explainer], text) for explainer, text in noisy)
        yield DRAWS.filled({"floors": floors}, [explainer for explainer, _ in noisy])


def _few_elements(summary: SymmetrySummary) -> Iterator[Finding]:
    """Yield a finding if so few group elements were tried that the scores of single samples are uncertain."""
    error = float(summary.methods["monte_carlo_error"].dropna().median())
    if summary.is_exhaustive or not error > TOO_ROUGH:
        return
    more = 4 * summary.elements
    words = {"n": summary.elements, "error": number(error), "more": more}
    group = summary.study_group
    change = {} if group is None else _symmetry_change({"group": group, "elements": more})
    yield FEW_ELEMENTS.filled(words, summary.methods["explainer"], change=change)
