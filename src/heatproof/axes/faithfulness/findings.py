"""Findings from the removal scores: leaks, rankings that disagree, and random orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from heatproof.axes.faithfulness import AXIS, LEAKAGE, RETRAINING
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.summaries import (
    detectability,
    gains_over_random,
    imputers,
    kind_of_data,
    leakage,
    main_metric,
    name_of_mean,
    readings,
    readout,
)
from heatproof.evaluation import Measure
from heatproof.kinds import IMAGE
from heatproof.removal.imputers import NoisyLinear
from heatproof.removal.names import removal_words
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.text import at_least, each, listing, number, plural, records, some, with_interval
from heatproof.types import matches

AGREE = 0.5
"""Rankings are said to disagree when the whole interval of their correlation is below this."""
ONE_COLOUR = "zero|value|image_mean|dataset_mean"
"""Imputers that put one colour in place of what is removed, so that its outline stays visible."""

LEAKS = finding_template(
    "leaking-imputer",
    title="{imputers} the class",
    means="The shape of what was removed tells the class, and the filled-in pictures show the shape. A map can score "
    "well by the shape of what it removes.",
    do="{rank}",
    axis=AXIS.name,
)
OTHER_IMPUTER = (
    "Use another imputer, and measure the leak again (heatproof.retrain with leakage=True)."
)
MAY_LEAK = finding_template(
    "possible-leak",
    title="{imputers} may leak the class",
    seen="{imputers} {fill} what is removed with one colour; whether that leaks was not measured.",
    means="One colour keeps the shape of the removed part visible, and the shape can give the class away. It also makes "
    "pictures unlike any that the model has seen.",
    do="{rank}; heatproof.retrain with leakage=True measures the leak.",
    axis=AXIS.name,
)
ORDERS_DISAGREE = finding_template(
    "orders-disagree",
    title="MoRF and LeRF rank the methods differently",
    means="Removing the most relevant {parts} first ranks the methods differently than removing the least relevant first. "
    "Which method is the most faithful then depends on the question.",
    do="Do not publish one ranking. Say which order you care about, {either}; more samples narrow the interval.",
    axis=AXIS.name,
)
IMPUTERS_DISAGREE = finding_template(
    "imputers-disagree",
    title="Two imputers rank the methods differently",
    means="The ranking of the methods depends on what replaces the removed {parts}.",
    do="Report both rankings; {which}.",
    axis=AXIS.name,
)
UNREAL = finding_template(
    "unrealistic-inputs",
    title="Filled-in inputs do not look real to the model",
    means="The model’s own features tell inputs with {parts} filled in from real ones. Its output on them may be due to "
    "how they look, not to what was removed.",
    do="Compare methods only with one another and with the random order, which is filled in alike; prefer small "
    "fractions and the imputer with the smallest area.",
    axis=AXIS.name,
)
DETECTABLE = 0.9
"""Filled inputs are said not to look real where the lower end of the area under the ROC curve is above this."""
WORSE_THAN_RANDOM = finding_template(
    "worse-than-random",
    title="Worse than removing {parts} at random",
    means="What these maps call important matters less to the model than random {parts}. Often the sign is the reason: "
    "strongly negative values are removed last.",
    do="Rank by absolute values; if that does not help, do not use the maps.",
    axis=AXIS.name,
)
ABSOLUTE = {"evaluations": [{AXIS.name: {"absolute": True}}]}
AS_RANDOM = finding_template(
    "not-above-random",
    title="Not significantly better than a random order of {parts}",
    means="The data do not show that the order of these maps means anything to the model.",
    do="Test more samples, or use a method whose interval is above 0.",
    axis=AXIS.name,
)
NOISY_IMPUTER = {"evaluations": [{AXIS.name: {"imputers": [{NoisyLinear.name: {"sigma": 0.05}}]}}]}


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield the findings of one evaluation, in no particular order."""
    if result.axis.name == LEAKAGE.name:
        return  # the leak is reported by the retraining that it belongs to
    if len(leakage(result)):
        yield from _leaks(result)
    else:
        yield from _may_leak(result)
    if result.axis.name != AXIS.name:
        return
    yield from _rankings(result)
    yield from _unreal(result)
    measure = main_metric(result)
    if measure is not None:
        yield from _against_random(result, measure)


def _leaks(result: AxisResult) -> Iterator[Finding]:
    """Yield the imputers that were shown to leak the class."""
    probes = leakage(result)
    leaking = probes[probes["leaks"].astype(bool)]
    if leaking.empty:
        return
    leaking = leaking.sort_values("mask_bits", ascending=False, kind="stable")
    names = list(dict.fromkeys(leaking["imputer"]))
    worst = []
    for row in records(result.unmarked(leaking.drop_duplicates("imputer"))):
        imputer = removal_words(row.imputer)
        worst.append(
            f"{imputer}: the mask of {row.explainer} holds at least {at_least(row.mask_bits)} bits about the class, and "
            f"{100 * row.pixels:.0f} % of the removed and kept pixels are told apart"
        )
    safe = [imputer for imputer in imputers(result) if imputer not in names]
    leaks = plural(names, "leaks", "leak")
    words = {
        "imputers": f"{_imputer_names(names)} {leaks}",
        "rank": f"Rank the methods by {_imputer_names(safe)}." if safe else OTHER_IMPUTER,
    }
    finding = LEAKS.filled(words, dict.fromkeys(leaking["explainer"]), seen=f"{listing(worst)}.")
    yield replace(finding, axis=result.axis.name, change={} if safe else NOISY_IMPUTER)


