"""Faithfulness in the report: the numbers of the components are those of the table, and odd data is no accident."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof.axes.faithfulness import AXIS, report, summaries
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.retraining.leakage import leakage_summary
from heatproof.evaluation import GalleryItem
from heatproof.report.components import Component, CurveChart, Gallery, Matrix
from heatproof.report.images import Album
from heatproof.report.page import build_report
from heatproof.report.sections import sections_of
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import components_of
from heatproof.runs.gallery import read_gallery
from heatproof.runs.results import axis_results
from heatproof.runs.tables import read_samples
from support.faithfulness import FRACTIONS, IMPUTERS, SKILL, N, axis_of, leaking, made_up
from support.manifests import manifest_of
from support.pages import NASTY, Page
from support.small import model, pictures
from support.synthetic import Entry, rows_of

ONE = ("noisy_linear",)
METRIC = {measure.name: measure for measure in summaries.HEADLINES}


def retrained(
    names: Sequence[str] = ("grad_cam", "saliency", "lime"), repeats: int = 2
) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    frames = []
    for repeat in range(repeats):
        entries: list[Entry] = []
        for name in names:
            for imputer in IMPUTERS:
                for order, accuracy in (("morf", 0.4), ("lerf", 0.8)):
                    for fraction in (0.1, 0.5):
                        is_right = (generator.random(N) < accuracy).astype(float)
                        place = (name, "accuracy", f"{imputer} {order}", fraction)
                        entries.append((*place, is_right))
        frames.append(rows_of(entries, "retraining", repeat=repeat))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(autouse=True, scope="module")
def few_draws() -> Iterator[None]:
    """The intervals of correlations are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "consistency", partial(consistency, resamples=100))
        yield


def components(result: AxisResult) -> dict[str, Any]:
    found: list[Component] = components_of(result)
    keys = [component.key for component in found]
    assert len(set(keys)) == len(keys)
    return {component.key: component for component in found}


@lru_cache(maxsize=1)
def whole() -> tuple[AxisResult, dict[str, Any]]:
    """Made-up rows without retraining, and the components of them."""
    result = axis_of(made_up())
    return result, components(result)


def points_of(chart: CurveChart, explainer: str, curve: str, panel: str) -> pd.DataFrame:
    points = chart.points
    is_here = (points["explainer"] == explainer) & (points["curve"] == curve)
    return points[is_here & (points["panel"] == panel)]


def test_curves_are_the_means_of_the_table() -> None:
    table = made_up()
    by_place = table.groupby(["measure", "condition", "explainer", "level"])
    means, chance = by_place["value"].mean(), by_place["chance"].mean()
    drawn = whole()[1]
    starts = {"probability": 0.9, "accuracy": 1.0}  # the whole input
    for key, measure in (("curves", "probability"), ("curves-accuracy", "accuracy")):
        chart = drawn[key]
        assert list(dict.fromkeys(chart.points["panel"])) == ["noisy linear", "zero"]
        for imputer, panel in (("noisy_linear", "noisy linear"), ("zero", "zero")):
            for order, curve in (("morf", "MoRF"), ("lerf", "LeRF")):
                for explainer in SKILL:
                    points = points_of(chart, explainer, curve, panel)
                    expected = means[measure, f"{imputer} {order}", explainer]
                    assert points["x"].tolist() == [0.0, *FRACTIONS]
                    assert points["score"].iloc[0] == pytest.approx(starts[measure])
                    np.testing.assert_allclose(points["score"][1:], expected.to_numpy())
            references = chart.references[chart.references["panel"] == panel]
            expected = chance[measure, f"{imputer} morf", "lime"]
            np.testing.assert_allclose(references["score"][1:], expected.to_numpy())


def test_curves_have_the_intervals_of_the_summary() -> None:
    result, drawn = whole()
    cells = result.summary
    is_here = (cells["explainer"] == "grad_cam") & (cells["condition"] == "noisy_linear morf")
    cells = cells[is_here & (cells["measure"] == "probability")].sort_values("level")
    points = points_of(drawn["curves"], "grad_cam", "MoRF", "noisy linear")
    np.testing.assert_allclose(points[["low", "high"]][1:], cells[["low", "high"]])


