"""Faithfulness in the report: removal curves, metrics, whether strategies agree, leakage and retraining.

The module also reports retraining, F-Fidelity and leakage, which stand within faithfulness where both were run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof.axes.faithfulness import AXIS, FIDELITY, LEAKAGE, RETRAINING
from heatproof.axes.faithfulness.findings import findings
from heatproof.axes.faithfulness.retraining.leakage import LEAK_BITS, TELLTALE
from heatproof.axes.faithfulness.summaries import (
    HEADLINES,
    ORDERS,
    curve_cells,
    detectability,
    imputers,
    kind_of_data,
    leakage,
    main_metric,
    metric_scores,
    name_of_mean,
    random_order,
    readings,
    readout,
    strategy_correlations,
    untouched_readout,
)
from heatproof.evaluation import GalleryItem, Measure
from heatproof.removal.names import removal_words
from heatproof.report.components import (
    Component,
    CurveChart,
    Gallery,
    Matrix,
    ScoreChart,
    Table,
    Tile,
    spans_decades,
)
from heatproof.results.axis_result import AxisResult
from heatproof.text import listing, records, with_interval

__all__ = ["across", "components", "findings", "lead"]

READOUTS = ("probability", "accuracy", "logit", "margin")
UNIT = (0.0, 1.0)
FROM_ZERO = (0.0, 0.0)
"""A scale without ends of its own begins at 0, so that a small fall looks small."""
STRATEGY = {False: "No-Retrain", True: "Retrain"}
"""The names that the ROAD paper gives to evaluation without and with retraining."""
OF_MASKS = ("infidelity", "infidelity_scaled", "faithfulness_correlation", "sensitivity_n")
"""Metrics that compare a map with the effect of random masks."""


# ---- lead ------------------------------------------------------------------------------------------------------------


def lead(result: AxisResult) -> list[str]:
    """Return the verdict, what the scores are, and which imputers have another winner; limits are findings."""
    if result.axis.name == LEAKAGE.name:
        return [_leak(result)]
    if result.axis.name == FIDELITY.name:
        return ["One network per imputer was tuned to random removals and tested on what is left."]
    if result.axis.name == RETRAINING.name:
        return ["Networks were retrained; nothing was removed from the inputs of the model itself."]
    measure = main_metric(result)
    if measure is not None:
        return [*result.decided(), _scale(result, measure), *_other_winners(result, measure)]
    if "accuracy" in result.arrays.values and "road" not in result.arrays.values:
        return ["Only removal curves were computed; the metric road would rank the methods."]
    return ["Nothing can be concluded: no map has a score."]


def _leak(result: AxisResult) -> str:
    """Return a sentence on which imputers were shown to leak the class through the shape of what they replace."""
    probes = leakage(result)
    leaking = dict.fromkeys(probes.loc[probes["leaks"].astype(bool), "imputer"])
    if not leaking:
        return "No imputer was shown to leak the class."
    verb = "leaks" if len(leaking) == 1 else "leak"
    names = listing(removal_words(imputer) for imputer in leaking)
    return f"{names} {verb} the class through the shape of what is removed."


def _scale(result: AxisResult, measure: Measure) -> str:
    """Return a sentence on what the scores are: the metric, the imputers, its better direction, and where chance is."""
    conditions = itertools.chain.from_iterable(readings(result, measure).values())
    names = listing(dict.fromkeys(removal_words(name) for name, _ in conditions))
    mean = "averaged over" if name_of_mean(result, measure) else "with"
    direction = "" if measure.name == "road" else f"; {measure.better} is better"
    chance = "; 0 is a random order" if result.zero_is_chance(measure) else ""
    return f"Scores are {measure.title}{_unit(result)} {mean} {names}{direction}{chance}."


def _unit(result: AxisResult) -> str:
    """Name the readout of a task without probabilities, in brackets; empty for other tasks."""
    if result.task.task in ("", "classification", "binary", "multi_label"):
        return ""
    return f" (of the {result.task.readout.removeprefix('the ')}, in its own units)"


def _other_winners(result: AxisResult, measure: Measure) -> list[str]:
    """Return a sentence that names the imputers with which another method ranks first than on average; none if none."""
    mean = name_of_mean(result, measure)
    scores = metric_scores(result, measure)
    methods = scores[~scores["is_control"].astype(bool)]
    if not mean or methods.empty:
        return []
    in_order = methods.sort_values("score", ascending=measure.sign < 0, kind="stable")
    first_of = {row.panel: row for row in records(in_order.drop_duplicates("panel"))}
    others = []
    for panel, first in first_of.items():
        if panel != mean and first.explainer != first_of[mean].explainer:
            score = with_interval(first.score, first.low, first.high)
            others.append(f"{result.name_of(first.explainer)} with {panel} ({score})")
    if not others:
        return []
    return [f"Another method comes first with some imputers: {listing(others)}."]


# ---- one model and data set ------------------------------------------------------------------------------------------


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the charts, tables and pictures of faithfulness for one model and data set, in reading order.

    Four evaluations share this section: removal without retraining (faithfulness itself), retraining, F-Fidelity and
    leakage. `result` is of one of them, and faithfulness shows the other three where they were run too.
    """
    is_removal = result.axis.name == AXIS.name
    is_retraining = result.axis.name == RETRAINING.name
    is_leakage = result.axis.name == LEAKAGE.name
    is_fidelity = result.axis.name == FIDELITY.name
    # The results of these evaluations for the same model and data; None where one was not run.
    removal = result.result_of(AXIS)
    retraining = result.result_of(RETRAINING)

    if removal is not None:
        # The readout that the metrics are computed from comes first, the others after the metrics.
        curves = list(_removal_curves(removal))
        yield from curves[:1]
        yield from _metrics(removal)
        yield from _removed_inputs(removal)
        yield from curves[1:]
        yield from _realism(removal)
    if is_removal or is_retraining:
        yield from _consistency(result)
    if is_removal or is_leakage:
        yield from _leakage(result)
    if is_removal or is_retraining:
        yield from _retrained(result, retraining)
        yield from _accuracies(result, removal, retraining)
    if is_removal or is_fidelity:
        fidelity = result.result_of(FIDELITY)
        yield from _retrained(result, fidelity)
    yield from _cost(removal, retraining)


