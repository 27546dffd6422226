"""Findings of stability: scores at chance, the component that fails, random draws, and what the pairs leave out.

A rule speaks only where an interval, an exact bound or a corrected test supports it. What to do about single explainers
(fixed patches, more steps, another layer) is in `rules.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.stability.evaluation import FASS
from heatproof.axes.stability.perturbations import known, milder
from heatproof.axes.stability.published import moving_conditions, retention
from heatproof.explainers import EXPLAINERS
from heatproof.maps.similarity import COMPONENTS
from heatproof.results import summary
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.arrays import mean_of_finite
from heatproof.statistics.estimates import interval
from heatproof.statistics.intervals import rate_interval
from heatproof.text import each, listing, number, plural, records, some, with_interval

AXIS = "stability"
NEGLIGIBLE = 0.1
"""A calibrated score is next to nothing if its whole interval lies below this."""
LOW = 0.5
"""A component is low if its whole interval lies below this."""
SIMILAR_DRAWS = 0.9
"""Two draws on one input count as similar if the interval of their raw score reaches this."""
MORE_DRAWS = 4
"""So many times as many draws halve the noise."""
OFTEN = 0.1
"""Undefined maps are a problem if significantly more than this share of a method's pairs has one."""


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what the stability of one model and data set shows, in no particular order."""
    cells = result.cells(FASS)
    if cells.empty:
        return
    yield from _chance_findings(result, cells)
    yield from _missing_conditions(result)
    yield from _noisy_draws(result)
    yield from _low_retention(result, cells)
    yield from _few_pairs(result, cells)
    yield from _undefined_maps(result, cells)
    yield from _unaligned_maps(result, cells)
    if not _tests_faithfulness(result):
        change = {"evaluations": ["stability", "faithfulness"]}
        yield NO_FAITHFULNESS.filled({}, change=change)


def _methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of explainers with a score that are not controls."""
    return rows[rows["score"].notna() & ~rows["control"].astype(bool)]


def _names(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(rows["explainer"])]


def _score(row: Any) -> str:
    return with_interval(row.score, row.low, row.high)


