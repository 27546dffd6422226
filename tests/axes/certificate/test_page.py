"""The certificates and the sweep over λ in the report: components from known rows, and from a real small run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof import Certificate
from heatproof.axes import BY_NAME
from heatproof.axes.certificate import report, smoothing_report
from heatproof.axes.certificate.gallery import EXPLANATION, FLIP, INPUT, NO_FLIP
from heatproof.axes.certificate.shares import accuracy, certified_mean, guaranteed_shares
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.evaluation import GalleryItem
from heatproof.features import Patches
from heatproof.report.components import Component, CurveChart, Gallery, Matrix
from heatproof.report.page_parts import Chart, part_of
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import components_of, findings_of
from heatproof.runs.gallery import read_gallery
from heatproof.runs.results import arrays_of_run, axis_results
from heatproof.statistics.bounds import clopper_pearson_low
from heatproof.statistics.intervals import rate_interval
from heatproof.text import at_least
from support.manifests import manifest_of
from support.pages import is_sound
from support.small import model, pictures
from support.synthetic import rows_of

SAMPLES = 10
NAMES = ("grad_cam", "random")


def judged(rows: pd.DataFrame, settings=None) -> AxisResult:
    (arrays,) = arrays_of_run(rows)
    samples = pd.DataFrame(columns=["sample"])
    return AxisResult(
        BY_NAME[arrays.evaluation], arrays, rows, samples, [], settings or {}, manifest_of(), rows
    )


def by_key(result: AxisResult) -> dict[str, Component]:
    """The components of a result; all of them can be drawn."""
    keyed = {component.key: component for component in components_of(result)}
    for component in keyed.values():
        part = part_of(component, result.looks)
        assert part is not None
        if isinstance(part, Chart):
            is_sound(part)
    return keyed


def chart_of(result: AxisResult, key: str) -> CurveChart:
    chart = by_key(result)[key]
    assert isinstance(chart, CurveChart)
    return chart


def curve(chart: CurveChart, explainer: str, name: str = "", panel: str = "") -> list[float]:
    """The scores of one curve, by rising x."""
    points = chart.points
    of_curve = points[points["explainer"] == explainer]
    for column, value in (("curve", name), ("panel", panel)):
        if column in points:
            of_curve = of_curve[of_curve[column] == value]
    return [float(score) for score in of_curve.sort_values("x")["score"]]


def sweep_rows(bernoulli: bool = False) -> pd.DataFrame:
    """MuS certifies radius 1 for 4 of 10 samples at λ = 0.25, SCA has bounds above 0.9 for 7 of 10 at r = 1."""
    entries = []
    for explainer in NAMES:
        for keep in (0.25, 1.0):
            where = f"λ={keep:g}"
            radius = [1.0] * 4 + [0.0] * 6 if keep < 1 else [0.0] * 10
            entries += [(explainer, "hard_radius", where, 0.0, [1 + r if r else r for r in radius])]
            entries += [(explainer, "hard_radius_lipschitz", where, 0.0, radius)]
            if bernoulli:
                entries += [(explainer, "hard_radius_bernoulli", where, 0.0, [2.0] * 3 + [0.0] * 7)]
            right = [1.0] * (6 if keep < 1 else 8) + [0.0] * (3 if keep < 1 else 1) + [np.nan]
            entries += [
                (explainer, "correct", where, 0.0, right),
                (explainer, "passes", where, 0.0, [2.0] * 10),
            ]
            for r in (1.0, 2.0):
                low = [0.93] * (7 if r == 1 else 5) + [0.4] * 2 + [0.89] * (1 if r == 1 else 3)
                entries += [
                    (explainer, "certified", where, r, low),
                    (explainer, "passes", where, r, [50.0] * 10),
                ]
                entries += [(explainer, "rate", where, r, [min(1, v + 0.08) for v in low])]
    return rows_of(entries, "smoothing")


def test_guarantees_are_counted_bound_against_bound():
    (arrays,) = arrays_of_run(sweep_rows(bernoulli=True))
    shares = guaranteed_shares(arrays, 0.9).set_index(["explainer", "keep", "rule", "level"])
    assert shares.loc[("grad_cam", 0.25, "SCA", 1.0), "share"] == 0.7, (
        "bounds of 0.89 and rates of 0.97 do not count"
    )
    assert shares.loc[("grad_cam", 0.25, "SCA", 2.0), "share"] == 0.5
    assert shares.loc[("grad_cam", 0.25, "MuS", 1.0), "share"] == 0.4
    assert shares.loc[("grad_cam", 0.25, "MuS", 2.0), "share"] == 0.0
    assert shares.loc[("grad_cam", 0.25, "hard", 2.0), "share"] == 0.4
    assert shares.loc[("grad_cam", 0.25, "MuS*", 2.0), "share"] == 0.3
    assert shares.loc[("random", 1.0, "MuS", 1.0), "share"] == 0.0
    assert tuple(shares.loc[("grad_cam", 0.25, "SCA", 1.0), ["low", "high"]]) == pytest.approx(
        rate_interval(7, 10)
    )


def test_the_chart_of_guarantees_has_a_curve_per_rule():
    result = judged(sweep_rows(), {"epsilon": 0.1, "delta": 0.05})
    chart = chart_of(result, "guarantees")
    assert curve(chart, "grad_cam", "SCA", "λ = 0.25") == [0.7, 0.5]
    assert curve(chart, "grad_cam", "MuS", "λ = 0.25") == [0.4, 0.0]
    assert set(chart.points["curve"]) == {"hard", "MuS", "SCA"}
    assert set(chart.points["panel"]) == {"λ = 0.25", "λ = 1"}
    for fact in ("τ = 1", "τ ≥ 0.9", "0.95", "204 passes"):
        assert fact in chart.caption
    decided = judged(sweep_rows(), {"mode": "decide", "threshold": 0.5})
    assert "τ ≥ 0.5" in chart_of(decided, "guarantees").caption
    assert "MuS*" in chart_of(judged(sweep_rows(bernoulli=True)), "guarantees").caption


def test_rules_are_drawn_beside_each_other_with_a_curve_for_every_method():
    chart = chart_of(judged(sweep_rows()), "rules")
    assert not chart.plot_per_line
    panels = list(dict.fromkeys(chart.points["panel"]))
    assert panels[:3] == ["MuS, λ = 0.25", "MuS, λ = 1", "SCA, λ = 0.25"]
    assert curve(chart, "grad_cam", panel="SCA, λ = 0.25") == [0.7, 0.5]
    assert set(chart.points["explainer"]) == set(NAMES)


def test_accuracy_counts_labelled_samples_once():
    (arrays,) = arrays_of_run(sweep_rows())
    rows = accuracy(arrays)
    assert (
        rows.keep.tolist() == [0.25, 1.0]
        and rows.n.tolist() == [9, 9]
        and rows.yes.tolist() == [6, 8]
    )
    assert (rows.low[0], rows.high[0]) == pytest.approx(rate_interval(6, 9))
    points = chart_of(judged(sweep_rows()), "accuracy").points
    assert points["score"].tolist() == pytest.approx([6 / 9, 8 / 9])
    assert points["x"].tolist() == [0.25, 1.0]
    unlabelled = by_key(judged(sweep_rows().query("measure != 'correct'")))
    assert list(unlabelled) == ["guarantees", "rules", "rates"]


def test_every_curve_of_rates_has_its_bound():
    chart = chart_of(judged(sweep_rows()), "rates")
    assert list(dict.fromkeys(chart.points["panel"])) == ["λ = 1", "λ = 0.25"]
    for explainer in NAMES:
        for panel in ("λ = 1", "λ = 0.25"):
            rates = curve(chart, explainer, "rate", panel)
            bounds = curve(chart, explainer, "guaranteed", panel)
            assert len(rates) == 2 and np.less(bounds, rates).all()


def test_decisions_and_hard_certificates_have_a_chart():
    answers = [1.0] * 5 + [0.0] * 3 + [np.nan] * 2
    entries = [
        (e, m, "radius", 3.0, v)
        for e in NAMES
        for m, v in (("stable", answers), ("certified", [0.5] * 10))
    ]
    chart = chart_of(judged(rows_of(entries, "certificate"), {"threshold": 0.8}), "answers")
    assert "τ ≥ 0.8" in chart.title
    assert curve(chart, "grad_cam", "shown") == [0.5]
    assert curve(chart, "grad_cam", "not refuted") == [0.7]
    entries = [(e, m, "radius", 3.0, [1.0] * 10) for e in NAMES for m in ("unflipped", "certified")]
    unflipped = by_key(judged(rows_of(entries, "certificate"), {"epsilon": 0.2}))
    assert list(unflipped) == ["answers"]
    assert "τ ≥ 0.8" in unflipped["answers"].title and "hard" in unflipped["answers"].caption


def pictured(sample: str, explainer: str, added: int) -> list[GalleryItem]:
    image = np.full((32, 32, 3), 90, np.uint8)
    region = np.zeros((32, 32), np.float32)
    region[:8, : 8 * added] = 1
    place = ("photos", "net", explainer)
    flip = GalleryItem(
        *place,
        FLIP,
        float(added),
        sample,
        image,
        region,
        note="teapot (41 %)" if added else NO_FLIP,
    )
    return [
        GalleryItem(*place, INPUT, 0.0, sample, image, None, note="cat <b> (80 %)"),
        GalleryItem(*place, EXPLANATION, 0.0, sample, image, None, note="cat (60 %)"),
        flip,
    ]


def test_the_example_shows_the_sample_with_most_flips_first():
    shown = pictured("s0", "grad_cam", 0) + pictured("s0", "random", 3)
    shown += pictured("s1", "grad_cam", 2) + pictured("s1", "random", 1)
    entries = [(e, "rate", "radius", 3.0, [0.5] * 2) for e in ("grad_cam", "random")]
    result = judged(rows_of(entries, "certificate"))

    keyed = by_key(replace(result, gallery=shown))
    first, others = keyed["example"], keyed["more-examples"]
    assert isinstance(first, Gallery) and isinstance(others, Gallery)
    assert {tile.item.sample for tile in first.tiles} == {"s1"}
    assert {tile.item.sample for tile in others.tiles} == {"s0"}
    assert len(first.tiles) == 8 and len(others.tiles) == 3 + 4
    titles = [tile.title for tile in first.tiles]
    assert "2 features added" in titles and "1 feature added" in titles
    assert {"cat <b> (80 %)", "teapot (41 %)"} <= {tile.note for tile in first.tiles}
    assert NO_FLIP in {tile.note for tile in others.tiles}
    part = part_of(first, result.looks)
    assert part is not None and not isinstance(part, Chart)
    assert "cat &lt;b&gt;" in part.html and "Grad-CAM" in part.html

    (region,) = [tile for tile in first.tiles if tile.title == "2 features added"]
    assert region.view == "region" and (region.item.image == shown[6].image).all()
    for gallery in ([], shown[:2]):
        assert "example" not in by_key(replace(result, gallery=gallery))


def test_a_real_run_is_drawn():
    axes = {
        "certificate": Certificate(radii=(1, 6), features=Patches(8)),
        "smoothing": Smoothing(
            keeps=(0.5, 1.0), samples=4, radii=(1, 3), features=Patches(8), epsilon=0.3
        ),
    }
    done = heatproof.evaluate(model(), pictures(4), ["saliency", "random"], axes)
    results = axis_results(done.table(), done.samples(), read_gallery(done.path), done.manifest)
    keyed = {result.label: by_key(result) for result in results}
    certificate = list(keyed["certificate"])
    assert certificate[:2] == ["rates", "example"] and "calibrated" in certificate
    assert list(keyed["smoothing"]) == ["guarantees", "rules", "accuracy", "rates", "calibrated"]
    page = done.report().read_text()
    assert all(f'id="{result.label}-' in page for result in results)


def certificate_rows(rates: dict[str, list[float]], draws: int = 20, same: int = 6) -> pd.DataFrame:
    entries = []
    for explainer, values in rates.items():
        entries += [
            (explainer, "sufficient", "radius", 0.0, [1.0] * same + [0.0] * (SAMPLES - same))
        ]
        for measure, column in (
            ("rate", values),
            ("early", values),
            ("certified", [v - 0.1 for v in values]),
        ):
            entries += [(explainer, measure, "radius", 5.0, column)]
        entries += [(explainer, "early_draws", "radius", 5.0, [float(draws)] * SAMPLES)]
    return rows_of(entries, "certificate")


def test_the_lead_names_delta_and_the_prediction_that_is_certified():
    rates = {"grad_cam": [0.9] * 10, "lime": [0.5] * 10}
    said = " ".join(report.lead(judged(certificate_rows(rates), {"delta": 0.1})))
    low = clopper_pearson_low(180, 200, 0.1)
    assert at_least(float(low)) in said
    assert "0.1" in said
    assert "6 of 10" in said
    together = " ".join(
        report.lead(judged(certificate_rows(rates), {"delta": 0.1, "simultaneous": True}))
    )
    assert at_least(float(clopper_pearson_low(180, 200, 0.05))) in together
    anchored = " ".join(report.lead(judged(certificate_rows(rates), {"anchor": "full"})))
    assert "whole input" in anchored
    exact = " ".join(report.lead(judged(certificate_rows(rates, draws=0))))
    assert "0.90" in exact


def test_lead_and_findings_agree_on_who_beats_random():
    hard = list(np.linspace(0, 0.6, SAMPLES))  # samples differ far more than methods do
    rates = {
        "ahead": [v + 0.38 for v in hard],
        "level": [v + (-1) ** i * 0.05 for i, v in enumerate(hard)],
    }
    rows = certificate_rows(rates | {"random": hard})
    rows["role"] = np.where(rows["explainer"] == "random", "control", "method")
    result = judged(rows)
    (found,) = [f for f in findings_of(result) if "random" in f.title]
    assert found.explainers == ("level",)
    assert result.verdict(result.headlines[0]).not_above("random") == ("level",)


def with_chance(rows: pd.DataFrame, chance: float) -> pd.DataFrame:
    return rows.assign(chance=np.where(rows["measure"] == "rate", chance, np.nan))


def test_beside_chance_the_best_is_the_best_calibrated_and_the_guarantee_is_about_the_rate():
    spread = list(np.linspace(-0.05, 0.05, SAMPLES))
    rates = {"ahead": [0.9 + v for v in spread], "level": [0.6 + (v > 0) * v for v in spread]}
    result = judged(with_chance(certificate_rows(rates), 0.6 + 0.02))
    lead = " ".join(report.lead(result))
    assert f"{(0.9 - 0.62) / 0.38:.1f}" in lead and "0.62" in lead
    assert at_least(float(clopper_pearson_low(180, 200, 0.1))) in lead
    (found,) = [f for f in findings_of(result) if "random" in f.title]
    assert found.explainers == ("level",)
    (ranked,) = result.ranking[result.ranking["explainer"] == "ahead"].to_dict("records")
    assert ranked["score"] == pytest.approx((0.9 - 0.62) / 0.38)
    assert ranked["raw"] == pytest.approx(0.9)

    rates = chart_of(result, "rates")
    assert curve(rates, "ahead", "rate") == pytest.approx([0.9])
    assert curve(rates, "ahead", "guaranteed") == pytest.approx([0.8])
    assert curve(rates, "ahead", "chance") == pytest.approx([0.62])
    calibrated = chart_of(result, "calibrated")
    assert curve(calibrated, "ahead") == pytest.approx([(0.9 - 0.62) / 0.38])

    table = by_key(result)["scores"]
    assert isinstance(table, Matrix)
    cells = table.scores.set_index(["row", "column"])
    assert cells.loc[("ahead", "rate"), "score"] == pytest.approx(0.9)
    assert cells.loc[("ahead", "guaranteed"), "score"] == pytest.approx(0.8)
    assert cells.loc[("random features (chance)", "rate"), "score"] == pytest.approx(0.62)
    assert set(table.scores.loc[table.scores["best"], "row"]) == {"ahead"}


def test_where_random_features_always_keep_the_prediction_no_method_is_above_them():
    result = judged(with_chance(certificate_rows({"a": [1.0] * SAMPLES}), 1.0))
    (found,) = [f for f in findings_of(result) if "random" in f.title]
    assert found.explainers == ("a",) and "1.00" in found.seen
    assert "rates" in by_key(result)
    assert "1.00" in " ".join(report.lead(result))


@pytest.mark.parametrize("n", [1, SAMPLES])
@pytest.mark.parametrize("names", [("random",), ("random", "sobel"), ("a",)])
def test_controls_are_not_called_methods_and_one_sample_is_one(names, n):
    rows = certificate_rows({name: [0.8] * SAMPLES for name in names})
    rows = rows[rows["sample"].isin([f"s{i:02}" for i in range(n)])]
    for chance in (np.nan, 0.5):
        lead = " ".join(report.lead(judged(with_chance(rows, chance))))
        assert "0.8" in lead and "1 samples" not in lead
        assert ("no method to judge" in lead) is ("a" not in names)
    sweep = sweep_rows().query("explainer == 'random'")
    sweep = sweep[sweep["sample"].isin([f"s{i:02}" for i in range(n)])]
    said = " ".join(smoothing_report.lead(judged(sweep)))
    assert "method" not in said and "1 labelled samples" not in said


def test_without_a_rate_nothing_is_certified_and_nothing_is_drawn():
    assert "rates" in by_key(judged(sweep_rows()))
    assert "rates" not in by_key(judged(sweep_rows().query("measure != 'rate'")))
    entries = [
        ("grad_cam", m, "radius", 1.0, [np.nan] * 4) for m in ("rate", "early", "early_draws")
    ]
    undecided = rows_of(
        [("grad_cam", m, "radius", 1.0, [np.nan] * 4) for m in ("stable", "certified")],
        "certificate",
    )
    assert by_key(judged(undecided)) == {}
    assert "answers" in by_key(judged(undecided.assign(value=1.0, status="ok", reason="")))
    bound, n = certified_mean(judged(rows_of(entries, "certificate")), "grad_cam", ("radius", 1.0))
    assert np.isnan(bound) and n == 0


def test_a_share_of_the_decided_samples_says_how_many_stayed_open():
    rows = certificate_rows({"a": [1.0] * SAMPLES})
    rows = rows[rows["measure"] == "rate"].assign(measure="stable")
    is_open = rows["sample"] == rows["sample"].iloc[0]
    rows.loc[is_open, ["value", "status", "reason"]] = [np.nan, "open", "too near the threshold"]
    assert f"1 of {SAMPLES} stayed open" in " ".join(report.lead(judged(rows)))


def certified_rows(lows: list[float], **more: list[float]) -> pd.DataFrame:
    """Rates, bounds and first draws of one method and radius."""
    n = len(lows)
    entries = [
        ("grad_cam", "rate", "radius", 3.0, [low + 0.05 for low in lows]),
        ("grad_cam", "certified", "radius", 3.0, lows),
        ("grad_cam", "early", "radius", 3.0, [0.9] * n),
        ("grad_cam", "early_draws", "radius", 3.0, [20.0] * n),
    ]
    entries += [("grad_cam", measure, "radius", 3.0, values) for measure, values in more.items()]
    return rows_of(entries, "certificate")


def test_the_next_sample_is_promised_the_smallest_of_nine_bounds_and_nothing_by_eight():
    lows = [0.5, 0.62, 0.71, 0.74, 0.8, 0.83, 0.9, 0.92, 0.95]
    nine = judged(certified_rows(lows), {"delta": 0.1})
    promised = [sentence for sentence in report.lead(nine) if "further sample" in sentence]
    assert len(promised) == 1 and "0.50" in promised[0] and "80 %" in promised[0]
    table = by_key(nine)["scores"].scores
    assert table[table["column"] == "next sample"].score.tolist() == [0.5]
    eight = judged(certified_rows(lows[1:]), {"delta": 0.1})
    assert not any("further sample" in sentence for sentence in report.lead(eight))
    assert "next sample" not in set(by_key(eight)["scores"].scores["column"])


def test_exact_sizes_and_the_search_are_columns_of_the_table():
    rows = certified_rows(
        [0.6] * 10, lowest_rate=[0.4] * 10, withstands_search=[1.0] * 5 + [0.0] * 5
    )
    result = judged(rows, {"delta": 0.1, "added": "exactly"})
    table = by_key(result)["scores"].scores
    means = table.groupby("column").score.first()
    assert means["lowest"] == pytest.approx(0.4) and means["no flip found"] == pytest.approx(0.5)
    assert any("exactly 3 features" in sentence for sentence in report.lead(result))
    assert "at most" not in chart_of(result, "rates").x_label
