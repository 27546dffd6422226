"""Stability in the report: charts and tables of one model, and the tables of the FASS paper over all models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pandas as pd

from heatproof.axes.stability.evaluation import FASS, unaligned
from heatproof.axes.stability.findings import findings
from heatproof.axes.stability.neighbourhood import MEASURES as BALL_MEASURES
from heatproof.axes.stability.published import (
    families,
    moving_conditions,
    overall_scores,
    paper_scores,
    retention,
)
from heatproof.axes.stability.vectors import SIMILARITY
from heatproof.axes.tiles import worst_pair_tiles
from heatproof.maps.similarity import COMPONENTS
from heatproof.report.components import (
    Component,
    CurveChart,
    Gallery,
    Matrix,
    ScoreChart,
    Table,
    spans_decades,
)
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import disagreement
from heatproof.results.names import subjects
from heatproof.text import file_part, listing, p_value, records

__all__ = ["across", "components", "findings", "lead"]

UNIT = (0.0, 1.0)
MOST_DOTS = 120
"""With more methods × perturbations the chart has the overall scores only; the matrix has all of them."""
MOST_TESTS = 150
"""The rows of the table of paired tests."""
BOLD = (
    "Bold: the best method of each column and all that the corrected paired test does not tell from it; controls are "
    "never bold. Brackets: 95 % intervals over samples."
)
AS_PUBLISHED = "{} are raw scores of maps that are not moved with the input, as in the FASS paper."
ABBREVIATED = {
    "ssim": "SSIM",
    "spearman": "Spearman (Spn.)",
    "jaccard": "Jaccard (Jac.)",
    FASS: "FASS",
}
CALIBRATED = (
    "Calibrated FASS: 0 is chance, 1 an unchanged map; maps are moved along where the input is."
)


def lead(result: AxisResult) -> list[str]:
    """Return what the tests say of the methods; scores at chance under single perturbations are findings."""
    return result.decided()


# ---- one model and data set ------------------------------------------------------------------------------------------


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the charts and tables of one model and data set, in reading order."""
    yield from _of_maps(result)
    yield from _vector_chart(result)
    yield from _ball_charts(result)


def _of_maps(result: AxisResult) -> Iterator[Component]:
    """Yield what FASS and its components show; nothing if no maps were compared."""
    cells = result.cells(FASS)
    if cells.empty:
        return
    is_scored = bool(cells["score"].notna().any())
    if is_scored:
        yield _score_chart(result, cells)
        yield from _worst_pairs(result)
        yield _matrix(result, cells)
        yield _component_chart(result)
    yield _retention_chart(result, cells)
    if is_scored:
        yield from _severity_charts(result, cells)
        yield _paper_table(result)
        yield from _family_table(result)
        yield from _paired_tests(result)
        yield from _noise_floors(result, cells)


def _score_chart(result: AxisResult, cells: pd.DataFrame) -> ScoreChart:
    """Return the chart of the overall scores, with a panel for every perturbation unless there are too many."""
    ranking = result.overall(FASS)
    overall = ranking.assign(panel="All perturbations", note=_rank_texts(ranking))
    frames = [overall[overall["score"].notna()]]
    if len(cells) <= MOST_DOTS:
        frames.append(cells.assign(panel=cells["condition_title"], note=_pairs_kept(cells)))
    scores = pd.concat(frames, ignore_index=True)

    caption = f"{_scale(result)} Means over the inputs whose prediction stays, with 95 % intervals."
    if result.arrays.is_calibrated(FASS):
        caption += " Hollow: not significantly above chance."
    else:
        scores = scores.drop(columns="above_chance")
    if moving_conditions(result):
        sample = result.words.sample
        caption += f" Where a perturbation moves the {sample}, the original map is moved along before it is compared."
    shares = retention(result)
    kept = [f"{note} kept" for note in shares["note"]]
    return ScoreChart(
        key="scores",
        title="Stability of each method",
        caption=caption,
        scores=scores,
        panel_notes=dict(zip(shares["condition_title"], kept, strict=True)),
        limits=UNIT,
    )


