"""Certificates on the page: rates with what is guaranteed of them, decisions, and an example of a flip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from heatproof import statistics
from heatproof.axes.certificate.evaluation import EXPLANATION, FLIP, INPUT, RADIUS
from heatproof.axes.certificate.shares import answer_shares, delta, least_rate, one_fraction
from heatproof.axes.certificate.words import ANCHORED, certificate_lead
from heatproof.axes.contract import AxisResult, Page
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look
from heatproof.drawing.pictures import photo, strip_row
from heatproof.drawing.plots import DASHES, Curve, Mark, by_method
from heatproof.drawing.prose import records
from heatproof.drawing.sheet import Plot
from heatproof.evaluation import Shown

MOST_EXAMPLES = 24
HIGHLIGHT = (240, 200, 40)  # the paper's yellow
ADDED_AT_MOST = "features added at most"
NOT_MONOTONE = "The rate is not monotone in r: a bound at one radius says nothing of another."


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """The charts of the measures that the mode gave, and the example."""
    drawn: list[Chart | Panel | None] = [rate_chart(judged), answer_chart(one_fraction(judged))]
    drawn.append(example(judged))
    return [part for part in drawn if part is not None]


def rate_chart(judged: AxisResult) -> Chart | None:
    """Mean rate τ_r with intervals over the mean guaranteed lower bound, a plot per fraction and method."""
    cube, cells = judged.cube, statistics.summary([judged.cube])
    plots = [
        replace(plot, note="" if condition == RADIUS else condition.replace("=", " = "))
        for condition in (dict(cube.conditions) if "rate" in cube.values else ())
        for plot in rate_plots(judged, cells[cells["condition"] == condition])
    ]
    if not plots:
        return None
    caption = "Only the features that a method calls important are shown to the model; then up to r others are added. "
    caption += (
        "Solid: how often the prediction stays, mean over samples with 95 % intervals. Dashed: the "
    )
    caption += (
        "mean of the lower bounds that are guaranteed for each sample, but for a probability of "
    )
    caption += f"δ = {delta(judged):g}. {NOT_MONOTONE}"
    radii = len({level for _, level in cube.conditions} - {0.0})
    alt = f"Curves of the certified rate over {radii} radii for {len(cube.explainers)} methods."
    return Chart("certified", "Certified rate", caption, alt, plots)


def rate_plots(judged: AxisResult, cells: pd.DataFrame) -> list[Plot]:
    """Rates and guaranteed bounds of one condition against the radius; `cells` are rows of `statistics.summary`."""
    lines: list[tuple[Look, list[Curve]]] = []
    for explainer in judged.cube.explainers:
        look, own = judged.looks[explainer], []
        known = cells[(cells["explainer"] == explainer) & cells["mean"].notna()].sort_values(
            "level"
        )
        for measure, name, dash in (
            ("rate", "rate", DASHES[0]),
            ("certified", "guaranteed", DASHES[1]),
        ):
            marks = [
                Mark(
                    f"{look.name}, {name}",
                    r.mean,
                    *_ends(r, name),
                    look.colour,
                    x=r.level,
                    method=look.name,
                )
                for r in records(known[known["measure"] == measure])
            ]
            own += [Curve(name, marks, look.colour, dash)] if marks else []
        lines += [(look, own)] if own else []
    return by_method(lines, (0.0, 1.04), ADDED_AT_MOST, "prediction stays")


def _ends(row: Any, name: str) -> tuple[float, float]:
    """The interval of a mean; a bound has none of its own."""
    return (row.low, row.high) if name == "rate" else (math.nan, math.nan)


def answer_chart(judged: AxisResult) -> Chart | None:
    """The share of samples with a positive decision, or without a flip among the draws, against the radius."""
    cube, error = judged.cube, delta(judged)
    if "stable" in cube.values:
        least = float(judged.settings.get("threshold", 0.9))
        measure, title = "stable", f"Share of samples with τ ≥ {least:g}"
        caption = f"Solid: for how many samples a rate of at least {least:g} was shown. Dashed: for how many it was "
        caption += "not refuted; between the two it stayed open. "
        caption += f"A decision is wrong with probability at most {error:g}. "
    elif "unflipped" in cube.values:
        least = least_rate(judged)
        measure, title = (
            "unflipped",
            f"Share of samples with no flip, which certifies τ ≥ {least:g}",
        )
        caption = "For how many samples no superset among the draws flipped the prediction. "
        caption += f"That certifies a rate of at least {least:g} with confidence {1 - error:g}; "
        caption += "it is not hard stability, which is a rate of 1. "
    else:
        return None
    lines: list[tuple[Look, list[Curve]]] = []
    for explainer in cube.explainers:
        look, rows = judged.looks[explainer], records(answer_shares(cube, explainer, measure))
        yes = [
            Mark(
                look.name,
                r.share,
                r.low,
                r.high,
                look.colour,
                x=r.level,
                said=f"{r.yes} of {r.n}, {r.open} open",
            )
            for r in rows
        ]
        maybe = [
            Mark(
                f"{look.name}, not refuted",
                (r.yes + r.open) / r.n,
                colour=look.colour,
                x=r.level,
                method=look.name,
            )
            for r in rows
        ]
        undecided = [Curve("", maybe, look.colour, DASHES[1])] if any(r.open for r in rows) else []
        lines += [(look, [Curve("", yes, look.colour), *undecided])] if rows else []
    if not lines:
        return None
    plots = by_method(lines, (0.0, 1.04), ADDED_AT_MOST, "share of samples")
    levels = {level for _, level in cube.conditions} - {0.0}
    caption += f"Bars are exact 95 % intervals over samples. {NOT_MONOTONE}"
    alt = f"Curves over {len(levels)} radii for {len(cube.explainers)} methods."
    return Chart("answers", title, caption, alt, plots)


def example(judged: AxisResult) -> Panel | None:
    """One sample as in the paper's Figure 1, a row per explainer; the other samples are folded away."""
    groups = {
        key: {item.condition: item for item in items}
        for key, items in groupby(sorted(judged.exhibits, key=_row_of), key=_row_of)
    }
    rows = {key: row for key, row in groups.items() if {INPUT, EXPLANATION, FLIP} <= row.keys()}
    if not rows:
        return None
    samples = list(dict.fromkeys(sample for sample, _ in rows))
    flips = {
        s: [row[FLIP].level for (of, _), row in rows.items() if of == s and row[FLIP].level]
        for s in samples
    }
    samples.sort(
        key=lambda s: (-len(flips[s]), sum(flips[s]))
    )  # most flips first, then fewest added features
    first, *others = samples
    names = {e: look.name for e, look in judged.looks.items()}
    body = Markup("").join(_row(s, names[e], row) for (s, e), row in rows.items() if s == first)
    more = [key for sample in others for key in rows if key[0] == sample][:MOST_EXAMPLES]
    if more:
        folded = Markup("").join(_row(key[0], names[key[1]], rows[key]) for key in more)
        body += Markup("<details><summary>{} more examples</summary>{}</details>").format(
            len(more), folded
        )
    caption = "From left to right: the input; only what the method calls important; a few features more, in yellow; "
    caption += "and what the model then predicts. The added features were searched for, the most harmful first, so "
    caption += "this is a bad case and not a typical one; the rates above are about all supersets alike. The colour of "
    caption += "left-out features is what the model is given in their place. "
    anchor = str(judged.settings.get("anchor", "explanation"))
    caption += (
        f"{ANCHORED[anchor]}; the words under the first two pictures are the two predictions."
    )
    return Panel("example", "A few features more", caption, body, strip=True)


