"""Findings of a run: what its axes found, what concerns the run as a whole, and how they are put in order.

Every rule speaks only where an interval, a bound or a corrected test supports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

import pandas as pd

from heatproof.axes import BY_NAME
from heatproof.explainers import EXPLAINERS
from heatproof.report.common_findings import common_findings, undefined_maps
from heatproof.report.frontier import frontier_findings, weighed
from heatproof.report.how_many import precision_not_reached
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.results.reports import findings_of
from heatproof.results.summary import FEW_SAMPLES
from heatproof.rules import SEVERITIES
from heatproof.runs.manifest import Manifest
from heatproof.statistics.intervals import FEWEST, unseen_share
from heatproof.statistics.power import power_sentence
from heatproof.text import (
    difference,
    digits_of,
    each,
    listing,
    number,
    plural,
    records,
    with_interval,
)

BUDGETS = ("samples", "draws", "steps")
"""The parameters of explainers that say how many passes a map gets."""
RARE_SHARE = 0.05
"""Kinds of samples that make up less than this are called rare."""
PILOT = 100
"""The samples from which on the intervals of means are usually narrow enough to rank a handful of methods."""
ENOUGH = 8
"""The samples from which on it is said that all scores lie in [0, 1]."""
FAR = 50
"""So many times as many samples are not worth naming."""

UNTRAINED = finding_template(
    "untrained-model",
    title="The model looks untrained",
    means="The last layer answers at random, so every explanation explains noise.",
    do="Load the trained weights, or train the head, and run again into a new directory.",
)
UNNORMALISED = finding_template(
    "missing-normalisation",
    title="The model was given without its normalisation",
    seen="It has neither mean nor std, and {source}.",
    means="With values on another scale than in training, a network predicts, and explains, something else.",
    do="Give mean and std to Model(...), or name the source (timm:…, hf:…, torchvision:…), which brings them. If they are "
    "part of the network already, nothing is wrong.",
)
SQUASHED = finding_template(
    "probability-outputs",
    title="The scores look like probabilities",
    seen="The explained score of every sample lies in [0, 1]: {low:.2f} to {high:.2f}.",
    means="If a sigmoid or softmax is taken for logits, all scores are alike and gradients vanish where the model is "
    "certain.",
    do="Leave off the last sigmoid or softmax, or declare it: task={{'classification': {{'outputs': 'probabilities'}}}}.",
)
SINGLE_CLASS = finding_template(
    "single-class-references",
    title="References of a single class",
    seen="All {count} reference samples {are} {name}.",
    means="Features filled in from them still look like that class, so removing the right features changes little, and "
    "scores of faithfulness shrink towards 0. Chance levels are those of one class.",
    do="Take random samples of all classes in place of the first ones: sample: 100 in place of limit: 100, or "
    "frame.sample(100) in place of frame.head(100).",
)
UNFINISHED = finding_template(
    "unfinished-run",
    title="Unfinished run",
    seen="{parts} of the study {are} not computed yet.",
    means="Means are over what is there, and methods may be compared on different samples.",
    do="Rerun the command to resume.",
)
TOO_FEW = finding_template(
    "too-few-samples",
    title="Too few samples",
    seen="{tested}",
    means="From fewer than {fewest} samples there are no intervals and no tests, so no method is called better.",
    do="Test at least {pilot} samples before you choose a method.",
)
FEW = finding_template(
    "few-samples",
    title="Few samples",
    seen="{tested}",
    means="Intervals from so few samples are wide, and methods that look equal may not be. {tie}",
    do="Take this run as a pilot. Test at least {pilot} samples before you choose a method; four times as many samples "
    "halve the intervals.",
)
RARE = finding_template(
    "rare-failures-unseen",
    title="Rare failures may be unseen",
    seen="A kind of sample that makes up less than {percent:.0f} % of the data may not be among {n} samples.",
    means="Intervals describe the kinds of samples that were seen. Scores on a rare kind can be anything.",
    do="Test more samples: 300 of them hold a kind that makes up 1 % of the data with a probability of 95 %.",
)
TIED = finding_template(
    "tied-methods",
    title="The best methods are tied",
    seen="{tie}",
    means="These data do not tell which of them is better.",
    do="Choose among them by cost or by another test, or test more samples.",
)
SMALL_BUDGET = finding_template(
    "small-budget",
    title="Fewer draws than the default",
    seen="{budgets}.",
    means="With a small budget a map is a rough estimate, and the scores are those of the noise as well.",
    do="Use the default before you judge the method.",
)
NO_INTERVAL = finding_template(
    "no-interval",
    title="Scores without an interval",
    means="Too few samples have this score, so it says next to nothing about other data.",
    do="Do not read these scores without more samples, or a milder condition that keeps more of them.",
)
UNREADABLE = finding_template(
    "unreadable-files",
    title="Unreadable files",
    seen="{files} could not be read.",
    means="They took no part, so the numbers are those of the others.",
    do="Repair or remove them, and run again into a new directory.",
)


def findings(
    results: Iterable[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    missing: Sequence[str] = (),
) -> list[Finding]:
    """Return what a run shows, for every dataset and model: the most serious first.

    Rules that the study ignores (`ignore` in the manifest) are left out. `missing` names the parts of the study that
    are not computed yet.
    """
    by_dataset_and_model: dict[tuple[str, str], list[AxisResult]] = {}
    for result in results:
        by_dataset_and_model.setdefault((result.dataset, result.model), []).append(result)
    listed = []
    for (dataset, model), of_both in by_dataset_and_model.items():
        is_here = (samples["dataset"] == dataset) & (samples["model"] == model)
        listed += findings_here(dataset, model, of_both, samples[is_here], manifest, missing)
    return listed


def findings_here(
    dataset: str,
    model: str,
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    missing: Sequence[str] = (),
) -> list[Finding]:
    """Return the findings of one dataset and model, from the results of its axes and its own samples."""
    listed = list(_run_findings(model, results, samples, manifest, missing))
    for result in results:
        of_axis = findings_of(result) + list(common_findings(result))
        if not any(finding.rule == "undefined-maps" for finding in of_axis):
            of_axis += undefined_maps(result)
        listed += _with_label(result, of_axis)
    listed += _no_interval(results)
    for first, second in weighed(results):
        listed += frontier_findings(first, second)

    listed = [finding for finding in listed if finding.rule not in manifest.ignore]
    order = {"": -1, **{axis: position for position, axis in enumerate(BY_NAME)}}

    def urgency(finding: Finding) -> tuple[int, int, int]:
        """Return a key that sorts by severity, then by axis, then by how many methods are concerned."""
        severity = SEVERITIES.index(finding.severity)
        return severity, order.get(finding.axis, len(order)), -len(finding.explainers)

    return [
        replace(finding, dataset=dataset, model=model) for finding in sorted(listed, key=urgency)
    ]


def unreadable(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples that could not be read."""
    return samples[samples["error"].fillna("").astype(str).ne("")]


