"""Faithfulness on the page: the numbers of the charts are those of the table, and odd data is no accident."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof.axes import AxisResult, axis_results
from heatproof.axes.faithfulness import checks as faithful_checks
from heatproof.axes.faithfulness import frames as scores
from heatproof.axes.faithfulness import page as faithful
from heatproof.axes.faithfulness.checks import NOT_MEASURED
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.retraining import page as faithful_retraining
from heatproof.axes.faithfulness.strip import MOST, strip
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import looks, removal_words
from heatproof.drawing.pictures import Album
from heatproof.drawing.sheet import Dot, Words
from heatproof.evaluation import GalleryItem
from heatproof.report.page import build_report
from heatproof.report.sections import sections_of
from heatproof.runs.pictures import read_gallery
from heatproof.runs.tables import read_samples
from support.faithfulness import FRACTIONS, IMPUTERS, SKILL, N, axis_of, leaking, made_up
from support.manifests import manifest_of
from support.pages import NASTY, Page, curve, is_sound, marks
from support.small import model, pictures
from support.synthetic import Entry, rows_of

ONE = ("noisy_linear",)


def retrained(
    names: Sequence[str] = ("grad_cam", "saliency", "lime"), repeats: int = 2
) -> pd.DataFrame:
    g = np.random.default_rng(1)
    found = []
    for repeat in range(repeats):
        entries: list[Entry] = [
            (
                e,
                "accuracy",
                f"{imputer} {order}",
                f,
                (g.random(N) < (0.4 if order == "morf" else 0.8)).astype(float),
            )
            for e in names
            for imputer in IMPUTERS
            for order in ("morf", "lerf")
            for f in (0.1, 0.5)
        ]
        found.append(rows_of(entries, "retraining", repeat=repeat))
    return pd.concat(found, ignore_index=True)


SIDES = (("morf", -1), ("lerf", 1))
ROAD = (scores.short(scores.BY_NAME["road"]), "noisy_linear")
DELETION = (scores.short(scores.BY_NAME["deletion_auc"]), "zero")
TITLES = (DELETION[0], scores.short(scores.BY_NAME["road_morf_accuracy"]))


@pytest.fixture(autouse=True, scope="module")
def few_draws() -> Iterator[None]:
    """The intervals themselves are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faithful_checks, "consistency", partial(consistency, resamples=100))
        yield


@lru_cache(maxsize=1)
def whole() -> tuple[AxisResult, dict[str, Any]]:
    """Made-up rows without retraining, and what is drawn of them."""
    axis = axis_of(made_up())
    return axis, {p.key: p for p in faithful.parts(axis)}


def part(axis: AxisResult, key: str) -> Any:
    return next((p for p in faithful.parts(axis) if p.key == key), None)


def test_curves_are_the_means_of_the_table() -> None:
    table = made_up()
    drawn = [p for key, p in whole()[1].items() if key.startswith("curves")]
    assert [chart.title for chart in drawn] == [
        "Removal curves: noisy linear",
        "Removal curves: zero",
    ]
    assert list(drawn[0].folded) == ["Accuracy"]
    by_place = table.groupby(["measure", "condition", "explainer", "level"])
    means, chance = by_place["value"].mean(), by_place["chance"].mean()
    for chart, imputer in zip(drawn, IMPUTERS, strict=True):
        is_sound(chart)
        for measure, plots in (
            ("probability", chart.plots),
            ("accuracy", chart.folded["Accuracy"]),
        ):
            for order, short in (("morf", "MoRF"), ("lerf", "LeRF")):
                for explainer in SKILL:
                    found = curve(plots, f"{looks([explainer])[explainer].name}, {short}")
                    assert found["x"].tolist() == [0.0, *FRACTIONS], (measure, explainer)
                    assert found["value"][0] == {"probability": 0.9, "accuracy": 1.0}[measure], (
                        "the whole image"
                    )
                    expected = means[measure, f"{imputer} {order}", explainer]
                    np.testing.assert_allclose(found["value"][1:], expected.to_numpy(), atol=1e-5)
            random = chance[measure, f"{imputer} morf", "lime"]
            np.testing.assert_allclose(
                curve(plots[:1], "random order")["value"][1:], random.to_numpy(), atol=1e-5
            )
    assert "noisy linear" in drawn[0].caption and "random order" in drawn[0].caption


