"""The maps of the samples on show under every change, with a score for each, and the worst of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from markupsafe import Markup

from heatproof.axes.contract import AxisResult
from heatproof.drawing.charts import Panel, Tiles
from heatproof.drawing.pictures import pair_card
from heatproof.drawing.prose import number, records
from heatproof.evaluation import CLEAN, IDENTITY, Condition
from heatproof.models.modality import words_of
from heatproof.statistics.forms import pair_scores

CHANGED = "top-1 changed from "
MOST = 12


def tiles_of(
    judged: AxisResult, measure: str, asked: str, said: Callable[[str, float], str]
) -> Tiles | None:
    """What was kept of the samples on show, with their scores and the changes as they are said; None without any.

    First are those with a score under every change, of these those with large maps, which are drawn by key as all are,
    and of these the one nearest to the median of all samples.
    """
    cube = judged.cube
    plain = [item for item in judged.exhibits if item.explainer]
    kept = {item.sample for item in plain if item.condition != CLEAN[0]} & {*cube.samples}
    if not kept or measure not in cube.values:
        return None
    shown = {(s.explainer, (s.condition, s.level), s.sample): s for s in plain if s.sample in kept}
    there = {condition for _, condition, _ in shown}
    columns: list[tuple[Condition, str]] = [(CLEAN, "as it is")]
    columns += [(c, said(*c)) for c in cube.conditions if c in there and c[0] != IDENTITY]
    every = pair_scores(cube.values, measure)
    methods = [i for i, e in enumerate(cube.explainers) if e not in cube.controls]
    with np.errstate(invalid="ignore"):
        sums, counts = np.nansum(every[methods], (0, 1)), np.isfinite(every[methods]).sum((0, 1))
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    middle = np.nanmedian(means) if np.isfinite(means).any() else 0.0
    place = {sample: i for i, sample in enumerate(cube.samples)}
    lacking = (~np.isfinite(every[methods]).any(0)).sum(0)
    far = np.nan_to_num(np.abs(means - middle), nan=np.inf)
    side = {item.sample: max(item.image.shape) if item.image.ndim == 3 else 0 for item in plain}
    order = sorted(kept, key=lambda s: (lacking[place[s]], -side[s], far[place[s]], s))
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
        scores[r.explainer, (r.condition, r.level), r.sample] = (
            float("nan"),
            told if r.status == "flipped" else why,
        )
    return Tiles(columns, order, shown, scores, asked.format(words_of(judged.task).sample))


def worst_panel(
    judged: AxisResult, found: Tiles | None, key: str, title: str, caption: str
) -> Panel | None:
    """For each method the pair with the lowest score of those whose maps were kept, the worst method first."""
    worst: dict[str, tuple[float, str, Condition]] = {}
    if found is None:
        return None
    for (e, c, s), (score, _) in found.scores.items():
        kept = [
            item
            for item in (found.shown.get((e, CLEAN, s)), found.shown.get((e, c, s)))
            if item is not None
        ]
        if (
            np.isfinite(score)
            and sum(item.map is not None for item in kept) == 2
            and e not in judged.cube.controls
        ):
            worst[e] = min(worst.get(e, (np.inf, "", CLEAN)), (round(score, 6), s, c))
    if not worst:
        return None
    cards, words = [], dict(found.columns)
    for e, (score, s, c) in sorted(worst.items(), key=lambda item: item[1])[:MOST]:
        before, after = found.shown[e, CLEAN, s], found.shown[e, c, s]
        said = f"{after.note.replace(' -', ' −') or words[c]}, {s}"
        cards.append(pair_card(judged.looks[e], before, after, number(score), said))
    inside = Markup('<div class="pairs">{}</div>').format(Markup("").join(cards))
    caption += f" {left} better methods were left out." if (left := len(worst) - len(cards)) else ""
    return Panel(key, title, caption, inside, strip=True)
