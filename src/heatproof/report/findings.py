"""Findings of a run: what its axes found, what concerns the run as a whole, and how they are put in order.

Every rule speaks only where an interval, a bound or a corrected test supports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from heatproof.axes import AXES, AxisResult, Finding, axis_results
from heatproof.axes.contract import NO_SCORE, Severity, findings_of, unseen
from heatproof.drawing.methods import Look, spoken
from heatproof.drawing.prose import (
    above,
    difference,
    digits_of,
    listing,
    number,
    records,
    with_interval,
)
from heatproof.evaluation import REDRAW
from heatproof.report.frontier import frontier_findings, weighed
from heatproof.statistics import FEW_SAMPLES
from heatproof.statistics.power import power_sentence

MOST = 8
"""Findings of one dataset and model that are written out; the rest is counted."""
SEVERITIES: tuple[Severity, ...] = ("act", "mind", "note")
PILOT = 100
"""The samples from which on the intervals of means are usually narrow enough to rank a handful of methods."""
ENOUGH = 8
"""The samples from which on it is said that all scores lie in [0, 1]."""
FAR = 50
"""So many times as many samples are not worth naming."""

UNTRAINED = unseen(
    "act",
    "The model looks untrained",
    "The last layer answers at random, so every explanation explains noise.",
    "Load the trained weights, or train the head, and run again into a new directory.",
)
UNNORMALISED = unseen(
    "act",
    "The model was given without its normalisation",
    "A network that sees values on another scale than it was trained on predicts, and explains, something else.",
    "Give mean and std to Model(...), or name the source (timm:…, hf:…, torchvision:…), which brings them; if they are "
    "part of the network already, nothing is wrong.",
)
SQUASHED = unseen(
    "mind",
    "The scores look like probabilities",
    "Where a sigmoid or softmax is taken for logits, probabilities are all alike and gradients vanish when it is sure.",
    "Leave the last sigmoid or softmax off, or say so: task={'classification': {'outputs': 'probabilities'}}.",
)
UNFINISHED = unseen(
    "act",
    "Unfinished run",
    "Means are over what is there, and methods may be compared on different samples.",
    "Run the same command again; it computes what is missing.",
)
FEW = unseen(
    "mind",
    "Few samples",
    "Intervals from so few samples are wide, and methods that look equal may not be.",
    f"Test at least {PILOT} samples before you choose a method: limit: {PILOT} in the study file, or a folder with "
    "more data. Take this run as a trial; four times as many samples halve the intervals.",
)
TIED = unseen(
    "note",
    "The best methods are not separated",
    "With these data the first places could be exchanged.",
    "Choose among them by cost or by another axis, or test more samples.",
)
NO_INTERVAL = unseen(
    "mind",
    "Scores without an interval",
    "An interval that holds would be wider than half of the scale, so the score says next to nothing about other data.",
    "Do not read these scores without more samples, or a milder condition that keeps more of them.",
)
UNREADABLE = unseen(
    "mind",
    "Unreadable files",
    "They took no part, so the numbers are of the others.",
    "Mend or remove them and run again into a new directory.",
)
UNDEFINED = unseen(
    "mind",
    NO_SCORE,
    "A map that is constant or not finite has no order, so there is nothing to score; the numbers are of the others.",
    "Look at the reasons: a constant map often means a saturated output, or a layer that does not see the input.",
)


def findings(
    table: pd.DataFrame, samples: pd.DataFrame, manifest: Mapping[str, Any], most: int = MOST
) -> list[Finding]:
    """What a run shows, for every dataset and model: the most urgent first, about `most` and a count of the rest.

    >>> columns = ["dataset", "model", "sample", "error", "evaluation"]
    >>> findings(pd.DataFrame(columns=columns), pd.DataFrame(columns=columns), {})
    []
    """
    by_place: dict[tuple[str, str], list[AxisResult]] = {}
    for judged in axis_results(table, samples, (), manifest):
        by_place.setdefault((judged.cube.dataset, judged.cube.model), []).append(judged)
    listed = []
    for (dataset, model), here in by_place.items():
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        listed += findings_here(dataset, model, here, own, manifest, most)
    return listed


def findings_here(
    dataset: str,
    model: str,
    here: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Mapping[str, Any],
    most: int = MOST,
) -> list[Finding]:
    """The same for one dataset and model, from what its axes judged and its own samples."""
    listed = list(_run_findings(model, here, samples, manifest))
    for judged in here:
        own = findings_of(judged)
        told = any(finding.title == NO_SCORE for finding in own)
        listed += _named(judged, [*own, *([] if told else _undefined(judged))])
    listed += _no_interval(here)
    listed += [finding for pair in weighed(here) for finding in frontier_findings(*pair)]
    order = {"": -1, **{axis.name: i for i, axis in enumerate(AXES)}}
    listed.sort(
        key=lambda f: (
            SEVERITIES.index(f.severity),
            order.get(f.axis, len(order)),
            -len(f.explainers),
        )
    )
    looks = {e: look for judged in here for e, look in judged.looks.items()}
    plain = {e: replace(look, name=look.name.partition(" (")[0]) for e, look in looks.items()}
    return [
        _spoken(replace(f, dataset=dataset, model=model), plain) for f in _at_most(listed, most)
    ]


def _spoken(finding: Finding, looks: Mapping[str, Look]) -> Finding:
    """A finding with the human names of methods; what is written for a study file keeps theirs."""
    items = tuple(spoken(item, looks) for item in finding.items)
    title, seen, do = (spoken(text, looks) for text in (finding.title, finding.seen, finding.do))
    return replace(finding, title=title, seen=seen, do=do, items=items)


def unreadable(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that could not be read."""
    return samples[samples["error"].fillna("").astype(str).ne("")]