def test_curves_without_bounds_begin_at_nothing() -> None:
    """Logits from 3.5 to 4.5 on a scale that says 0, so that a small fall looks small."""
    entries: list[Entry] = [
        ("grad_cam", "logit", f"zero {order}", f, np.full(4, 4 + sign * f))
        for order, sign in SIDES
        for f in (0.1, 0.5)
    ]
    (chart,) = (
        p
        for p in faithful.parts(axis_of(rows_of(entries), {"readout": "logit"}))
        if p.key == "curves"
    )
    (plot,) = chart.plots
    assert marks([plot])["value"].min() == 3.5
    said = {piece.text for piece in plot.sheet.pieces if isinstance(piece, Words)}
    assert "0" in said and "4" in said and "5" not in said


def test_bars_are_the_intervals_of_the_summary() -> None:
    axis, drawn = whole()
    cells = heatproof.statistics.summary([axis.cube])
    own = cells[(cells["explainer"] == "grad_cam") & (cells["condition"] == "noisy_linear morf")]
    own = own[own["measure"] == "probability"].sort_values("level")
    found = curve(drawn["curves"].plots, "Grad-CAM, MoRF")[["low", "high"]][1:]
    np.testing.assert_allclose(found, own[["low", "high"]], atol=1e-5)


def test_a_logarithmic_scale_looks_the_same_in_any_unit() -> None:
    places = []
    for unit in (1.0, 1e-3):
        table = made_up()
        own = table["measure"] == "infidelity"
        table.loc[own, "value"] *= unit
        plots = [p for p in part(axis_of(table), "masks").plots if p.title == "Unscaled"]
        places.append(
            [piece.x for plot in plots for piece in plot.sheet.pieces if isinstance(piece, Dot)]
        )
    assert len(places[0]) > 2 and places[1] == pytest.approx(places[0], abs=0.5)


def test_the_ranking_has_the_best_at_the_top_whichever_way_is_better() -> None:
    table = made_up()
    drawn = whole()[1]
    chart = drawn["ranking"]
    assert "ROAD" in chart.title
    assert list(dict.fromkeys(p.title for p in chart.plots)) == [ROAD[0], *TITLES]
    for plot in (*chart.plots, *drawn["masks"].plots):
        rows = marks([plot])
        rows = rows[rows["method"].notna()]
        assert rows["name"].iloc[0] == "Grad-CAM" and rows["name"].iloc[-1] == "Random"
        words = {piece.text for piece in plot.sheet.pieces if isinstance(piece, Words)}
        less = plot.title in (*TITLES, "Infidelity", "Unscaled")
        assert ("lower is better" if less else "higher is better") in words
    first, second = (
        next(p for p in chart.plots if (p.title, p.note) == where) for where in (ROAD, DELETION)
    )
    road = (
        table[(table.measure == "road") & (table.condition == "noisy_linear")]
        .groupby("explainer")
        .value.mean()
    )
    dots = marks([first]).set_index("name")["value"]
    assert sorted(dots.drop("random order")) == pytest.approx(sorted(road), abs=1e-5)
    assert dots["random order"] == 0
    levels = table[(table.measure == "deletion_auc") & (table.condition == "zero")]
    assert marks([second]).set_index("name").loc["random order", "value"] == pytest.approx(
        levels.chance.mean(), abs=1e-5
    )
    assert {"10 % removed, zero", "50 % removed, zero"} <= {
        plot.note for plot in drawn["masks"].plots
    }