def test_the_first_readout_is_the_one_that_was_asked_for() -> None:
    entries: list[Entry] = [
        ("grad_cam", measure, f"zero {order}", fraction, np.full(4, 4 + sign * fraction))
        for order, sign in (("morf", -1), ("lerf", 1))
        for fraction in (0.1, 0.5)
        for measure in ("margin", "logit")
    ]
    drawn = components(axis_of(rows_of(entries), {"readout": "logit"}))
    assert drawn["curves"].y_label == "logit" and drawn["curves-margin"].y_label == "margin"
    # Numbers from 3.5 to 4.5 on a scale that holds 0, so that a small fall looks small.
    assert 0.0 in drawn["curves"].limits


def test_metrics_are_the_means_of_the_table_best_first() -> None:
    table = made_up()
    result = whole()[0]
    for measure in METRIC.values():
        scores = summaries.metric_scores(result, measure)
        if scores.empty:
            continue
        first_panel = scores[scores["panel"] == scores["panel"].iloc[0]]
        assert first_panel["explainer"].iloc[0] == "grad_cam", measure.name
        assert first_panel["explainer"].iloc[-1] == "random", measure.name
    scores = summaries.metric_scores(result, METRIC["deletion_auc"])
    own = table[(table["measure"] == "deletion_auc") & (table["condition"] == "zero")]
    zero = scores[scores["panel"] == "zero"].set_index("explainer")
    expected = own.groupby("explainer")["value"].mean()
    pd.testing.assert_series_equal(
        zero["score"], expected, check_names=False, check_like=True, check_index_type=False
    )
    assert zero["chance"].to_numpy() == pytest.approx(own["chance"].mean())


def test_every_share_of_sensitivity_n_has_a_number_and_accuracy_is_a_mean_over_fractions() -> None:
    result, drawn = whole()
    names = list(summaries.readings(result, METRIC["sensitivity_n"]))
    assert [name.split()[-1] for name in names] == ["0.1", "0.5"]
    assert list(summaries.readings(result, METRIC["road_morf_accuracy"])) == [
        "noisy linear",
        "zero",
    ]
    table = made_up()
    own = table[(table["measure"] == "road_morf_accuracy") & (table["condition"] == "zero")]
    cells = drawn["scores"].scores
    is_here = cells["column"].str.startswith(METRIC["road_morf_accuracy"].title)
    cells = cells[is_here & (cells["column_group"] == "zero")].set_index("row")["score"]
    expected = own.groupby("explainer")["value"].mean()
    for explainer in SKILL:
        assert cells[explainer] == pytest.approx(expected[explainer])


def test_controls_are_never_bold_and_the_clear_winner_is() -> None:
    cells = whole()[1]["scores"].scores
    assert not cells.loc[cells["row"] == "random", "best"].any()
    road = cells[(cells["measure"] == "road") & cells["best"]]
    assert set(road["row"]) == {"grad_cam"}


def test_a_metric_without_a_random_order_has_no_hollow_dots() -> None:
    chart = whole()[1]["metrics-log"]
    assert chart.log_x and set(chart.scores["measure"]) == {"infidelity"}
    assert chart.scores["above_chance"].all()


def test_the_matrix_holds_what_consistency_says() -> None:
    table = pd.concat([made_up(), retrained()], ignore_index=True)
    drawn = components(axis_of(table))
    assert "consistency" in drawn
    cells = drawn["consistency-accuracy"].scores
    cells = cells.set_index(["row_group", "row", "column_group", "column"])["score"]
    pairs = consistency(table, "accuracy", every_pair=True, resamples=100)
    pairs = pairs[pairs["level"].isna()].set_index(["evaluation", "a", "b"])["spearman"]
    expected = {
        ("MoRF", "zero", "LeRF", "zero"): ("faithfulness", "zero morf", "zero lerf"),
        ("MoRF", "zero", "Retrained MoRF", "zero"): (
            "faithfulness",
            "faithfulness: zero morf",
            "retraining: zero morf",
        ),
        ("LeRF", "noisy linear", "LeRF", "zero"): (
            "faithfulness",
            "noisy_linear lerf",
            "zero lerf",
        ),
        ("MoRF", "noisy linear", "LeRF", "zero"): (
            "faithfulness",
            "noisy_linear morf",
            "zero lerf",
        ),
    }
    for cell, pair in expected.items():
        assert cells[cell] == pytest.approx(pairs[pair], nan_ok=True), cell
        mirrored = (*cell[2:], *cell[:2])
        assert cells[mirrored] == pytest.approx(pairs[pair], nan_ok=True), cell
    diagonal = [number for cell, number in cells.items() if cell[:2] == cell[2:]]
    assert diagonal and np.isnan(diagonal).all()