def _removal_curves(removal: AxisResult) -> Iterator[CurveChart]:
    """Yield a chart per readout, first the one that the metrics are computed from."""
    main_readout = readout(removal)
    in_order = sorted(READOUTS, key=lambda name: name != main_readout)
    points_by_readout = {name: curve_cells(removal, name) for name in in_order}
    measured = [name for name, points in points_by_readout.items() if len(points)]
    for name in measured:
        points = points_by_readout[name]
        references = random_order(removal, name)
        start = untouched_readout(removal, name)
        if start is not None:
            points = _from_start(points, start)
            references = _from_start(references, start)
        is_main = name == measured[0]
        parts = kind_of_data(removal).parts
        yield CurveChart(
            key="curves" if is_main else f"curves-{name}",
            figure="removal-curves" if is_main else f"removal-curves-{name}",
            title=f"Removal curves: {name}",
            caption=_curve_caption(removal, name, is_main, len(references) > 0),
            points=points,
            references=references.assign(curve="random order"),
            x_label=f"share of {parts} removed",
            y_label=name,
            limits=UNIT if name in ("probability", "accuracy") else FROM_ZERO,
            paper="ROAD, Figure 8" if is_main else "ROAD, Figures 13 and 14",
        )


def _from_start(points: pd.DataFrame, start: float) -> pd.DataFrame:
    """Return removal curves with one more point each: the readout `start` at x = 0, before anything is removed."""
    curve_columns = [name for name in ("explainer", "curve", "panel") if name in points]
    first = points.drop_duplicates(curve_columns)
    first = first.assign(x=0.0, score=start, low=np.nan, high=np.nan)
    return pd.concat([first, points], ignore_index=True)


