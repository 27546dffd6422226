"""The maps of the samples on show under every perturbation, and the worst pair of each method."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.stability.frames import FASS
from holdfast.axes.stability.pairs import pair_scores
from holdfast.axes.stability.perturbations import title
from holdfast.drawing.charts import CLEAN, Panel, Tiles
from holdfast.drawing.pictures import pair_card
from holdfast.drawing.prose import number, records
from holdfast.types import IDENTITY, Condition

SAID = {"rotation": "turned {:g}°", "translation": "moved {:g} px", "jpeg": "JPEG {:g}"}
SAID["gaussian_noise"] = "noise σ {:g}"
CHANGED = "top-1 changed from "
MOST = 12


def said(condition: str, level: float) -> str:
    """A perturbation in the words of somebody who sees what it does.

    >>> said("rotation", 15.0), said("brightness", 1.5), said("time_shift", 2.0)
    ('turned 15°', '50 % brighter', 'time shift 2 steps')
    """
    if condition == "brightness":
        return f"{abs(100 * (level - 1)):.0f} % {'brighter' if level > 1 else 'darker'}"
    return SAID[condition].format(level) if condition in SAID else title(condition, level)


def tiles(judged: Judged) -> Tiles | None:
    """What was kept of the samples on show; None where nothing was.

    First are those with a score under every change, and of these the one nearest to the median of all samples.
    """
    cube = judged.cube
    plain = [item for item in judged.exhibits if not item.role and item.explainer]
    kept = {item.sample for item in plain if item.condition != CLEAN[0]} & {*cube.samples}
    if not kept or FASS not in cube.values:
        return None
    shown = {(s.explainer, (s.condition, s.level), s.sample): s for s in plain if s.sample in kept}
    there = {condition for _, condition, _ in shown}
    columns: list[tuple[Condition, str]] = [(CLEAN, "as it is")]
    columns += [(c, said(*c)) for c in cube.conditions if c in there and c[0] != IDENTITY]
    every = pair_scores({m: v for m, v in cube.values.items() if m.startswith(FASS)})
    methods = [i for i, e in enumerate(cube.explainers) if e not in cube.controls]
    with np.errstate(invalid="ignore"):
        sums, counts = np.nansum(every[methods], (0, 1)), np.isfinite(every[methods]).sum((0, 1))
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    middle = np.nanmedian(means) if np.isfinite(means).any() else 0.0
    place = {sample: i for i, sample in enumerate(cube.samples)}
    lacking = (~np.isfinite(every[methods]).any(0)).sum(0)
    far = np.nan_to_num(np.abs(means - middle), nan=np.inf)
    order = sorted(kept, key=lambda s: (lacking[place[s]], far[place[s]], s))
    at = {c: i for i, c in enumerate(cube.conditions)}
    scores = {
        (e, c, s): (float(every[i, at[c], place[s]]), "")
        for i, e in enumerate(cube.explainers)
        for c, _ in columns[1:]
        for s in order
    }
    lost = judged.rows[judged.rows["sample"].isin(kept) & (judged.rows["status"] != "ok")]
    for r in records(lost.drop_duplicates(["explainer", "condition", "level", "sample"])):
        why = str(r.reason or r.status)
        told = f"now: {why.rpartition(' to ')[2]}" if why.startswith(CHANGED) else why
        scores[r.explainer, (r.condition, r.level), r.sample] = (float("nan"), told if r.status == "flipped" else why)
    return Tiles(columns, order, shown, scores)


def worst_pairs(judged: Judged) -> Panel | None:
    """The pair of each method that holds least, of all whose maps were kept: as it is, and after the change."""
    cube, cards = judged.cube, list[Markup]()
    clean = {(s.explainer, s.sample): s for s in judged.exhibits if s.condition == CLEAN[0] and s.map is not None}
    at, place = {c: i for i, c in enumerate(cube.conditions)}, {s: i for i, s in enumerate(cube.samples)}
    every = pair_scores({m: v for m, v in cube.values.items() if m.startswith(FASS)})
    for e, explainer in enumerate(cube.explainers):
        kept = [s for s in judged.exhibits if s.explainer == explainer and s.map is not None]
        kept = [s for s in kept if (s.condition, s.level) in at and s.condition != IDENTITY and s.sample in place]
        pairs = [(every[e, at[s.condition, s.level], place[s.sample]], s) for s in kept if s.image.ndim == 3]
        pairs = [pair for pair in pairs if np.isfinite(pair[0]) and (explainer, pair[1].sample) in clean]
        if not pairs or explainer in cube.controls or len(cards) == MOST:
            continue
        score, after = min(pairs, key=lambda pair: (round(pair[0], 6), pair[1].sample))
        words = f"{said(after.condition, after.level)}, {after.sample}"
        before = clean[explainer, after.sample]
        cards.append(pair_card(judged.looks[explainer], before, after, number(float(score)), words))
    caption = (
        "The worst pair of each method among those whose maps were kept: the map as it is, and after the change. A "
    )
    caption += "bad case, not a typical one."
    inside = Markup('<div class="pairs">{}</div>').format(Markup("").join(cards))
    return Panel("worst", "Worst pairs", caption, inside, strip=True) if cards else None
