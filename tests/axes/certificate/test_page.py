"""The certificates and the sweep over λ on the page: charts from known rows, and from a real small run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof import Certificate
from heatproof.axes import BY_NAME, arrange, axis_results
from heatproof.axes.certificate import page as certified
from heatproof.axes.certificate import smoothing_page as smoothed
from heatproof.axes.certificate.evaluation import EXPLANATION, FLIP, INPUT, NO_FLIP
from heatproof.axes.certificate.shares import accuracy, certified_mean, guaranteed_shares
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.axes.certificate.words import certificate_lead
from heatproof.axes.contract import AxisResult, findings_of, page_of
from heatproof.drawing.charts import Panel
from heatproof.drawing.prose import at_least
from heatproof.evaluation import GalleryItem
from heatproof.features import Patches
from heatproof.runs.gallery import read_gallery
from heatproof.statistics import exact_share
from heatproof.statistics.bounds import clopper_pearson_low
from support.manifests import manifest_of
from support.pages import curve, is_sound, marks
from support.small import model, pictures
from support.synthetic import rows_of

SAMPLES = 10
NAMES = ("grad_cam", "random")


def judged(rows: pd.DataFrame, settings=None) -> AxisResult:
    (cube,) = arrange(rows)
    samples = pd.DataFrame(columns=["sample"])
    return AxisResult(
        BY_NAME[cube.evaluation], cube, rows, samples, [], settings or {}, manifest_of(), rows
    )


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
    (cube,) = arrange(sweep_rows(bernoulli=True))
    shares = guaranteed_shares(cube, 0.9).set_index(["explainer", "keep", "rule", "level"])
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
        exact_share(7, 10)
    )


def test_the_chart_of_guarantees_has_two_families_of_curves():
    chart = smoothed.guarantee_chart(judged(sweep_rows(), {"epsilon": 0.1, "delta": 0.05}))
    is_sound(chart)
    assert [(p.title, p.note) for p in chart.plots[:2]] == [
        ("Grad-CAM", "λ = 0.25"),
        ("Grad-CAM", "λ = 1"),
    ]
    found = marks(chart.plots).groupby("name")["value"].agg(list)
    assert found["Grad-CAM, SCA, λ = 0.25"] == [0.7, 0.5] and found["Grad-CAM, MuS, λ = 0.25"] == [
        0.4,
        0.0,
    ]
    assert {name.split(", ", 1)[1] for name in found.index} == {
        f"{r}, λ = {k}" for r in ("hard", "MuS", "SCA") for k in ("0.25", "1")
    }
    for fact in ("τ = 1", "τ ≥ 0.9", "0.95", "204 passes"):
        assert fact in chart.caption
    decided = smoothed.guarantee_chart(judged(sweep_rows(), {"mode": "decide", "threshold": 0.5}))
    assert "τ ≥ 0.5" in decided.caption
    assert "MuS*" in smoothed.guarantee_chart(judged(sweep_rows(bernoulli=True))).caption


def test_rules_are_drawn_beside_each_other_with_a_curve_for_every_method():
    chart = smoothed.rule_chart(judged(sweep_rows()))
    is_sound(chart)
    assert [(p.title, p.note) for p in chart.plots[:3]] == [
        ("MuS", "λ = 0.25"),
        ("MuS", "λ = 1"),
        ("SCA", "λ = 0.25"),
    ]
    found = marks(chart.plots[2:3]).groupby("name")["value"].agg(list)
    assert found["Grad-CAM"] == [0.7, 0.5] and len(found) == 2


def test_accuracy_counts_labelled_samples_once():
    (cube,) = arrange(sweep_rows())
    rows = accuracy(cube)
    assert (
        rows.keep.tolist() == [0.25, 1.0]
        and rows.n.tolist() == [9, 9]
        and rows.yes.tolist() == [6, 8]
    )
    assert (rows.low[0], rows.high[0]) == pytest.approx(exact_share(6, 9))
    found = marks(smoothed.accuracy_chart(cube).plots)
    assert found["value"].tolist() == pytest.approx([6 / 9, 8 / 9], abs=1e-5) and found[
        "x"
    ].tolist() == [0.25, 1.0]
    unlabelled = sweep_rows().query("measure != 'correct'")
    assert smoothed.accuracy_chart(arrange(unlabelled)[0]) is None
    assert len(smoothed.parts(judged(unlabelled))) == 2


def test_every_curve_of_rates_has_its_bound():
    chart = smoothed.rates_chart(judged(sweep_rows()))
    assert [plot.note for plot in chart.plots] == ["λ = 1", "λ = 1", "λ = 0.25", "λ = 0.25"]
    for plot in chart.plots:
        bound, rate = (curve([plot], f"{plot.title}, {name}") for name in ("guaranteed", "rate"))
        assert (
            rate["x"].tolist() == bound["x"].tolist() == [1.0, 2.0]
            and (bound["value"] < rate["value"]).all()
        )


def test_decisions_and_hard_certificates_have_a_chart():
    answers = [1.0] * 5 + [0.0] * 3 + [np.nan] * 2
    entries = [
        (e, m, "radius", 3.0, v)
        for e in NAMES
        for m, v in (("stable", answers), ("certified", [0.5] * 10))
    ]
    chart = certified.answer_chart(judged(rows_of(entries, "certificate"), {"threshold": 0.8}))
    assert "τ ≥ 0.8" in chart.title
    found = marks(chart.plots).set_index("name")["value"]
    assert found["Grad-CAM"] == 0.5 and found["Grad-CAM, not refuted"] == 0.7
    entries = [(e, m, "radius", 3.0, [1.0] * 10) for e in NAMES for m in ("unflipped", "certified")]
    chart = certified.answer_chart(judged(rows_of(entries, "certificate"), {"epsilon": 0.2}))
    assert "τ ≥ 0.8" in chart.title and "hard" in chart.caption
    assert certified.rate_chart(judged(rows_of(entries, "certificate"))) is None


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

    def example(gallery: list[GalleryItem]) -> Panel | None:
        return certified.example(replace(judged(rows_of(entries, "certificate")), gallery=gallery))

    panel = example(shown)
    head, folded = panel.html.split("<details>")
    assert "s1" in head and "s0" not in head and NO_FLIP in folded
    assert head.count("<img") == 8 and folded.count("<img") == 2 + 4
    assert "2 features" in head and "1 feature " in head and "teapot (41 %)" in head
    assert (
        "cat &lt;b&gt;" in head
        and "<b>" not in head.replace("<figcaption><b>", "")
        and "Grad-CAM" in head
    )
    assert all(
        src.startswith("data:image/webp;base64,")
        for src in re.findall(r'src="([^"]+)"', panel.html)
    )
    assert example([]) is None and example(shown[:2]) is None


def test_the_added_features_stand_out():
    image = np.full((64, 64, 3), 200, np.uint8)
    region = np.zeros((64, 64), bool)
    region[16:32, 16:32] = True
    picture = certified.highlighted(image, region)
    assert (picture[20, 20] == 200).all() and (picture[40, 40] == 60).all()
    assert tuple(picture[16, 20]) == tuple(picture[31, 31]) == certified.HIGHLIGHT
    assert (image == 200).all()


def test_a_real_run_is_drawn():
    axes = {
        "certificate": Certificate(radii=(1, 6), features=Patches(8)),
        "smoothing": Smoothing(
            keeps=(0.5, 1.0), samples=4, radii=(1, 3), features=Patches(8), epsilon=0.3
        ),
    }
    done = heatproof.evaluate(model(), pictures(4), ["saliency", "random"], axes)
    results = axis_results(done.table(), done.samples(), read_gallery(done.path), done.manifest)
    drawn = {result.label: page_of(result.axis).parts(result) for result in results}
    assert [part.key for part in drawn["certificate"]] == ["certified", "calibrated", "example"]
    assert isinstance(drawn["certificate"][-1], Panel)
    assert [part.key for part in drawn["smoothing"]] == [
        "guarantees",
        "accuracy",
        "rates",
        "calibrated",
    ]
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
    said = " ".join(certificate_lead(judged(certificate_rows(rates), {"delta": 0.1})))
    low = clopper_pearson_low(180, 200, 0.1)
    assert at_least(float(low)) in said
    assert "0.1" in said
    assert "6 of 10" in said
    together = " ".join(
        certificate_lead(judged(certificate_rows(rates), {"delta": 0.1, "simultaneous": True}))
    )
    assert at_least(float(clopper_pearson_low(180, 200, 0.05))) in together
    anchored = " ".join(certificate_lead(judged(certificate_rows(rates), {"anchor": "full"})))
    assert "whole input" in anchored
    exact = " ".join(certificate_lead(judged(certificate_rows(rates, draws=0))))
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
    lead = " ".join(certificate_lead(result))
    assert f"{(0.9 - 0.62) / 0.38:.1f}" in lead and "0.62" in lead
    assert at_least(float(clopper_pearson_low(180, 200, 0.1))) in lead
    (found,) = [f for f in findings_of(result) if "random" in f.title]
    assert found.explainers == ("level",)
    (ranked,) = result.ranking[result.ranking["explainer"] == "ahead"].to_dict("records")
    assert ranked["score"] == pytest.approx((0.9 - 0.62) / 0.38)
    assert ranked["raw"] == pytest.approx(0.9)

    charts = {part.key: part for part in certified.parts(result)}
    for chart in charts.values():
        is_sound(chart)
    found = marks(charts["certified"].plots).set_index("name")["value"]
    assert found["ahead, rate"] == pytest.approx(0.9)
    assert found["ahead, guaranteed"] == pytest.approx(0.8)
    assert found["ahead, chance"] == pytest.approx(0.62)
    found = marks(charts["calibrated"].plots).set_index("name")["value"]
    assert found["ahead"] == pytest.approx((0.9 - 0.62) / 0.38, abs=1e-5)


def test_where_random_features_always_keep_the_prediction_no_method_is_above_them():
    result = judged(with_chance(certificate_rows({"a": [1.0] * SAMPLES}), 1.0))
    (found,) = [f for f in findings_of(result) if "random" in f.title]
    assert found.explainers == ("a",) and "1.00" in found.seen
    assert all(part.key for part in certified.parts(result))
    assert "1.00" in " ".join(certificate_lead(result))


@pytest.mark.parametrize("n", [1, SAMPLES])
@pytest.mark.parametrize("names", [("random",), ("random", "sobel"), ("a",)])
def test_controls_are_not_called_methods_and_one_sample_is_one(names, n):
    rows = certificate_rows({name: [0.8] * SAMPLES for name in names})
    rows = rows[rows["sample"].isin([f"s{i:02}" for i in range(n)])]
    for chance in (np.nan, 0.5):
        lead = " ".join(certificate_lead(judged(with_chance(rows, chance))))
        assert "0.8" in lead and "1 samples" not in lead
        assert ("no method to judge" in lead) is ("a" not in names)
    sweep = sweep_rows().query("explainer == 'random'")
    sweep = sweep[sweep["sample"].isin([f"s{i:02}" for i in range(n)])]
    page = page_of(BY_NAME["smoothing"])
    said = " ".join(page.lead(judged(sweep)))
    assert "method" not in said and "1 labelled samples" not in said


def test_without_a_rate_nothing_is_certified_and_nothing_is_drawn():
    assert smoothed.rates_chart(judged(sweep_rows())) is not None
    assert smoothed.rates_chart(judged(sweep_rows().query("measure != 'rate'"))) is None
    entries = [
        ("grad_cam", m, "radius", 1.0, [np.nan] * 4) for m in ("rate", "early", "early_draws")
    ]
    undecided = rows_of(
        [("grad_cam", m, "radius", 1.0, [np.nan] * 4) for m in ("stable", "certified")],
        "certificate",
    )
    assert certified.answer_chart(judged(undecided)) is None
    assert (
        certified.answer_chart(judged(undecided.assign(value=1.0, status="ok", reason="")))
        is not None
    )
    bound, n = certified_mean(judged(rows_of(entries, "certificate")), "grad_cam", ("radius", 1.0))
    assert np.isnan(bound) and n == 0


def test_a_share_of_the_decided_samples_says_how_many_stayed_open():
    rows = certificate_rows({"a": [1.0] * SAMPLES})
    rows = rows[rows["measure"] == "rate"].assign(measure="stable")
    is_open = rows["sample"] == rows["sample"].iloc[0]
    rows.loc[is_open, ["value", "status", "reason"]] = [np.nan, "open", "too near the threshold"]
    assert f"1 of {SAMPLES} stayed open" in " ".join(certificate_lead(judged(rows)))