def test_pairs_that_differ_in_several_respects_are_compared_on_request_only() -> None:
    pairs = consistency(made_up(), resamples=20)
    every = consistency(made_up(), resamples=20, every_pair=True)
    assert set(every["kind"]) - set(pairs["kind"]) == {"several"}
    others = every[every["kind"] != "several"].reset_index(drop=True)
    pd.testing.assert_frame_equal(others, pairs)


def test_two_methods_have_no_rank_correlation() -> None:
    result = axis_of(made_up({"grad_cam": 0.5, "lime": 0.2, "random": 0.0}))
    assert "consistency" not in components(result)
    assert list(report.across([result])) == []


def test_the_leak_is_drawn_by_fraction_and_named_in_its_own_section() -> None:
    table = pd.concat([made_up(), leaking()], ignore_index=True)
    drawn = components(axis_of(table))
    summary = leakage_summary(leaking()).set_index("imputer")
    bits = drawn["leakage-mask-bits"].points.set_index("panel")["score"]
    assert bits["zero"] == pytest.approx(summary.loc["zero", "mask_bits"])
    recognised = drawn["imputation-predictor"].points.set_index("imputer")["score"]
    assert recognised.to_dict() == pytest.approx({"zero": 0.99, "noisy linear": 0.6})
    masks = drawn["mask-classifier"].points
    assert masks["score"].tolist() == pytest.approx([0.95]), (
        "the mask is the same for every imputer"
    )
    (alone,) = axis_results(
        leaking(), pd.DataFrame(columns=["dataset", "model"]), [], manifest_of()
    )
    assert report.lead(alone) == ["zero leaks the class through the shape of what is removed."], (
        "noisy linear hides the mask"
    )
    assert not any(key.startswith("leakage") for key in whole()[1])


def test_retrained_networks_have_curves_accuracies_and_a_cost() -> None:
    table = pd.concat([made_up(), retrained()], ignore_index=True)
    sessions = [{"durations": {"retraining": 400.0, "faithfulness": 2.0}}]
    sessions.append({"durations": {"retraining": 80.0}})
    drawn = components(axis_of(table, manifest=manifest_of(sessions=sessions)))
    rows = retrained()
    is_here = (rows["explainer"] == "lime") & (rows["condition"] == "zero lerf")
    expected = rows[is_here].groupby("level")["value"].mean()
    points = points_of(drawn["retraining"], "lime", "LeRF", "zero")
    np.testing.assert_allclose(points.set_index("x")["score"], expected)
    assert drawn["retraining"].points["explainer"].iloc[0] == "grad_cam", "the best comes first"

    accuracies = drawn["accuracies"].scores
    is_here = (accuracies["row"] == "Retrain LeRF, zero") & (accuracies["row_group"] == "lime")
    np.testing.assert_allclose(accuracies[is_here].set_index("column")["score"], expected)
    assert "No-Retrain MoRF, noisy linear" in set(accuracies["row"])

    cost = drawn["cost"].rows.set_index("strategy")
    networks = len(rows[["explainer", "condition", "level", "repeat"]].drop_duplicates())
    assert cost.loc["Retraining", ["seconds", "points"]].tolist() == [480.0, networks]
    assert cost.loc["Without retraining", "seconds"] == 2.0
    assert "cost" not in components(axis_of(table)), "no durations, no numbers"
    assert "cost" not in components(axis_of(made_up(), manifest=manifest_of(sessions=sessions)))


def test_tables_two_and_three_have_a_row_per_model() -> None:
    tables = [pd.concat([made_up(), retrained()], ignore_index=True) for _ in range(2)]
    results = [axis_of(table.assign(model=name)) for table, name in zip(tables, "ab", strict=True)]
    orders, retraining = report.across(results)
    assert isinstance(orders, Matrix) and isinstance(retraining, Matrix)
    assert (orders.figure, retraining.figure) == ("removal-orders", "removal-retraining")
    assert set(orders.scores["row"]) == {"a, photos", "b, photos"}
    assert "Retrain" in set(orders.scores["column_group"])
    assert set(retraining.scores["column_group"]) <= {"MoRF", "LeRF"}
    assert not orders.scores.duplicated(["row", "column_group", "column"]).any()


