"""Findings from the pairs behind the stability scores: random draws, retention, undefined maps and alignment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from heatproof import statistics
from heatproof.axes.contract import Finding
from heatproof.axes.stability import findings_texts as texts
from heatproof.axes.stability.evaluation import FASS
from heatproof.axes.stability.frames import Frames
from heatproof.axes.stability.perturbations import known, milder, title
from heatproof.drawing.prose import each, listing, number, records, some, with_interval
from heatproof.evaluation import Condition
from heatproof.explainers import EXPLAINERS
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
    floors = one.result.cube.noise_floor(FASS)
    if floors is None:
        return
    mean = mean_of_finite(floors)
    low, high = interval(floors, span=one.cube.span(FASS), groups=one.cube.groups)
    raw, sample = one.ranking.set_index("explainer"), one.result.words.sample
    loud: dict[str, str] = {}
    noisy: dict[str, str] = {}
    for e, name in enumerate(one.cube.explainers):
        if name not in one.cube.controls and high[e] < FIRM:
            kind = loud if high[e] < raw.loc[name, "raw_low"] else noisy
            kind[name] = with_interval(float(mean[e]), float(low[e]), float(high[e]))
    for is_loud, rows in ((True, loud), (False, noisy)):
        if not rows:
            continue
        more = [change for name in rows for change in _more_draws(one, name)]
        perturbed = each((name, number(float(raw["raw"][name]))) for name in rows)
        seen = f"Raw FASS of two draws on the same {sample}: {each(rows.items())}. Of pairs under perturbation, which "
        seen += f"share their draws: {perturbed}."
        finding = texts.NOISY_DRAWS.filled(
            {"sample": sample, "more": texts.DRAW_MORE.format(MORE)},
            rows,
            seen=seen,
            change={"explainers": more} if more else {},
        )
        if is_loud:
            finding = replace(finding, severity="problem", means=texts.LOUDER_THAN_CHANGES)
        yield finding


def _more_draws(one: Frames, explainer: str) -> list[dict[str, Any]]:
    """Return the explainer with more draws as a study file has it; nothing for one that does not say how many."""
    settings = one.result.settings_of(explainer)
    if one.registered(explainer) not in EXPLAINERS:
        return []
    for key in ("samples", "draws"):
        if isinstance(settings.get(key), int):
            return [{one.registered(explainer): {key: MORE * int(settings[key])}}]
    return []


def _retention(one: Frames) -> Iterator[Finding]:
    """Conditions under which most predictions change."""
    cells = one.cells().assign(asked=lambda rows: rows["attempted"] - rows["undefined"])
    most = [statistics.exact_share(int(r.retained), int(r.asked))[1] for r in records(cells)]
    low = records(
        cells[np.array(most) < statistics.LOWEST_RETENTION].drop_duplicates(["condition", "level"])
    )
    if low:
        sweep = next((s for r in low if (s := milder(r.condition, r.level))), None)
        milder_change = "Use a milder change or a sweep" if sweep else "Use a milder change"
        change = {"evaluations": [{"stability": {"perturbations": sweep}}]} if sweep else {}
        where = [title(r.condition, r.level) for r in low]
        kept = [f"{r.retained} of {r.asked:g} under {t}" for r, t in zip(low, where, strict=True)]
        seen = f"The prediction stayed the same for {some(kept, 3)}."
        fill = {"milder": milder_change, "where": some(where, 2)}
        yield texts.LOW_RETENTION.filled(fill, seen=seen, items=tuple(kept), change=change)


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
        yield texts.FEW_PAIRS.filled({}, seen=seen, items=tuple(items))


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
    fill = {"cams": texts.OTHER_LAYER.format(listing(cams)) if cams else ""}
    seen = f"Undefined: {counts}{f' ({why})' if why else ''}."
    names = map(str, methods.index)
    finding = texts.UNDEFINED_MAPS.filled(fill, names, seen=seen, items=tuple(items))
    yield replace(finding, severity="problem") if often else finding


def _not_aligned(one: Frames) -> Iterator[Finding]:
    """Perturbations that move the input under which maps were compared without moving them."""
    bare = [c for c in one.cube.conditions if _is_geometric(c) and c not in one.moving]
    cells = one.cells()
    is_bare = [where in bare for where in zip(cells["condition"], cells["level"], strict=True)]
    scored = cells[np.array(is_bare, dtype=bool) & cells["mean"].notna()]
    if scored.empty:
        return
    names = list(dict.fromkeys(scored["explainer"][~scored["control"]]))
    where = listing(dict.fromkeys(title(r.condition, r.level) for r in records(scored)))
    words = one.result.words
    fill = {"sample": words.sample, "samples": words.samples}
    seen = f"There is no aligned score for {where}."
    change = {"evaluations": [{"stability": {"aligned": True}}]}
    yield texts.UNALIGNED.filled(fill, names, seen=seen, change=change)


def _is_geometric(where: Condition) -> bool:
    kind = known(where[0])
    return kind is not None and kind.family == "geometric"