def _rank_texts(ranking: pd.DataFrame) -> list[str]:
    """Return the rank of each method, with its range if it is uncertain."""
    texts = []
    for row in records(ranking):
        if row.control:
            texts.append("a control has no rank")
        elif row.rank_low == row.rank_high:
            texts.append(f"rank {row.rank_low:.0f}")
        else:
            texts.append(f"rank {row.rank_low:.0f} to {row.rank_high:.0f}")
    return texts


def _pairs_kept(cells: pd.DataFrame) -> list[str]:
    counts = zip(cells["retained"], cells["attempted"], strict=True)
    return [f"{retained} of {attempted} pairs scored" for retained, attempted in counts]


def _scale(result: AxisResult) -> str:
    if result.arrays.is_calibrated(FASS):
        return "Calibrated FASS: 0 is chance, 1 an unchanged map."
    return "Raw FASS, from 0 to 1."


def _worst_pairs(result: AxisResult) -> Iterator[Gallery]:
    """Yield the lowest-scoring pair of each method in pictures, where maps were kept."""
    tiles = worst_pair_tiles(result)
    if tiles:
        yield Gallery(
            key="worst",
            title="Worst pairs",
            caption="The lowest-scoring pair of each method among those whose maps were kept: the original map, and the "
            "map after the perturbation. Not a typical case.",
            tiles=tiles,
        )


def _matrix(result: AxisResult, cells: pd.DataFrame) -> Matrix:
    """Return the score of every method under every perturbation."""
    scores = cells.assign(
        row=cells["explainer"], column=cells["condition_title"], note=_pairs_kept(cells)
    )
    return Matrix(
        key="map",
        title="Every method under every perturbation",
        caption=f"{_scale(result)} Grey cells have no score.",
        scores=scores,
        paper="FASS, heat maps",
    )


def _component_chart(result: AxisResult) -> ScoreChart:
    """Return a plot for each of SSIM, Spearman and Jaccard; tables have no SSIM."""
    frames = []
    for name in COMPONENTS:
        if name not in result.arrays.values:
            continue
        overall = result.best_first(result.overall(name))
        raw = [f"raw {value:.2f}" for value in overall["raw"]]
        scores = overall.assign(panel=_title_of(result, name), note=raw)
        frames.append(
            scores if result.arrays.is_calibrated(name) else scores.assign(above_chance=True)
        )
    form = "Calibrated" if result.arrays.is_calibrated(FASS) else "Raw"
    compared = {
        "ssim": "SSIM compares structure",
        "spearman": "Spearman the order of all values",
        "jaccard": f"Jaccard the most important {result.words.parts}",
    }
    texts = [text for name, text in compared.items() if name in result.arrays.values]
    caption = (
        f"{form} components of FASS, means over perturbations: {', '.join(texts)}. A method that fails in one only shows "
        f"where its maps break. {_disagreement(result)}"
    )
    return ScoreChart(
        key="bars",
        title="Components",
        caption=caption.strip(),
        scores=pd.concat(frames, ignore_index=True) if frames else result.overall(FASS).iloc[:0],
        limits=UNIT,
        paper="FASS, Figure 2",
    )


def _title_of(result: AxisResult, measure: str) -> str:
    declared = result.axis.measure(measure)
    return measure if declared is None else declared.title


def _disagreement(result: AxisResult) -> str:
    """Return a sentence on how often the components of FASS order two methods differently; "" if one is missing."""
    arrays = result.arrays.for_measure(FASS)
    shares = disagreement(arrays, COMPONENTS)
    if shares.empty or not shares["compared"].iloc[0]:
        return ""
    # One row for this model and data set; a column `a_b` has the share for two components.
    (row,) = shares.to_dict("records")
    pairs = []
    for a, b in combinations(COMPONENTS, 2):
        percent = 100 * row[f"{a}_{b}"]
        pairs.append(f"{_title_of(result, a)} and {_title_of(result, b)} {percent:.0f} %")
    return (
        f"The components disagree on which of two methods is better in {row['count']} of {row['compared']} comparisons "
        f"({100 * row['share']:.0f} %): {listing(pairs)}."
    )


