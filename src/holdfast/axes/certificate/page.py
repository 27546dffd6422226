"""Certificates on the page: rates with what is guaranteed of them, decisions, and an example of a flip."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup, escape
from numpy.typing import NDArray

from holdfast import statistics
from holdfast.axes.certificate.evaluation import EXPLANATION, FLIP, INPUT
from holdfast.axes.certificate.shares import answer_shares, delta, least_rate, one_fraction
from holdfast.axes.certificate.words import ANCHORED, certificate_lead
from holdfast.axes.contract import Judged, Page
from holdfast.drawing.charts import Chart, Panel, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.drawing.pictures import photo
from holdfast.drawing.prose import records, with_interval
from holdfast.statistics.cubes import Cube
from holdfast.types import Shown

MOST_EXAMPLES = 24
HIGHLIGHT = (240, 200, 40)  # the paper's yellow
FOUR_ACROSS = "grid-template-columns:repeat(auto-fit,minmax(110px,170px))"
ADDED_AT_MOST = "features added at most"
NOT_MONOTONE = "The rate is not monotone in r: a bound at one radius says nothing of another."


def parts(judged: Judged) -> list[Chart | Panel]:
    """The charts of the measures that the mode gave, and the example."""
    drawn: list[Chart | Panel | None] = [rate_chart(judged.cube), answer_chart(one_fraction(judged))]
    drawn.append(example(judged.exhibits, str(judged.settings.get("anchor", "explanation"))))
    return [part for part in drawn if part is not None]


def rate_chart(cube: Cube) -> Chart | None:
    """Mean rate τ_r with intervals over the band down to the mean guaranteed lower bound, a curve per explainer."""
    if "rate" not in cube.values:
        return None
    cells, names = statistics.summary([cube]), list(dict(cube.conditions))
    views = [(name.replace("=", " = "), rate_figure(cells[cells["condition"] == name], cube)) for name in names]
    caption = "Only the features that a method calls important are shown to the model; then up to r others are added. "
    caption += "Solid: how often the prediction stays, mean over samples with 95 % bootstrap intervals. The band "
    caption += f"reaches down to the mean of the lower bounds that are guaranteed for each sample. {NOT_MONOTONE}"
    radii = len({level for _, level in cube.conditions} - {0.0})
    alt = f"Curves of the certified rate over {radii} radii for {len(cube.explainers)} methods."
    return Chart("certified", "Certified rate", caption, alt, views if len(views) > 1 else [("", views[0][1])], 400)


def rate_figure(cells: pd.DataFrame, cube: Cube) -> go.Figure:
    """Rates and guaranteed bounds of one condition against the radius; `cells` are rows of `statistics.summary`."""
    figure = blank_figure(ADDED_AT_MOST, "share of supersets with the same prediction")
    for explainer, (colour, symbol) in curve_styles(cube.explainers, cube.controls).items():
        known = cells[(cells["explainer"] == explainer) & cells["mean"].notna()].sort_values("level")
        rate, certified = (known[known["measure"] == measure] for measure in ("rate", "certified"))
        name = html.escape(explainer)
        figure.add_scatter(
            x=rounded(certified["level"]),
            y=rounded(certified["mean"]),
            name=label(f"{explainer}, guaranteed", 60),
            legendgroup=explainer,
            showlegend=False,
            mode="lines",
            line={"color": colour, "width": 1.5, "dash": "dash"},
            hovertext=[f"{name}, r = {r.level:g}: {r.mean:.2f} guaranteed" for r in records(certified)],
            hoverinfo="text",
        )
        figure.add_scatter(
            x=rounded(rate["level"]),
            y=rounded(rate["mean"]),
            error_y=error_bars(rate["mean"], rate["low"], rate["high"], colour, thickness=1.5),
            fill="tonexty",
            fillcolor=_pale(colour),
            name=label(explainer, 60),
            legendgroup=explainer,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertext=[f"{name}, r = {r.level:g}: rate {with_interval(r.mean, r.low, r.high)}" for r in records(rate)],
            hoverinfo="text",
        )
    levels = sorted(set(cells[cells["measure"] == "rate"]["level"]))
    figure.update_layout(xaxis={"tickvals": levels}, yaxis={"range": [0, 1.05]})
    return figure


def answer_chart(judged: Judged) -> Chart | None:
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
        measure, title = "unflipped", f"Share of samples with no flip, which certifies τ ≥ {least:g}"
        caption = "For how many samples no superset among the draws flipped the prediction. "
        caption += f"That certifies a rate of at least {least:g} with confidence {1 - error:g}; "
        caption += "it is not hard stability, which is a rate of 1. "
    else:
        return None
    figure = blank_figure(ADDED_AT_MOST, "share of samples")
    for explainer, (colour, symbol) in curve_styles(cube.explainers, cube.controls).items():
        rows = answer_shares(cube, explainer, measure)
        name = html.escape(explainer)
        figure.add_scatter(
            x=rounded(rows["level"]),
            y=rounded(rows["share"]),
            error_y=error_bars(rows["share"], rows["low"], rows["high"], colour, thickness=1.5),
            name=label(explainer, 60),
            legendgroup=explainer,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertext=[f"{name}, r = {r.level:g}: {r.yes} of {r.n}, {r.open} open" for r in records(rows)],
            hoverinfo="text",
        )
        if rows["open"].any():
            figure.add_scatter(
                x=rounded(rows["level"]),
                y=rounded((rows["yes"] + rows["open"]) / rows["n"]),
                name=label(f"{explainer}, not refuted", 60),
                legendgroup=explainer,
                showlegend=False,
                mode="lines",
                line={"color": colour, "width": 1.5, "dash": "dash"},
                hoverinfo="skip",
            )
    levels = sorted({level for _, level in cube.conditions} - {0.0})
    figure.update_layout(xaxis={"tickvals": levels}, yaxis={"range": [0, 1.05]})
    caption += f"Bars are 95 % Wilson intervals over samples. {NOT_MONOTONE}"
    alt = f"Curves over {len(levels)} radii for {len(cube.explainers)} methods."
    return Chart("answers", title, caption, alt, [("", figure)], 400)


def example(exhibits: Sequence[Shown], anchor: str = "explanation") -> Panel | None:
    """One sample as in the paper's Figure 1, a row per explainer; the other samples are folded away."""
    groups = {
        key: {item.condition: item for item in items}
        for key, items in groupby(sorted(exhibits, key=_row_of), key=_row_of)
    }
    rows = {key: row for key, row in groups.items() if {INPUT, EXPLANATION, FLIP} <= row.keys()}
    if not rows:
        return None
    samples = list(dict.fromkeys(sample for sample, _ in rows))
    flips = {s: [row[FLIP].level for (of, _), row in rows.items() if of == s and row[FLIP].level] for s in samples}
    samples.sort(key=lambda s: (-len(flips[s]), sum(flips[s])))  # most flips first, then fewest added features
    first, *others = samples
    body = Markup("").join(_row(*key, row) for key, row in rows.items() if key[0] == first)
    more = [key for sample in others for key in rows if key[0] == sample][:MOST_EXAMPLES]
    if more:
        folded = Markup("").join(_row(*key, rows[key]) for key in more)
        body += Markup("<details><summary>{} more examples</summary>{}</details>").format(len(more), folded)
    caption = "From left to right: the input; only what the method calls important; a few features more, in yellow; "
    caption += "and what the model then predicts. The added features were searched for, the most harmful first, so "
    caption += "this is a bad case and not a typical one; the rates above are about all supersets alike. The colour of "
    caption += "left-out features is what the model is given in their place. "
    caption += f"{ANCHORED[anchor]}; the words under the first two pictures are the two predictions."
    return Panel("example", "A few features more", caption, body)


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
        tiles += [(highlighted(row[INPUT].image, flip.map > 0.5), count, ""), (flip.image, "flipped", flip.note)]
        words = ""
    else:
        words = flip.note
    figures = Markup("").join(_tile(f"{tile[1]} of {sample}", *tile) for tile in tiles)
    heading = Markup("<h4>{} <span>{}</span></h4>").format(explainer, sample)
    said = Markup('<p class="small">{}</p>').format(words) if words else Markup("")
    return Markup('<article class="card">{}<div class="strip" style="{}">{}</div>{}</article>').format(
        heading, FOUR_ACROSS, figures, said
    )


def _tile(alt: str, image: NDArray[np.uint8], title: str, note: str) -> Markup:
    return Markup('<figure><img src="{}" alt="{}" loading="lazy"><figcaption><b>{}</b>{}</figcaption></figure>').format(
        photo(image), alt, title, Markup("<span>{}</span>").format(note) if note else escape("")
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


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


PAGE = Page(lead=certificate_lead, parts=parts)
