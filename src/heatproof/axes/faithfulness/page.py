"""Faithfulness on the page: removal curves, rankings, their consistency, the leak, retraining, and one image going."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace

from heatproof.axes.contract import AxisResult, Page
from heatproof.axes.faithfulness import frames
from heatproof.axes.faithfulness.checks import consistency_chart, leakage_charts
from heatproof.axes.faithfulness.curve_charts import curve_chart
from heatproof.axes.faithfulness.frames import BY_NAME, RANDOM, better, short
from heatproof.axes.faithfulness.retraining.page import cost_panel, retraining_charts
from heatproof.axes.faithfulness.strip import strip
from heatproof.axes.faithfulness.words import lead
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.plots import dots, mark, of_marks
from heatproof.drawing.prose import listing, records
from heatproof.drawing.sheet import Plot
from heatproof.evaluation import Measure
from heatproof.removal import OwnBaseline
from heatproof.statistics.cubes import Cube

MOST_MEASURES = 4
"""What is not drawn is among all numbers."""


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    order = frames.explainer_order(result.cube)
    drawn = [
        *(curve_chart(result, imputer, order) for imputer in frames.imputers(result.cube)),
        ranking_chart(result),
        other_metrics_chart(result),
        strip(result, order),
        consistency_chart(result),
        *leakage_charts(result),
        *retraining_charts(result),
        cost_panel(result),
    ]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def ranking_chart(result: AxisResult) -> Chart | None:
    """Explainers by ROAD with intervals beside a random order; other readings of the same curves beside it."""
    read = frames.spoken(result)
    meanings = {
        "road": f"the mean over fractions of (LeRF − MoRF) / 2 of the {read}, higher is better",
        "deletion_auc": "the area under the MoRF curve of the probability, lower is better",
        "insertion_auc": "the area under the LeRF curve of the probability, higher is better",
        "aopc": f"the mean drop of the {read} along MoRF, higher is better",
        "pixel_flipping": f"the area under the MoRF curve of the {read if ', ' in read else 'logit'}, lower is better",
        "road_morf_accuracy": "the accuracy after MoRF that the ROAD paper reports, mean over fractions, lower is "
        "better",
    }
    shown = _with_numbers(result.cube, meanings)
    if not shown:
        return None
    said = "; ".join(f"{short(measure)}: {meanings[measure.name]}" for measure in shown)
    caption = f"{said}. The best is at the top{_averaged(result, shown)}. {_READ_DOTS}"
    title = f"Ranking by {short(shown[0])}" if shown[0].name == "road" else "Ranking"
    return _metric_chart("ranking", title, caption, shown, result)


def other_metrics_chart(result: AxisResult) -> Chart | None:
    """IROF and what the bank of random masks says."""
    segments = frames.words(result).segments
    meanings = {
        "irof": f"{segments} go, the most relevant first; the area over the curve, higher is better",
        "faithfulness_correlation": f"of what a map gives to random sets of {segments} with what removing them does to "
        "the logit, higher is better, 0 is chance",
        "sensitivity_n": "the same over sets of one size, higher is better",
        "infidelity_scaled": "the mean squared gap between the two after the best scaling, lower is better",
        "infidelity": "infidelity, the mean squared gap between what a map gives to random sets and what removing them "
        "does, without scaling, lower is better; it only says something of maps in the unit of the logit",
    }
    shown = _with_numbers(result.cube, meanings)
    if not shown:
        return None
    said = " ".join(f"{short(measure)}: {meanings[measure.name]}." for measure in shown)
    if "infidelity" in result.cube.values and BY_NAME["infidelity"] not in shown:
        said += " Infidelity without scaling, which only says something of maps in the unit of the logit, is among all "
        said += "numbers."
    said += f" {_fills(result)}"
    title = f"{segments.capitalize()} and random masks"
    return _metric_chart("masks", title, f"{said} {_READ_DOTS}", shown, result)


def _fills(result: AxisResult) -> str:
    """What took the place of segments, in a sentence."""
    baseline = result.settings.get("baseline") or {}
    if baseline.get("name") != OwnBaseline.name:
        return f"Filled in by {baseline['name']}." if baseline else ""
    model = result.manifest.study.model(result.cube.model).parameters
    users: dict[str, list[str]] = {}
    for explainer in result.cube.explainers:
        settings = result.settings_of(explainer)
        while isinstance(settings.get("of"), Mapping):
            settings = settings["of"]
        fill = OwnBaseline().of(SimpleNamespace(**settings), model.get("mean"), model.get("std"))
        users.setdefault(", ".join(f"{value:.3g}" for value in fill.mean), []).append(explainer)
    if len(users) == 1:
        return f"Filled in with what the methods measure against, {next(iter(users))} in the data’s own units."
    said = listing(f"{fill} for {listing(own)}" for fill, own in users.items())
    return f"Filled in with what each method measures against, in the data’s own units: {said}."


def _with_numbers(cube: Cube, meanings: Mapping[str, str]) -> list[Measure]:
    """The first of these headlines that have numbers."""
    scored = [BY_NAME[name] for name in meanings if frames.readings(cube, BY_NAME[name])]
    return scored[:MOST_MEASURES]


def _averaged(result: AxisResult, shown: list[Measure]) -> str:
    """What the order of the methods is averaged over, where there is more than one imputer."""
    reading = frames.overall(result.cube, shown[0])
    if reading is None or len(frames.readings(result.cube, shown[0])) == 1:
        return ""
    return f", {reading.words}"


_READ_DOTS = "Dots are means, bands their 95 % intervals over samples, dotted lines the mean of a random order; "
_READ_DOTS += "hollow: the interval reaches that mean."


def _metric_chart(
    key: str, title: str, caption: str, shown: list[Measure], result: AxisResult
) -> Chart:
    plots = [plot for measure in shown for plot in metric_plots(result, measure)]
    alt = f"Dot plots of {len(result.cube.explainers)} explainers by {', '.join(short(m) for m in shown)}."
    return Chart(key, title, caption, alt, plots)


def metric_plots(result: AxisResult, measure: Measure) -> list[Plot]:
    """Means with intervals, a plot for every imputer on a common scale, in the order of the mean over imputers.

    That mean has a plot of its own, the first.
    """
    cube = result.cube
    overall = frames.overall(cube, measure)
    assert overall is not None  # as it has numbers
    readings = frames.readings(cube, measure)
    if len(readings) > 1:
        readings = [overall, *readings]
    order = frames.standings(cube, measure, overall)["explainer"]

    random_levels = [frames.random_level(cube, measure, reading) for reading in readings]
    rows_of_marks = []
    for reading, random_level in zip(readings, random_levels, strict=True):
        standing = frames.standings(cube, measure, reading)
        by_explainer = {
            r.explainer: mark(
                result.looks[r.explainer],
                r.mean,
                r.low,
                r.high,
                random_level,
                said=f"{r.n} samples",
            )
            for r in records(standing)
        }
        rows_of_marks.append([by_explainer[e] for e in order if e in by_explainer])

    every = [m for marks in rows_of_marks for m in marks]
    low, high = of_marks(every, *random_levels)
    smallest, largest = min(m.value for m in every), max(m.value for m in every)
    log = smallest > 0 and largest > 50 * smallest
    if log:
        low = 0.8 * min(v for m in every for v in (m.value, m.low) if v > 0)
    plots = []
    for reading, marks, random_level in zip(readings, rows_of_marks, random_levels, strict=True):
        is_shown = not math.isnan(random_level) and (random_level > 0 or not log)
        plots.append(
            dots(
                short(measure),
                marks,
                (low, high),
                better(measure),
                reading.name if len(readings) > 1 else "",
                [(RANDOM, random_level)] if is_shown else [],
                log=log,
            )
        )
    return plots
