"""The maps of the samples on show under every perturbation, and the worst pair of each method."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.stability.frames import FASS
from holdfast.axes.stability.perturbations import title
from holdfast.axes.tiles import tiles_of
from holdfast.drawing.charts import Panel, Tiles
from holdfast.drawing.pictures import pair_card
from holdfast.drawing.prose import number
from holdfast.statistics.forms import pair_scores
from holdfast.types import CLEAN, IDENTITY

SAID = {"rotation": "turned {:g}°", "translation": "moved {:g} px", "jpeg": "JPEG {:g}"}
SAID["gaussian_noise"] = "noise σ {:g}"
MOST = 12
ASKED = "A {} is changed a little and the model still says the same: does the map of what it looked at stay?"


def said(condition: str, level: float) -> str:
    """A perturbation in the words of somebody who sees what it does.

    >>> said("rotation", 15.0), said("brightness", 1.5), said("time_shift", 2.0)
    ('turned 15°', '50 % brighter', 'time shift 2 steps')
    """
    if condition == "brightness":
        return f"{abs(100 * (level - 1)):.0f} % {'brighter' if level > 1 else 'darker'}"
    return SAID[condition].format(level) if condition in SAID else title(condition, level)


def tiles(judged: Judged) -> Tiles | None:
    """What was kept of the samples on show; None where nothing was."""
    return tiles_of(judged, FASS, ASKED, said)


def worst_pairs(judged: Judged) -> Panel | None:
    """The pair of each method that holds least, of all whose maps were kept: as it is, and after the change."""
    cube, cards = judged.cube, list[Markup]()
    clean = {(s.explainer, s.sample): s for s in judged.exhibits if s.condition == CLEAN[0] and s.map is not None}
    at, place = {c: i for i, c in enumerate(cube.conditions)}, {s: i for i, s in enumerate(cube.samples)}
    every = pair_scores(cube.values, FASS)
    for e, explainer in enumerate(cube.explainers):
        kept = [s for s in judged.exhibits if s.explainer == explainer and s.map is not None]
        kept = [s for s in kept if (s.condition, s.level) in at and s.condition != IDENTITY and s.sample in place]
        pairs = [(every[e, at[s.condition, s.level], place[s.sample]], s) for s in kept]
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