def _all_below_one(samples: pd.DataFrame) -> bool:
    """Whether every explained logit of enough samples lies in [0, 1] and not near 0, as probabilities do."""
    scores = samples["readout"].dropna() if "readout" in samples else pd.Series(dtype=float)
    classes = samples["probability"].notna().any() if len(scores) else False
    return bool(
        classes and len(scores) >= ENOUGH and scores.between(0, 1).all() and scores.max() > 0.5
    )


def _run_findings(
    model: str,
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    missing: Sequence[str],
) -> Iterator[Finding]:
    """Yield what concerns the model, the samples and the run as a whole."""
    if missing:
        words = {"parts": _counted(len(missing), "part"), "are": plural(missing, "is", "are")}
        yield UNFINISHED.filled(words, items=tuple(missing))
    entry = manifest.study.model(model)
    if entry.untrained_head:
        sentence = f"{entry.untrained_head[0].upper()}{entry.untrained_head[1:]}."
        yield replace(UNTRAINED, seen=sentence)
    if entry.unnormalised:
        yield UNNORMALISED.filled({"source": entry.unnormalised})
    if _all_below_one(samples):
        extremes = {"low": samples["readout"].min(), "high": samples["readout"].max()}
        yield SQUASHED.filled(extremes)
    if results:
        references = manifest.study.dataset(results[0].dataset).references
        yield from _single_class(samples[samples["sample"].isin(references)])
    unread = unreadable(samples)
    if len(unread):
        items = tuple(
            f"{sample}: {error}"
            for sample, error in zip(unread["sample"], unread["error"], strict=True)
        )
        yield UNREADABLE.filled({"files": _counted(len(items), "file")}, items=items)
    if results:
        yield from _small_budget(results, manifest)
        yield from precision_not_reached(results)
        yield from _sample_size(results)