def untrained_head(model: str, manifest: Mapping[str, Any], fact: str = "untrained_head") -> str:
    """Why the last layer of a model looks as if it was never trained, as the manifest has it; empty where it does not.

    >>> untrained_head("net", {"study": {"models": {"net": {"untrained_head": "its bias is zero"}}}})
    'its bias is zero'
    """
    models = (manifest.get("study") or {}).get("models") or {}
    return str((models.get(model) or {}).get(fact) or "")


def _all_below_one(samples: pd.DataFrame) -> bool:
    """Whether every explained logit of enough samples lies in [0, 1] and not near 0, as probabilities do."""
    scores = samples["readout"].dropna() if "readout" in samples else pd.Series(dtype=float)
    classes = samples["probability"].notna().any() if len(scores) else False
    return bool(
        classes and len(scores) >= ENOUGH and scores.between(0, 1).all() and scores.max() > 0.5
    )


def _run_findings(
    model: str, here: Sequence[AxisResult], samples: pd.DataFrame, manifest: Mapping[str, Any]
) -> Iterator[Finding]:
    gaps = tuple(str(gap) for gap in manifest.get("missing") or ())
    if gaps:
        seen = f"This is so far: {len(gaps)} part{'s' if len(gaps) != 1 else ''} of the study are not computed yet."
        yield replace(UNFINISHED, seen=seen, items=gaps)
    head = untrained_head(model, manifest)
    if head:
        yield replace(UNTRAINED, seen=f"{head[0].upper()}{head[1:]}.")
    source = untrained_head(model, manifest, "unnormalised")
    if source:
        yield replace(UNNORMALISED, seen=f"It has neither mean nor std, and {source}.")
    if _all_below_one(samples):
        low, high = samples["readout"].min(), samples["readout"].max()
        yield replace(
            SQUASHED,
            seen=f"The explained score of every sample lies in [0, 1]: {low:.2f} to {high:.2f}.",
        )
    unread = unreadable(samples)
    if len(unread):
        items = tuple(
            f"{name}: {why}" for name, why in zip(unread["sample"], unread["error"], strict=True)
        )
        yield replace(
            UNREADABLE,
            seen=f"{len(items)} file{'s' if len(items) != 1 else ''} could not be read.",
            items=items,
        )
    n = max((len(judged.cube.samples) for judged in here), default=0)
    ties = [text for judged in here[:1] if (text := _tie(judged))]
    groups = max((judged.groups for judged in here), default=0)
    if here and (groups or n) < FEW_SAMPLES:
        tested = f"{n} sample{'s were' if n != 1 else ' was'} tested."
        of_groups = f" They form {groups} groups, which is what counts." if groups else ""
        methods = max(len(judged.cube.explainers) - len(judged.cube.controls) for judged in here)
        power = [power_sentence(groups or n, methods)] if methods > 1 else []
        yield replace(FEW, seen=" ".join([tested + of_groups, *power, *ties]))
    else:
        for text in ties:
            yield replace(TIED, seen=text)