def test_accuracies_against_different_truths_are_not_compared() -> None:
    table = pd.concat([made_up(), retrained()], ignore_index=True)
    study = {"evaluations": {"retraining": {"against": "label"}}}
    result = axis_of(table, {"against": "prediction"}, manifest_of(study))
    pairs = summaries.strategy_correlations(result, "accuracy")
    assert len(pairs) and not pairs["b_retrained"].any()


def test_retrained_networks_alone_get_sections_of_their_own() -> None:
    table = pd.concat([retrained(), leaking()], ignore_index=True)
    samples = pd.DataFrame(
        {"dataset": ["photos"], "model": ["net"], "sample": ["s00"], "error": [""]}
    )
    both = pd.concat([made_up(imputers=ONE), table], ignore_index=True)
    for rows, titles in ((table, ["Retraining", "Leakage"]), (both, ["Faithfulness"])):
        (section,) = sections_of(
            axis_results(rows, samples, [], manifest_of()), samples, manifest_of(), Album()
        )
        assert [axis.result.title for axis in section.axes] == titles
        keys = [part.key for axis in section.axes for part in axis.parts]
        assert {"retraining", "mask-classifier", "consistency"} <= set(keys)
        assert len(set(keys)) == len(keys)
        assert ("ranking" in keys) == (titles == ["Faithfulness"])
        assert all(axis.lead for axis in section.axes)


def test_the_lead_follows_the_scores() -> None:
    result = axis_of(made_up())
    sentences = report.lead(result)
    means = result.summary.set_index(["measure", "condition", "explainer"])["mean"]
    best = np.mean([means["road", imputer, "grad_cam"] for imputer in IMPUTERS])
    assert sentences[0].startswith("Grad-CAM ") and f"{best:.2f}"[:4] in sentences[0]
    (scale,) = [sentence for sentence in sentences if METRIC["road"].title in sentence]
    assert "noisy linear" in scale and "zero" in scale and "random order" in scale
    tied = report.lead(axis_of(made_up({"a": 0.3, "b": 0.3, "c": 0.0}, ONE, 20)))
    without_brackets = re.sub(r" \([^()]*\)", "", tied[0])
    assert re.search(r"ndecided between (a and b|b and a)\b", without_brackets)
    assert any("above chance" in sentence and "c (" in sentence for sentence in tied)
    sobel = report.lead(axis_of(made_up({"a": 0.2, "sobel": 0.5}, ONE)))
    assert any("control Edge filter" in sentence for sentence in sobel)
    only = report.lead(axis_of(made_up({"random": 0.0, "sobel": 0.1}, ONE)))
    assert "controls" in only[0]


def test_the_metric_of_a_run_without_road_has_its_direction() -> None:
    table = made_up()
    result = axis_of(table[table["measure"] == "deletion_auc"])
    sentences = report.lead(result)
    assert sentences[0].startswith("Grad-CAM ")
    deletion = METRIC["deletion_auc"]
    assert any(deletion.title in sentence and "lower" in sentence for sentence in sentences)
    assert set(components(result)) == {"ranking", "scores"}
    gains = summaries.gains_over_random(
        result, deletion, summaries.readings(result, deletion)["zero"]
    )
    assert gains is not None
    own = table[(table["condition"] == "zero") & (table["measure"] == "deletion_auc")]
    fallen = (own["chance"] - own["value"]).groupby(own["explainer"]).mean()
    found = gains.set_index("explainer")["score"]
    assert (found.drop("random") > 0).all()
    pd.testing.assert_series_equal(found, fallen, check_names=False, check_like=True)


@pytest.mark.parametrize(("skill", "n"), [({"grad_cam": 0.5}, 1), ({"random": 0.0}, 2), (SKILL, 1)])
def test_few_of_everything(skill: dict[str, float], n: int) -> None:
    result = axis_of(made_up(skill, ONE, n))
    assert {"curves", "ranking", "metrics", "scores"} <= set(components(result))
    assert report.lead(result)