def _curve_caption(removal: AxisResult, name: str, is_main: bool, has_random_order: bool) -> str:
    """Return the caption of the removal curves of the readout `name`.

    Only the chart of the main readout, which comes first, explains how to read such curves.
    """
    words = kind_of_data(removal)
    names = listing(removal_words(imputer) for imputer in imputers(removal))
    lines = "MoRF (solid) removes the most relevant first, LeRF (dashed) the least relevant"
    lines += ", dotted grey: a random order. " if has_random_order else ". "
    lines += "Means over samples with 95 % intervals."
    if name == "accuracy":
        against = f"the class predicted for the whole {words.sample}"
        if removal.settings.get("against") == "label":
            against = "the label"
        lines += f" Accuracy is against {against}."
    if not is_main:
        return lines
    return (
        f"{words.parts.capitalize()} are removed in the order of the map and replaced ({names}). A faithful map loses the "
        f"class early with MoRF and late with LeRF; only the distance to a random order counts. {lines}"
    )


def _metrics(removal: AxisResult) -> Iterator[ScoreChart | Matrix]:
    """Yield the ranking with a panel per imputer, the other metrics as means over imputers, and a table of all numbers."""
    by_measure = {}
    for measure in HEADLINES:
        scores = metric_scores(removal, measure)
        if len(scores):
            by_measure[measure] = scores
    if not by_measure:
        return
    (main, ranking), *others = by_measure.items()
    yield ScoreChart(
        key="ranking",
        title=f"Ranking by {main.title}",
        caption=f"{_explained(removal, main)} {_how_to_read(ranking)}",
        scores=_with_verdict(ranking),
        x_label=f"{main.better} is better",
        log_x=_is_logarithmic(main, ranking),
    )
    linear, logarithmic = [], []
    for measure, scores in others:
        if _is_logarithmic(measure, scores):
            logarithmic.append((measure, scores))
        else:
            linear.append((measure, scores))
    yield from _other_metrics(removal, linear, key="metrics", title="Other metrics")
    yield from _other_metrics(
        removal, logarithmic, key="metrics-log", title="Metrics on a logarithmic scale", log_x=True
    )
    yield _metric_table(removal, by_measure)


def _is_logarithmic(measure: Measure, scores: pd.DataFrame) -> bool:
    """Whether a metric without ends has scores so far apart that they need a logarithmic scale."""
    return measure.span is None and spans_decades(scores["score"])


def _other_metrics(
    removal: AxisResult,
    metrics: Sequence[tuple[Measure, pd.DataFrame]],
    key: str,
    title: str,
    log_x: bool = False,
) -> Iterator[ScoreChart]:
    """Yield a chart with the overall scores by several metrics, a panel for each."""
    if not metrics:
        return
    frames = []
    for measure, scores in metrics:
        # The first rows are the means over imputers, those of single imputers follow.
        overall = scores[scores["panel"] == scores["panel"].iloc[0]]
        frames.append(_with_verdict(overall).assign(panel=_heading(measure)))
    every = pd.concat(frames, ignore_index=True)
    texts = " ".join(_explained(removal, measure) for measure, _ in metrics)
    yield ScoreChart(
        key=key,
        title=title,
        caption=f"{texts} Means over imputers. {_how_to_read(every)}",
        scores=every,
        panel_notes={_heading(measure): f"{measure.better} is better" for measure, _ in metrics},
        shared_scale=False,
        log_x=log_x,
    )


def _heading(measure: Measure) -> str:
    return measure.title[:1].upper() + measure.title[1:]


def _explained(removal: AxisResult, measure: Measure) -> str:
    """Say what a metric is."""
    masks = ""
    if measure.name in OF_MASKS:
        masks = f", for random sets of {kind_of_data(removal).segments}"
    return f"{_heading(measure)}: {measure.text}{masks}."


