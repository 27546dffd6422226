"""Findings that any test can have: no score, unbeaten controls, undefined maps, few references, identical scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heatproof.evaluation import Measure
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.few import FEW_REFERENCES
from heatproof.statistics.intervals import ALIKE
from heatproof.text import each, number, plural, records

LARGE_SHARE = 1 / 3
"""The share of the variance above which the choice of the references is a large part of it."""
MORE_REFERENCES = 64

NO_SCORE = finding_template(
    "no-score",
    title="No method has a score",
    seen="{axis}: none of {methods} methods has a score.",
    means="Nothing can be concluded from this test.",
    do="See why in the column reason of the table: undefined maps, or predictions that change under every condition.",
)
CONTROL_NOT_BEATEN = finding_template(
    "control-not-beaten",
    title="The control {control} is not beaten",
    seen="{axis}: {methods} {do} not significantly beat the control {control}, {score}.",
    means="The control ignores the model. It scores as high, so this score alone does not show that these maps say "
    "anything about the model.",
    do="Do not choose these methods by this test alone. Check their layer and target, and the preprocessing of the "
    "model.",
)
UNDEFINED = finding_template(
    "undefined-maps",
    title="Maps without a score",
    seen="{count} {explanations} no score.",
    means="A map that is constant or not finite has no order, so there is nothing to score. The numbers are those of the "
    "other samples.",
    do="Look at the reasons. A constant map often means a saturated output, or a layer that does not see the input.",
)
REFERENCES = finding_template(
    "few-references",
    title="Chance from few references",
    seen="Chance is estimated from the maps of {count} reference samples{share}.",
    means="With few references, 95 % intervals of calibrated scores cover the truth less often than that, and more "
    "samples alone hardly narrow them: other references would move all scores together.",
    do="Use more references. Each costs one comparison of maps per pair and no model pass.",
)
OF_VARIANCE = ", whose choice makes up {percent:.0f} % of the variance of a calibrated score"
IDENTICAL = finding_template(
    "identical-scores",
    title="Identical scores on all samples",
    seen="{scores}.",
    means="Without any spread an interval has no width; that does not make the score certain. Often the score is "
    "saturated, or the map does not depend on the sample.",
    do="Look at some of the maps. If they are fine, test harder conditions or more samples.",
)


def common_findings(result: AxisResult) -> Iterator[Finding]:
    """Yield the findings that any test can have, of each headline of a result."""
    for measure in result.headlines:
        yield from _no_score(result, measure)
        yield from _controls(result, measure)
        yield from _references(result, measure)
        yield from _identical(result, measure)


def _no_score(result: AxisResult, measure: Measure) -> Iterator[Finding]:
    methods = [name for name in result.explainers if name not in result.controls]
    if methods and not result.verdict(measure).methods:
        words = {"axis": result.title, "methods": len(methods)}
        yield NO_SCORE.filled(words, methods, axis=result.axis.name)


def _controls(result: AxisResult, measure: Measure) -> Iterator[Finding]:
    """Yield the controls above chance that some method does not significantly beat."""
    verdict = result.verdict(measure)
    if not verdict.can_decide or not measure.sign:
        return
    names = result.unmarked_names
    for control in verdict.controls:
        # `random` is at chance by definition, and so is a control that is as random.
        if control == verdict.random or verdict.above_chance.get(control) is False:
            continue
        not_above = verdict.not_above(control)
        if not_above:
            words = {
                "axis": result.title,
                "control": names[control],
                "methods": each((names[e], f"({verdict.scores[e]})") for e in not_above),
                "do": plural(not_above, "does", "do"),
                "score": f"{measure.title} {verdict.scores[control]}",
            }
            yield CONTROL_NOT_BEATEN.filled(words, not_above, axis=result.axis.name)


def undefined_maps(result: AxisResult) -> Iterator[Finding]:
    """Return the finding that some explanations have no score at all, each counted once; empty if all have one."""
    measures = result.axis.of_role("headline", "component")
    rows = result.rows[result.rows["measure"].isin(measures)]
    pairs = pd.MultiIndex.from_frame(rows[["explainer", "sample"]])
    has_score = pairs.isin(pairs[rows["status"] == "ok"])
    undefined = rows[(rows["status"] == "undefined") & ~has_score]
    undefined = undefined.drop_duplicates(["explainer", "sample"])
    if undefined.empty:
        return
    reasons = undefined["reason"].fillna("").astype(str).replace("", "no reason given")
    undefined = undefined.assign(reason=reasons)
    by_reason = undefined.groupby(["explainer", "reason"], sort=False, observed=True)
    counts = records(by_reason.size().rename("times").reset_index())
    words = {
        "count": len(undefined),
        "explanations": "explanation has" if len(undefined) == 1 else "explanations have",
    }
    names = result.unmarked_names
    yield UNDEFINED.filled(
        words,
        dict.fromkeys(map(str, undefined["explainer"])),
        axis=result.axis.name,
        items=tuple(f"{names[row.explainer]}: {row.times} × {row.reason}" for row in counts),
    )


def _references(result: AxisResult, measure: Measure) -> Iterator[Finding]:
    """Yield that references are few, or that their choice is a large part of the error of overall scores."""
    if measure.name not in result.arrays.by_reference:
        return
    count = len(result.arrays.references)
    ranking = result.ranking[result.ranking["measure"] == measure.name]
    share = float(ranking.loc[~ranking["control"].astype(bool), "by_references"].max())
    is_large = share > LARGE_SHARE
    if count < FEW_REFERENCES or is_large:
        words = {
            "count": count,
            "share": OF_VARIANCE.format(percent=100 * share) if is_large else "",
        }
        change = {"references": MORE_REFERENCES}
        yield REFERENCES.filled(words, axis=result.axis.name, change=change)


def _identical(result: AxisResult, measure: Measure) -> Iterator[Finding]:
    """Yield the methods whose samples all have the same score under every condition."""
    arrays = result.arrays
    scores = {}
    for i, explainer in enumerate(arrays.explainers):
        values = arrays.values[measure.name][i]
        # Conditions under which two samples or more have a score.
        values = values[np.isfinite(values).sum(1) > 1]
        if explainer in arrays.controls or not len(values):
            continue
        spread = np.nanmax(values, axis=1) - np.nanmin(values, axis=1)
        if (spread <= ALIKE).all():
            n = int(np.isfinite(values).sum(1).min())
            mean = number(float(np.nanmean(values)))
            scores[explainer] = f"{mean} on all {n} samples"
    if scores:
        names = result.unmarked_names
        words = {"scores": each((names[e], score) for e, score in scores.items())}
        yield IDENTICAL.filled(words, scores, axis=result.axis.name)