def test_undefined_maps_have_no_score() -> None:
    result = axis_of(made_up(imputers=ONE, lost="saliency"))
    assert "saliency" not in set(components(result)["ranking"].scores["explainer"])
    nothing = made_up(imputers=ONE, n=3)
    nothing["value"], nothing["status"], nothing["reason"] = np.nan, "undefined", "constant map"
    result = axis_of(nothing)
    assert components(result) == {}
    assert report.lead(result)


def test_retraining_without_any_score_draws_nothing() -> None:
    lost = retrained().assign(value=np.nan, status="undefined", reason="constant map")
    assert "retraining" in components(axis_of(pd.concat([made_up(), retrained()])))
    assert "retraining" not in components(axis_of(pd.concat([made_up(), lost])))


def test_hostile_names_are_inert() -> None:
    names = {"grad_cam": NASTY, "lime": "<b>bold</b>", "saliency": "saliency", "random": "random"}
    table = pd.concat([made_up(imputers=("zero",), n=3), retrained(), leaking()], ignore_index=True)
    table["explainer"] = table["explainer"].map(names)
    hostile = "<script>zero</script>"
    for column in ("condition", "imputer"):
        table[column] = table[column].str.replace("zero", hostile)
    image = np.full((8, 8, 3), 90, np.uint8)
    shown = [
        GalleryItem(
            "photos", "net", NASTY, f"{hostile} morf", f, NASTY, image, None, "faithfulness", NASTY
        )
        for f in (0.0, 0.5)
    ]
    samples = pd.DataFrame(
        {"dataset": ["photos"], "model": ["net"], "sample": ["s00"], "error": [""]}
    )
    samples = samples.assign(label=0, predicted=0, predicted_name="cat", probability=0.9)
    manifest = manifest_of(sessions=[{"durations": {"retraining": 9.0}}])
    page = Page(build_report(axis_results(table, samples, shown, manifest), samples, manifest))
    assert len(page.scripts) == 2
    assert not [a for tag, a in page.tags if tag == "img" and "onerror" in a]
    assert not [tag for tag, _ in page.tags if tag == "b" and "bold" in tag]


def stored(explainers: Sequence[str], sample: str = "a.png") -> list[GalleryItem]:
    """Stored pictures of the removal of half and of nine tenths, in the wrong order."""
    noise = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    mask = np.eye(16, dtype=np.float32)
    items = []
    for explainer in explainers:
        for f in (0.5, 0.0, 0.9):
            place = ("photos", "net", explainer, "zero morf", f, sample, noise)
            items.append(GalleryItem(*place, mask if f else None, note=f"cat {1 - f:.2f}"))
    return items


def removed(gallery: list[GalleryItem]) -> Gallery | None:
    return components(axis_of(made_up(n=2), gallery=gallery)).get("removed")


def test_the_pictures_show_one_sample_as_more_is_removed() -> None:
    gallery = removed([*stored(["lime", "grad_cam"]), *stored(["lime"], "b.png")])
    assert gallery is not None and gallery.figure == "removal-pictures"
    assert [(tile.item.explainer, tile.item.level) for tile in gallery.tiles] == [
        (explainer, level) for explainer in ("grad_cam", "lime") for level in (0.0, 0.5, 0.9)
    ], "in the order of the ranking"
    assert {tile.item.sample for tile in gallery.tiles} == {"a.png"}
    assert [tile.view for tile in gallery.tiles[:2]] == ["input", "input_and_mask"]
    assert gallery.tiles[1].note == "cat 0.50"
    assert removed([]) is None
    assert removed([item for item in stored(["lime"]) if not item.level]) is None


def test_a_real_run(tmp_path: Any) -> None:
    axis = {"faithfulness": {"imputers": ["zero"], "fractions": [0.3, 0.7], "masks": 8}}
    root = tmp_path / "run"
    run = heatproof.evaluate(model(), pictures(4, seed=3), ["saliency", "random"], [axis], root)
    samples = read_samples(root)
    results = axis_results(run.table(), samples, read_gallery(root), run.manifest)
    page = Page(build_report(results, samples, run.manifest))
    places = {a["id"] for _, a in page.tags if a.get("class") == "chart"}
    keys = {place.removeprefix("faithfulness-") for place in places}
    assert {"curves", "curves-accuracy", "ranking", "metrics"} <= keys
    words = " ".join(page.words)
    assert "30 %" in words and "70 %" in words, "there is a picture for each fraction"