def _how_to_read(scores: pd.DataFrame) -> str:
    hollow = ""
    if scores["chance"].notna().any():
        hollow = " Hollow: not significantly better than a random order (dotted)."
    return f"Bands are 95 % intervals over samples.{hollow}"


def _with_verdict(scores: pd.DataFrame) -> pd.DataFrame:
    """Return scores for a chart: dots are hollow where a score is not significantly better than a random order.

    Where the score of a random order is unknown, dots are filled.
    """
    is_filled = scores["above_chance"].where(scores["chance"].notna(), True)
    return scores.assign(above_chance=is_filled)


def _metric_table(removal: AxisResult, by_measure: dict[Measure, pd.DataFrame]) -> Matrix:
    """Return every number of every metric, the means over imputers first."""
    frames = []
    for measure, scores in by_measure.items():
        arrow = "↑" if measure.sign > 0 else "↓"
        frames.append(scores.assign(column=f"{measure.title} {arrow}"))
    table = removal.best_first(pd.concat(frames, ignore_index=True))
    has_one_panel = table["panel"].nunique() == 1
    return Matrix(
        key="scores",
        figure="removal-scores",
        title="All metrics",
        caption="Arrows point to better. Bold: the best method of a column and all that do not differ significantly from "
        "it; never a control. Brackets: 95 % intervals over samples.",
        scores=table.assign(
            row=table["explainer"], column_group="" if has_one_panel else table["panel"]
        ),
        shaded=False,
        paper="ROAD score and others",
    )


def _removed_inputs(removal: AxisResult) -> Iterator[Gallery]:
    """Yield one sample as its most relevant parts are removed, a row for each explainer."""
    items = [
        item
        for item in removal.gallery
        if removal.arrays.settings_of(item.condition).order == "morf"
    ]
    if not any(item.level for item in items):
        return
    sample = items[0].sample
    imputer = removal.arrays.settings_of(items[0].condition).imputer
    tiles = []
    for explainer in removal.explainer_order:
        of_explainer = [
            item for item in items if (item.explainer, item.sample) == (explainer, sample)
        ]
        for item in sorted(of_explainer, key=lambda item: item.level):
            tiles.append(_removed_input(item))
    words = kind_of_data(removal)
    parts = words.parts.capitalize()
    yield Gallery(
        key="removed",
        figure="removal-pictures",
        title=f"One {words.sample} as its {words.parts} are removed",
        caption=f"{parts} are removed, most relevant first, and replaced ({removal_words(imputer)}); white marks what is "
        "kept. Below: the probability of the class predicted for the original. An example; the curves are the evidence.",
        tiles=tiles,
        paper="ROAD, Figure 10",
    )


def _removed_input(item: GalleryItem) -> Tile:
    """Return the picture of one step of a removal."""
    if item.map is None:
        return Tile(item, "original", view="input", note=item.note)
    return Tile(item, f"{100 * item.level:g} % removed", view="input_and_mask", note=item.note)


def _realism(removal: AxisResult) -> Iterator[CurveChart]:
    """Yield a chart of how well a classifier on the model's own features tells filled-in inputs from real ones."""
    areas = detectability(removal.rows)
    if areas.empty:
        return
    names = [removal_words(imputer) for imputer in areas["imputer"]]
    yield CurveChart(
        key="realism",
        title="Do filled inputs look real?",
        caption="Area under the ROC curve of a classifier on the model's own features that tells filled inputs from real "
        "ones, after random removal; 0.5 is a guess. If it succeeds, a drop may be due to how the filling looks.",
        points=areas.assign(imputer=names, x=areas["level"], score=areas["area"]),
        line="imputer",
        plot_per_line=False,
        x_label=f"share of {kind_of_data(removal).parts} removed",
        y_label="area under the ROC curve",
        limits=UNIT,
        guides={"guessing": 0.5},
    )


