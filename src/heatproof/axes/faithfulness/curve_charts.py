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
from heatproof.drawing.methods import Look, removal_words
from heatproof.drawing.plots import DASHES, Curve, Mark, by_method, of_marks
from heatproof.drawing.prose import listing, records, with_interval
from heatproof.drawing.sheet import Plot
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import interval

READOUTS = ("probability", "accuracy", "logit", "margin")
BOUNDED = ("probability", "accuracy")
ORDERS = {"morf": "MoRF", "lerf": "LeRF"}


def curve_chart(result: AxisResult, imputer: str, order: list[str]) -> Chart | None:
    """The readout that counts against the fraction removed, a plot for every method; other readouts are folded."""
    cube, words = result.cube, frames.words(result)
    conditions = frames.swept(cube, imputer)
    main_readout = frames.readout(result)
    looks = {explainer: result.looks[explainer] for explainer in order}
    drawn: dict[str, list[Plot]] = {}
    has_random_order = False
    for readout in sorted(READOUTS, key=lambda name: name != main_readout):
        if readout not in cube.values:
            continue
        own = cube.select(measures=[readout], conditions=conditions)
        cells = frames.with_makeup(statistics.summary([own]), own)
        random = random_curve(own, imputer, readout)
        start = untouched(result, readout)
        plots = removal_plots(cells, looks, readout, random, start, words.parts)
        if plots:
            drawn[readout.capitalize()] = plots
            has_random_order |= len(random) > 0
    if not drawn:
        return None

    named = removal_words(imputer)
    every = frames.imputers(cube)
    title = "Removal curves" if len(every) == 1 else f"Removal curves: {named}"
    fractions = len({level for _, level in conditions if level > 0})
    alt = f"Curves over {fractions} fractions removed for {len(order)} methods, imputer {named}."
    number = every.index(imputer)
    key = f"curves-{number}" if number else "curves"  # the first has the plain anchor
    caption = _caption(result, imputer, has_random_order)
    (_, plots), *others = drawn.items()
    return Chart(key, title, caption, alt, plots, dict(others))


def _caption(result: AxisResult, imputer: str, has_random_order: bool) -> str:
    words, named = frames.words(result), removal_words(imputer)
    filled = named if words.sample == "text" else f"filled in by {named}"
    caption = (
        f"{words.parts.capitalize()} are removed in the order of a map and {filled}. A faithful map loses the "
        f"class early when its most relevant {words.parts} go first (MoRF, solid), and keeps it when the least "
        "relevant do (LeRF, dashed). Lines are means over samples, bars 95 % intervals; MoRF of other "
        "methods is faint. "
    )
    if has_random_order:
        caption += (
            f"The dotted grey line removes {words.parts} in a random order: only the distance to it "
            "counts. "
        )
    against = f"the class predicted for the whole {words.sample}"
    if result.settings.get("against") == "label":
        against = "the label"
    caption += f"Accuracy is against {against}; the other readouts are of the predicted class. "
    return caption + _realism(result, imputer)


def _realism(result: AxisResult, imputer: str) -> str:
    """How well the model's features tell the filled inputs of an imputer from real ones, in a sentence."""
    areas = frames.detectability(result.rows)
    own = areas[areas["imputer"] == imputer] if len(areas) else areas
    if own.empty:
        return "Whether filled inputs look real to the model was not measured: that takes a random order and 50 samples."
    by_share = [
        f"{with_interval(r.area, r.low, r.high)} at {100 * r.level:g} %"
        for r in records(own.sort_values("level"))
    ]
    return (
        "Do filled inputs look real? A classifier on the model’s own features tells them from real ones, after random "
        f"removal, with an area under the ROC curve of {listing(by_share)}; 0.5 is a guess."
    )


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
            if len(rows):
                marks = _marks(f"{look.name}, {name}", rows, look.colour, look.name, start)
                own.append(Curve(name, marks, look.colour, dash))
        if not own:
            continue
        if len(control):
            random = _marks(RANDOM, control, "control", "", start)
            own.append(Curve("", random, "control", DASHES[2]))
        lines.append((look, own))
    every = [mark for _, own in lines for curve in own for mark in curve.marks]
    ends = (0.0, 1.04) if readout in BOUNDED else of_marks(every, 0.0)
    return by_method(lines, ends, f"share of {parts} removed", readout)


def _marks(
    name: str, rows: pd.DataFrame, colour: str, method: str, start: float | None
) -> list[Mark]:
    """The points of one curve, from the untouched input on where its readout is known."""
    marks = []
    if start is not None and len(rows):
        marks.append(Mark(name, start, colour=colour, x=0.0, method=method))
    for r in records(rows.sort_values("level")):
        said = f"{100 * r.level:g} % removed"
        marks.append(Mark(name, r.mean, r.low, r.high, colour, x=r.level, method=method, said=said))
    return marks


def random_curve(cube: Cube, imputer: str, readout: str) -> pd.DataFrame:
    """level, mean, low, high of the random order of removal.

    It is the chance of the curves, drawn once per sample and repeated under every explainer. Networks that were
    retrained on what a random order leaves have rows of their own instead.
    """
    copies: dict[float, list[Array]] = {}
    for number, (condition, level) in enumerate(cube.conditions):
        makeup = cube.made_of(condition)
        if makeup.imputer != imputer:
            continue
        if makeup.order == "random" and readout in cube.values:
            copies.setdefault(level, []).append(cube.values[readout][:, number])
        elif makeup.order in ORDERS and readout in cube.chance:
            copies.setdefault(level, []).append(cube.chance[readout][:, number])
    if not copies:
        return pd.DataFrame(columns=["level", "mean", "low", "high"])
    by_sample = np.stack([mean_of_finite(np.concatenate(some).T) for some in copies.values()])
    low, high = interval(by_sample, groups=cube.groups)
    found = {"level": list(copies), "mean": mean_of_finite(by_sample), "low": low, "high": high}
    frame = pd.DataFrame(found)
    return frame[frame["mean"].notna()]


def untouched(result: AxisResult, readout: str) -> float | None:
    """The mean readout before anything is removed, where the run knows it."""
    samples = result.samples
    if "sample" in samples:
        samples = samples[samples["sample"].isin(result.cube.samples)]
    if samples.empty or "probability" not in samples:
        return None
    if readout == "probability" and samples["probability"].notna().any():
        return float(samples["probability"].mean())
    if readout == "accuracy" and result.settings.get("against", "prediction") == "prediction":
        return 1.0
    return None