def _single_class(references: pd.DataFrame) -> Iterator[Finding]:
    """Yield that all reference samples have one label, or one predicted class."""
    if len(references) < ENOUGH or not references["probability"].notna().any():
        return
    names = references["predicted_name"].astype(str)
    labels = references["label"].dropna()
    labels = labels[labels >= 0]  # −1 is unknown
    if names.nunique() == 1:
        words = {"count": len(references), "are": "are predicted as", "name": names.iloc[0]}
        yield SINGLE_CLASS.filled(words)
    elif len(labels) == len(references) and labels.nunique() == 1:
        words = {"count": len(references), "are": "have", "name": f"the label {labels.iloc[0]:g}"}
        yield SINGLE_CLASS.filled(words)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _sample_size(results: Sequence[AxisResult]) -> Iterator[Finding]:
    """Yield what so many samples, or groups of them, cannot show."""
    samples = max(len(result.sample_ids) for result in results)
    groups = max(result.groups for result in results)
    independent = groups or samples
    tie = _tie(results[0])
    if independent < FEW_SAMPLES:
        methods = max(len(set(r.explainers) - r.controls) for r in results)
        sentences = []
        if methods < 2 or groups:
            was = "was" if samples == 1 else "were"
            sentences.append(f"{_counted(samples, 'sample')} {was} tested.")
        if groups:
            sentences.append(f"They form {groups} groups, and only groups are independent.")
        if methods > 1:
            sentences.append(power_sentence(independent, methods))
        template = TOO_FEW if independent < FEWEST else FEW
        words = {
            "tested": " ".join(sentences),
            "tie": tie,
            "fewest": FEWEST,
            "pilot": PILOT,
        }
        yield template.filled(words, change={"limit": PILOT})
    elif tie:
        yield TIED.filled({"tie": tie})
    share = unseen_share(independent) if independent else 1.0
    if independent >= FEWEST and share > RARE_SHARE:
        yield RARE.filled({"percent": 100 * share, "n": independent})


def _small_budget(results: Sequence[AxisResult], manifest: Manifest) -> Iterator[Finding]:
    """Yield the methods with fewer samples, draws or steps than their default."""
    methods: set[str] = set()
    for result in results:
        methods |= set(result.explainers)
    for result in results:
        methods -= set(result.controls)
    names = results[0].unmarked_names
    budgets: dict[str, str] = {}
    items, defaults = [], []
    for explainer, entry in manifest.study.explainers.items():
        registered = entry.name or explainer
        registered_class = EXPLAINERS.get(registered)
        if explainer not in methods or not is_dataclass(registered_class):
            continue
        for budget in fields(registered_class):
            value = entry.parameters.get(budget.name)
            if budget.name not in BUDGETS or not isinstance(budget.default, int):
                continue
            if isinstance(value, int) and value < budget.default:
                budgets[explainer] = f"{value} {budget.name} (default {budget.default})"
                items.append(f"{names[explainer]} ({value} {budget.name})")
                defaults.append({registered: {budget.name: budget.default}})
    if budgets:
        in_words = [(names[explainer], budget) for explainer, budget in budgets.items()]
        words = {"budgets": each(in_words)}
        change = {"explainers": defaults}
        yield SMALL_BUDGET.filled(words, budgets, items=tuple(items), change=change)


