"""What not to conclude: each limit of a run as a headline, what was seen, and a list that may be folded away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from holdfast.axes.faithfulness.retraining.leakage import leakage_summary
from holdfast.axes.stability.perturbations import title
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.runs.manifest import references_of

if TYPE_CHECKING:
    from holdfast.axes.stability.words import Findings

FEW_SAMPLES = 30
MANY_SAMPLES, FEW_REFERENCES = 200, 32
"""From how many samples on the error of fewer references than these is as large as that over samples."""
LEAKAGE = "leakage"  # as `holdfast.runs.retrain` names its evaluation
ONE_COLOUR = ("zero", "value", "image_mean", "dataset_mean")
"""Imputers that put one colour in place of what is removed, so that its outline stays visible."""


@dataclass(frozen=True)
class Caution:
    """One thing not to conclude: a headline, what was seen, and a list that may be folded away."""

    title: str
    text: str
    items: list[str] = field(default_factory=list)


def cautions(
    found: Findings, samples: pd.DataFrame, manifest: Mapping[str, Any], related: pd.DataFrame | None = None
) -> list[Caution]:
    """What not to conclude from this dataset and model.

    `related` has the rows of its other evaluations, as `axes.related_rows` gives them, for what those cannot say.
    """
    listed = [*_unfinished(manifest), *_untrained(found.model, manifest)]
    n = len(found.cube.samples)
    listed += [*_few(n), *_few_references(n, manifest), *_low_retention(found)]
    listed += [*_at_chance(found), *_undefined(found.cube.reasons)]
    partial = found.ranking[found.ranking["conditions"] < found.ranking["conditions_total"]]
    if len(partial):
        items = [f"{r.explainer}: {r.conditions} of {r.conditions_total} conditions" for r in records(partial)]
        text = "Overall scores average the conditions that have one; these methods lack some and compare badly."
        listed.append(Caution("Missing conditions", text, items))
    listed += _noise_floor(found)
    if related is not None:
        others = related[related["evaluation"] != found.cube.evaluation]
        listed += [*_leaks(others), *_undefined_elsewhere(others)]
    listed += _unread(samples, found.dataset, found.model)
    text = "A map can be perfectly stable and wrong: an edge detector is. Stability says that an explanation holds "
    listed.append(Caution("Stability is not faithfulness", text + "still, not that it is true of the model."))
    return listed


def other_cautions(
    dataset: str, model: str, samples: pd.DataFrame, manifest: Mapping[str, Any], related: pd.DataFrame
) -> list[Caution]:
    """What not to conclude from a dataset and model whose stability was not tested; `related` as in `cautions`.

    >>> none = pd.DataFrame(columns=["dataset", "model", "sample", "error", "evaluation", "condition"])
    >>> other_cautions("photos", "net", none, {}, none)
    []
    """
    n = int(related["sample"].nunique())
    found = [*_unfinished(manifest), *_untrained(model, manifest), *(_few(n) if n else [])]
    return [*found, *_leaks(related), *_undefined_elsewhere(related), *_unread(samples, dataset, model)]


def untrained_head(model: str, manifest: Mapping[str, Any]) -> str:
    """Why the last layer of a model looks as if it was never trained, as the manifest has it; empty where it does not.

    >>> untrained_head("net", {"study": {"models": {"net": {"untrained_head": "its bias is zero"}}}})
    'its bias is zero'
    """
    models = (manifest.get("study") or {}).get("models") or {}
    return str((models.get(model) or {}).get("untrained_head") or "")


def unreadable(samples: pd.DataFrame, dataset: str, model: str) -> pd.DataFrame:
    """The samples that could not be read."""
    here = (samples["dataset"] == dataset) & (samples["model"] == model)
    return samples[here & samples["error"].fillna("").astype(str).ne("")]


def one_colour(imputer: str) -> bool:
    """Whether an imputer, by its label in the table, fills in one colour.

    >>> one_colour("value(value=0.5)"), one_colour("noisy_linear")
    (True, False)
    """
    return imputer.split("(", maxsplit=1)[0] in ONE_COLOUR


def _untrained(model: str, manifest: Mapping[str, Any]) -> list[Caution]:
    head = untrained_head(model, manifest)
    if not head:
        return []
    text = f"{head[0].upper()}{head[1:]}. Explanations of a model whose last layer was never trained say nothing about "
    return [Caution("The head looks untrained", text + "a real one.")]


def _few(n: int) -> list[Caution]:
    if n >= FEW_SAMPLES:
        return []
    text = f"Only {n} sample{'s were' if n != 1 else ' was'} tested. Intervals from fewer than {FEW_SAMPLES} samples"
    return [Caution("Few samples", text + " are rough and may be too narrow.")]


def _few_references(n: int, manifest: Mapping[str, Any]) -> list[Caution]:
    references = references_of(manifest.get("study") or {})
    if n < MANY_SAMPLES or references >= FEW_REFERENCES:
        return []
    text = (
        f"Chance is taken from the maps of {references} other samples. The intervals over {n} samples do not know that "
    )
    text += "others in their place may move calibrated scores by 0.01 or so: read nothing into smaller differences, or "
    return [Caution("Chance from few samples", text + "ask for more with “references: 64” in the study.")]


def _low_retention(found: Findings) -> list[Caution]:
    cells = found.cells()
    low = cells[cells["flag"] != ""]
    items = []
    for _, rows in low.groupby(["condition", "level", "flag", "attempted"], sort=False):
        r = records(rows)[0]
        who = "every method" if len(rows) == len(found.cube.explainers) else listing(rows["explainer"])
        items.append(f"{title(r.condition, r.level)}: {r.flag} of {r.attempted} attempted ({who})")
    text = "The filter keeps only pairs whose prediction is unchanged. Where few remain, the score describes "
    return [Caution("Low retention", text + "the easiest samples, not the data.", items)] if items else []


def _at_chance(found: Findings) -> list[Caution]:
    items = [
        f"{r.explainer}, {title(r.condition, r.level)}: "
        f"raw {number(r.mean)}, calibrated {with_interval(r.best, r.best_low, r.best_high)}"
        for r in records(found.at_chance())
    ]
    text = "Here the interval reaches chance: the maps of a pair are not shown to resemble each other more than "
    text += "maps of different samples do, whatever the raw score."
    return [Caution("Scores at chance", text, items)] if items else []


def _undefined(reasons: pd.DataFrame) -> list[Caution]:
    if reasons.empty:
        return []
    grouped = reasons.groupby(["explainer", "reason"], sort=False, observed=True, dropna=False)["count"].sum()
    rows = grouped.rename("times").reset_index()  # a tuple's `count` is a method
    items = [f"{r.explainer}: {r.times} × {r.reason or 'no reason given'}" for r in records(rows)]
    n = int(reasons["count"].sum())
    kind = "maps were constant, not finite or otherwise without order and got" if n != 1 else "map got"
    return [Caution("Undefined maps", f"{n} {kind} no score.", items)]


def _undefined_elsewhere(rows: pd.DataFrame) -> list[Caution]:
    """Explanations that no other axis could judge, each counted once; an open decision is no fault of a map."""
    if rows.empty:
        return []
    lost = rows[(rows["status"] == "undefined") & ~rows["measure"].isin(("stable", "correct"))]
    lost = lost[~lost["measure"].str.startswith("layer_")]
    judged = set(map(tuple, rows.loc[rows["status"] == "ok", ["evaluation", "explainer", "sample"]].to_numpy()))
    lost = lost.drop_duplicates(["evaluation", "explainer", "sample"])
    keys = map(tuple, lost[["evaluation", "explainer", "sample"]].to_numpy())
    lost = lost[[key not in judged for key in keys]]
    if lost.empty:
        return []
    reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
    sizes = lost.assign(reason=reasons).groupby(["evaluation", "explainer", "reason"], sort=False, observed=True).size()
    items = [
        f"{r.explainer}, {r.evaluation}: {r.times} × {r.reason}" for r in records(sizes.rename("times").reset_index())
    ]
    said = "explanations have" if len(lost) != 1 else "explanation has"
    return [
        Caution(
            "Undefined on other axes", f"{len(lost)} {said} no score at all on an axis other than stability.", items
        )
    ]


def _noise_floor(found: Findings) -> list[Caution]:
    cells = found.cells()
    noisy = cells[cells["noise_floor"].notna()].drop_duplicates("explainer")
    if noisy.empty:
        return []
    items = [f"{r.explainer}: {number(r.noise_floor)}" for r in records(noisy)]
    text = "These methods draw random numbers. Two draws on the same input agree only to the raw score given here; "
    text += "where draws are not shared, more agreement than that cannot be expected."
    return [Caution("Noise floor", text, items)]


def _leaks(rows: pd.DataFrame) -> list[Caution]:
    """Imputers that were shown to leak, or that are known to where nobody looked."""
    found = leakage_summary(rows[rows["evaluation"] == LEAKAGE]) if len(rows) else pd.DataFrame()
    if len(found) and "mask_bits" in found:
        leaking = found[found["leaks"].astype(bool)].sort_values("mask_bits", ascending=False, kind="stable")
        worst = leaking.assign(imputer=leaking["condition"].str.rsplit(" ", n=1).str[0]).drop_duplicates("imputer")
        items = [
            f"{r.imputer}: at least {number(r.mask_bits)} bits about the class in the mask of {r.explainer} at "
            f"{100 * r.level:g} %, {100 * r.pixels:.0f} % of the pixels recognised"
            for r in records(worst)
        ]
        text = (
            "The shape of what was removed gives the class away, and the imputed images show that shape. Scores with "
        )
        text += "these imputers do not tell what a map says from the outline of what it removes."
        return [Caution("Leaking imputers", text, items)] if items else []
    swept = rows["condition"].astype(str)
    names = dict.fromkeys(c.rsplit(" ", 1)[0] for c in swept.unique() if c.endswith((" morf", " lerf")))
    filled = [name for name in names if one_colour(name)]
    if not filled:
        return []
    text = f"{listing(filled)} put{'s' if len(filled) == 1 else ''} one value in place of what is removed, so its "
    text += "outline stays visible and may give the class away. Whether it does was not measured in this run."
    return [Caution("Imputers that may leak", text)]


def _unfinished(manifest: Mapping[str, Any]) -> list[Caution]:
    gaps = [str(gap) for gap in manifest.get("missing") or []]
    text = f"{len(gaps)} part{'s' if len(gaps) != 1 else ''} of the study are not computed yet; run the command again."
    return [Caution("Unfinished run", text, gaps)] if gaps else []


def _unread(samples: pd.DataFrame, dataset: str, model: str) -> list[Caution]:
    unread = unreadable(samples, dataset, model)
    items = [f"{name}: {error}" for name, error in zip(unread["sample"], unread["error"], strict=True)]
    text = f"{len(items)} file{'s' if len(items) != 1 else ''} could not be read and took no part."
    return [Caution("Unreadable files", text, items)] if items else []