def _retention_chart(result: AxisResult, cells: pd.DataFrame) -> ScoreChart:
    """Return the share of predictions that every perturbation leaves unchanged."""
    undefined = int(cells["undefined"].sum())
    without_score = ""
    if undefined:
        without_score = f" {undefined} more pairs have no score: a map is undefined."
    return ScoreChart(
        key="retention",
        title="Predictions kept",
        caption="Share of perturbed inputs with the same prediction, with exact 95 % intervals. Only these pairs are scored. "
        f"It depends on the model alone.{without_score}",
        scores=retention(result),
        row="condition_title",
        limits=UNIT,
        percent=True,
    )


def _severity_charts(result: AxisResult, cells: pd.DataFrame) -> Iterator[CurveChart]:
    """Yield a chart for every perturbation that was run at several levels."""
    shares = retention(result)
    for number, (condition, points) in enumerate(_swept(cells)):
        name = condition.replace("_", " ")
        kept = shares[shares["condition"] == condition]
        yield CurveChart(
            key=f"severity-{number}",
            title=f"Severity: {name}",
            caption="The score at every level with 95 % intervals, the other methods faint behind. Grey: share of "
            "predictions that stay.",
            points=points.assign(x=points["level"], note=_pairs_kept(points)).drop(
                columns="above_chance"
            ),
            references=kept.assign(x=kept["level"], curve="predictions kept"),
            x_label=f"level of {name}",
            y_label="score",
            limits=UNIT,
        )