def _imputer_names(imputers: Iterable[str]) -> str:
    """Return imputers as they are listed in a sentence."""
    return listing(removal_words(imputer) for imputer in imputers)


def _may_leak(result: AxisResult) -> Iterator[Finding]:
    """Yield the imputers that fill in with one colour, where networks were retrained and no leak was measured.

    Only what learns from masks can use them: a model that was not trained on filled images has never seen one.
    """
    was_retrained = (result.sibling_rows["evaluation"] == RETRAINING.name).any()
    one_colour = [imputer for imputer in imputers(result) if matches(ONE_COLOUR, imputer)]
    if not one_colour or not was_retrained or kind_of_data(result) != IMAGE:
        return
    others = [imputer for imputer in imputers(result) if imputer not in one_colour]
    rank = "Add noisy_linear to the imputers and rank by that"
    if others:
        rank = f"Rank by {_imputer_names(others)}"
    words = {
        "imputers": _imputer_names(one_colour),
        "fill": plural(one_colour, "fills", "fill"),
        "rank": rank,
    }
    yield replace(MAY_LEAK.filled(words), axis=result.axis.name)


def _rankings(result: AxisResult) -> Iterator[Finding]:
    """Yield warnings about orders of removal, and about imputers, that rank the methods significantly differently.

    The ranking then depends on an arbitrary choice: the whole interval of the rank correlation is below ½.
    """
    pairs = consistency(result.rows, readout(result))
    pairs = pairs[pairs["level"].isna() & (pairs["high"] < AGREE)]
    words = kind_of_data(result)
    areas = detectability(result.rows)
    which = "detectability, from 50 samples on, says which filling the model finds the more real"
    if len(areas):
        by_imputer = areas.groupby("imputer")["area"].mean()
        which = (
            f"{removal_words(str(by_imputer.idxmin()))} is the harder to tell from real inputs, "
            f"with a mean area of {number(by_imputer.min())}"
        )
    either = "and give both"
    if words.imputer == NoisyLinear.name:
        either = f"or rank by {removal_words(NoisyLinear.name)}, which makes the two agree more in the ROAD paper"
    for kind, finding in (("order", ORDERS_DISAGREE), ("imputer", IMPUTERS_DISAGREE)):
        of_kind = pairs[pairs["kind"] == kind]
        if of_kind.empty:
            continue
        correlations = [
            f"{removal_words(r.a)} and {removal_words(r.b)} {with_interval(r.spearman, r.low, r.high)}"
            for r in records(of_kind)
        ]
        seen = (
            f"Spearman’s correlation of the rankings of {of_kind['explainers'].max()} methods: "
            f"{some(correlations, 3)}; 1 is the same order."
        )
        texts = {"parts": words.parts, "either": either, "which": which}
        yield finding.filled(texts, seen=seen)


def _unreal(result: AxisResult) -> Iterator[Finding]:
    """Yield a warning about imputers whose filled-in inputs do not look real to the model.

    A classifier on the model's features tells them from real inputs; the smallest share removed where it does is named.
    """
    areas = detectability(result.rows)
    seen = areas[areas["low"] > DETECTABLE] if len(areas) else areas
    if seen.empty:
        return
    items = []
    for imputer, rows in seen.groupby("imputer", sort=False, observed=True):
        smallest = rows.sort_values("level").iloc[0]
        area = with_interval(smallest["area"], smallest["low"], smallest["high"])
        share = f"{100 * smallest['level']:g} %"
        items.append(
            f"{removal_words(str(imputer))}: area under the ROC curve {area} from {share} removed on"
        )
    parts = kind_of_data(result).parts
    yield UNREAL.filled({"parts": parts}, seen="; ".join(items) + ".")


def _against_random(result: AxisResult, measure: Measure) -> Iterator[Finding]:
    """Yield methods that are significantly worse than a random order over all imputers, and those not better."""
    gains = gains_over_random(result, measure)
    if gains is None:
        return
    methods = gains[gains["low"].notna() & ~gains["control"]]
    worse = methods[methods["below"]]
    undecided = result.verdict(measure).as_random
    as_random = methods[methods["explainer"].isin(undecided) & ~methods["below"]]
    parts = kind_of_data(result).parts
    name, *others = readings(result, measure)
    where = name_of_mean(result, measure) if others else f"with {name}"
    for rows, finding in ((worse, WORSE_THAN_RANDOM), (as_random, AS_RANDOM)):
        if rows.empty:
            continue
        named_rows = records(result.unmarked(rows))
        listed = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in named_rows)
        if result.zero_is_chance(measure):
            seen = f"{measure.title} ({where}): {listed}; a random order scores 0."
        else:
            gain = "gain over a random order, more is better"
            seen = f"{measure.title} ({where}), {gain}: {listed}."
        change = ABSOLUTE if finding is WORSE_THAN_RANDOM else {}
        yield finding.filled({"parts": parts}, rows["explainer"], seen=seen, change=change)