def _change(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what to write into a study file for other settings of stability."""
    return {"evaluations": [{AXIS: settings}]}


# ---- chance ----------------------------------------------------------------------------------------------------------

NEAR_CHANCE = finding_template(
    "near-chance",
    "Maps hardly more alike than unrelated maps",
    "Even where the change left the prediction as it was, these maps agree little more than maps of different {samples} "
    "do. Take the {sample} again, and the map shows something else.",
    "Do not show these maps for single {samples}; use a method higher in the ranking. Milder changes tell whether the "
    "maps are stable at all.",
    seen="Calibrated score over all perturbations (0: maps of different samples): {scores}.",
    axis=AXIS,
)
NEAR_CHANCE_UNDER_CHANGE = finding_template(
    "near-chance-under-change",
    "Close to chance under {where}",
    "Even where the prediction stays, the maps change: they agree little more than maps of different samples.",
    "{sweep} to find where the maps break.",
    seen="Calibrated scores under {scores}.",
    axis=AXIS,
)
NOT_ABOVE_CHANCE = finding_template(
    "not-above-chance",
    "Scores not above chance",
    "The maps of a pair do not agree significantly more than maps of different samples, whatever the raw score is.",
    "Do not read these raw scores as stability. More samples narrow the intervals.",
    seen="The {intervals} of {count} calibrated {scores} of {methods} {contain} chance.",
    axis=AXIS,
)


def _chance_findings(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield warnings about scores at chance, and about the component of the score that fails.

    A method at chance overall is named once, for the overall score; other methods for single perturbations, or where an
    interval contains chance. Which component fails is said only of methods that are not at chance overall. Without
    calibrated scores nothing is known about chance.
    """
    ranked = _methods(result.overall(FASS))
    if not result.arrays.is_calibrated(FASS):
        return
    at_chance = ranked[ranked["high"] < NEGLIGIBLE]
    yield from _near_chance(result, at_chance)

    is_calibrated = cells["calibrated"].notna() & ~cells["control"].astype(bool)
    others = cells[is_calibrated & ~cells["explainer"].isin(at_chance["explainer"])]
    is_near = others["high"] < NEGLIGIBLE
    yield from _near_chance_under_change(result, others[is_near])
    yield from _not_above_chance(result, others[~is_near & (others["low"] <= 0)])

    rest = ranked[~ranked["explainer"].isin(at_chance["explainer"])]
    yield from _failing_components(result, _names(rest))


def _near_chance(result: AxisResult, rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about `rows`, the methods whose overall interval lies near chance or below it; none if it is empty."""
    if rows.empty:
        return
    words = {
        "sample": result.words.sample,
        "samples": result.words.samples,
        "scores": each((row.explainer, _score(row)) for row in records(result.unmarked(rows))),
    }
    milder_perturbations = result.words.milder
    change = _change({"perturbations": milder_perturbations}) if milder_perturbations else {}
    yield NEAR_CHANCE.filled(words, _names(rows), change=change)


def _near_chance_under_change(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about `cells`, the scores of methods under single perturbations that lie near chance.

    It suggests a sweep over milder strengths of the first two perturbations that have a strength.
    """
    if cells.empty:
        return
    sweeps: dict[str, Any] = {}
    scores = []
    for condition_title, rows in cells.groupby("condition_title", sort=False):
        named_rows = records(result.unmarked(rows))
        of_methods = each((row.explainer, _score(row)) for row in named_rows)
        scores.append(f"{condition_title}: {of_methods}")
        first = records(rows)[0]
        if len(sweeps) < 2:
            sweeps |= milder(first.condition, first.level)
    words = {
        "where": some(dict.fromkeys(cells["condition_title"]), 3),
        "scores": _first(scores, 3),
        "sweep": "Sweep the strength of the change" if sweeps else "Test a milder change",
    }
    change = _change({"perturbations": sweeps}) if sweeps else {}
    yield NEAR_CHANCE_UNDER_CHANGE.filled(words, _names(cells), change=change)


def _not_above_chance(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about `cells`, the scores under single perturbations whose interval contains chance."""
    if cells.empty:
        return
    items = []
    for row in records(result.unmarked(cells)):
        scores = f"raw {number(row.mean)}, calibrated {_score(row)}"
        items.append(f"{row.explainer}, {row.condition_title}: {scores}")
    words = {
        "intervals": plural(items, "interval", "intervals"),
        "count": len(items),
        "scores": plural(items, "score", "scores"),
        "methods": some(_names(result.unmarked(cells))),
        "contain": plural(items, "contains", "contain"),
    }
    yield NOT_ABOVE_CHANCE.filled(words, _names(cells), items=tuple(items))


def _first(texts: Sequence[str], most: int) -> str:
    """Return at most `most` of the texts in one line, with the number of those left out."""
    joined = "; ".join(texts[:most])
    rest = len(texts) - most
    return f"{joined}; and {rest} more" if rest > 0 else joined


# ---- components ------------------------------------------------------------------------------------------------------

COMPONENT_SCORES = "Calibrated components of {scores}."
FAILURES = {
    "ssim": finding_template(
        "spatial-failure",
        "Spatial failure: the shape of the map changes",
        "SSIM compares the maps as pictures, and it falls more than {others}. The order of the features and the top "
        "features survive better than their shape.",
        "Smooth the maps before you show them.",
        seen=COMPONENT_SCORES,
        axis=AXIS,
    ),
    "spearman": finding_template(
        "ordinal-failure",
        "Ordinal failure: the order of the features changes",
        "Spearman compares the order of all features, and it falls more than {others}. The map highlights about the same "
        "places, but which of them matters more changes.",
        "Show which places matter and not their order, or one colour above a threshold.",
        seen=COMPONENT_SCORES,
        axis=AXIS,
    ),
    "jaccard": finding_template(
        "salient-failure",
        "Salient-region failure: the top features change",
        "Jaccard compares only {k}, and it falls more than {others}. The map as a whole is more stable than its top "
        "features.",
        "Do not read much into single {parts}. If regions are what you show, compare more {parts}, such as the top "
        "{share:.0f} %.",
        seen=COMPONENT_SCORES,
        axis=AXIS,
    ),
}


def _failing_components(result: AxisResult, methods: Sequence[str]) -> Iterator[Finding]:
    """Yield a warning for each component of FASS (SSIM, Spearman, Jaccard) that fails, with the methods it fails for.

    A component fails for a method if it is low (its interval lies below ½) and its interval lies below those of all other
    components. Tables have no SSIM.
    """
    needed = set(COMPONENTS) if result.words.ssim_dimensions else {"spearman", "jaccard"}
    measured = [name for name in COMPONENTS if name in result.arrays.values]
    if set(measured) != needed:
        return
    scores: dict[str, dict[str, Any]] = {}
    for name in measured:
        scores[name] = {row.explainer: row for row in records(result.overall(name))}
    methods_by_component: dict[str, list[str]] = {}
    for method in methods:
        by_component = {name: scores[name][method] for name in measured}
        lowest = min(measured, key=lambda name: _or_infinite(by_component[name].score))
        highest_plausible = by_component[lowest].high
        lows_of_others = [by_component[name].low for name in measured if name != lowest]
        is_below_others = all(highest_plausible < low for low in lows_of_others)
        if highest_plausible < LOW and is_below_others:
            methods_by_component.setdefault(lowest, []).append(method)

    k = result.settings.get("k", 100)
    share = 0.05 if result.modality == "image" else 0.3
    for component, names in methods_by_component.items():
        largest = f"the largest {100 * k:g} % of the values"
        if isinstance(k, int):
            largest = f"the {k} largest values"
        words = {
            "k": largest,
            "others": "the other two" if len(needed) > 2 else "the other",
            "parts": result.words.parts,
            "share": 100 * share,
            "scores": _component_scores(result, scores, names),
        }
        change = _change({"k": share}) if component == "jaccard" else {}
        yield FAILURES[component].filled(words, names, change=change)


def _or_infinite(score: float) -> float:
    """Return a score for sorting, with those that are missing last."""
    return score if math.isfinite(score) else math.inf


def _component_scores(
    result: AxisResult, scores: dict[str, dict[str, Any]], methods: Sequence[str]
) -> str:
    """Return the components of each method in words, such as "SHAP: SSIM 0.2 [0.1, 0.3], …"; at most three methods.

    `scores` has a record with score, low and high by component and then by method.
    """
    texts = []
    for method in methods:
        parts = []
        for component, by_method in scores.items():
            declared = result.axis.measure(component)
            title = declared.title if declared else component
            parts.append(f"{title} {_score(by_method[method])}")
        texts.append(f"{result.unmarked_names[method]}: {', '.join(parts)}")
    return _first(texts, 3)


# ---- pairs -----------------------------------------------------------------------------------------------------------

MISSING_CONDITIONS = finding_template(
    "missing-conditions",
    "Missing conditions",
    "Overall scores average the conditions that have a score. With some missing, these methods are hard to compare.",
    "Compare them under the conditions that all methods have. The column reason of the table says why a pair has no "
    "score.",
    seen="{methods} {have} no score under some of the conditions.",
    axis=AXIS,
)
NOISY_DRAWS = finding_template(
    "noisy-draws",
    "The random draws of the method change its maps",
    "Part of each map is noise. Explain the same {sample} with another seed, and you get another map, however high the "
    "score is.",
    "Draw {times} times as many samples; that halves the noise. The noise floor should rise towards 1.",
    seen="Raw FASS of two draws on the same {sample}: {floors}. Of pairs under perturbation, which share their draws: "
    "{perturbed}.",
    axis=AXIS,
)
DRAWS_DOMINATE = replace(
    NOISY_DRAWS,
    severity="problem",
    means="Another seed changes the map more than the perturbations do. Both maps of a pair use the same draws, so the "
    "score says more about the draws than about the method.",
)
LOW_RETENTION = finding_template(
    "low-retention",
    "Most predictions change under {where}",
    "Only pairs with an unchanged prediction are compared. Where few remain, the score describes the easiest samples, "
    "not the data. The model itself is not robust to this change.",
    "Use a milder change{sweep} and report the retention with every score.",
    seen="The prediction stayed the same for {retained}.",
    axis=AXIS,
)
FEW_PAIRS = finding_template(
    "few-pairs",
    "Few pairs",
    "A mean over so few pairs is rough, whatever share of the data they are.",
    "Test more samples, and report the number of pairs with every score.",
    seen="Fewer than {fewest} pairs have a score under {where}.",
    axis=AXIS,
)
UNDEFINED_MAPS = finding_template(
    "undefined-maps",
    "Maps without a score",
    "A map that is constant or not finite explains nothing, so it has no score. The scores of these methods are those "
    "of the other samples.",
    "Look at such a sample before you use the method. The column reason of the table says what is wrong.",
    seen="Undefined: {counts}{reasons}.",
    axis=AXIS,
)
UNALIGNED_MAPS = finding_template(
    "unaligned-maps",
    "Maps of moved {samples} were compared without moving them back",
    "A map that follows the {sample} perfectly scores low for following it: the score measures the shift, not the "
    "method.",
    "Compare aligned maps in a new run directory, or leave these perturbations out of every comparison.",
    seen="There is no aligned score for {where}.",
    axis=AXIS,
)
NO_FAITHFULNESS = finding_template(
    "no-faithfulness",
    "Stability does not mean faithfulness",
    "A map can be perfectly stable and wrong: that of an edge filter is.",
    "Add faithfulness to the evaluations. The report then shows both side by side.",
    seen="This run did not test faithfulness.",
    axis=AXIS,
)


def _missing_conditions(result: AxisResult) -> Iterator[Finding]:
    """Yield the methods that have no score under some of the conditions."""
    ranking = result.overall(FASS)
    partial = ranking[ranking["conditions"] < ranking["conditions_total"]]
    if partial.empty:
        return
    named_rows = result.unmarked(partial)
    items = [
        f"{row.explainer}: {row.conditions} of {row.conditions_total} conditions"
        for row in records(named_rows)
    ]
    display_names = _names(named_rows)
    words = {"methods": some(display_names), "have": plural(display_names, "has", "have")}
    yield MISSING_CONDITIONS.filled(words, _names(partial), items=tuple(items))


def _noisy_draws(result: AxisResult) -> Iterator[Finding]:
    """Yield the stochastic methods whose maps differ between two random draws of one input.

    The noise floor is the raw FASS (the score of stability: how alike two maps are) of two such maps; 1 means no noise.
    It is a problem if two draws are less alike than the maps of perturbed inputs, which share their draws: then another
    seed changes the map more than the perturbation does.
    """
    noise_floors = result.arrays.noise_floor(FASS)
    if noise_floors is None:
        return
    mean = mean_of_finite(noise_floors)
    low, high = interval(noise_floors, span=result.arrays.span(FASS), groups=result.arrays.groups)
    overall = result.overall(FASS).set_index("explainer")
    dominating: dict[str, str] = {}
    noisy: dict[str, str] = {}
    for i, explainer in enumerate(result.explainers):
        is_noisy = high[i] < SIMILAR_DRAWS
        if explainer in result.controls or not is_noisy:
            continue
        is_below_perturbed = high[i] < overall.loc[explainer, "raw_low"]
        floor = with_interval(float(mean[i]), float(low[i]), float(high[i]))
        if is_below_perturbed:
            dominating[explainer] = floor
        else:
            noisy[explainer] = floor

    names = result.unmarked_names
    for template, floors in ((DRAWS_DOMINATE, dominating), (NOISY_DRAWS, noisy)):
        if not floors:
            continue
        perturbed = [(names[e], number(float(overall["raw"][e]))) for e in floors]
        words = {
            "sample": result.words.sample,
            "times": MORE_DRAWS,
            "floors": each((names[e], floor) for e, floor in floors.items()),
            "perturbed": each(perturbed),
        }
        more_draws: list[dict[str, Any]] = []
        for explainer in floors:
            more_draws += _with_more_draws(result, explainer)
        change = {"explainers": more_draws} if more_draws else {}
        yield template.filled(words, floors, change=change)


def _with_more_draws(result: AxisResult, explainer: str) -> list[dict[str, Any]]:
    """Return a study file's entry for the explainer with more random draws, in a list.

    It is empty for explainers of users, and for those without a setting for the number of draws.
    """
    registered = result.registered_name(explainer)
    settings = result.settings_of(explainer)
    if registered not in EXPLAINERS:
        return []
    for key in ("samples", "draws"):
        if isinstance(settings.get(key), int):
            return [{registered: {key: MORE_DRAWS * int(settings[key])}}]
    return []


def _low_retention(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about the perturbations under which significantly more than half of the predictions change.

    Only inputs with an unchanged prediction are scored, so few are left to score there.
    """
    shares = retention(result)
    low = records(shares[shares["high"] < summary.LOW_RETENTION])
    if not low:
        return
    # One sweep over milder strengths: that of the first perturbation that has one.
    sweeps = [milder(row.condition, row.level) for row in low]
    sweep = next(filter(None, sweeps), None)
    retained = [f"{row.note} under {row.condition_title}" for row in low]
    words = {
        "where": some([row.condition_title for row in low], 2),
        "retained": some(retained, 3),
        "sweep": " or a sweep" if sweep else "",
    }
    change = _change({"perturbations": sweep}) if sweep else {}
    yield LOW_RETENTION.filled(words, items=tuple(retained), change=change)


def _few_pairs(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about the perturbations that leave few pairs (original, perturbed) with a score.

    Few is an absolute number. In a run that has fewer samples than that anyway, only perturbations that lose more than
    half of them are named.
    """
    is_large = cells["attempted"] >= summary.FEW_PAIRS
    lost_most = 2 * cells["retained"] < cells["attempted"]
    has_few = cells["retained"] < summary.FEW_PAIRS
    few = cells[has_few & (is_large | lost_most)]
    if few.empty:
        return
    items = []
    for key, rows in few.groupby(["condition_title", "retained", "attempted"], sort=False):
        condition_title, retained, attempted = key
        is_every = len(rows) == len(result.explainers)
        who = "every method" if is_every else listing(result.unmarked(rows)["explainer"])
        items.append(f"{condition_title}: {retained} of {attempted} pairs ({who})")
    words = {
        "fewest": summary.FEW_PAIRS,
        "where": some(dict.fromkeys(few["condition_title"])),
    }
    yield FEW_PAIRS.filled(words, items=tuple(items))


def _undefined_maps(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about the methods with undefined maps, which have no score; about controls if only they have some.

    It is a problem, not a note, if significantly more than a tenth of a method's maps is undefined.
    """
    sums = cells.groupby(["explainer", "control"], sort=False)[["undefined", "attempted"]].sum()
    counts = sums[sums["undefined"] > 0].reset_index()
    if counts.empty:
        return
    methods = counts[~counts["control"].astype(bool)]
    reported = methods if len(methods) else counts
    reasons = result.arrays.undefined_reasons
    of_reported = reasons[reasons["explainer"].isin(reported["explainer"])]["reason"]
    texts = some(dict.fromkeys(str(reason) for reason in of_reported if reason), 2)
    words = {
        "counts": each(
            (row.explainer, f"{row.undefined} of {row.attempted}")
            for row in records(result.unmarked(reported))
        ),
        "reasons": f" ({texts})" if texts else "",
    }
    finding = UNDEFINED_MAPS.filled(words, _names(methods), items=_reason_counts(result, reasons))
    is_often = False
    for row in records(methods):
        low, _ = rate_interval(int(row.undefined), int(row.attempted))
        is_often = is_often or low > OFTEN
    yield replace(finding, severity="problem") if is_often else finding


def _reason_counts(result: AxisResult, reasons: pd.DataFrame) -> tuple[str, ...]:
    """Return how often each explainer has each reason why a map has no score, in words."""
    by_reason = reasons.groupby(["explainer", "reason"], sort=False, observed=True, dropna=False)
    times = by_reason["count"].sum().rename("times").reset_index()
    return tuple(
        f"{row.explainer}: {row.times} × {row.reason or 'no reason given'}"
        for row in records(result.unmarked(times))
    )


def _unaligned_maps(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a warning about perturbations that move the input, such as rotations, if maps were not moved back to compare."""
    aligned = moving_conditions(result)
    is_unaligned = []
    for condition, level in zip(cells["condition"], cells["level"], strict=True):
        is_unaligned.append(_is_geometric(condition) and (condition, level) not in aligned)
    scored = cells[np.array(is_unaligned, dtype=bool) & cells["mean"].notna()]
    if scored.empty:
        return
    words = {
        "sample": result.words.sample,
        "samples": result.words.samples,
        "where": listing(dict.fromkeys(scored["condition_title"])),
    }
    yield UNALIGNED_MAPS.filled(words, _names(_methods(scored)), change=_change({"aligned": True}))


def _is_geometric(condition: str) -> bool:
    perturbation = known(condition)
    return perturbation is not None and perturbation.family == "geometric"


def _tests_faithfulness(result: AxisResult) -> bool:
    evaluations = result.manifest.study.evaluations
    return any((entry.name or label) == "faithfulness" for label, entry in evaluations.items())
