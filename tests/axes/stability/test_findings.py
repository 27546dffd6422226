"""Findings of stability: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heatproof.axes.stability.report import MOST_DOTS, findings, lead
from heatproof.report.components import Component, CurveChart, Matrix, ScoreChart
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.reports import components_across, components_of
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import axis_results
from support import synthetic
from support.manifests import manifest_of

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
JPEG = (("jpeg", 40.0),)
N = 40
NOBODY = pd.DataFrame(columns=["dataset", "model", "sample", "error"])


def study(explainers: dict[str, Any] | None = None, **sections: Any) -> Manifest:
    stability: dict[str, Any] = {"evaluations": {"stability": {}}}
    return manifest_of({"explainers": explainers or {}, **stability, **sections})


def result_of(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    references: pd.DataFrame | None = None,
) -> AxisResult:
    (result,) = axis_results(table, NOBODY, [], manifest or manifest_of(), references)
    return result


def of(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    references: pd.DataFrame | None = None,
) -> list[Finding]:
    """All findings; one that comes twice is a mistake."""
    given = list(findings(result_of(table, manifest, references)))
    assert len({(f.title, f.explainers) for f in given}) == len(given)
    assert all(f.seen and f.means and f.do and f.title and f.axis == "stability" for f in given)
    assert not [f for f in given if "{" in f.title + f.means or "  " in f.seen + f.means + f.do]
    return given


def by_key(result: AxisResult) -> dict[str, Component]:
    """The components of a result by their keys, which are unique."""
    listed = components_of(result)
    keyed = {component.key: component for component in listed}
    assert len(keyed) == len(listed)
    return keyed


def across(*results: AxisResult) -> dict[str, Matrix]:
    """The tables of several results by their keys."""
    tables = {one.key: one for one in components_across(results) if isinstance(one, Matrix)}
    assert len(tables) == len(components_across(results))
    return tables


def by_rule(given: list[Finding], rule: str) -> list[Finding]:
    """The findings of this rule."""
    return [finding for finding in given if finding.rule == rule]


def held(quality: dict[str, float], n: int = N, **options: Any) -> pd.DataFrame:
    settings = {"conditions": SHORT, "flip": 0.0, "undefined": 0.0, "stochastic": (), **options}
    return synthetic.table(quality, samples=n, model="net", **settings)


def noisy(centre: float, width: float, seed: int = 0, n: int = N) -> np.ndarray:
    draws = np.random.default_rng(seed).normal(0, width, n)
    return centre + draws - draws.mean()


def test_a_good_run_gives_no_cause_to_act() -> None:
    given = of(held({"a": 0.9, "b": 0.7, "random": 0.0}))
    (alone,) = given
    assert alone.severity == "note" and alone.rule == "no-faithfulness"
    assert "faithfulness" in alone.change["evaluations"]
    both = study(evaluations={"stability": {}, "mine": {"name": "faithfulness"}})
    assert of(held({"a": 0.9, "b": 0.7}), both) == []


def test_maps_at_chance_are_told_from_wide_intervals() -> None:
    (given,) = by_rule(of(held({"good": 0.6, "blind": 0.0, "random": 0.0})), "near-chance")
    assert (given.severity, given.explainers) == ("problem", ("blind",)) and "blind " in given.seen
    wide = held({"good": 0.6, "b": 0.05}, n=12)
    scores = wide["explainer"] == "b"
    wide.loc[scores, "value"] += np.tile(np.linspace(-0.4, 0.4, 12), int(scores.sum()) // 12)
    row = result_of(wide).ranking.set_index("explainer").loc["b"]
    assert row["low"] < 0 and row["high"] > 0.1
    assert not by_rule(of(wide), "near-chance")


def test_chance_under_one_perturbation_names_it_and_a_sweep() -> None:
    table = held({"a": 0.5, "integrated_gradients": 0.5})
    own = (table["explainer"] == "integrated_gradients") & (table["condition"] == "jpeg")
    for measure in ("ssim", "spearman", "jaccard", "fass"):
        of_measure = own & (table["measure"] == measure)
        table.loc[of_measure, "value"] = table.loc[of_measure, "chance"] + noisy(0.0, 0.005)
    (card,) = by_rule(of(table), "near-chance-under-change")
    assert card.explainers == ("integrated_gradients",) and "jpeg quality 40" in card.title
    (advised,) = card.change["evaluations"]
    assert advised["stability"]["perturbations"] == {"jpeg": {"quality": [94, 85, 70, 40]}}


@pytest.mark.parametrize(
    ("component", "rule"),
    [
        ("ssim", "spatial-failure"),
        ("spearman", "ordinal-failure"),
        ("jaccard", "salient-failure"),
    ],
)
def test_the_component_that_gives_way_is_the_diagnosis(component: str, rule: str) -> None:
    table = held({"a": 0.7, "b": 0.7}, conditions=JPEG)
    own = (table["explainer"] == "a") & (table["measure"] == component)
    table.loc[own, "value"] = synthetic.CHANCE[component] + (
        1 - synthetic.CHANCE[component]
    ) * noisy(0.2, 0.05)
    cards = [f for f in of(table, study({"a": {"name": "lime"}})) if f.rule.endswith("-failure")]
    assert [(card.rule, card.explainers) for card in cards] == [(rule, ("a",))]
    if component == "jaccard":
        assert cards[0].change["evaluations"] == [{"stability": {"k": 0.05}}], "of images"
    table.loc[own, "value"] = synthetic.CHANCE[component] + (
        1 - synthetic.CHANCE[component]
    ) * noisy(0.6, 0.05)
    cards = [f for f in of(table) if f.rule.endswith("-failure")]
    assert not cards, "lower than the others, but not low"


def test_random_draws_say_which_parameter_to_raise() -> None:
    table = held({"lime": 0.4, "b": 0.5}, conditions=JPEG, stochastic=("lime",))
    redraw = table["condition"] == "redraw"
    table.loc[redraw, "value"] = np.tile(noisy(0.55, 0.02), int(redraw.sum()) // N)
    manifest = study({"lime": {"name": "lime", "samples": 32}})
    (card,) = by_rule(of(table, manifest), "noisy-draws")
    assert card.severity == "problem", "0.55 against pairs at about 0.62"
    assert card.change == {"explainers": [{"lime": {"samples": 128}}]}
    table.loc[redraw, "value"] = np.tile(noisy(0.75, 0.02), int(redraw.sum()) // N)
    assert [one.severity for one in by_rule(of(table, manifest), "noisy-draws")] == ["warning"]
    table.loc[redraw, "value"] = np.tile(noisy(0.97, 0.02), int(redraw.sum()) // N)
    assert not by_rule(of(table, manifest), "noisy-draws")


def test_retention_undefined_maps_and_alignment() -> None:
    given = of(
        held(
            {"grad_cam": 0.6, "b": 0.5},
            conditions=(("rotation", 15.0),),
            n=60,
            flip=0.9,
            undefined=0.4,
        )
    )
    (lost,) = by_rule(given, "low-retention")
    assert "rotation 15°" in lost.title
    table = held({"grad_cam": 0.6, "b": 0.5}, n=60)
    assert not by_rule(of(table), "low-retention")
    lost_rows = (table["explainer"] == "grad_cam") & table["sample"].isin(
        [f"img/{i:04d}.jpg" for i in range(20)]
    )
    table.loc[lost_rows, ["value", "status", "reason"]] = [np.nan, "undefined", "constant map"]
    (card,) = by_rule(of(table), "undefined-maps")
    assert (card.severity, card.explainers) == ("problem", ("grad_cam",))
    assert "Grad-CAM 40 of 120 (constant map)" in card.seen
    bare = table[~table["measure"].str.endswith("_unaligned")]
    (moved,) = by_rule(of(bare), "unaligned-maps")
    assert moved.severity == "problem"
    assert not by_rule(of(table), "unaligned-maps")


@pytest.mark.parametrize("count", [1, 2, 12])
def test_verdict_reads_well_with_any_number_of_methods(count: int) -> None:
    quality = {f"m{i:02d}": 0.0 if i else 0.5 for i in range(count)} | {"random": 0.0, "sobel": 0.9}
    said = lead(result_of(held(quality, n=20)))
    assert all(s.endswith(".") and len(s) < 400 for s in said)
    text = " ".join(said)
    assert "Edge filter" in text
    assert "Random" not in text, "chance is what the score is calibrated by"
    if count > 1:
        (at_chance,) = [s for s in said if "ot significantly above chance" in s]
        assert "m00" not in at_chance and re.search(r"m\d\d", at_chance)
        assert bool(re.search(r"\d+ more", at_chance)) == (count == 12)


def test_a_score_below_chance_is_reported_with_its_interval() -> None:
    table = held({"a": 0.5, "b": 0.3}, conditions=JPEG)
    own = (table["explainer"] == "b") & (table["measure"] == "fass")
    table.loc[own, "value"] = noisy(0.2, 0.01)
    (card,) = [f for f in of(table) if "chance" in f.rule]
    (row,) = result_of(table).overall("fass").query("explainer == 'b'").to_dict("records")
    assert card.explainers == ("b",) and row["high"] < 0
    assert f"−{abs(row['score']):.2f}" in card.seen


def test_what_has_a_finding_of_its_own_is_not_told_twice() -> None:
    table = synthetic.table({"a": 0.0, "b": 0.3, "lime": 0.2}, samples=20)
    table.loc[(table["explainer"] == "b") & (table["condition"] == "jpeg"), ["value", "status"]] = [
        np.nan,
        "undefined",
    ]
    given = of(table)
    (missing,) = by_rule(given, "missing-conditions")
    assert [re.findall(r"\d+", item) for item in missing.items] == [["4", "5"]]
    assert missing.items[0].startswith("b")
    (undefined,) = by_rule(given, "undefined-maps")
    assert [item for item in undefined.items if item.startswith("b: ")]
    (few,) = by_rule(given, "few-pairs")
    assert any("jpeg quality 40" in item and "0 of 20" in item for item in few.items)
    hardly = any("a" in one.explainers for one in by_rule(given, "near-chance"))
    listed = [
        i for one in by_rule(given, "not-above-chance") for i in one.items if i.startswith("a, ")
    ]
    assert hardly != bool(listed)
    (draws,) = by_rule(given, "noisy-draws")
    assert "lime" in draws.explainers


def test_scores_that_reach_chance_are_listed() -> None:
    table = held({"good": 0.6, "b": 0.05}, n=15)
    scores = table["explainer"] == "b"
    table.loc[scores, "value"] += np.tile(np.linspace(-0.4, 0.4, 15), int(scores.sum()) // 15)
    (card,) = by_rule(of(table), "not-above-chance")
    assert card.explainers == ("b",) and len(card.items) == len(SHORT)
    assert all(item.startswith("b, ") for item in card.items)


def test_controls_without_a_map_are_told_too() -> None:
    table = held({"a": 0.6, "random": 0.0}, conditions=JPEG)
    own = table["explainer"] == "random"
    table.loc[own & (table["sample"] == "img/0000.jpg"), ["value", "status", "reason"]] = [
        np.nan,
        "undefined",
        "flat",
    ]
    (card,) = by_rule(of(table), "undefined-maps")
    (item,) = card.items
    assert (card.severity, card.explainers) == ("warning", ())
    assert "Random map" in item and "1" in item and "flat" in item


def test_steady_draws_are_no_finding() -> None:
    table = held({"lime": 0.4, "b": 0.5}, conditions=JPEG, stochastic=("lime",))
    table.loc[table["condition"] == "redraw", "value"] = np.tile(
        noisy(0.97, 0.02), (table["condition"] == "redraw").sum() // N
    )
    assert not by_rule(of(table), "noisy-draws")


def test_series_and_tables_are_not_called_pictures() -> None:
    for kind, sample in (("series", "series"), ("table", "row"), ("image", "picture")):
        manifest = study(tasks={"photos": {"net": {"modality": kind}}})
        (card,) = by_rule(of(held({"good": 0.6, "blind": 0.0}), manifest), "near-chance")
        assert sample in card.means


def test_without_fass_there_is_nothing_to_find_or_to_draw() -> None:
    table = held({"a": 0.9, "b": 0.7})
    (result,) = axis_results(
        table[~table["measure"].str.startswith("fass")], NOBODY, [], manifest_of()
    )
    assert list(findings(result)) == [] and by_key(result) == {}
    assert "score" in " ".join(lead(result))


def matrix(result: AxisResult, key: str) -> pd.DataFrame:
    """The scores of a matrix: rows by columns."""
    component = by_key(result)[key]
    assert isinstance(component, Matrix)
    return pivoted(component)


def pivoted(table: Matrix) -> pd.DataFrame:
    index = ["row_group", "row"] if "row_group" in table.scores else "row"
    return table.scores.pivot(index=index, columns="column", values="score")


def test_fass_is_shown_as_the_paper_computes_it() -> None:
    table = held({"a": 0.6, "b": 0.3})
    result = result_of(table)
    rows = table[table["explainer"] == "a"].set_index("condition")
    jpeg = rows[rows["measure"] == "fass"].loc["jpeg", "value"].mean()
    rotation = rows[rows["measure"] == "fass_unaligned"].loc["rotation", "value"].mean()
    shown = matrix(result, "paper").loc["a"]
    assert shown["FASS"] == pytest.approx((jpeg + rotation) / 2)
    assert shown["Calibrated"] == pytest.approx(
        result.overall("fass").set_index("explainer").loc["a", "score"]
    )
    assert shown["Aligned"] > shown["Unaligned"]
    caption = by_key(result)["paper"].caption
    assert "rotation 15°" in caption and "jpeg" not in caption

    unmoved = matrix(result_of(held({"a": 0.6, "b": 0.3}, conditions=JPEG)), "paper")
    assert not {"Aligned", "Unaligned"} & set(unmoved.columns), "nothing was moved"


def test_tables_of_the_paper_hold_the_scores_of_their_conditions() -> None:
    table = held({"a": 0.6, "b": 0.3, "random": 0.0})
    result = result_of(table)
    raw = table[table["measure"] == "jaccard"]
    is_jpeg = (raw["explainer"] == "a") & (raw["condition"] == "jpeg")
    kinds = matrix(result, "kinds")
    (compression,) = {group for group, _ in kinds.index if group.startswith("compression")}
    assert kinds.loc[(compression, "a"), "Jac."] == pytest.approx(raw.loc[is_jpeg, "value"].mean())
    means = kinds.loc[(compression, "mean over methods"), "FASS"]
    of_methods = [kinds.loc[(compression, name), "FASS"] for name in ("a", "b")]
    assert means == pytest.approx(np.mean(of_methods)), "without the control"

    cells = result.cells("fass").set_index(["explainer", "condition_title"])["score"]
    table = across(result)["scores"].scores
    scores = table.set_index(["row", "column"])["score"]
    assert scores["b", "jpeg quality 40"] == pytest.approx(cells["b", "jpeg quality 40"])
    assert set(table.loc[table["best"], "row"]) == {"a"}


def test_retention_is_tabled_by_perturbation_data_set_and_model() -> None:
    results = []
    for dataset, model, flip in (("d1", "m1", 0.0), ("d1", "m2", 0.5), ("d2", "m1", 0.25)):
        table = synthetic.table(
            {"a": 0.5, "b": 0.4}, SHORT, samples=40, flip=flip, dataset=dataset, model=model
        )
        results += axis_results(table, NOBODY, [], manifest_of())
    tables = across(*results)
    shares = []
    for result in results:
        cells = result.cells("fass").drop_duplicates("condition_title")
        share = 1 - cells["flipped"] / cells["attempted"]
        shares.append(cells.assign(share=share)[["dataset", "model", "condition_title", "share"]])
    expected = pd.concat(shares)

    by_perturbation = tables["retention-perturbations"].scores
    means = by_perturbation[by_perturbation["column"] == "Mean"].set_index("row")["score"]
    for title, rows in expected.groupby("condition_title"):
        assert means[title] == pytest.approx(rows["share"].mean())
    by_dataset = tables["retention-datasets"].scores
    means = by_dataset[by_dataset["column"] == "Mean"].set_index("row")["score"]
    assert means["d1"] == pytest.approx(expected.query("dataset == 'd1'")["share"].mean())
    models = tables["retention-models-d1"].scores
    assert set(models["row"]) == {"m1", "m2"} and set(models["low"] < models["score"]) == {True}
    scores = tables["scores-d1"].scores
    assert set(scores["row_group"]) == {"a", "b"} and set(scores["row"]) == {"m1", "m2"}


def test_a_sweep_has_a_curve_per_method_and_the_predictions_kept() -> None:
    levels = (("jpeg", 20.0), ("jpeg", 40.0))
    result = result_of(held({"a": 0.5, "b": 0.3}, 12, conditions=levels))
    chart = by_key(result)["severity-0"]
    assert isinstance(chart, CurveChart) and chart.references is not None
    assert chart.points.groupby("explainer")["x"].agg(list).to_dict() == {
        "a": [20.0, 40.0],
        "b": [20.0, 40.0],
    }
    assert chart.references["score"].tolist() == [1.0, 1.0]


def test_with_many_scores_the_chart_has_the_overall_ones() -> None:
    for count, panels in ((2, 1 + len(SHORT)), (MOST_DOTS // len(SHORT) + 1, 1)):
        result = result_of(held({f"m{i}": 0.5 for i in range(count)}, 8))
        chart = by_key(result)["scores"]
        assert isinstance(chart, ScoreChart) and chart.scores["panel"].nunique() == panels
        assert len(matrix(result, "map")) == count


def test_predictions_kept_do_not_depend_on_the_explainers() -> None:
    chart = by_key(result_of(held({"a": 0.5}, 40, flip=0.5)))["retention"]
    assert isinstance(chart, ScoreChart)
    other = by_key(result_of(held({"a": 0.5, "b": 0.2}, 40, flip=0.5, undefined=0.3)))["retention"]
    assert isinstance(other, ScoreChart)
    assert chart.scores["condition_title"].tolist() == other.scores["condition_title"].tolist()
    assert chart.scores["attempted"].tolist() == [40, 40]