# ---- consistency -----------------------------------------------------------------------------------------------------


def _consistency(result: AxisResult) -> Iterator[Matrix]:
    """Yield the rank correlations of every two strategies, by the main readout and by accuracy as in the paper."""
    main_readout = "accuracy" if result.axis.name == RETRAINING.name else readout(result)
    for name in dict.fromkeys([main_readout, "accuracy"]):
        pairs = strategy_correlations(result, name)
        if pairs.empty:
            continue
        yield Matrix(
            key="consistency" if name == main_readout else f"consistency-{name}",
            figure="removal-consistency" if name == "accuracy" else "",
            title=f"Do the strategies agree? ({name})",
            caption="Spearman's correlation of the rankings of methods under two strategies, mean over fractions (1: same "
            "ranking, 0: unrelated); controls are left out. The ROAD paper reports for MoRF and LeRF, eight methods on "
            "CIFAR-10, no retraining: 0.01 with a fixed value, 0.54 with noisy linear imputation.",
            scores=_strategy_matrix(pairs),
            paper="ROAD, Table 7" if name == "accuracy" else "",
            row_title="Strategy",
        )


def _strategy_matrix(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a symmetric table of the rank correlations of every two strategies, a row per cell, the diagonal empty.

    A strategy is whether networks were retrained, the order of removal and the imputer. `pairs` has each pair once.
    """
    correlations = {}
    for pair in pairs.itertuples():
        a = (bool(pair.a_retrained), str(pair.a_order), str(pair.a_imputer))
        b = (bool(pair.b_retrained), str(pair.b_order), str(pair.b_imputer))
        note = f"{pair.explainers} methods, {pair.samples} samples"
        numbers = (pair.spearman, pair.low, pair.high, note)
        correlations[a, b] = numbers
        correlations[b, a] = numbers

    strategies = list(dict.fromkeys(itertools.chain.from_iterable(correlations)))
    # Without retraining first, then MoRF before LeRF.
    position_of_order = {order: position for position, order in enumerate(ORDERS)}
    strategies.sort(key=lambda strategy: (strategy[0], position_of_order[strategy[1]]))
    no_numbers = (np.nan, np.nan, np.nan, "")
    rows = []
    for a, b in itertools.product(strategies, strategies):
        numbers = correlations.get((a, b), no_numbers)
        imputer_a, imputer_b = removal_words(a[2]), removal_words(b[2])
        rows.append((imputer_a, _strategy_group(a), imputer_b, _strategy_group(b), *numbers))
    columns = ["row", "row_group", "column", "column_group", "score", "low", "high", "note"]
    return pd.DataFrame(rows, columns=columns)


def _strategy_group(strategy: tuple[bool, str, str]) -> str:
    """Return the group of a strategy (retrained, order, imputer) in the table: its order, and whether retrained."""
    is_retrained, order, _ = strategy
    return f"Retrained {ORDERS[order]}" if is_retrained else ORDERS[order]


# ---- leakage and retraining ------------------------------------------------------------------------------------------


def _leakage(result: AxisResult) -> Iterator[CurveChart]:
    """Yield what the masks say about the class, and whether filled images show the masks."""
    probes = result.best_first(leakage(result))
    if probes.empty:
        return
    probes = probes.assign(
        x=probes["level"],
        curve=probes["order"].map(ORDERS),
        panel=[removal_words(imputer) for imputer in probes["imputer"]],
    )
    x_label = f"share of {kind_of_data(result).parts} removed"
    # The mask is the same whatever fills it.
    masks = probes.drop_duplicates(["explainer", "curve", "x"])
    yield CurveChart(
        key="mask-classifier",
        figure="removal-masks",
        title="Class predicted from the mask alone",
        caption="Accuracy of a classifier that sees only which pixels were removed. If it is high, the shape of the removed "
        "part gives the class away.",
        points=masks.assign(score=masks["mask_accuracy"], panel=""),
        x_label=x_label,
        y_label="accuracy",
        limits=UNIT,
        paper="ROAD, Figure 5",
    )
    recognised = probes.groupby(["panel", "x"], sort=False)["pixels"].mean().reset_index()
    yield CurveChart(
        key="imputation-predictor",
        figure="removal-visible",
        title="Removed pixels recognised",
        caption="Share of pixels that a small network rightly calls removed or original, mean over methods. An imputer hides "
        "the mask if this is a guess.",
        points=recognised.rename(columns={"panel": "imputer", "pixels": "score"}),
        line="imputer",
        plot_per_line=False,
        x_label=x_label,
        y_label="pixels recognised",
        limits=UNIT,
        guides={"guessing": 0.5},
        paper="ROAD, Figure 6e",
    )
    texts = {
        "mask_bits": "A lower bound (Fano, 97.5 % confidence) of what the mask says about the class. A finding warns from "
        f"{LEAK_BITS:g} bits and {100 * TELLTALE:g} % of the pixels recognised.",
        "leak": "I(C; M) − I(C; M | x′), what a filled image lets the mask say about the class; an estimate, no bound.",
    }
    titles = {"mask_bits": "Bits about the class in the mask", "leak": "Leaked bits"}
    for column, title in titles.items():
        points = probes.assign(score=probes[column]).dropna(subset="score")
        if points.empty:
            continue
        yield CurveChart(
            key=f"leakage-{column.replace('_', '-')}",
            title=title,
            caption=texts[column],
            points=points,
            x_label=x_label,
            y_label="bits",
            limits=(0.0, 2 * LEAK_BITS),
        )


def _retrained(result: AxisResult, retrained: AxisResult | None) -> Iterator[CurveChart]:
    """Yield the accuracy of networks that were trained or tuned on what is left, by fraction removed."""
    if retrained is None:
        return
    points = result.best_first(curve_cells(retrained, "accuracy"))
    if points.empty:
        return
    is_tuned = retrained.axis.name == FIDELITY.name
    if is_tuned:
        how = "Networks tuned to random removals, tested on what is left"
        orders = "MoRF (solid) should fall, LeRF (dashed) should stay high."
        figure, paper = "", ""
    else:
        how = "Networks trained on what is left, tested on held-out images treated alike"
        orders = "MoRF (solid) is ROAR and should fall, LeRF (dashed) is KAR and should stay high."
        figure, paper = "removal-retrained", "ROAD, Figures 7, 11 and 12"
    truth = "the label"
    if retrained.settings.get("against") == "prediction":
        truth = "the model's prediction"
    repeats = retrained.rows["repeat"].nunique() if "repeat" in retrained.rows else 1
    networks = "1 network" if repeats == 1 else f"{repeats} networks"
    yield CurveChart(
        key=retrained.axis.name.replace("_", "-"),
        figure=figure,
        title=retrained.axis.title,
        caption=f"{how}; accuracy against {truth}. {orders} Mean of {networks} per point; intervals are over test images, "
        "not over training runs.",
        points=points,
        references=random_order(retrained, "accuracy").assign(curve="random order"),
        x_label="share of pixels removed",
        y_label="accuracy",
        limits=UNIT,
        paper=paper,
    )


def _accuracies(
    result: AxisResult, removal: AxisResult | None, retraining: AxisResult | None
) -> Iterator[Matrix]:
    """Yield the accuracy at every fraction by strategy, grouped by method."""
    frames = []
    for strategy, measured in ((STRATEGY[True], retraining), (STRATEGY[False], removal)):
        if measured is None or "accuracy" not in measured.arrays.values:
            continue
        cells = curve_cells(measured, "accuracy")
        names = zip(cells["curve"], cells["panel"], strict=True)
        rows = [f"{strategy} {order}, {imputer}" for order, imputer in names]
        frames.append(cells.assign(row=rows, row_group=cells["explainer"], column=cells["level"]))
    if not frames or all(frame.empty for frame in frames):
        return
    yield Matrix(
        key="accuracies",
        figure="removal-accuracies",
        title="Accuracy by fraction removed",
        caption="Accuracy at each fraction removed, with 95 % intervals over samples.",
        scores=result.best_first(pd.concat(frames, ignore_index=True)),
        percent=True,
        shaded=False,
        paper="ROAD, Tables 5 and 6",
        row_title="Strategy",
    )


def _cost(removal: AxisResult | None, retraining: AxisResult | None) -> Iterator[Table]:
    """Yield what one point of a curve costs with and without retraining."""
    if retraining is None:
        return
    rows = []
    for strategy, measured in (("Without retraining", removal), ("Retraining", retraining)):
        if measured is None or np.isnan(measured.seconds):
            continue
        is_point = measured.rows["measure"] == "accuracy"
        if measured is removal:
            # Without retraining the random order is stored as the chance level, not as points of its own.
            is_point &= measured.rows["order"].isin(list(ORDERS))
        # One point per combination of these columns; `repeat` numbers the retrained networks.
        keys = ["explainer", "condition", "level", "repeat"]
        keys = [key for key in keys if key in measured.rows]
        points = len(measured.rows.loc[is_point, keys].drop_duplicates())
        if points:
            rows.append((strategy, measured.seconds, points, measured.seconds / points))
    if rows:
        yield Table(
            key="cost",
            figure="removal-cost",
            title="What retraining costs",
            caption="A point is one method, order, imputer and fraction. The time without retraining includes all metrics. "
            "Seconds of all sessions of the run, on the machine that ran them; probes of the leak are not counted.",
            rows=pd.DataFrame(rows, columns=["strategy", "seconds", "points", "per_point"]),
            columns={
                "strategy": "Strategy",
                "seconds": "Seconds",
                "points": "Points",
                "per_point": "Seconds per point",
            },
            paper="ROAD, Table 4",
        )


# ---- several models and data sets ------------------------------------------------------------------------------------


def across(results: Sequence[AxisResult]) -> Iterator[Component]:
    """Yield how far rankings agree on every model: of both orders, and with and without retraining."""
    frames = []
    for result in results:
        if result.axis.name in (AXIS.name, RETRAINING.name):
            pairs = strategy_correlations(result, "accuracy")
            frames.append(pairs.assign(row=f"{result.model}, {result.dataset}"))
    pairs = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if pairs.empty:
        return
    imputer_names = [removal_words(imputer) for imputer in pairs["a_imputer"]]
    pairs = pairs.assign(score=pairs["spearman"], column=imputer_names)

    orders = pairs[pairs["kind"] == "order"]
    yield from _agreement_table(
        orders.assign(column_group=orders["a_retrained"].map(STRATEGY)),
        "orders",
        "MoRF and LeRF",
        "ROAD, Table 2",
    )
    retrained = pairs[pairs["kind"] == "retraining"]
    yield from _agreement_table(
        retrained.assign(column_group=retrained["a_order"].map(ORDERS)),
        "retraining",
        "with and without retraining",
        "ROAD, Table 3",
    )


def _agreement_table(pairs: pd.DataFrame, key: str, compared: str, paper: str) -> Iterator[Matrix]:
    """Yield a table of rank correlations, a row per model and data set; nothing if there are none."""
    if pairs.empty:
        return
    methods = int(pairs["explainers"].max())
    yield Matrix(
        key=f"agreement-{key}",
        figure=f"removal-{key}",
        title=f"Agreement of rankings: {compared}",
        caption=f"Spearman's correlation of the rankings of {methods} methods by accuracy, mean over the fractions removed, "
        "with 95 % intervals over samples. Controls are left out.",
        scores=pairs,
        shaded=False,
        paper=paper,
        row_title="Model",
    )
