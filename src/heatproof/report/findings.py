"""Findings of a run: what its axes found, what concerns the run as a whole, and how they are put in order.

Every rule speaks only where an interval, a bound or a corrected test supports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

import pandas as pd

from heatproof.axes import BY_NAME
from heatproof.explainers import EXPLAINERS
from heatproof.report.common_findings import common_findings, undefined_maps
from heatproof.report.frontier import frontier_findings, weighed
from heatproof.report.how_many import precision_not_reached
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.results.names import Look, spoken
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
    by_place: dict[tuple[str, str], list[AxisResult]] = {}
    for result in results:
        by_place.setdefault((result.dataset, result.model), []).append(result)
    listed = []
    for (dataset, model), here in by_place.items():
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        listed += findings_here(dataset, model, here, own, manifest, missing)
    return listed


def findings_here(
    dataset: str,
    model: str,
    here: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    missing: Sequence[str] = (),
) -> list[Finding]:
    """Return the findings of one dataset and model, from the results of its axes and its own samples."""
    listed = list(_run_findings(model, here, samples, manifest, missing))
    for result in here:
        of_axis = findings_of(result) + list(common_findings(result))
        if not any(finding.rule == "undefined-maps" for finding in of_axis):
            of_axis += undefined_maps(result)
        listed += _named(result, of_axis)
    listed += _no_interval(here)
    listed += [finding for pair in weighed(here) for finding in frontier_findings(*pair)]

    listed = [finding for finding in listed if finding.rule not in manifest.ignore]
    order = {"": -1, **{axis: position for position, axis in enumerate(BY_NAME)}}

    def urgency(finding: Finding) -> tuple[int, int, int]:
        severity = SEVERITIES.index(finding.severity)
        return severity, order.get(finding.axis, len(order)), -len(finding.explainers)

    looks = {e: look for result in here for e, look in result.looks.items()}
    plain = {e: replace(look, name=look.name.partition(" (")[0]) for e, look in looks.items()}
    located = [replace(finding, dataset=dataset, model=model) for finding in listed]
    return [_spoken(finding, plain) for finding in sorted(located, key=urgency)]


def _spoken(finding: Finding, looks: Mapping[str, Look]) -> Finding:
    """A finding with the human names of methods; what is written for a study file keeps theirs."""
    items = tuple(spoken(item, looks) for item in finding.items)
    title, seen, do = (spoken(text, looks) for text in (finding.title, finding.seen, finding.do))
    return replace(finding, title=title, seen=seen, do=do, items=items)


def unreadable(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that could not be read."""
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
    here: Sequence[AxisResult],
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
        ends = {"low": samples["readout"].min(), "high": samples["readout"].max()}
        yield SQUASHED.filled(ends)
    if here:
        references = manifest.study.dataset(here[0].dataset).references
        yield from _single_class(samples[samples["sample"].isin(references)])
    unread = unreadable(samples)
    if len(unread):
        items = tuple(
            f"{name}: {why}" for name, why in zip(unread["sample"], unread["error"], strict=True)
        )
        yield UNREADABLE.filled({"files": _counted(len(items), "file")}, items=items)
    yield from _small_budget(here, manifest)
    yield from precision_not_reached(here)
    if here:
        yield from _sample_size(here)


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


def _sample_size(here: Sequence[AxisResult]) -> Iterator[Finding]:
    """What so many samples, or groups of them, cannot show."""
    samples = max(len(result.sample_ids) for result in here)
    groups = max(result.groups for result in here)
    independent = groups or samples
    tie = _tie(here[0])
    if independent < FEW_SAMPLES:
        methods = max(len(set(r.explainers) - r.controls) for r in here)
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


def _small_budget(here: Sequence[AxisResult], manifest: Manifest) -> Iterator[Finding]:
    """Methods with fewer samples, draws or steps than their default."""
    methods = {name for result in here for name in result.explainers}
    methods -= {name for result in here for name in result.controls}
    small: dict[str, str] = {}
    short, defaults = [], []
    for name, entry in manifest.study.explainers.items():
        registered = entry.name or name
        explainer = EXPLAINERS.get(registered)
        if name not in methods or not is_dataclass(explainer):
            continue
        for budget in fields(explainer):
            asked = entry.parameters.get(budget.name)
            if budget.name not in BUDGETS or not isinstance(budget.default, int):
                continue
            if isinstance(asked, int) and asked < budget.default:
                small[name] = f"{asked} {budget.name} (default {budget.default})"
                short.append(f"{name} ({asked} {budget.name})")
                defaults.append({registered: {budget.name: budget.default}})
    if small:
        words = {"budgets": each(small.items())}
        change = {"explainers": defaults}
        yield SMALL_BUDGET.filled(words, small, items=tuple(short), change=change)


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

    interval = (gap["difference"], gap["low"], gap["high"])
    scores = [number(gap[score], digits_of(*interval)) for score in ("score_a", "score_b")]
    sentence = (
        f"{first} and {second}, first by {measure.title}, differ by {with_interval(*interval)} on the "
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


def _no_interval(here: Iterable[AxisResult]) -> Iterator[Finding]:
    """Scores from so few samples, or so scattered ones, that no interval is worth printing, of all axes at once."""
    every = [(j, j.summary[j.summary["measure"].isin([m.name for m in j.headlines])]) for j in here]
    lost = [(j, own) for j, cells in every if len(own := cells[cells["no_interval"] != ""])]
    if not lost:
        return
    several, rows = len(lost) > 1, [(j, r) for j, own in lost for r in records(own)]
    counts = f" ({listing([f'{j.title} {len(own)}' for j, own in lost])})" if several else ""
    have = "has" if len(rows) == 1 else "have"
    said = f"{_counted(len(rows), 'score')} {have} no interval{counts}: {rows[0][1].no_interval}."
    where = [
        f"{r.explainer}, {j.axis.condition(r.condition, r.level)}: {r.no_interval}" for j, r in rows
    ]
    where = (
        [f"{j.title}, {text}" for (j, _), text in zip(rows, where, strict=True)]
        if several
        else where
    )
    found = replace(NO_INTERVAL, seen=said, items=tuple(where))
    names = tuple(dict.fromkeys(str(r.explainer) for _, r in rows))
    first = lost[0][0]
    yield from (
        [found]
        if several
        else _named(first, [replace(found, axis=first.axis.name, explainers=names)])
    )


def _named(result: AxisResult, found: Iterable[Finding]) -> list[Finding]:
    """Findings that say which evaluation they are about where a study gave it a name of its own."""
    plain = result.label == result.axis.name
    return [f if plain else replace(f, title=f"{f.title} ({result.label})") for f in found]