def _swept(cells: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the cells of every condition that has at least two levels."""
    by_condition = cells.groupby("condition", sort=False, observed=True)
    return [(str(name), rows) for name, rows in by_condition if rows["level"].nunique() > 1]


def _paper_table(result: AxisResult) -> Matrix:
    """Return the table of FASS as its paper computes it, beside calibrated FASS.

    Where perturbations move the input, two more columns compare scores with and without moving the original map along.
    """
    columns = [paper_scores(result)]
    caption = _columns_text(result)
    moving = moving_conditions(result)
    if moving:
        arrays = result.arrays.select(conditions=moving)
        columns.append(overall_scores(arrays, unaligned(FASS), "Unaligned", bold=False))
        columns.append(overall_scores(arrays, FASS, "Aligned", bold=False))
        where = listing(result.axis.condition(*condition) for condition in moving)
        form = "calibrated FASS" if result.arrays.is_calibrated(FASS) else "FASS"
        caption += f" Unaligned and aligned: {form} under {where} only, without and with moving the original map."
    return Matrix(
        key="paper",
        title="As in the FASS paper",
        caption=caption,
        scores=result.best_first(pd.concat(columns, ignore_index=True)),
        shaded=False,
    )


def _columns_text(result: AxisResult) -> str:
    """Say what the columns of `paper_scores` are."""
    measured = [name for measure, name in ABBREVIATED.items() if measure in result.arrays.values]
    text = AS_PUBLISHED.format(listing(measured))
    return f"{text} {CALIBRATED}" if result.arrays.is_calibrated(FASS) else text


def _family_table(result: AxisResult) -> Iterator[Matrix]:
    """Yield the table of the components of FASS by kind of perturbation, with means over methods; none for a single kind."""
    by_family = families(result.arrays.for_measure(FASS).conditions)
    if len(by_family) < 2:
        return
    frames = []
    for family, conditions in by_family.items():
        titles = dict.fromkeys(result.axis.condition(*condition) for condition in conditions)
        scores = paper_scores(result, conditions, bold=True)
        means = _mean_over_methods(scores)
        group = f"{family}: {', '.join(titles)}"
        frames.append(pd.concat([scores, means], ignore_index=True).assign(row_group=group))
    yield Matrix(
        key="kinds",
        title="Components by kind of perturbation",
        caption=f"{_columns_text(result)} Means over methods leave the controls out. {BOLD}",
        scores=pd.concat(frames, ignore_index=True),
        shaded=False,
        paper="FASS, Table 5",
    )


def _mean_over_methods(scores: pd.DataFrame) -> pd.DataFrame:
    methods = scores[~scores["is_control"]]
    means = methods.groupby("column", sort=False)["score"].mean().reset_index()
    return means.assign(row="mean over methods", is_control=False, best=False)


def _paired_tests(result: AxisResult) -> Iterator[Table]:
    """Yield the table of paired tests between every two methods, in the order of the ranking, the better method first."""
    tests = result.tests[result.tests["measure"] == FASS]
    if tests.empty:
        return
    rank = {name: number for number, name in enumerate(result.overall(FASS)["explainer"])}
    rows = []
    for test in records(tests):
        if rank[test.a] <= rank[test.b]:
            a, b = test.a, test.b
            difference, low, high = test.difference, test.low, test.high
        else:
            # The test compares the lower-ranked method with the higher-ranked one: turn it around.
            a, b = test.b, test.a
            difference, low, high = -test.difference, -test.high, -test.low
        was_tested = bool(pd.notna(test.p))
        p = p_value(test.p).removeprefix("p ").removeprefix("= ") if was_tested else None
        answer = bool(test.significant) if was_tested else None
        rows.append((rank[a], rank[b], a, b, difference, low, high, p, answer, int(test.n)))
    names = ["rank_a", "rank_b", "a", "b", "difference", "difference_low", "difference_high"]
    frame = pd.DataFrame(rows, columns=[*names, "p", "significant", "samples"])
    frame = frame.sort_values(["rank_a", "rank_b"], ignore_index=True)
    more = len(frame) - MOST_TESTS
    left_out = ""
    if more > 0:
        left_out = f" {more} more pairs, further down the ranking, are in `heatproof.statistics.paired_tests`."
    yield Table(
        key="tests",
        title="Paired tests",
        caption="Differences on the samples and perturbations that both methods retain; sign flips, corrected for all "
        f"pairs, and simultaneous intervals. Below 8 samples nothing is tested.{left_out}",
        rows=frame.head(MOST_TESTS),
        columns={
            "a": "Method",
            "b": "Compared with",
            "difference": "Difference",
            "p": "p",
            "significant": "Significant",
            "samples": "Samples",
        },
    )


def _noise_floors(result: AxisResult, cells: pd.DataFrame) -> Iterator[Table]:
    """Yield the table of noise floors: how alike two maps of one input are that differ in the method's random draws."""
    noisy = cells[cells["noise_floor"].notna()].drop_duplicates("explainer")
    if noisy.empty:
        return
    raw = cells.groupby("explainer", sort=False)["mean"].mean()
    yield Table(
        key="floor",
        title="Noise floor",
        caption="FASS of two random draws on the same input, beside the mean raw score under perturbation, where both "
        "maps share their draws.",
        rows=noisy.assign(perturbed=noisy["explainer"].map(raw)),
        columns={
            "explainer": "Method",
            "noise_floor": "Two draws",
            "perturbed": "Perturbed (raw)",
        },
    )


# ---- concepts, examples, and balls ---------------------------------------------------------------------------------------


def _vector_chart(result: AxisResult) -> Iterator[ScoreChart]:
    """Yield the similarity of explanations by concepts and examples, overall and under every perturbation."""
    cells = result.cells(SIMILARITY)
    if cells.empty or not bool(cells["score"].notna().any()):
        return
    ranking = result.overall(SIMILARITY)
    overall = ranking.assign(panel="All perturbations", note=_rank_texts(ranking))
    frames = [overall[overall["score"].notna()]]
    frames.append(cells.assign(panel=cells["condition_title"], note=_pairs_kept(cells)))
    yield ScoreChart(
        key="vectors",
        title="Stability of concept and example explanations",
        caption="Cosine of the scores before and after the change, of categories the share that agrees; calibrated where "
        "there are other samples to compare with (0: explanations of different samples). Means over the inputs whose "
        "prediction stays, with 95 % intervals.",
        scores=pd.concat(frames, ignore_index=True),
        limits=UNIT,
    )


def _ball_charts(result: AxisResult) -> Iterator[ScoreChart]:
    """Yield sensitivity, local Lipschitz and relative stability, a panel for each that was measured."""
    frames = []
    for measure in BALL_MEASURES:
        if measure.name in result.arrays.values:
            scores = result.overall(measure.name)
            scores = scores[scores["score"].notna()]
            frames.append(scores.assign(panel=measure.title, above_chance=True))
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return
    scores = pd.concat(frames, ignore_index=True)
    radius, draws = result.settings.get("radius"), result.settings.get("draws")
    yield ScoreChart(
        key="ball",
        title="Changes in a small ball",
        caption=f"Over {draws} draws at most {radius} away in every value; lower is better. Sensitivity and Lipschitz take "
        "every draw, relative stability those that keep the prediction. Means over samples with 95 % intervals.",
        scores=scores,
        shared_scale=False,
        log_x=spans_decades(scores["score"]),
    )


# ---- several models and data sets ------------------------------------------------------------------------------------


def across(results: Sequence[AxisResult]) -> Iterator[Component]:
    """Yield the tables of the FASS paper over all models and data sets."""
    measured = [result for result in results if not result.cells(FASS).empty]
    if not measured:
        return
    scored = [result for result in measured if result.cells(FASS)["score"].notna().any()]
    if scored:
        yield _component_table(scored)
        yield from _score_tables(scored)
    shares = _all_shares(measured)
    yield _retention_by_perturbation(shares)
    if shares["dataset"].nunique() > 1:
        yield _retention_by_dataset(shares)
    yield from _retention_by_model(shares)


def _component_table(results: Sequence[AxisResult]) -> Matrix:
    """Return the components of every method, a group of rows per model and data set."""
    subjects_of_results = subjects([result.arrays for result in results])
    frames = [
        paper_scores(result, bold=True).assign(row_group=subject)
        for result, subject in zip(results, subjects_of_results, strict=True)
    ]
    columns = max((_columns_text(result) for result in results), key=len)
    return Matrix(
        key="components",
        title="Stability of attribution methods",
        caption=f"Means over perturbations and retained pairs. {columns} {BOLD}",
        scores=pd.concat(frames, ignore_index=True),
        shaded=False,
        paper="FASS, Table 4",
    )


def _score_tables(results: Sequence[AxisResult]) -> Iterator[Matrix]:
    """Yield a table per data set: a row per method and a column per perturbation; with several models a row for each."""
    by_dataset = _by_dataset(results)
    for dataset, of_dataset in by_dataset.items():
        several_models = len(of_dataset) > 1
        frames = []
        for result, model in zip(of_dataset, _model_names(of_dataset), strict=True):
            cells = result.mark_best(result.cells(FASS))
            cells["column"] = cells["condition_title"]
            cells["row"] = model if several_models else cells["explainer"]
            cells["row_group"] = cells["explainer"] if several_models else ""
            frames.append(cells)
        scores = pd.concat(frames, ignore_index=True)
        if several_models:
            scores = _grouped(scores, "explainer")
        is_calibrated = any(result.arrays.is_calibrated(FASS) for result in of_dataset)
        yield Matrix(
            key="scores" if len(by_dataset) == 1 else f"scores-{file_part(dataset)}",
            title=f"{'Calibrated FASS' if is_calibrated else 'FASS'} by perturbation: {dataset}",
            caption=f"{CALIBRATED if is_calibrated else 'Raw scores.'} {BOLD}",
            scores=scores,
            shaded=False,
            row_title="Model" if several_models else "Method",
            paper="FASS, appendix tables",
        )


def _by_dataset(results: Sequence[AxisResult]) -> dict[str, list[AxisResult]]:
    by_dataset: dict[str, list[AxisResult]] = {}
    for result in results:
        by_dataset.setdefault(result.dataset, []).append(result)
    return by_dataset


def _model_names(results: Sequence[AxisResult]) -> list[str]:
    """Return the model of each result of one data set, with the evaluation where a model has several."""
    models = [result.model for result in results]
    if len(set(models)) == len(models):
        return models
    return [f"{result.model}, {result.label}" for result in results]


def _grouped(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return rows with those of one value together, values in the order in which they first appear."""
    order = {name: number for number, name in enumerate(dict.fromkeys(rows[column]))}
    return rows.sort_values(
        column, key=lambda names: names.map(order), kind="stable", ignore_index=True
    )


def _all_shares(results: Sequence[AxisResult]) -> pd.DataFrame:
    """Return the retention of every data set, model and perturbation."""
    frames = [
        retention(result).assign(dataset=result.dataset, model=result.model) for result in results
    ]
    shares = pd.concat(frames, ignore_index=True)
    # Two evaluations of one model may share a perturbation; the predictions are then the same.
    return shares.drop_duplicates(["dataset", "model", "condition", "level"], ignore_index=True)


def _retention_by_perturbation(shares: pd.DataFrame) -> Matrix:
    """Return the retention under each perturbation: of one model with intervals, of several their mean and spread."""
    if len(shares[["dataset", "model"]].drop_duplicates()) == 1:
        scores = shares.assign(row=shares["condition_title"], column="Retained")
        caption = "The share of inputs whose predicted class stays, with exact 95 % intervals."
    else:
        scores = _spread(shares, "condition_title")
        caption = (
            "The share of inputs whose predicted class stays: mean, standard deviation and range over all models and data "
            "sets."
        )
    return Matrix(
        key="retention-perturbations",
        title="Retention by perturbation",
        caption=caption,
        scores=scores,
        shaded=False,
        percent=True,
        row_title="Perturbation",
        paper="FASS, Table 2",
    )


def _retention_by_dataset(shares: pd.DataFrame) -> Matrix:
    """Return the retention of each data set, over models and perturbations."""
    return Matrix(
        key="retention-datasets",
        title="Retention by data set",
        caption="The share of inputs whose predicted class stays: mean, standard deviation and range over models and "
        "perturbations.",
        scores=_spread(shares, "dataset"),
        shaded=False,
        percent=True,
        row_title="Data set",
        paper="FASS, Table 3",
    )


def _spread(shares: pd.DataFrame, row: str) -> pd.DataFrame:
    """Return mean, standard deviation, lowest and highest share for each value of a column, as cells of a matrix."""
    by_row = shares.groupby(row, sort=False)["score"]
    columns = {
        "Mean": by_row.mean(),
        "Std": by_row.std(),
        "Lowest": by_row.min(),
        "Highest": by_row.max(),
    }
    frames = [
        pd.DataFrame({"row": values.index, "column": name, "score": values.to_numpy()})
        for name, values in columns.items()
    ]
    return pd.concat(frames, ignore_index=True)


def _retention_by_model(shares: pd.DataFrame) -> Iterator[Matrix]:
    """Yield for each data set the retention of every model under every perturbation."""
    several_datasets = shares["dataset"].nunique() > 1
    for dataset, of_dataset in shares.groupby("dataset", sort=False):
        yield Matrix(
            key="retention-models" + (f"-{file_part(str(dataset))}" if several_datasets else ""),
            title=f"Retention by model and perturbation: {dataset}",
            caption="The share of inputs whose predicted class stays, with exact 95 % intervals.",
            scores=of_dataset.assign(row=of_dataset["model"], column=of_dataset["condition_title"]),
            shaded=False,
            percent=True,
            row_title="Model",
            paper="FASS, appendix tables",
        )
