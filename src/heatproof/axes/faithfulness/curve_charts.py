"""Removal curves: what becomes of the prediction as pixels go, the most or the least relevant first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import frames
from heatproof.axes.faithfulness.frames import RANDOM
from heatproof.drawing.charts import Chart
from heatproof.drawing.methods import Look, spoken
from heatproof.drawing.plots import DASHES, Curve, Mark, by_method, of_marks
from heatproof.drawing.prose import listing, records, with_interval
from heatproof.drawing.sheet import Plot
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Cube
from heatproof.statistics.estimates import interval

READOUTS = ("probability", "accuracy", "logit", "margin")
BOUNDED = ("probability", "accuracy")
ORDERS = {"morf": "MoRF", "lerf": "LeRF"}


def curve_chart(judged: AxisResult, imputer: str, order: list[str]) -> Chart | None:
    """The readout that counts against the fraction removed, a plot for every method; other readouts are folded."""
    cube = judged.cube
    drawn: dict[str, list[Plot]] = {}
    for readout in sorted(
        (r for r in READOUTS if r in cube.values), key=lambda r: r != frames.readout(judged)
    ):
        own = cube.select(measures=[readout], conditions=frames.swept(cube, imputer))
        cells = frames.with_makeup(statistics.summary([own]), own)
        looks = {e: judged.looks[e] for e in order}
        control, words = random_curve(own, imputer, readout), frames.words(judged)
        made = removal_plots(
            cells, looks, readout, control, untouched(judged, readout), words.parts
        )
        drawn |= {readout.capitalize(): made} if made else {}
    if not drawn:
        return None
    swept, words = frames.swept(cube, imputer), frames.words(judged)
    whole = f"the class predicted for the whole {words.sample}"
    against = "the label" if judged.settings.get("against") == "label" else whole
    named = spoken(imputer, {})
    filled = named if words.sample == "text" else f"filled in by {named}"
    caption = f"{words.parts.capitalize()} are removed in the order of a map and {filled}. A faithful map loses the "
    caption += f"class early when its most relevant {words.parts} go first (MoRF, solid), and keeps it when the least "
    caption += "relevant do (LeRF, dashed). Lines are means over samples, bars 95 % intervals; MoRF of other "
    caption += "methods is faint. "
    if any(cube.made_of(c).order == "random" for c, _ in swept):
        caption += f"The dotted grey line removes {words.parts} in a random order: only the distance to it counts. "
    caption += f"Accuracy is against {against}; the other readouts are of the predicted class. {_realism(judged, imputer)}"
    fractions = len({level for _, level in swept if level > 0})
    alt = f"Curves over {fractions} fractions removed for {len(order)} methods, imputer {named}."
    every = frames.imputers(cube)
    title = "Removal curves" if len(every) == 1 else f"Removal curves: {named}"
    (_, plots), *others = drawn.items()
    key = (
        f"curves-{number}" if (number := every.index(imputer)) else "curves"
    )  # the first has the plain anchor
    return Chart(key, title, caption, alt, plots, dict(others))


def _realism(judged: AxisResult, imputer: str) -> str:
    """How well the model's features tell the filled inputs of an imputer from real ones, in a sentence."""
    told = frames.detectability(judged.rows)
    own = told[told["imputer"] == imputer] if len(told) else told
    if own.empty:
        return "Whether filled inputs look real to the model was not measured: that takes a random order and 50 samples."
    areas = [
        f"{with_interval(r.area, r.low, r.high)} at {100 * r.level:g} %"
        for r in records(own.sort_values("level"))
    ]
    said = "Do filled inputs look real? A classifier on the model’s own features tells them from real ones, after random "
    return f"{said}removal, with an area under the ROC curve of {listing(areas)}; 0.5 is a guess."


def removal_plots(
    cells: pd.DataFrame,
    looks: dict[str, Look],
    readout: str,
    control: pd.DataFrame,
    start: float | None = None,
    parts: str = "pixels",
) -> list[Plot]:
    """A plot for each method with both orders and the random one; `start` is the readout before anything goes."""
    cells = cells[cells["mean"].notna() & cells["order"].isin([*ORDERS])]
    lines: list[tuple[Look, Sequence[Curve]]] = []
    for explainer, look in looks.items():
        own = []
        for (order, name), dash in zip(ORDERS.items(), DASHES, strict=False):
            rows = cells[(cells["explainer"] == explainer) & (cells["order"] == order)]
            marks = _marks(f"{look.name}, {name}", rows, look.colour, look.name, start)
            own += [Curve(name, marks, look.colour, dash)] if len(rows) else []
        if own:
            chance = _marks(RANDOM, control, "control", "", start)
            lines.append(
                (look, [*own, *([Curve("", chance, "control", DASHES[2])] if len(control) else [])])
            )
    every = [m for _, own in lines for line in own for m in line.marks]
    ends = (0.0, 1.04) if readout in BOUNDED else of_marks(every, 0.0)
    return by_method(lines, ends, f"share of {parts} removed", readout)


def _marks(
    name: str, rows: pd.DataFrame, colour: str, method: str, start: float | None
) -> list[Mark]:
    """The points of one curve, from the untouched input on where its readout is known."""
    first = (
        []
        if start is None or rows.empty
        else [Mark(name, start, colour=colour, x=0.0, method=method)]
    )
    return first + [
        Mark(
            name,
            r.mean,
            r.low,
            r.high,
            colour,
            x=r.level,
            method=method,
            said=f"{100 * r.level:g} % removed",
        )
        for r in records(rows.sort_values("level"))
    ]


def random_curve(cube: Cube, imputer: str, readout: str) -> pd.DataFrame:
    """level, mean, low, high of the random order, which is drawn once per sample and stored under every explainer."""
    wanted = [c for c in frames.swept(cube, imputer) if cube.made_of(c[0]).order == "random"]
    columns = ["level", "mean", "low", "high"]
    if not wanted or readout not in cube.values:
        return pd.DataFrame(columns=columns)
    values = np.stack(
        [frames.once(cube.values[readout][:, cube.conditions.index(c)]) for c in wanted]
    )
    ends = interval(values, groups=cube.groups)
    frame = pd.DataFrame(
        dict(
            zip(
                columns,
                ([level for _, level in wanted], mean_of_finite(values), *ends),
                strict=True,
            )
        )
    )
    return frame[frame["mean"].notna()]


def untouched(judged: AxisResult, readout: str) -> float | None:
    """The mean readout before anything is removed, where the run knows it."""
    known = judged.samples
    if "sample" in known:
        known = known[known["sample"].isin(judged.cube.samples)]
    if known.empty or "probability" not in known:
        return None
    if readout == "probability" and known["probability"].notna().any():
        return float(known["probability"].mean())
    return (
        1.0
        if readout == "accuracy" and judged.settings.get("against", "prediction") == "prediction"
        else None
    )
