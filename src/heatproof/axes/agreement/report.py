"""Agreement in the report: the matrix of methods, its clusters, sentences and findings. Nobody is right by agreeing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof.axes.agreement.clusters import ALIKE, AgreementMatrix, Pair, matrix
from heatproof.report.components import Component, Matrix
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.intervals import ERROR
from heatproof.text import listing, some, with_interval

NOTHING = "Nothing can be concluded: no two methods have a map of the same sample."
NO_CHANCE = "Nothing can be concluded: agreement by chance takes the maps of other samples, and there are none."
DISAGREE = finding_template(
    "methods-disagree",
    axis="agreement",
    title="Methods disagree on which features matter",
    seen="{some} of {all} pairs of methods agree significantly less than half of the way from chance to identical maps; "
    "least of all {worst}.",
    means="For the same sample and class these methods rank the features differently, so at most one of two can be "
    "right. Agreement does not say which.",
    do="Do not choose the map that looks best. Choose by a test that asks the model, such as faithfulness.",
)


def without_controls(result: AxisResult, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of two methods."""
    return [pair for pair in pairs if not {pair.a, pair.b} & result.controls]


def corrected_pairs(result: AxisResult, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with intervals that hold for all of them at once (Bonferroni); claims are made by these."""
    level = 1 - ERROR / max(len(pairs), 1)
    chosen = {(pair.a, pair.b) for pair in pairs}
    return [pair for pair in matrix(result, level=level).pairs if (pair.a, pair.b) in chosen]


def lead(result: AxisResult) -> list[str]:
    """Return the sentences at the head of the section: which methods agree most and least, and which form a cluster."""
    agreement = matrix(result)
    pairs = without_controls(result, agreement.pairs)
    if agreement.pairs and not pairs:
        return ["No two methods were compared, only controls."]
    if not pairs:
        has_scores = any(np.isfinite(values).any() for values in result.arrays.values.values())
        return [NO_CHANCE if has_scores else NOTHING]
    highest, lowest = _with_score(result, pairs[0]), _with_score(result, pairs[-1])
    if len(pairs) == 1:
        sentences = [f"There is one pair of methods: {highest}."]
    else:
        shown = sum(pair.low > ALIKE for pair in corrected_pairs(result, pairs))
        clearly = f"{shown} of {len(pairs)} pairs of methods clearly agree"
        if not shown:
            clearly = "No two methods clearly agree"
        scores = f"scores range from {lowest} to {highest}"
        if pairs[0].score == pairs[-1].score:
            scores = f"all score {pairs[0].score}"
        sentences = [
            f"{clearly} (significantly more than half of the way from chance to identical maps); {scores}."
        ]
    members: dict[int, list[str]] = {}
    for cluster, explainer in zip(agreement.clusters, agreement.explainers, strict=True):
        members.setdefault(cluster, []).append(result.name_of(explainer))
    several = [listing(names) for names in members.values() if len(names) > 1]
    if several:
        sentences.append(f"In one cluster: {'; '.join(several)}.")
    sentences.append("By calibrated Spearman; methods that agree may be wrong together.")
    return sentences


def _with_score(result: AxisResult, pair: Pair) -> str:
    """Return how far two explainers agree, with their display names."""
    return f"{pair.score} ({result.name_of(pair.a)} and {result.name_of(pair.b)})"


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield a warning about the pairs of methods that significantly disagree, none if there are none.

    Whether a pair disagrees is decided by intervals that are corrected for the number of pairs; the text shows the
    usual 95 % intervals.
    """
    pairs = without_controls(result, matrix(result).pairs)
    disagreeing = set()
    for pair in corrected_pairs(result, pairs):
        if pair.high < ALIKE:
            disagreeing.add((pair.a, pair.b))
    apart = [pair for pair in pairs if (pair.a, pair.b) in disagreeing]
    if not apart:
        return
    names = result.unmarked_names
    texts = []
    for pair in reversed(apart):  # the lowest agreement first
        score = with_interval(pair.mean, pair.low, pair.high)
        texts.append(f"{names[pair.a]} and {names[pair.b]} {score}")
    explainers: dict[str, None] = {}
    for pair in apart:
        explainers |= dict.fromkeys((pair.a, pair.b))
    facts = {"some": len(apart), "all": len(pairs), "worst": some(texts, 3)}
    yield DISAGREE.filled(facts, explainers)


def components(result: AxisResult) -> Iterator[Component]:
    """Yield a matrix of methods by methods for every measure, the headline first."""
    for number, measure in enumerate(result.axis.measures):
        agreement = matrix(result, measure.name)
        if agreement.pairs:
            yield Matrix(
                key=f"matrix-{measure.name}" if number else "matrix",
                title="Who agrees with whom" + (f": {measure.title}" if number else ""),
                caption=f"How far two methods agree on the same sample, by {measure.title}: 0 is chance, the maps of "
                "other samples, 1 the same map. Clusters: average linkage, cut where agreement is half of the way.",
                scores=_cells(agreement),
                paper="the disagreement problem, with chance",
            )


def _cells(agreement: AgreementMatrix) -> pd.DataFrame:
    """Return the agreement of every two methods as a table with a row per cell of the matrix.

    The methods of a cluster stand together under its heading; those that are alone in their cluster come last.
    """
    sizes = Counter(agreement.clusters)
    is_clustered = [sizes[cluster] > 1 for cluster in agreement.clusters]
    positions = range(len(agreement.explainers))
    order = sorted(positions, key=lambda i: not is_clustered[i])
    cells = []
    for i in order:
        heading = ""
        if any(is_clustered):
            number = agreement.clusters[i] + 1
            heading = f"Cluster {number}" if is_clustered[i] else "In no cluster"
        for j in order:
            cells.append(
                {
                    "row": agreement.explainers[i],
                    "column": agreement.explainers[j],
                    "row_group": heading,
                    "score": agreement.mean[i, j],
                    "low": agreement.low[i, j],
                    "high": agreement.high[i, j],
                }
            )
    return pd.DataFrame(cells)
