"""Findings from the pairs behind the stability scores: random draws, retention, undefined maps and alignment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from heatproof import statistics
from heatproof.axes.contract import Finding
from heatproof.axes.stability import findings_texts as texts
from heatproof.axes.stability.findings_texts import finding
from heatproof.axes.stability.frames import FASS, Frames
from heatproof.axes.stability.perturbations import known, milder, title
from heatproof.drawing.prose import each, listing, number, records, some, with_interval
from heatproof.models.modality import words_of
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.estimates import interval

FIRM = 0.9
"""Two draws on one input are called alike when the interval of their raw score reaches this."""
MORE = 4  # times as many draws halve the noise
OFTEN = 0.1
"""Undefined maps call for action when surely more than this share of a method's pairs has one."""


def pair_findings(one: Frames) -> Iterator[Finding]:
    """What the pairs of one dataset and model show, in no particular order."""
    yield from _draws(one)
    yield from _retention(one)
    yield from _few_pairs(one)
    yield from _undefined(one)
    yield from _not_aligned(one)


def _draws(one: Frames) -> Iterator[Finding]:
    """Stochastic methods whose own draws move the map."""
    floors = one.cube.floor.get(FASS)
    if floors is None:
        return
    mean, (low, high) = (
        mean_of_finite(floors),
        interval(floors, span=one.cube.span(FASS), groups=one.cube.groups),
    )
    raw, sample = one.ranking.set_index("explainer"), words_of(one.judged.task).sample
    loud: dict[str, str] = {}
    noisy: dict[str, str] = {}
    for e, name in enumerate(one.cube.explainers):
        if name not in one.cube.controls and high[e] < FIRM:
            kind = loud if high[e] < raw.loc[name, "raw_low"] else noisy
            kind[name] = with_interval(float(mean[e]), float(low[e]), float(high[e]))
    for text, rows in ((texts.LOUD_DRAWS, loud), (texts.NOISY_DRAWS, noisy)):
        if rows:
            more = listing(filter(None, (_more_draws(one, name) for name in rows)))
            perturbed = each((name, number(float(raw["raw"][name]))) for name in rows)
            seen = f"Raw FASS of two draws on the same, untouched {sample}: {each(rows.items())}. Of pairs under "
            seen += f"perturbation, which share their draws: {perturbed}."
            do = texts.DRAW_MORE.format(more, MORE) if more else "Draw more samples."
            yield finding(text, seen, [*rows], fill={"sample": sample, "more": do})


def _more_draws(one: Frames, explainer: str) -> str:
    settings = one.judged.settings_of(explainer)
    for key in ("samples", "draws"):
        if isinstance(settings.get(key), int):
            return f"{one.registered(explainer)}: {{{key}: {MORE * int(settings[key])}}} (now {settings[key]})"
    return ""


def _retention(one: Frames) -> Iterator[Finding]:
    """Conditions under which most predictions change."""
    cells = one.cells().assign(asked=lambda rows: rows["attempted"] - rows["undefined"])
    most = [statistics.exact_share(int(r.retained), int(r.asked))[1] for r in records(cells)]
    low = records(
        cells[np.array(most) < statistics.LOWEST_RETENTION].drop_duplicates(["condition", "level"])
    )
    if low:
        sweeps = [s for r in low if (s := milder(r.condition, r.level))]
        fill = {
            "milder": f"Use a milder change or a sweep, {sweeps[0]},"
            if sweeps
            else "Use a milder change"
        }
        where = [title(r.condition, r.level) for r in low]
        kept = [f"{r.retained} of {r.asked:g} under {t}" for r, t in zip(low, where, strict=True)]
        seen = f"The prediction stayed the same for {some(kept, 3)}."
        yield finding(texts.LOW_RETENTION, seen, items=kept, fill=fill | {"where": some(where, 2)})


def _few_pairs(one: Frames) -> Iterator[Finding]:
    """Conditions that left few pairs of the many, or less than half of the few, to score."""
    cells = one.cells()
    lost = (cells["attempted"] >= statistics.FEWEST_PAIRS) | (
        2 * cells["retained"] < cells["attempted"]
    )
    few, items = [], []
    for _, rows in cells[lost & (cells["retained"] < statistics.FEWEST_PAIRS)].groupby(
        ["condition", "level", "retained", "attempted"], sort=False
    ):
        r = records(rows)[0]
        who = (
            "every method" if len(rows) == len(one.cube.explainers) else listing(rows["explainer"])
        )
        few.append(title(r.condition, r.level))
        items.append(f"{few[-1]}: {r.retained} of {r.attempted} pairs ({who})")
    if items:
        seen = f"Fewer than {statistics.FEWEST_PAIRS} pairs have a score under {some(dict.fromkeys(few))}."
        yield finding(texts.FEW_PAIRS, seen, items=items)


def _undefined(one: Frames) -> Iterator[Finding]:
    lost = one.cells().groupby("explainer", sort=False)[["undefined", "attempted"]].sum()
    lost = lost[lost["undefined"] > 0]
    if lost.empty:
        return
    methods = lost[[name not in one.cube.controls for name in lost.index]]
    told = methods if len(methods) else lost
    counts = each(
        (str(name), f"{int(row['undefined'])} of {int(row['attempted'])}")
        for name, row in told.iterrows()
    )
    reasons = one.cube.reasons
    why = some(
        dict.fromkeys(
            str(r) for r in reasons[reasons["explainer"].isin(told.index)]["reason"] if r
        ),
        2,
    )
    tallies = zip(methods["undefined"], methods["attempted"], strict=True)
    often = any(statistics.exact_share(int(k), int(n))[0] > OFTEN for k, n in tallies)
    cams = [str(n) for n in methods.index if "cam" in one.registered(str(n))]
    grouped = reasons.groupby(["explainer", "reason"], sort=False, observed=True, dropna=False)[
        "count"
    ].sum()
    rows = grouped.rename("times").reset_index()  # a tuple's `count` is a method
    items = [f"{r.explainer}: {r.times} × {r.reason or 'no reason given'}" for r in records(rows)]
    text = replace(texts.UNDEFINED_MAPS, severity="act") if often else texts.UNDEFINED_MAPS
    fill = {"cams": texts.OTHER_LAYER.format(listing(cams)) if cams else ""}
    yield finding(
        text, f"Undefined: {counts}{f' ({why})' if why else ''}.", [*methods.index], items, fill
    )


def _not_aligned(one: Frames) -> Iterator[Finding]:
    cells = one.cells()
    moved = [
        (kind := known(c)) is not None and kind.family == "geometric" for c in cells["condition"]
    ]
    bare = cells[np.array(moved, dtype=bool) & cells["mean"].notna() & cells["aligned"].isna()]
    if bare.empty:
        return
    names = list(dict.fromkeys(bare["explainer"][~bare["control"]]))
    where, words = (
        listing(dict.fromkeys(title(r.condition, r.level) for r in records(bare))),
        words_of(one.judged.task),
    )
    fill = {"sample": words.sample, "samples": words.samples}
    yield finding(texts.NOT_ALIGNED, f"There is no aligned score for {where}.", names, fill=fill)