def _tie(result: AxisResult) -> str:
    """Return that the two best methods are undecided, and how many samples it might take; empty where they are not."""
    if not result.headlines:
        return ""
    measure = result.headlines[0]
    undecided = result.verdict(measure).undecided
    if len(undecided) < 2:
        return ""
    first, second = undecided[:2]
    tests = result.tests[result.tests["measure"] == measure.name]
    gap = difference(tests, first, second)
    if gap is None or not math.isfinite(gap["low"]):
        return ""

    names = result.unmarked_names
    interval = (gap["difference"], gap["low"], gap["high"])
    scores = [number(gap[score], digits_of(*interval)) for score in ("score_a", "score_b")]
    sentence = (
        f"{names[first]} and {names[second]}, first by {measure.title}, differ by {with_interval(*interval)} on the "
        f"{gap['n']:g} samples of both ({scores[0]} and {scores[1]})"
    )
    lead = measure.sign * gap["difference"]
    if lead <= 0:
        return f"{sentence}."
    half_width = (gap["high"] - gap["low"]) / 2
    times = (half_width / lead) ** 2  # an interval narrows as 1 / √n
    needed = math.ceil(times * gap["n"] / 10) * 10
    if times >= FAR or needed <= PILOT:
        return f"{sentence}."
    return f"{sentence}; if the difference is as large as that, it takes at least about {needed} samples to show it."


def _no_interval(results: Sequence[AxisResult]) -> Iterator[Finding]:
    """Yield that scores have no interval worth printing, from few or scattered samples: one finding for all axes.

    If a single axis has such scores, the finding is about this axis and its methods.
    """
    rows_of_results = []
    for result in results:
        headlines = [measure.name for measure in result.headlines]
        summary = result.summary[result.summary["measure"].isin(headlines)]
        without_interval = records(summary[summary["no_interval"] != ""])
        if without_interval:
            rows_of_results.append((result, without_interval))
    if not rows_of_results:
        return
    has_several_axes = len(rows_of_results) > 1

    items = []
    for result, rows in rows_of_results:
        names = result.unmarked_names
        for row in rows:
            # The condition of agreement is another explainer.
            condition = result.axis.condition(names.get(row.condition, row.condition), row.level)
            item = f"{names[row.explainer]}, {condition}: {row.no_interval}"
            items.append(f"{result.title}, {item}" if has_several_axes else item)

    counts = ""
    if has_several_axes:
        of_axes = [f"{result.title} {len(rows)}" for result, rows in rows_of_results]
        counts = f" ({listing(of_axes)})"
    have = "has" if len(items) == 1 else "have"
    first_result, first_rows = rows_of_results[0]
    reason = first_rows[0].no_interval
    seen = f"{_counted(len(items), 'score')} {have} no interval{counts}: {reason}."
    finding = replace(NO_INTERVAL, seen=seen, items=tuple(items))
    if has_several_axes:
        yield finding
        return
    explainers = dict.fromkeys(str(row.explainer) for row in first_rows)
    finding = replace(finding, axis=first_result.axis.name, explainers=tuple(explainers))
    yield from _with_label(first_result, [finding])


def _with_label(result: AxisResult, listed: Iterable[Finding]) -> list[Finding]:
    """Return findings whose titles name the evaluation, if the study gave it a name of its own."""
    if result.label == result.axis.name:
        return list(listed)
    return [replace(finding, title=f"{finding.title} ({result.label})") for finding in listed]
