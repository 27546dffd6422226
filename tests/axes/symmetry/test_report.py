"""Symmetry in the report: numbers of the components are those of the table, and odd data is drawn too."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import heatproof
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.report import across, lead
from heatproof.axes.symmetry.summaries import (
    SymmetrySummary,
    correlation,
    group_words,
    layer_verdicts,
    summarise,
)
from heatproof.evaluation import GalleryItem
from heatproof.report.canvas import Dot, Plot
from heatproof.report.components import Component, Table
from heatproof.report.draw import MOST_SAMPLES, plots_of
from heatproof.report.findings import findings
from heatproof.report.page import build_report
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import colour_of
from heatproof.results.reports import components_of
from heatproof.runs.results import axis_results
from heatproof.text import number, with_interval
from support.manifests import manifest_of
from support.pages import curve, is_sound, marks
from support.small import model, pictures

N = 24
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
D4 = {"name": "symmetry", "group": {"name": "dihedral", "n": 4}, "elements": 8, "delta": 0.05}


def spread(centre: float, n: int = N, width: float = 0.05, seed: int = 0) -> np.ndarray:
    return np.clip(centre + np.random.default_rng(seed).normal(0, width, n), -1, 1)


def rows_of(
    methods: dict[str, Any],
    model_invariance: Any = 1.0,
    chance: Any = 0.1,
    floors: dict[str, float] | None = None,
    extra: tuple[tuple[str, str, str, float, Any], ...] = (),
    half: float = 0.0,
    n: int = N,
    measures: dict[str, str] | None = None,
) -> pd.DataFrame:
    """The rows of a run: scores by explainer (a number for all samples or one for each), NaN where undefined."""
    entries = []
    for explainer, value in methods.items():
        measure = (measures or {}).get(explainer, "equivariance")
        entries += [(explainer, "model_agreement", "dihedral", 8.0, model_invariance)]
        entries += [(explainer, "model_invariance", "dihedral", 8.0, model_invariance)]
        entries += [(explainer, measure, "dihedral", 8.0, value)]
        if explainer in (floors or {}):
            entries += [(explainer, "noise_floor", "redraw", 0.0, (floors or {})[explainer])]
    frames = []
    for explainer, measure, condition, level, value in (*entries, *extra):
        frame = pd.DataFrame({"value": np.broadcast_to(np.asarray(value, dtype=float), n)})
        frame["sample"] = [f"s{i:03d}" for i in range(n)]
        place = {"condition": condition, "level": level}
        frame = frame.assign(explainer=explainer, measure=measure, **place)
        frame["status"] = np.where(frame.value.isna(), "undefined", "ok")
        frame["reason"] = np.where(frame.value.isna(), "the explanation is zero", "")
        has_chance = measure in ("equivariance", "invariance")
        frame["chance"] = np.where(frame.value.notna() & has_chance, chance, np.nan)
        is_bounded = condition not in ("redraw", "sensitivity")
        frame["low"] = frame.value - half if is_bounded else np.nan
        frame["high"] = frame.value + half if is_bounded else np.nan
        frames.append(frame)
    rows = pd.concat(frames, ignore_index=True)
    rows["dataset"], rows["model"], rows["evaluation"] = "photos", "net", "symmetry"
    rows["role"] = np.where(rows["explainer"].isin(["random", "sobel"]), "control", "method")
    return rows


def result_of(
    rows: pd.DataFrame, gallery=(), settings: Any = D4, explainers: Any = None
) -> AxisResult:
    samples = pd.DataFrame(
        {"sample": sorted(rows["sample"].unique()), "predicted_name": "cat", "probability": 0.9}
    )
    samples = samples.assign(error="", dataset=rows["dataset"].iloc[0], model=rows["model"].iloc[0])
    study = {"explainers": explainers or {}, "evaluations": {"symmetry": settings}}
    (result,) = axis_results(rows, samples, list(gallery), manifest_of(study))
    return result


def summary_of(result: AxisResult) -> SymmetrySummary:
    summary = summarise(result)
    assert summary is not None
    return summary


def by_key(result: AxisResult) -> dict[str, Component]:
    """The components of a result; all of them can be drawn."""
    keyed = {component.key: component for component in components_of(result)}
    for component in keyed.values():
        part = part_of(component, result.looks)
        assert part is not None
        if isinstance(part, Chart):
            is_sound(part)
    return keyed


def drawn(result: AxisResult, key: str) -> list[Plot]:
    return plots_of(by_key(result)[key], result.looks)


def html_of(result: AxisResult, key: str) -> str:
    part = part_of(by_key(result)[key], result.looks)
    assert isinstance(part, Panel)
    return str(part.html)


def rows_of_table(result: AxisResult, key: str) -> dict[str, Any]:
    """The rows of a table by their first column."""
    table = by_key(result)[key]
    assert isinstance(table, Table)
    first = next(iter(table.columns))
    return {row[first]: row for row in table.rows.to_dict("records")}


def test_the_boxes_hold_the_numbers_of_the_table():
    ig, lime = spread(0.7), spread(0.3, seed=1)
    rows = rows_of({"lime": lime, "ig": ig, "random": spread(0.12)}, floors={"lime": 0.25})
    result = result_of(rows)
    (plot,) = drawn(result, "boxes")
    shown = marks([plot])
    methods = shown[shown["method"].notna()]
    assert methods["name"].tolist() == ["ig", "LIME", "Random map"], "best on top"
    faint = [piece for piece in plot.sheet.pieces if isinstance(piece, Dot) and piece.opacity < 1]
    assert len(faint) == 3 * N, "every sample is a faint dot"
    assert {dot.colour for dot in faint} == {colour_of("ig"), colour_of("lime"), "control"}, (
        "controls are grey"
    )
    summary = result.summary
    summary = summary[
        (summary.measure == "equivariance") & (summary.condition == "dihedral")
    ].set_index("explainer")
    for row in summary_of(result).explainers.itertuples():
        expected = summary.loc[row.explainer, ["mean", "low", "high", "chance"]].tolist()
        assert [row.score, row.low, row.high, row.chance] == pytest.approx(expected, abs=1e-6)
    of_plot = methods.set_index("name")[["value", "low", "high"]]
    for name, explainer in (("ig", "ig"), ("LIME", "lime")):
        assert of_plot.loc[name].tolist() == pytest.approx(
            summary.loc[explainer, ["mean", "low", "high"]].tolist(), abs=1e-5
        )
    assert "0.25" in methods.set_index("name").loc["LIME", "said"]
    assert shown.set_index("name").loc["chance", "value"] == pytest.approx(0.1)


def test_the_error_of_drawn_elements_is_told():
    exact = result_of(rows_of({"ig": spread(0.7)}))
    sampled = result_of(rows_of({"ig": spread(0.7)}, half=0.21))
    caption_of_all = by_key(exact)["boxes"].caption
    assert "D4" in caption_of_all and "±" not in caption_of_all
    caption = by_key(sampled)["boxes"].caption
    assert "8 elements" in caption and "±0.21" in caption and "95 %" in caption


def test_kinds_are_kept_apart():
    rows = rows_of(
        {"ig": 0.9, "tracin": spread(0.5), "cav(layer=1)": spread(0.6), "mine": spread(0.4)},
        measures={"tracin": "invariance", "cav(layer=1)": "invariance", "mine": "invariance"},
    )
    known = {"tracin": {"name": "tracin"}, "cav(layer=1)": {"name": "cav", "layer": "1"}}
    explainers = summary_of(result_of(rows, explainers=known)).explainers
    assert explainers.kind.tolist() == ["feature", "example", "concept", "example or concept"]
    titles = [plot.title for plot in drawn(result_of(rows, explainers=known), "boxes")]
    for title, kind in zip(titles, explainers.kind, strict=True):
        assert title.startswith(kind.capitalize())
    named = result_of(
        rows, explainers={**known, "mine": {"name": "symmetrised", "of": {"name": "cav"}}}
    )
    assert summary_of(named).explainers.kind.tolist().count("concept") == 2, (
        "the manifest knows what a name stands for"
    )
    said = lead(named)
    by_measure = {
        word: s for s in said for word in ("equivariance", "invariance") if f"By {word}:" in s
    }
    tracin = named.name_of("tracin")
    assert named.name_of("ig") in by_measure["equivariance"]
    assert tracin not in by_measure["equivariance"] and tracin in by_measure["invariance"]


def test_relaxed_invariance_is_drawn_where_something_is_relaxed():
    invariance = np.linspace(0.8, 1, N)
    result = result_of(rows_of({"ig": spread(0.7), "sobel": 1.0}, model_invariance=invariance))
    plot = next(plot for plot in drawn(result, "model-invariance") if plot.title == "ig")
    cloud = marks([plot])
    assert cloud["x"].tolist() == pytest.approx(invariance, abs=1e-5)
    assert cloud["value"].tolist() == pytest.approx(spread(0.7), abs=1e-5)
    assert f"{spread(0.7).mean():.3f} [" in plot.note
    assert f"{invariance.mean():.2f}" in by_key(result)["model-invariance"].caption
    assert "model-invariance" not in by_key(result_of(rows_of({"ig": spread(0.7)})))


def test_clouds_are_thinned_the_same_way_every_time():
    n = 3 * MOST_SAMPLES
    result = result_of(
        rows_of({"ig": spread(0.7, n)}, model_invariance=np.linspace(0.8, 1, n), n=n)
    )
    clouds = [marks(drawn(result, "model-invariance"))["value"].tolist() for _ in range(2)]
    assert len(clouds[0]) == MOST_SAMPLES and clouds[0] == clouds[1]
    (plot,) = drawn(result, "boxes")
    faint = [piece for piece in plot.sheet.pieces if isinstance(piece, Dot) and piece.opacity < 1]
    assert len(faint) == MOST_SAMPLES
    assert marks([plot])["value"].iloc[-1] == pytest.approx(spread(0.7, n).mean(), abs=1e-5)


def test_the_curve_of_symmetrised_methods_starts_at_the_plain_score():
    repair = tuple(
        ("ig", "symmetrised", "symmetrised", level, v) for level, v in ((4.0, 0.9), (8.0, 1.0))
    )
    result = result_of(rows_of({"ig": spread(0.7), "sobel": 1.0}, extra=repair))
    points = curve(drawn(result, "symmetrised"), "ig")
    assert points["x"].tolist() == [1, 4, 8]
    assert points["value"].tolist() == pytest.approx([spread(0.7).mean(), 0.9, 1.0], abs=1e-5)
    one = ("ig", "symmetrised", "symmetrised", 1.0, 0.71)
    with_one = result_of(rows_of({"ig": spread(0.7)}, extra=(one, *repair)))
    measured = curve(drawn(with_one, "symmetrised"), "ig")["value"].tolist()
    assert measured == pytest.approx([0.71, 0.9, 1.0])
    assert "symmetrised" not in by_key(result_of(rows_of({"ig": spread(0.7)})))
    loose = result_of(rows_of({"ig": spread(0.7)}, model_invariance=0.9, extra=repair))
    captions = [by_key(of_model)["symmetrised"].caption for of_model in (result, loose)]
    assert captions[0] != captions[1], "averaging hides what a model that is not invariant does"


def test_sensitivity_is_set_against_the_score_with_spearman():
    changes = np.random.default_rng(3).random(N)
    sensitivity = ("ig", "max_sensitivity", "sensitivity", 0.02, changes)
    (plot,) = drawn(result_of(rows_of({"ig": spread(0.7)}, extra=(sensitivity,))), "sensitivity")
    dots = marks([plot])
    rho = stats.spearmanr(changes, spread(0.7)).statistic
    assert f"ρ {number(rho, 1)} [" in plot.note, "24 samples leave one digit"
    assert dots["x"].tolist() == pytest.approx(changes, abs=1e-5)
    assert dots["value"].tolist() == pytest.approx(spread(0.7), abs=1e-5)


def test_a_correlation_needs_spread_and_eight_samples_for_an_interval():
    ties, other = np.array([1.0, 1.0, 2.0, 3.0, 3.0]), np.array([2.0, 1.0, 4.0, 3.0, 9.0])
    few = correlation(ties, other)
    assert few is not None and math.isnan(few.low)
    assert few.score == pytest.approx(stats.spearmanr(ties, other).statistic)
    generator = np.random.default_rng(0)
    many = correlation(generator.random(12), generator.random(12))
    assert many is not None and many.low < many.score < many.high
    assert correlation(np.ones(9), np.arange(9.0)) is None


def test_the_table_has_score_chance_and_noise_floor_and_the_best_method_in_bold():
    values = {"ig": spread(0.8), "lime": np.r_[np.nan, spread(0.3, N - 1)], "random": spread(0.12)}
    result = result_of(rows_of(values, floors={"lime": 0.25}))
    table = by_key(result)["scores"]
    cells = table.scores.set_index(["row", "column"])
    assert cells.loc[("ig", "Score"), "score"] == pytest.approx(spread(0.8).mean())
    assert cells.loc[("ig", "Chance"), "score"] == pytest.approx(0.1)
    assert cells.loc[("lime", "Noise floor"), "score"] == pytest.approx(0.25)
    ranked = result.ranking.set_index("explainer")["score"]
    for explainer in values:
        calibrated = cells.loc[(explainer, "Calibrated"), "score"]
        assert calibrated == pytest.approx(ranked[explainer])
    assert cells.index[cells["best"].eq(True)].tolist() == [("ig", "Calibrated")]
    assert f"LIME {N - 1} of {N}" in table.caption


def layer_rows() -> tuple[tuple[str, str, str, float, Any], ...]:
    found = []
    for layer, same, moved in (
        ("pool", 1e-6, np.nan),
        ("conv", 0.8, 2e-6),
        ("fc", 0.5, 0.7),
        ("dead", np.nan, np.nan),
    ):
        for explainer in ("ig", "sobel"):  # the rows are repeated for every explainer
            found += [(explainer, "layer_invariance_error", layer, 8.0, same)]
            found += [(explainer, "layer_equivariance_error", layer, 8.0, moved)]
    return tuple(found)


def test_layers_are_judged_by_their_largest_error():
    result = result_of(
        rows_of({"ig": 0.9, "sobel": 1.0}, extra=layer_rows()),
        settings={**D4, "layers": ["conv", "pool"]},
    )
    verdicts = layer_verdicts(result).set_index("layer").verdict
    assert verdicts.to_dict() == {
        "conv": "equivariant",
        "pool": "invariant",
        "fc": "neither",
        "dead": "unknown",
    }
    assert verdicts.index[:2].tolist() == ["conv", "pool"], "in the order of the study"
    html = html_of(result, "layers")
    assert "0.80" in html and "2e−06" in html
    assert "24" in by_key(result)["layers"].caption, "outputs without an error"
    assert "layers" not in by_key(result_of(rows_of({"ig": 0.9})))


def gallery(
    explainers=("ig", "lime"),
    samples=("s000", "s001"),
    side=32,
    note="equivariance -0.12, the lowest of 8",
):
    generator = np.random.default_rng(0)
    found = []
    for explainer in explainers:
        for sample in samples:
            for condition, level in (("clean", 0.0), ("dihedral", 8.0)):
                image = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
                attribution = generator.normal(size=(side, side)).astype(np.float32)
                place = (
                    "photos",
                    "net",
                    explainer,
                    condition,
                    level,
                    sample,
                    image,
                    attribution,
                    "symmetry",
                )
                found.append(GalleryItem(*place, note="" if condition == "clean" else note))
    return found


def test_the_gallery_shows_the_worst_sample_of_each_method():
    values = {"ig": np.r_[0.2, 0.1, [0.5] * (N - 2)], "lime": np.r_[-0.3, np.nan, [0.5] * (N - 2)]}
    result = result_of(rows_of(values), gallery())
    cards = html_of(result, "worst").split("<figure")[1:]
    assert [("LIME" in card, "s000" in card) for card in cards] == [(True, True), (False, False)], (
        "worst method first"
    )
    assert "s001" in cards[1] and "equivariance −0.12" in cards[1]
    rows = result.rows[
        (result.rows["explainer"] == "ig") & (result.rows["sample"] == "s001")
    ].set_index("measure")
    chance = float(rows["chance"]["equivariance"])
    assert f">{number((0.1 - chance) / (1 - chance))}<" in cards[1], (
        "calibrated, as on the proof sheet"
    )
    for card in cards:
        sources = re.findall(
            r'<img class="([a-z ]+)" src="data:image/webp;[^"]+" alt="([^"]*)">', card
        )
        assert [kind for kind, _ in sources] == ["photo", "map signed"] * 2 and len(
            {alt for _, alt in sources}
        ) == 3
    assert "worst" not in by_key(result_of(rows_of(values)))
    assert "worst" not in by_key(result_of(rows_of(values), gallery()[:1]))


def test_a_large_gallery_stays_small():
    names = tuple(f"method_{i}" for i in range(30))
    result = result_of(
        rows_of({name: 0.01 * i for i, name in enumerate(names)}),
        gallery(names, ("s000",), side=224),
    )
    html = html_of(result, "worst")
    assert len(html) < 3_000_000
    assert html.split("<details>")[0].count("<figure") == 12 and html.count("<figure") == 30


def answers(result: AxisResult) -> dict[str, list[str]]:
    """The answers of the table of guidelines: of the model, and of every method."""
    rows = rows_of_table(result, "guidelines")
    return {name: [row["model"], row["kind"], row["is_close"]] for name, row in rows.items()}


def test_the_guidelines_are_answered_for_every_method():
    good = result_of(rows_of({"ig": 1.0, "sobel": 1.0}))
    ((model_answer, *of_method),) = answers(good).values()
    assert "Yes" in model_answer and of_method == ["feature", "yes"], "controls have no place there"
    mixed = result_of(rows_of({"ig": 0.5, "grad": 0.995}))
    assert {name: close for name, (_, _, close) in answers(mixed).items()} == {
        "ig": "no",
        "grad": "yes",
    }
    loose = result_of(rows_of({"ig": 0.5}, model_invariance=0.95))
    assert "No" in answers(loose)["ig"][0] and answers(loose)["ig"][2] == "no"
    unknown = result_of(rows_of({"ig": 0.5}, model_invariance=np.nan))
    assert not re.search("Yes|No ", answers(unknown)["ig"][0])
    assert "guidelines" not in by_key(result_of(rows_of({"sobel": 1.0})))
    caption = by_key(good)["guidelines"].caption
    assert "0.999" in caption and "0.99" in caption


def test_the_guidelines_say_what_to_do():
    extra = (
        *layer_rows(),
        ("cav", "symmetrised", "symmetrised", 4.0, 0.8),
        ("cav", "symmetrised", "symmetrised", 8.0, 1),
    )
    extra += (("cars", "symmetrised", "symmetrised", 4.0, 0.8),)
    rows = rows_of(
        {"ig": 1.0, "sobel": 1.0, "cav": 0.5, "cars": 0.5, "tracin": 0.5},
        measures=dict.fromkeys(("cav", "cars", "tracin"), "invariance"),
        floors={"ig": 0.66},
        extra=extra,
    )
    named = {"cav": {"name": "cav", "layer": "conv"}, "cars": {"name": "car", "layer": "other"}}
    named["tracin"] = {"name": "tracin"}
    result = result_of(rows, explainers=named)
    table = rows_of_table(result, "guidelines")
    advice = {name: row["advice"] for name, row in table.items()}
    assert "0.66" in advice["ig"]
    assert "layer conv" in advice["cav"] and "equivariant" in advice["cav"]
    assert "pool" in advice["cav"], "an invariant layer"
    assert re.search(r"8 elements.*1\.000", table["cav"]["symmetrised"])
    assert "layer other" in advice["cars"] and "4 elements" in table["cars"]["symmetrised"]
    assert "loss" in advice["tracin"] and table["tracin"]["symmetrised"] == ""


def test_the_lead_names_the_best_method_with_its_interval():
    result = result_of(
        rows_of({"lime": spread(0.3), "ig": spread(0.8, seed=1), "random": spread(0.1)})
    )
    row = result.ranking.set_index("explainer").loc["ig"]
    first = lead(result)[0]
    assert first.startswith("ig ")
    assert with_interval(row["score"], row["low"], row["high"]) in first
    tied = result_of(rows_of({"lime": spread(0.8), "ig": spread(0.8, seed=1)}))
    assert re.search(r"[Uu]ndecided.*\b(LIME.* and ig|ig.* and LIME)\b", lead(tied)[0])
    exact = result_of(
        rows_of(
            {"a": 1 - spread(1e-7, width=1e-8), "b": 1 - spread(2e-7, width=1e-8), "c": spread(0.4)}
        )
    )
    said = lead(exact)[0]
    assert re.search(r"[Uu]ndecided between a .* and b ", said), "1e-7 is no difference"


def test_the_lead_is_honest_about_model_chance_controls_and_floor():
    result = result_of(
        rows_of(
            {"shap": spread(0.9), "lime": spread(0.1, seed=4), "sobel": 1.0},
            floors={"shap": 0.6},
        )
    )
    sentences = " ".join(lead(result))
    assert "D4" in sentences
    assert re.search(r"[Nn]o method .*Edge filter.*1\.00", sentences)
    loose = result_of(rows_of({"ig": spread(0.9)}, model_invariance=spread(0.9, seed=8)))
    assert "not invariant" in " ".join(lead(loose))


def test_undefined_scores_are_findings_with_their_reasons():
    values = np.r_[[np.nan] * 4, spread(0.5, N - 4)]
    result = result_of(rows_of({"ig": spread(0.9), "lime": values}))
    found = findings([result], result.samples, result.manifest)
    (undefined,) = [finding for finding in found if finding.rule == "undefined-maps"]
    assert undefined.items == ("LIME: 4 × the explanation is zero",)
    nothing = result_of(rows_of({"ig": np.nan}))
    assert components_of(nothing) == [] and lead(nothing)


def test_one_sample_has_no_interval():
    extra = (
        ("ig", "max_sensitivity", "sensitivity", 0.02, 0.3),
        ("ig", "symmetrised", "symmetrised", 4.0, 0.9),
    )
    result = result_of(rows_of({"ig": 0.7, "lime": 0.4}, model_invariance=0.9, n=1, extra=extra))
    expected = {"boxes", "guidelines", "model-invariance", "symmetrised", "sensitivity", "scores"}
    assert set(by_key(result)) == expected
    score = result.ranking.set_index("explainer").loc["ig", "score"]
    assert f"{score:.2f}" in lead(result)[0] and "[" not in lead(result)[0]


def test_missing_measures_leave_out_their_parts():
    rows = rows_of({"ig": spread(0.7)}, model_invariance=0.9)
    only = rows[rows.measure == "equivariance"]
    assert set(by_key(result_of(only, settings={}))) == {"boxes", "guidelines", "scores"}
    assert lead(result_of(only, settings={}))
    bare = result_of(rows[rows.measure == "model_invariance"])
    assert components_of(bare) == [] and lead(bare)
    foreign = result_of(rows, settings={"group": {"name": "of_another_version", "n": 3}})
    assert "of_another_version" in by_key(foreign)["boxes"].caption
    own = {"name": "own", "title": "change of <sign>", "interpolating": True}
    summary = summary_of(result_of(rows, settings={"group": own}))
    assert summary.group_title == "change of <sign>" and summary.interpolates
    both = [{"name": "cyclic", "dim": -1}, {"name": "dihedral", "n": 8}]
    product = {"group": {"name": "product", "factors": both}}
    assert summary_of(result_of(rows, settings=product)).interpolates


def nasty() -> AxisResult:
    extra = (
        (NASTY, "max_sensitivity", "sensitivity", 0.02, spread(0.3)),
        (NASTY, "symmetrised", "symmetrised", 4.0, 0.9),
        (NASTY, "layer_invariance_error", NASTY + "layer", 8.0, 0.5),
    )
    rows = rows_of(
        {NASTY: np.r_[np.nan, spread(0.7, N - 1)], "b": spread(0.2)},
        model_invariance=spread(0.9),
        extra=extra,
    )
    rows["sample"] += NASTY
    rows["reason"] = rows["reason"].where(rows["reason"] == "", NASTY)
    shown = gallery((NASTY,), (f"s001{NASTY}",), note=NASTY)
    settings = {**D4, "group": {"name": "own", "title": NASTY}}
    result = result_of(rows, shown, settings)
    return replace(result, samples=result.samples.assign(predicted_name=NASTY))


def test_names_are_inert():
    result = nasty()
    components = by_key(result)
    assert {"layers", "worst", "guidelines", "model-invariance"} <= set(components)
    for component in components.values():
        part = part_of(component, result.looks)
        if isinstance(part, Panel):
            html = str(part.html)
            assert "<script" not in html and "<img src=x" not in html
            assert "onerror=alert(2)&gt;" in html
        for plot in plots_of(component, result.looks):
            drawing = str(plot.sheet.svg())
            assert "<script" not in drawing and "<img" not in drawing


def test_names_are_inert_on_the_page():
    result = nasty()
    page = build_report([result], result.samples, result.manifest)
    assert len(re.findall("<script", page)) == 2 and "<img src=x" not in page
    charts = re.findall('class="chart" id="symmetry-([^"]+)"', page)
    assert set(charts) == {"boxes", "model-invariance", "symmetrised", "sensitivity"}


def test_models_are_set_side_by_side():
    loose = rows_of({"ig": spread(0.4), "lime": spread(0.3)}, model_invariance=spread(0.8)).assign(
        model="plain <b>"
    )
    tight = rows_of({"ig": spread(0.9)}, model_invariance=1.0)
    results = [result_of(tight), result_of(loose)]
    (chart,) = across(results)
    plots = plots_of(chart, results[1].looks)
    points = curve(plots, "ig")
    assert points["x"].tolist() == pytest.approx([spread(0.8).mean(), 1.0], abs=1e-5)
    means = [spread(0.4).mean(), spread(0.9).mean()]
    assert points["value"].tolist() == pytest.approx(means, abs=1e-5)
    assert "plain <b> (0.79" in chart.caption and "photos" in chart.title
    assert not any("<b>" in plot.sheet.svg() for plot in plots)
    assert list(across([result_of(tight)])) == []


def test_a_real_run_is_drawn():
    evaluation = Symmetry(
        group={"dihedral": {"n": 2}},
        repair=(2,),
        sensitivity=0.02,
        sensitivity_draws=2,
        layers=("10",),
    )
    run = heatproof.evaluate(
        model(), pictures(4), ["saliency", "gradient_shap", "random"], evaluation
    )
    rows = run.table()
    (result,) = run.results(gallery=True)
    assert list(by_key(result)) == [
        "boxes",
        "guidelines",
        "model-invariance",
        "symmetrised",
        "sensitivity",
        "scores",
        "layers",
        "worst",
    ]
    summary = summary_of(result)
    assert summary.is_exhaustive and summary.elements == 4 and "D2" in summary.group_title
    of_saliency = rows[(rows.measure == "equivariance") & (rows.explainer == "saliency")]
    explainers = summary.explainers.set_index("explainer")
    assert explainers.loc["saliency", "score"] == pytest.approx(of_saliency.value.mean())
    assert explainers.loc[["gradient_shap", "random"], "noise_floor"].notna().all()
    assert html_of(result, "worst").count("<img") == 8, "controls have no place there"


def test_a_group_of_another_version_keeps_its_name():
    assert group_words({"group": {"name": "unheard_of", "n": 3}}) == ("unheard_of", False)
    assert group_words({"group": {"name": "dihedral", "n": 8}})[1], "it interpolates"