def _tie(judged: AxisResult) -> str:
    """That the two best methods are not told apart, and how many samples it might take; empty where they are."""
    if not judged.headlines or judged.headlines[0].better != "higher":
        return ""
    name = judged.headlines[0].name
    ranking, tests = (frame[frame["measure"] == name] for frame in (judged.ranking, judged.tests))
    best = list(
        ranking[ranking["score"].notna() & ~ranking["control"].astype(bool)]["explainer"][:2]
    )
    gap = difference(tests, *best) if len(best) == 2 else None
    if gap is None or above(tests, *best) or not math.isfinite(gap["low"]):
        return ""
    apart = (gap["difference"], gap["low"], gap["high"])
    own, other = (number(gap[score], digits_of(*apart)) for score in ("score_a", "score_b"))
    said = f"{listing(best)}, first by {judged.headlines[0].title}, differ by {with_interval(*apart)} on the "
    said += f"{gap['n']:g} samples of both ({own} and {other})"
    half = (gap["high"] - gap["low"]) / 2
    times = (half / gap["difference"]) ** 2 if gap["difference"] > 0 else math.inf
    n = math.ceil(times * gap["n"] / 10) * 10 if times < FAR else 0
    if n <= PILOT:
        return f"{said}."
    return f"{said}; if the difference is as large as that, it takes at least about {n} samples to show it."


def _no_interval(here: Iterable[AxisResult]) -> Iterator[Finding]:
    """Scores from so few samples, or so scattered ones, that no interval is worth printing, of all axes at once."""
    every = [(j, j.summary[j.summary["measure"].isin([m.name for m in j.headlines])]) for j in here]
    lost = [(j, own) for j, cells in every if len(own := cells[cells["no_interval"] != ""])]
    if not lost:
        return
    several, rows = len(lost) > 1, [(j, r) for j, own in lost for r in records(own)]
    counts = f" ({listing([f'{j.title} {len(own)}' for j, own in lost])})" if several else ""
    said = f"{len(rows)} score{'s have' if len(rows) != 1 else ' has'} none{counts}: {rows[0][1].no_interval}."
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


def _undefined(judged: AxisResult) -> Iterator[Finding]:
    """Explanations that have no score at all on an axis, each counted once."""
    scored = judged.axis.of_role("headline", "component")
    rows = judged.rows[judged.rows["measure"].isin(scored) & (judged.rows["condition"] != REDRAW)]
    keys = pd.MultiIndex.from_frame(rows[["explainer", "sample"]])
    lost = rows[(rows["status"] == "undefined") & ~keys.isin(keys[rows["status"] == "ok"])]
    lost = lost.drop_duplicates(["explainer", "sample"])
    if len(lost):
        reasons = lost.assign(
            reason=lost["reason"].fillna("").astype(str).replace("", "no reason given")
        )
        sizes = (
            reasons.groupby(["explainer", "reason"], sort=False, observed=True)
            .size()
            .rename("times")
            .reset_index()
        )
        said = "explanations have" if len(lost) != 1 else "explanation has"
        yield replace(
            UNDEFINED,
            axis=judged.axis.name,
            seen=f"{len(lost)} {said} no score at all.",
            items=tuple(f"{r.explainer}: {r.times} × {r.reason}" for r in records(sizes)),
            explainers=tuple(dict.fromkeys(map(str, lost["explainer"]))),
        )


def _named(judged: AxisResult, found: Iterable[Finding]) -> list[Finding]:
    """Findings that say which evaluation they are about where a study gave it a name of its own."""
    plain = judged.label == judged.axis.name
    return [f if plain else replace(f, title=f"{f.title} ({judged.label})") for f in found]


def _at_most(ordered: list[Finding], most: int) -> list[Finding]:
    """What has to be acted on and the first findings of every axis, in the same order, and one card for the others."""
    if len(ordered) <= most + 1:
        return ordered
    turn = [sum(a.axis == b.axis for b in ordered[:i]) for i, a in enumerate(ordered)]
    chosen = sorted(range(len(ordered)), key=lambda i: (ordered[i].severity != "act", turn[i], i))[
        :most
    ]
    rest = [finding for i, finding in enumerate(ordered) if i not in chosen]
    more = Finding(
        "",
        "note",
        f"{len(rest)} more findings",
        "There are more of them than fit here.",
        "Each rests on its own interval as those above do.",
        "Deal with the findings above first; heatproof.report.findings.findings(..., most=99) gives all in full.",
        items=tuple(dict.fromkeys(f"{finding.title}: {finding.seen}" for finding in rest)),
    )
    return [*(ordered[i] for i in sorted(chosen)), more]