def test_how_real_fillings_look_is_drawn_where_it_was_measured() -> None:
    told: list[Entry] = [("grad_cam", "detectability", "zero random", 0.5, np.ones(60))]
    drawn = components(axis_of(pd.concat([made_up(n=60), rows_of(told)])))
    (point,) = drawn["realism"].points.itertuples()
    assert (point.imputer, point.x, point.score) == ("zero", 0.5, 1.0)
    assert point.low == pytest.approx(0.94, abs=0.005)
    assert "realism" not in whole()[1]


def test_f_fidelity_has_curves_of_its_own() -> None:
    rows: list[Entry] = [
        (name, "accuracy", f"noisy_linear {order}", f, np.arange(24) % 2)
        for name in ("grad_cam", "lime")
        for order in ("morf", "lerf")
        for f in (0.1, 0.5)
    ]
    chart = components(axis_of(pd.concat([made_up(), rows_of(rows, "f_fidelity")])))["f-fidelity"]
    assert list(dict.fromkeys(chart.points["explainer"])) == ["grad_cam", "lime"]
    assert points_of(chart, "lime", "LeRF", "noisy linear")["score"].tolist() == [0.5, 0.5]


def test_every_part_of_the_report_ranks_by_the_mean_over_imputers() -> None:
    """One method wins with the first imputer, another on average: all places name the one that wins on average."""
    generator = np.random.default_rng(0)
    means = {"grad_cam": (0.30, 0.0), "lime": (0.20, 0.4)}
    entries: list[Entry] = [
        (name, "road", imputer, 0.0, mean + generator.normal(0, 0.02, N))
        for name, of_imputers in means.items()
        for imputer, mean in zip(IMPUTERS, of_imputers, strict=True)
    ]
    gallery = stored(["grad_cam", "lime"])
    curves: list[Entry] = [(name, "accuracy", "zero morf", 0.5, np.arange(N) % 2) for name in means]
    table = pd.concat([rows_of(entries).assign(chance=0.0), rows_of(curves)])
    result = axis_of(table, gallery=gallery)
    assert result.ranking["explainer"].tolist() == ["lime", "grad_cam"]
    assert result.explainer_order == ["lime", "grad_cam"]
    sentences = report.lead(result)
    assert sentences[0].startswith("LIME ")
    assert any("Grad-CAM with noisy linear" in sentence for sentence in sentences[1:])

    drawn = components(result)
    ranking = drawn["ranking"].scores
    panels = list(dict.fromkeys(ranking["panel"]))
    assert panels[1:] == ["noisy linear", "zero"]
    overall = ranking[ranking["panel"] == panels[0]].set_index("explainer")["score"]
    expected = result.ranking.set_index("explainer")["score"]
    pd.testing.assert_series_equal(overall, expected)
    for frame in (ranking, drawn["curves"].points, drawn["scores"].scores):
        assert list(dict.fromkeys(frame["explainer"])) == ["lime", "grad_cam"]
    assert drawn["removed"].tiles[0].item.explainer == "lime"


def test_a_method_as_good_as_random_on_average_is_found_and_not_with_one_imputer() -> None:
    generator = np.random.default_rng(0)
    entries: list[Entry] = [
        ("lime", "road", imputer, 0.0, mean + generator.normal(0, 0.02, N))
        for imputer, mean in zip(IMPUTERS, (0.3, -0.3), strict=True)
    ]
    result = axis_of(rows_of(entries).assign(chance=0.0))
    road = METRIC["road"]
    by_name = summaries.readings(result, road)
    for name, conditions in {"mean": None, **by_name}.items():
        gains = summaries.gains_over_random(result, road, conditions)
        assert gains is not None
        assert gains.set_index("explainer").loc["lime", "below"] == (name == "zero")
    assert result.verdict(result.headlines[0]).as_random == ("lime",)


def test_the_accuracy_of_a_random_order_is_a_mean_over_fractions_and_imputers() -> None:
    table = made_up()
    own = table[table["measure"] == "road_morf_accuracy"]
    overall = whole()[0].overall("road_morf_accuracy")
    assert overall["chance"].to_numpy() == pytest.approx(own["chance"].mean())
    assert AXIS.report == report.__name__
