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
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Cube

MOST_MEASURES = 4
"""What is not drawn is among all numbers."""


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    order = frames.explainer_order(judged.cube)
    drawn: list[Chart | Panel | None] = [
        curve_chart(judged, name, order) for name in frames.imputers(judged.cube)
    ]
    drawn += [ranking_chart(judged), other_metrics_chart(judged), strip(judged, order)]
    drawn += [
        consistency_chart(judged),
        *leakage_charts(judged),
        *retraining_charts(judged),
        cost_panel(judged),
    ]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def ranking_chart(judged: AxisResult) -> Chart | None:
    """Explainers by ROAD with intervals beside a random order; other readings of the same curves beside it."""
    read = frames.spoken(judged)
    meanings = {
        "road": f"the mean over fractions of (LeRF − MoRF) / 2 of the {read}, higher is better",
        "deletion_auc": "the area under the MoRF curve of the probability, lower is better",
        "insertion_auc": "the area under the LeRF curve of the probability, higher is better",
        "aopc": f"the mean drop of the {read} along MoRF, higher is better",
        "pixel_flipping": f"the area under the MoRF curve of the {read if ', ' in read else 'logit'}, lower is better",
    }
    shown = _with_numbers(judged.cube, meanings)
    if not shown:
        return None
    said = "; ".join(f"{short(measure)}: {meanings[measure.name]}" for measure in shown)
    caption = f"{said}. The best is at the top. {_READ_DOTS}"
    title = "Ranking by ROAD" if shown[0].name == "road" else "Ranking"
    return _metric_chart("ranking", title, caption, shown, judged)


def other_metrics_chart(judged: AxisResult) -> Chart | None:
    """IROF and what the bank of random masks says."""
    segments = frames.words(judged).segments
    meanings = {
        "irof": f"{segments} go, the most relevant first; the area over the curve, higher is better",
        "faithfulness_correlation": f"of what a map gives to random sets of {segments} with what removing them does to "
        "the logit, higher is better, 0 is chance",
        "sensitivity_n": "the same over sets of one size, higher is better",
        "infidelity_scaled": "the mean squared gap between the two after the best scaling, lower is better",
        "infidelity": "infidelity, the mean squared gap between what a map gives to random sets and what removing them "
        "does, without scaling, lower is better; it only says something of maps in the unit of the logit",
    }
    shown = _with_numbers(judged.cube, meanings)
    if not shown:
        return None
    said = " ".join(f"{short(measure)}: {meanings[measure.name]}." for measure in shown)
    if "infidelity" in judged.cube.values and BY_NAME["infidelity"] not in shown:
        said += " Infidelity without scaling, which only says something of maps in the unit of the logit, is among all "
        said += "numbers."
    said += f" {_fills(judged)}"
    title = f"{segments.capitalize()} and random masks"
    return _metric_chart("masks", title, f"{said} {_READ_DOTS}", shown, judged)


def _fills(judged: AxisResult) -> str:
    """What took the place of segments, in a sentence."""
    baseline = judged.settings.get("baseline") or {}
    if baseline.get("name") != OwnBaseline.name:
        return f"Filled in by {baseline['name']}." if baseline else ""
    model = judged.manifest.get("study", {}).get("models", {}).get(judged.cube.model, {})
    users: dict[str, list[str]] = {}
    for explainer in judged.cube.explainers:
        settings = judged.settings_of(explainer)
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
    return [BY_NAME[name] for name in meanings if frames.lines(cube, BY_NAME[name])][:MOST_MEASURES]


_READ_DOTS = "Dots are means, bands their 95 % intervals over samples, dotted lines the mean of a random order; "
_READ_DOTS += "hollow: the interval reaches that mean."


def _metric_chart(
    key: str, title: str, caption: str, shown: list[Measure], judged: AxisResult
) -> Chart:
    plots = [plot for measure in shown for plot in metric_plots(judged, measure)]
    alt = f"Dot plots of {len(judged.cube.explainers)} explainers by {', '.join(short(m) for m in shown)}."
    return Chart(key, title, caption, alt, plots)


def metric_plots(judged: AxisResult, measure: Measure) -> list[Plot]:
    """Means with intervals, a plot for every imputer on a common scale, the order that of the first one."""
    cube = judged.cube
    read = {line: frames.standings(cube, measure, line) for line in frames.lines(cube, measure)}
    order = list(dict.fromkeys(e for rows in read.values() for e in rows["explainer"]))
    plots = {}
    for line, rows in read.items():
        chance = frames.random_scores(cube, measure, line)
        level = float("nan") if chance is None else float(mean_of_finite(chance))
        known = {
            r.explainer: mark(
                judged.looks[r.explainer], r.mean, r.low, r.high, level, said=f"{r.n} samples"
            )
            for r in records(rows)
        }
        plots[line] = [known[e] for e in order if e in known], level
    every = [m for marks, _ in plots.values() for m in marks]
    low, high = of_marks(every, *(level for _, level in plots.values()))
    log = min(m.value for m in every) > 0 and max(m.value for m in every) > 50 * min(
        m.value for m in every
    )
    low = 0.8 * min(v for m in every for v in (m.value, m.low) if v > 0) if log else low
    return [
        dots(
            short(measure),
            marks,
            (low, high),
            better(measure),
            line.name if len(read) > 1 else "",
            [] if math.isnan(level) or (log and level <= 0) else [(RANDOM, level)],
            log=log,
        )
        for line, (marks, level) in plots.items()
    ]
