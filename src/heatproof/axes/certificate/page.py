"""Certificates on the page: rates with what is guaranteed of them, decisions, and an example of a flip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from heatproof import statistics
from heatproof.axes.certificate.evaluation import EXPLANATION, FLIP, INPUT, RADIUS
from heatproof.axes.certificate.shares import answer_shares, delta, least_rate, one_fraction
from heatproof.axes.certificate.words import ANCHORED, CALIBRATED_SCALE, certificate_lead
from heatproof.axes.contract import AxisResult, Page
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look
from heatproof.drawing.pictures import photo, strip_row
from heatproof.drawing.plots import DASHES, Curve, Mark, by_method, of_marks
from heatproof.drawing.prose import records
from heatproof.drawing.sheet import Plot
from heatproof.evaluation import GalleryItem

MOST_EXAMPLES = 24
HIGHLIGHT = (240, 200, 40)  # the paper's yellow
ADDED_AT_MOST = "features added at most"
NOT_MONOTONE = "The rate is not monotone in r: a bound at one radius says nothing of another."


def parts(result: AxisResult) -> list[Chart | Panel]:
    """The charts of the measures that the mode gave, and the example."""
    drawn: list[Chart | Panel | None] = [
        rate_chart(result),
        calibrated_chart(result, fraction_notes(result)),
        answer_chart(one_fraction(result)),
        example(result),
    ]
    return [part for part in drawn if part is not None]


def rate_chart(result: AxisResult) -> Chart | None:
    """Mean rate τ_r with intervals over the mean guaranteed lower bound, a plot per fraction and method."""
    cube = result.cube
    if "rate" not in cube.values:
        return None
    plots = by_condition(result, rate_plots, fraction_notes(result))
    if not plots:
        return None
    caption = "Only the features that a method calls important are shown to the model; then up to r others are added. "
    caption += "Solid: how often the prediction stays, mean over samples with 95 % intervals. "
    caption += "Dashed: the mean of the lower bounds that are guaranteed for each sample "
    caption += f"({100 * (1 - delta(result)):g} % confidence, δ = {delta(result):g}). "
    if "rate" in cube.chance:
        caption += "Dotted: how often it stays for as many random features (chance). "
    caption += NOT_MONOTONE
    radii = len({level for _, level in cube.conditions} - {0.0})
    alt = f"Curves of the certified rate over {radii} radii for {len(cube.explainers)} explainers."
    return Chart("certified", "Certified rate", caption, alt, plots)


def calibrated_chart(result: AxisResult, notes: Mapping[str, str]) -> Chart | None:
    """The calibrated rate against the radius, a plot per condition and method; None where chance was not measured.

    `notes` has the conditions to draw and what to write above the plots of each.
    """
    cube = result.cube
    if not cube.is_calibrated("rate"):
        return None
    plots = by_condition(result, calibrated_plots, notes)
    if not plots:
        return None
    caption = f"(rate − chance) / (1 − chance): {CALIBRATED_SCALE}. Methods are ranked by it. Mean over samples with "
    caption += (
        "95 % intervals. What is guaranteed concerns the rate itself, above, and not this score."
    )
    radii = len({level for _, level in cube.conditions} - {0.0})
    alt = f"Curves of the calibrated rate over {radii} radii for {len(cube.explainers)} explainers."
    return Chart("calibrated", "Rate above random features", caption, alt, plots)


def fraction_notes(result: AxisResult) -> dict[str, str]:
    """The condition of every fraction, and the fraction in words where there are several."""
    conditions = dict(result.cube.conditions)
    return {c: "" if c == RADIUS else c.replace("=", " = ") for c in conditions}


def by_condition(
    result: AxisResult,
    draw: Callable[[AxisResult, pd.DataFrame], list[Plot]],
    notes: Mapping[str, str],
) -> list[Plot]:
    """The plots that `draw` makes of the summary at each condition, above level 0, with the note of the condition."""
    summary = statistics.summary([result.cube])
    summary = summary[summary["level"] > 0]
    plots = []
    for condition, note in notes.items():
        for plot in draw(result, summary[summary["condition"] == condition]):
            plots.append(replace(plot, note=note))
    return plots


def rate_plots(result: AxisResult, cells: pd.DataFrame) -> list[Plot]:
    """Rates, guaranteed bounds and chance of one condition against the radius; `cells` are rows of the summary."""
    lines: list[tuple[Look, list[Curve]]] = []
    for explainer in result.cube.explainers:
        look = result.looks[explainer]
        scored = cells[(cells["explainer"] == explainer) & cells["mean"].notna()]
        scored = scored.sort_values("level")
        rates = records(scored[scored["measure"] == "rate"])
        bounds = records(scored[scored["measure"] == "certified"])
        marks = {
            "rate": [_mark(look, "rate", r.level, r.mean, r.low, r.high) for r in rates],
            "guaranteed": [_mark(look, "guaranteed", r.level, r.mean) for r in bounds],
            "chance": [
                _mark(look, "chance", r.level, r.chance) for r in rates if math.isfinite(r.chance)
            ],
        }
        curves = [
            Curve(name, of_curve, look.colour, dash)
            for (name, of_curve), dash in zip(marks.items(), DASHES, strict=False)
            if of_curve
        ]
        if curves:
            lines.append((look, curves))
    return by_method(lines, (0.0, 1.04), ADDED_AT_MOST, "prediction stays")


def calibrated_plots(result: AxisResult, cells: pd.DataFrame) -> list[Plot]:
    """Calibrated rates of one condition against the radius; `cells` are rows of the summary."""
    lines: list[tuple[Look, list[Curve]]] = []
    marks = []
    for explainer in result.cube.explainers:
        look = result.looks[explainer]
        scored = cells[(cells["explainer"] == explainer) & cells["calibrated"].notna()]
        rows = records(scored[scored["measure"] == "rate"].sort_values("level"))
        of_curve = [
            _mark(look, "", r.level, r.calibrated, r.calibrated_low, r.calibrated_high)
            for r in rows
        ]
        if of_curve:
            lines.append((look, [Curve("", of_curve, look.colour)]))
            marks += of_curve
    return by_method(lines, of_marks(marks, 0.0, 1.0), ADDED_AT_MOST, "calibrated rate")


def _mark(
    look: Look,
    name: str,
    radius: float,
    value: float,
    low: float = math.nan,
    high: float = math.nan,
) -> Mark:
    """A number of a method at a radius."""
    title = f"{look.name}, {name}" if name else look.name
    return Mark(title, value, low, high, look.colour, x=radius, method=look.name)


def answer_chart(result: AxisResult) -> Chart | None:
    """The share of samples with a positive decision, or without a flip among the draws, against the radius."""
    cube, error = result.cube, delta(result)
    if "stable" in cube.values:
        least = float(result.settings.get("threshold", 0.9))
        measure, title = "stable", f"Share of samples with τ ≥ {least:g}"
        caption = f"Solid: for how many samples a rate of at least {least:g} was shown. Dashed: for how many it was "
        caption += "not refuted; between the two it stayed open. "
        caption += f"A decision is wrong with probability at most {error:g}. "
    elif "unflipped" in cube.values:
        least = least_rate(result)
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
        look, rows = result.looks[explainer], records(answer_shares(cube, explainer, measure))
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
    alt = f"Curves over {len(levels)} radii for {len(cube.explainers)} explainers."
    return Chart("answers", title, caption, alt, plots)


def example(result: AxisResult) -> Panel | None:
    """One sample as in the paper's Figure 1, a row per explainer; the other samples are folded away."""
    groups = {
        key: {item.condition: item for item in items}
        for key, items in groupby(sorted(result.gallery, key=_row_of), key=_row_of)
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
    names = {e: look.name for e, look in result.looks.items()}
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
    anchor = str(result.settings.get("anchor", "explanation"))
    caption += (
        f"{ANCHORED[anchor]}; the words under the first two pictures are the two predictions."
    )
    return Panel("example", "A few features more", caption, body, strip=True)


def _row_of(item: GalleryItem) -> tuple[str, str]:
    return item.sample, item.explainer


def _row(sample: str, explainer: str, row: Mapping[str, GalleryItem]) -> Markup:
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