def test_the_matrix_holds_what_consistency_says() -> None:
    table = pd.concat([made_up(), retrained()], ignore_index=True)
    chart = faithful_checks.consistency_chart(axis_of(table))
    assert isinstance(chart, Chart) and [p.title for p in chart.plots] == ["Probability"]
    is_sound(chart)
    pairs = consistency(table, "accuracy")
    pairs = pairs[pairs["level"].isna()].set_index(["evaluation", "a", "b"])["spearman"]
    found = marks(chart.folded["Accuracy"])
    names = list(dict.fromkeys(found["row"]))
    assert names[:4] == ["noisy linear MoRF", "noisy linear LeRF", "zero MoRF", "zero LeRF"]
    z = found.pivot(index="row", columns="column", values="value").reindex(
        index=names, columns=names
    )
    a, b = "zero morf", "zero lerf"
    said = [
        ("zero MoRF", "zero LeRF"),
        ("zero MoRF", "retrained zero MoRF"),
        ("noisy linear LeRF", "zero LeRF"),
    ]
    found = [z.loc[pair] for pair in said]
    wanted = [
        pairs[("faithfulness", *names)]
        for names in ((a, b), (f"faithfulness: {a}", f"retraining: {a}"))
    ]
    wanted += [pairs["faithfulness", "noisy_linear lerf", b]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.isnan(z.loc["zero MoRF", "noisy linear LeRF"]) and np.isnan(np.diag(z)).all()


def test_two_methods_have_no_rank_correlation() -> None:
    axis = axis_of(made_up({"grad_cam": 0.5, "lime": 0.2, "random": 0.0}))
    panel = faithful_checks.consistency_chart(axis)
    assert isinstance(panel, Panel) and "3" in panel.caption


def test_a_leak_is_a_warning_and_its_absence_no_claim() -> None:
    axis = axis_of(pd.concat([made_up(), leaking()], ignore_index=True))
    warned, chart = faithful_checks.leakage_charts(axis)
    assert isinstance(warned, Panel) and isinstance(chart, Chart)
    assert (
        'class="caution"' in warned.html
        and "zero" in warned.html
        and "noisy_linear" in warned.caption
    )
    found = marks(chart.plots).set_index(["plot", "note"])["value"]
    summary = heatproof.axes.faithfulness.retraining.leakage.leakage_summary(leaking()).set_index(
        "condition"
    )
    for name in ("zero morf", "noisy_linear morf"):
        assert found["Bits in the mask", removal_words(name)] == pytest.approx(
            summary.loc[name, "mask_bits"], abs=1e-5
        )
    assert found["Visible masks"].to_dict() == {"noisy linear MoRF": 0.6, "zero MoRF": 0.99}
    assert any("zero leaks" in sentence for sentence in faithful.lead(axis))
    calm, _ = faithful_checks.leakage_charts(
        axis_of(pd.concat([made_up(), leaking(0.5)], ignore_index=True))
    )
    assert isinstance(calm, Panel) and "caution" not in calm.html and "not" in calm.caption
    unknown = whole()[1]["leakage"]
    assert (
        isinstance(unknown, Panel)
        and unknown.caption == NOT_MEASURED
        and not any(map(str.isdigit, NOT_MEASURED))
    )


def test_retraining_is_the_mean_over_repeats_with_both_costs() -> None:
    table = pd.concat([made_up(), retrained()], ignore_index=True)
    sessions = [
        {"durations": {"faithfulness": 2.0}},
        {"started": "x"},
        {"durations": {"retraining": 480.0}},
    ]
    axis = axis_of(table, manifest=manifest_of(sessions=sessions))
    chart = faithful_retraining.retraining_chart(axis)
    assert chart is not None and list(chart.folded) == ["zero"] and "noisy linear" in chart.caption
    assert "2 networks" in chart.caption
    own = table[
        (table.evaluation == "retraining")
        & (table.condition == "zero lerf")
        & (table.explainer == "lime")
    ]
    line = curve(chart.folded["zero"], "LIME, LeRF")
    np.testing.assert_allclose(line["value"], own.groupby("level").value.mean(), atol=1e-5)
    cost = faithful_retraining.cost_panel(axis)
    trained, swept = 2 * 3 * 2 * 2 * 2, 4 * 2 * 2 * 3
    assert cost is not None
    assert (
        f"<td>{trained} networks</td><td>10 s</td>" in cost.html
        and f"<td>{swept} points</td>" in cost.html
    )
    assert f"{480 / trained / (2 / swept):.0f} times" in cost.caption
    assert faithful_retraining.cost_panel(axis_of(table)) is None, "no durations, no numbers"
    assert (
        faithful_retraining.cost_panel(axis_of(made_up(), manifest=manifest_of(sessions=sessions)))
        is None
    )


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
        keys = [p.key for axis in section.axes for p in axis.parts]
        assert {"retraining", "leakage", "consistency"} <= set(keys) and len(set(keys)) == len(keys)
        assert ("ranking" in keys) == (titles == ["Faithfulness"]) and all(
            axis.lead for axis in section.axes
        )
    cube = faithful_retraining.retrained_cube(axis_of(both))
    assert (
        cube is not None
        and cube.model == "net"
        and set(np.unique(cube.values["accuracy"])) == {0.0, 0.5, 1.0}
    )


def test_words_follow_the_scores() -> None:
    axis = axis_of(made_up())
    said = faithful.lead(axis)
    means = axis.summary.set_index(["measure", "condition", "explainer"])["mean"]
    best = np.mean([means["road", imputer, "grad_cam"] for imputer in IMPUTERS])
    assert said[0].startswith("Grad-CAM ") and f"{best:.2f}"[:4] in said[0]
    assert "Saliency 0." in said[1]
    (scale,) = [sentence for sentence in said if "ROAD" in sentence]
    assert all(removal_words(imputer) in scale for imputer in IMPUTERS)
    assert "24 samples" in " ".join(said)
    tied = faithful.lead(axis_of(made_up({"a": 0.3, "b": 0.3, "c": 0.0}, ONE, 20)))
    named = re.sub(r" \([^()]*\)", "", tied[0])
    assert re.search(r"ndecided between (a and b|b and a)\b", named) and "[" in tied[0]
    assert any("above chance" in s and "c (" in s for s in tied), "c has no merit"
    sobel = faithful.lead(axis_of(made_up({"a": 0.2, "sobel": 0.5}, ONE)))
    assert any("control Sobel" in s for s in sobel)
    only = faithful.lead(axis_of(made_up({"random": 0.0, "sobel": 0.1}, ONE)))
    assert "controls" in only[0]


def test_the_metric_of_a_run_without_road_has_its_direction() -> None:
    table = made_up()
    axis = axis_of(table[table["measure"] == "deletion_auc"])
    said = faithful.lead(axis)
    assert said[0].startswith("Grad-CAM ")
    assert any("Deletion" in s and "noisy linear" in s and "lower" in s for s in said)
    assert {p.key for p in faithful.parts(axis)} == {"ranking", "leakage"} and part(
        axis, "ranking"
    ).title == "Ranking"
    deletion = scores.BY_NAME["deletion_auc"]
    (zero,) = (one for one in scores.readings(axis.cube, deletion) if one.name == "zero")
    gaps = scores.over_random(axis.cube, deletion, zero)
    assert gaps is not None and (gaps.set_index("explainer")["mean"].drop("random") > 0).all()
    own = table[(table["condition"] == "zero") & (table["measure"] == "deletion_auc")]
    fallen = (own["chance"] - own["value"]).groupby(own["explainer"]).mean()
    pd.testing.assert_series_equal(
        gaps.set_index("explainer")["mean"], fallen, check_names=False, check_like=True
    )


@pytest.mark.parametrize(("skill", "n"), [({"grad_cam": 0.5}, 1), ({"random": 0.0}, 2), (SKILL, 1)])
def test_few_of_everything(skill: dict[str, float], n: int) -> None:
    axis = axis_of(made_up(skill, ONE, n))
    drawn = faithful.parts(axis)
    assert {"curves", "ranking", "masks"} <= {p.key for p in drawn}
    assert faithful.lead(axis)


def test_undefined_maps() -> None:
    axis = axis_of(made_up(imputers=ONE, lost="saliency"))
    assert "saliency" not in str(faithful.ranking_chart(axis))
    assert any("24" in s and "Saliency" in s and "constant map" in s for s in faithful.lead(axis))
    nothing = made_up(imputers=ONE, n=3)
    nothing["value"], nothing["status"], nothing["reason"] = np.nan, "undefined", "constant map"
    axis = axis_of(nothing)
    assert [p.key for p in faithful.parts(axis)] == ["consistency", "leakage"]
    assert faithful.lead(axis)


def test_hostile_names_are_inert() -> None:
    names = {"grad_cam": NASTY, "lime": "<b>bold</b>", "saliency": "saliency", "random": "random"}
    table = pd.concat([made_up(imputers=("zero",), n=3), retrained(), leaking()], ignore_index=True)
    table["explainer"] = table["explainer"].map(names)
    hostile = "<script>zero</script>"
    table["condition"], table["imputer"] = (
        table[name].str.replace("zero", hostile) for name in ("condition", "imputer")
    )
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
    page = Page(
        build_report(
            axis_results(
                table, samples, shown, manifest_of(sessions=[{"durations": {"retraining": 9.0}}])
            ),
            samples,
            manifest_of(sessions=[{"durations": {"retraining": 9.0}}]),
        )
    )
    assert len(page.scripts) == 2 and not [
        a for tag, a in page.tags if tag == "img" and "onerror" in a
    ]
    assert not [tag for tag, _ in page.tags if tag == "b" and "bold" in tag]
    assert [a for tag, a in page.tags if tag == "div" and a.get("class") == "caution"]


def test_the_strip_shows_one_image_and_stays_small() -> None:
    g = np.random.default_rng(0)
    noise, kept = g.integers(0, 255, (128, 128, 3), dtype=np.uint8), np.eye(128, dtype=np.float32)

    def shown(explainers: Sequence[str], sample: str = "a.png") -> list[GalleryItem]:
        return [
            GalleryItem(
                "photos",
                "net",
                e,
                "zero morf",
                f,
                sample,
                noise,
                kept if f else None,
                note=f"cat {1 - f:.2f}",
            )
            for e in explainers
            for f in (0.5, 0.0, 0.9)
        ]

    def drawn(gallery: list[GalleryItem], order: Sequence[str]) -> Panel | None:
        study = {"explainers": {key: {} for key in order}}
        return strip(axis_of(made_up(n=2), gallery=gallery, manifest=manifest_of(study)), order)

    panel = drawn([*shown(["lime", "grad_cam"]), *shown(["lime"], "b.png")], ["grad_cam", "lime"])
    assert (
        panel is not None
        and panel.strip
        and panel.html.count("<img") == 2 * (1 + 2 + 2)
        and "b.png" not in panel.html
    )
    assert panel.html.index("Grad-CAM") < panel.html.index("LIME"), "in the order of the ranking"
    assert panel.html.index("50 %") < panel.html.index("90 %")
    assert "cat 0.50" in panel.html and panel.html.count('alt="a.png, ') == 10
    many = [f"m{i}" for i in range(150)]
    large = drawn(shown(many), many)
    assert large is not None and large.html.count("<h4>") == MOST and "left out" in large.caption
    assert drawn([], many) is None and drawn(shown(["lime"]), []) is None


def test_a_real_run(tmp_path: Any) -> None:
    axis = {"faithfulness": {"imputers": ["zero"], "fractions": [0.3, 0.7], "masks": 8}}
    run = heatproof.evaluate(
        model(), pictures(4, seed=3), ["saliency", "random"], [axis], tmp_path / "run"
    )
    root = tmp_path / "run"
    page = Page(
        build_report(
            axis_results(run.table(), read_samples(root), read_gallery(root), run.manifest),
            read_samples(root),
            run.manifest,
        )
    )
    places = {a["id"] for _, a in page.tags if a.get("class") == "chart"}
    assert {key.removeprefix("faithfulness-") for key in places} == {"curves", "ranking", "masks"}
    words = " ".join(page.words)
    assert "30 %" in words and "70 %" in words, "the strip has a picture for each fraction"


def test_fills_are_named_and_whether_they_look_real() -> None:
    told: list[Entry] = [("grad_cam", "detectability", "zero random", 0.5, np.ones(60))]
    table = pd.concat([made_up(n=60), rows_of(told)])
    inner = {"name": "integrated_gradients", "baseline": 1.0}
    study = {
        "models": {"net": {"mean": [0.5, 0.4, 0.3], "std": [0.25]}},
        "explainers": {"saliency": {"name": "smoothgrad", "of": inner}},
    }
    axis = axis_of(table, {"baseline": {"name": "own_baseline"}}, manifest_of(study))
    captions = {
        chart.key: chart.caption for chart in faithful.parts(axis) if isinstance(chart, Chart)
    }
    assert "1.00 [0.94, 1.00]" in captions["curves-1"] and "50 %" in captions["curves-1"]
    assert "ROC curve of" not in captions["curves"], "it was not measured there"
    fills = re.search(r"0\.5, 0\.4, 0\.3(.*)0\.75, 0\.65, 0\.55(.*)", captions["masks"])
    assert fills is not None
    assert all(name in fills[1] for name in ("grad_cam", "lime", "random"))
    assert "saliency" in fills[2]


def test_f_fidelity_has_curves_of_its_own() -> None:
    rows: list[Entry] = [
        (name, "accuracy", f"noisy_linear {order}", f, np.arange(24) % 2)
        for name in ("grad_cam", "lime")
        for order in ("morf", "lerf")
        for f in (0.1, 0.5)
    ]
    charts = faithful.parts(axis_of(pd.concat([made_up(), rows_of(rows, "f_fidelity")])))
    (chart,) = (chart for chart in charts if chart.key == "f-fidelity")
    assert [plot.title for plot in chart.plots] == ["Grad-CAM", "LIME"]
    assert curve(chart.plots, "LIME, LeRF")["value"].tolist() == [0.5, 0.5]


def test_retraining_without_any_score_draws_nothing() -> None:
    lost = retrained().assign(value=np.nan, status="undefined", reason="constant map")
    drawn = axis_of(pd.concat([made_up(), retrained()])), axis_of(pd.concat([made_up(), lost]))
    assert [faithful_retraining.retraining_chart(judged) is None for judged in drawn] == [
        False,
        True,
    ]


def test_every_part_of_the_report_ranks_by_the_mean_over_imputers() -> None:
    """One method wins with the first imputer, another on average: all places name the one that wins on average."""
    g = np.random.default_rng(0)
    means = {"grad_cam": (0.30, 0.0), "lime": (0.20, 0.4)}
    entries: list[Entry] = [
        (name, "road", imputer, 0.0, mean + g.normal(0, 0.02, N))
        for name, of_imputers in means.items()
        for imputer, mean in zip(IMPUTERS, of_imputers, strict=True)
    ]
    result = axis_of(rows_of(entries).assign(chance=0.0))
    assert result.ranking["explainer"].tolist() == ["lime", "grad_cam"]
    assert scores.explainer_order(result.cube) == ["lime", "grad_cam"]
    said = faithful.lead(result)
    assert said[0].startswith("LIME ")
    assert any(all(removal_words(imputer) in s for imputer in IMPUTERS) for s in said)
    assert any("Grad-CAM with noisy linear" in sentence for sentence in said[1:])

    chart = part(result, "ranking")
    first, *of_imputers = chart.plots
    assert {plot.note for plot in of_imputers} == set(IMPUTERS)
    ranked = result.ranking.set_index("explainer")["score"]
    of_methods = marks([first])
    of_methods = of_methods[of_methods["method"].notna()]
    assert of_methods["value"].tolist() == pytest.approx(ranked[["lime", "grad_cam"]], abs=1e-5)


def test_a_method_as_good_as_random_on_average_is_found_and_not_with_one_imputer() -> None:
    g = np.random.default_rng(0)
    entries: list[Entry] = [
        ("lime", "road", imputer, 0.0, mean + g.normal(0, 0.02, N))
        for imputer, mean in zip(IMPUTERS, (0.3, -0.3), strict=True)
    ]
    result = axis_of(rows_of(entries).assign(chance=0.0))
    road = scores.BY_NAME["road"]
    average = scores.overall(result.cube, road)
    assert average is not None
    for reading in (average, *scores.readings(result.cube, road)):
        gaps = scores.over_random(result.cube, road, reading)
        assert gaps is not None
        found = gaps.set_index("explainer").loc["lime"]
        assert found["below"] == (reading.name == "zero")
    assert result.verdict(result.headlines[0]).as_random == ("lime",)