def _row_of(item: Shown) -> tuple[str, str]:
    return item.sample, item.explainer


def _row(sample: str, explainer: str, row: Mapping[str, Shown]) -> Markup:
    flip = row[FLIP]
    tiles = [
        (row[INPUT].image, "input", row[INPUT].note),
        (row[EXPLANATION].image, "explanation", row[EXPLANATION].note),
    ]
    if flip.level and flip.map is not None:
        count = f"{flip.level:g} feature{'' if flip.level == 1 else 's'} added"
        tiles += [
            (highlighted(row[INPUT].image, flip.map > 0.5), count, ""),
            (flip.image, "flipped", flip.note),
        ]
        words = ""
    else:
        words = flip.note
    heading = Markup("{} <span>{}</span>").format(
        explainer, ", ".join(filter(None, (sample, words)))
    )
    return strip_row(
        heading,
        [([photo(image)], f"{title} of {sample}", title, note) for image, title, note in tiles],
        140,
    )


def highlighted(image: NDArray[np.uint8], added: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The picture (H, W, 3), dark but for the region (H, W), which has a yellow border.

    >>> picture = highlighted(np.full((9, 9, 3), 200, np.uint8), np.pad(np.ones((5, 5), bool), 2))
    >>> picture[0, 0].tolist(), picture[4, 4].tolist(), picture[2, 2].tolist()
    ([60, 60, 60], [200, 200, 200], [240, 200, 40])
    """
    shown = np.where(added[..., None], image, (0.3 * image).astype(np.uint8))
    width = max(1, min(image.shape[:2]) // 64)
    padded = np.pad(added, width)
    inner = np.ones_like(added)
    height, length = added.shape
    for dy in (0, width, 2 * width):
        for dx in (0, width, 2 * width):
            inner &= padded[dy : dy + height, dx : dx + length]
    shown[added & ~inner] = HIGHLIGHT
    return np.asarray(shown, dtype=np.uint8)


PAGE = Page(lead=certificate_lead, parts=parts)
