"""Symmetry on the page: numbers of the charts are those of the table, words say no more, and odd data is drawn too."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import heatproof
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.frames import Symmetries, group_words, layer_verdicts, symmetries
from heatproof.axes.symmetry.page import MOST_DOTS, PAGE, correlation
from heatproof.axes.symmetry.panels import failures, flow_chart, layer_table
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import colour_of
from heatproof.drawing.prose import number, with_interval
from heatproof.drawing.sheet import Dot
from heatproof.evaluation import GalleryItem
from heatproof.results.axis_result import AxisResult
from heatproof.runs.results import axis_results
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


def measured_in(result: AxisResult) -> Symmetries:
    measured = symmetries(result)
    assert measured is not None
    return measured


def by_key(result: AxisResult) -> dict[str, Any]:
    return {part.key: part for part in PAGE.parts(result)}


def test_the_boxes_hold_the_numbers_of_the_table():
    ig, lime = spread(0.7), spread(0.3, seed=1)
    rows = rows_of({"lime": lime, "ig": ig, "random": spread(0.12)}, floors={"lime": 0.25})
    result = result_of(rows)
    chart = by_key(result)["boxes"]
    is_sound(chart)
    (plot,) = chart.plots
    shown = marks([plot])
    methods = shown[shown["method"].notna()]
    assert methods["name"].tolist() == ["ig", "LIME", "Random"], "best on top, by mean"
    faint = [piece for piece in plot.sheet.pieces if isinstance(piece, Dot) and piece.opacity < 1]
    assert len(faint) == 3 * N, "every sample is a faint dot"
    assert {dot.colour for dot in faint} == {colour_of("ig"), colour_of("lime"), "control"}, (
        "controls are grey"
    )
    summary = result.summary
    summary = summary[
        (summary.measure == "equivariance") & (summary.condition == "dihedral")
    ].set_index("explainer")
    for row in measured_in(result).means.itertuples():
        wanted = summary.loc[row.explainer, ["mean", "low", "high", "chance"]].tolist()
        assert [row.mean, row.mean_low, row.mean_high, row.chance] == pytest.approx(
            wanted, abs=1e-6
        )
    drawn = methods.set_index("name")[["value", "low", "high"]]
    for name, explainer in (("ig", "ig"), ("LIME", "lime")):
        assert drawn.loc[name].tolist() == pytest.approx(
            summary.loc[explainer, ["mean", "low", "high"]].tolist(), abs=1e-5
        )
    assert "0.25" in methods.set_index("name").loc["LIME", "said"]
    assert shown.set_index("name").loc["chance", "value"] == pytest.approx(0.1)


def test_the_error_of_drawn_elements_is_told():
    exact = result_of(rows_of({"ig": spread(0.7)}))
    drawn = result_of(rows_of({"ig": spread(0.7)}, half=0.21))
    whole = by_key(exact)["boxes"].caption
    assert "D4" in whole and "±" not in whole
    assert "±0.21" in by_key(drawn)["boxes"].caption
    assert any("8 elements" in s and "±0.21" in s and "95 %" in s for s in PAGE.lead(drawn))
    assert not any("±" in s for s in PAGE.lead(exact))


def test_kinds_are_kept_apart():
    rows = rows_of(
        {"ig": 0.9, "tracin": spread(0.5), "cav(layer=1)": spread(0.6), "mine": spread(0.4)},
        measures={"tracin": "invariance", "cav(layer=1)": "invariance", "mine": "invariance"},
    )
    known = {"tracin": {"name": "tracin"}, "cav(layer=1)": {"name": "cav", "layer": "1"}}
    means = measured_in(result_of(rows, explainers=known)).means
    assert means.kind.tolist() == ["feature", "example", "concept", "example or concept"]
    titles = [plot.title for plot in by_key(result_of(rows, explainers=known))["boxes"].plots]
    for title, kind in zip(titles, means.kind, strict=True):
        assert title.startswith(kind.capitalize())
    named = result_of(
        rows, explainers={**known, "mine": {"name": "symmetrised", "of": {"name": "cav"}}}
    )
    assert measured_in(named).means.kind.tolist().count("concept") == 2, (
        "the manifest knows what a name stands for"
    )
    said = PAGE.lead(named)
    by_measure = {
        word: s for s in said for word in ("equivariance", "invariance") if f"By {word}:" in s
    }
    tracin = named.name_of("tracin")
    assert named.name_of("ig") in by_measure["equivariance"]
    assert tracin not in by_measure["equivariance"] and tracin in by_measure["invariance"]


def test_relaxed_invariance_is_drawn_where_something_is_relaxed():
    invariance = np.linspace(0.8, 1, N)
    result = result_of(rows_of({"ig": spread(0.7), "sobel": 1.0}, model_invariance=invariance))
    chart = by_key(result)["relaxed"]
    is_sound(chart)
    plot = next(plot for plot in chart.plots if plot.title == "ig")
    cloud = marks([plot])
    assert cloud["x"].tolist() == pytest.approx(invariance, abs=1e-5)
    assert cloud["value"].tolist() == pytest.approx(spread(0.7), abs=1e-5)
    assert (
        plot.note.startswith(f"{spread(0.7).mean():.3f} [")
        and f"{invariance.mean():.2f}" in chart.caption
    )
    assert "relaxed" not in by_key(result_of(rows_of({"ig": spread(0.7)})))


def test_clouds_are_thinned_the_same_way_every_time():
    n = 3 * MOST_DOTS
    rows = rows_of({"ig": spread(0.7, n)}, model_invariance=np.linspace(0.8, 1, n), n=n)
    clouds = [marks(by_key(result_of(rows))["relaxed"].plots)["value"].tolist() for _ in range(2)]
    assert len(clouds[0]) == MOST_DOTS and clouds[0] == clouds[1]
    (plot,) = by_key(result_of(rows))["boxes"].plots
    assert sum(isinstance(p, Dot) and p.opacity < 1 for p in plot.sheet.pieces) == MOST_DOTS
    assert marks([plot])["value"].iloc[-1] == pytest.approx(spread(0.7, n).mean(), abs=1e-5)


def test_the_curve_of_repair_starts_at_the_plain_score():
    repair = tuple(
        ("ig", "symmetrised", "symmetrised", level, v) for level, v in ((4.0, 0.9), (8.0, 1.0))
    )
    result = result_of(rows_of({"ig": spread(0.7), "sobel": 1.0}, extra=repair))
    chart = by_key(result)["repair"]
    found = curve(chart.plots, "ig")
    assert found["x"].tolist() == [1, 4, 8]
    assert found["value"].tolist() == pytest.approx([spread(0.7).mean(), 0.9, 1.0], abs=1e-5)
    with_one = result_of(
        rows_of(
            {"ig": spread(0.7)}, extra=(("ig", "symmetrised", "symmetrised", 1.0, 0.71), *repair)
        )
    )
    assert curve(by_key(with_one)["repair"].plots, "ig")["value"].tolist() == pytest.approx(
        [0.71, 0.9, 1.0]
    )
    assert "repair" not in by_key(result_of(rows_of({"ig": spread(0.7)})))
    not_invariant = result_of(rows_of({"ig": spread(0.7)}, model_invariance=0.9, extra=repair))
    assert by_key(not_invariant)["repair"].caption != chart.caption


def test_sensitivity_is_set_against_the_score_with_spearman():
    changes = np.random.default_rng(3).random(N)
    result = result_of(
        rows_of(
            {"ig": spread(0.7)}, extra=(("ig", "max_sensitivity", "sensitivity", 0.02, changes),)
        )
    )
    (plot,) = by_key(result)["sensitivity"].plots
    dots = marks([plot])
    rho = stats.spearmanr(changes, spread(0.7)).statistic
    assert f"ρ {number(rho, 1)} [" in plot.note, "24 samples leave one digit"
    assert dots["x"].tolist() == pytest.approx(changes, abs=1e-5)
    assert dots["value"].tolist() == pytest.approx(spread(0.7), abs=1e-5)
    ties = np.array([1.0, 1.0, 2.0, 3.0, 3.0])
    other = np.array([2.0, 1.0, 4.0, 3.0, 9.0])
    assert correlation(ties, other).startswith(f"{stats.spearmanr(ties, other).statistic:.2f}")
    assert not re.search(r"\d", correlation(np.ones(9), np.arange(9.0)))


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


def test_layers_are_result_by_their_largest_error():
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
    panel = layer_table(result)
    assert "0.80" in panel.html and "2e−06" in panel.html and "24" in panel.caption
    assert layer_table(result_of(rows_of({"ig": 0.9}))) is None


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
    html = failures(result).html
    cards = html.split("<figure")[1:]
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
    assert (
        failures(result_of(rows_of(values))) is None
        and failures(result_of(rows_of(values), gallery()[:1])) is None
    )


def test_a_large_gallery_stays_small():
    names = tuple(f"method_{i}" for i in range(30))
    result = result_of(
        rows_of({name: 0.01 * i for i, name in enumerate(names)}),
        gallery(names, ("s000",), side=224),
    )
    panel = failures(result)
    assert len(panel.html) < 1_500_000 and panel.html.count("<figure") == 12
    assert "18" in panel.caption


def lit(result: AxisResult) -> list[list[str]]:
    """The framed answers of every step."""
    html = str(flow_chart(measured_in(result)).html).split("</ol>")[0]
    return [
        re.findall(r'<li class="lit" aria-current="step"><b>([^<]+)</b>', s)
        for s in re.split(r"</ul></li>", html)
    ]


def test_the_flow_lights_the_way_of_the_run():
    good = result_of(rows_of({"ig": 1.0, "sobel": 1.0}))
    assert lit(good)[:5] == [["yes"], ["feature"], ["yes"], [], []]
    bad = result_of(rows_of({"ig": 0.5, "grad": 0.995}))
    assert lit(bad)[:5] == [["yes"], ["feature"], ["yes", "no"], ["feature"], ["symmetrise"]]
    loose = result_of(rows_of({"ig": 0.5}, model_invariance=0.95))
    assert lit(loose)[:5] == [["no"], ["feature"], ["no"], [], ["leave it"]]
    assert lit(result_of(rows_of({"ig": 0.5}, model_invariance=np.nan)))[0] == []
    assert flow_chart(measured_in(result_of(rows_of({"sobel": 1.0})))) is None
    caption = flow_chart(measured_in(good)).caption
    assert "0.999" in caption and "0.99" in caption


def test_the_flow_says_what_to_do():
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
    advice = str(flow_chart(measured_in(result)).html).split('class="advice">')[1].split("</li>")
    words = {re.search("<b>([^<]+)", line)[1]: line for line in advice if "<b>" in line}
    assert "0.66" in words["ig"]
    assert "layer conv" in words["cav"] and "equivariant" in words["cav"]
    assert "pool" in words["cav"], "an invariant layer"
    assert re.search(r"8 elements.*1\.000", words["cav"])
    assert "layer other" in words["cars"] and "4 elements" in words["cars"]
    assert "loss" in words["tracin"] and "repair: [4, 8]" in words["tracin"]


def test_the_lead_names_the_best_method_with_its_interval():
    result = result_of(
        rows_of({"lime": spread(0.3), "ig": spread(0.8, seed=1), "random": spread(0.1)})
    )
    row = result.ranking.set_index("explainer").loc["ig"]
    first = PAGE.lead(result)[0]
    assert first.startswith("ig ")
    assert with_interval(row["score"], row["low"], row["high"]) in first
    tied = result_of(rows_of({"lime": spread(0.8), "ig": spread(0.8, seed=1)}))
    assert re.search(r"[Uu]ndecided.*\b(LIME.* and ig|ig.* and LIME)\b", PAGE.lead(tied)[0])
    exact = result_of(
        rows_of(
            {"a": 1 - spread(1e-7, width=1e-8), "b": 1 - spread(2e-7, width=1e-8), "c": spread(0.4)}
        )
    )
    said = PAGE.lead(exact)[0]
    assert re.search(r"[Uu]ndecided between a .* and b ", said), "1e-7 is no difference"


def test_the_lead_is_honest_about_model_chance_controls_and_floor():
    result = result_of(
        rows_of(
            {"shap": spread(0.9), "lime": spread(0.1, seed=4), "sobel": 1.0},
            floors={"shap": 0.6},
        )
    )
    said = " ".join(PAGE.lead(result))
    assert "D4" in said
    assert re.search(r"[Nn]o method .*Sobel.*1\.00", said)
    assert f"{result.name_of('shap')} 0.60" in said
    assert f"{N} samples" in said
    loose = " ".join(
        PAGE.lead(result_of(rows_of({"ig": spread(0.9)}, model_invariance=spread(0.9, seed=8))))
    )
    assert "not invariant" in loose and "0.999" in loose
    d8 = {**D4, "group": {"name": "dihedral", "n": 8}}
    assert any(
        "interpolates" in s for s in PAGE.lead(result_of(rows_of({"ig": spread(0.9)}), settings=d8))
    )


def test_undefined_scores_are_counted_with_their_reasons():
    values = np.r_[[np.nan] * 4, spread(0.5, N - 4)]
    result = result_of(rows_of({"ig": spread(0.9), "lime": values}))
    (undefined,) = [s for s in PAGE.lead(result) if "the explanation is zero" in s]
    assert f"4 of {2 * N}" in undefined and "LIME" in undefined
    nothing = result_of(rows_of({"ig": np.nan}))
    assert f"{N} of {N}" in " ".join(PAGE.lead(nothing))
    assert PAGE.parts(nothing) == []


def test_one_sample_has_no_interval():
    extra = (
        ("ig", "max_sensitivity", "sensitivity", 0.02, 0.3),
        ("ig", "symmetrised", "symmetrised", 4.0, 0.9),
    )
    result = result_of(rows_of({"ig": 0.7, "lime": 0.4}, model_invariance=0.9, n=1, extra=extra))
    parts = by_key(result)
    assert set(parts) == {"boxes", "flow", "relaxed", "repair", "sensitivity"}
    score = result.ranking.set_index("explainer").loc["ig", "score"]
    assert f"{score:.2f}" in PAGE.lead(result)[0] and "[" not in PAGE.lead(result)[0]
    assert "1 sample" in PAGE.lead(result)[-1]
    assert "ρ" in parts["sensitivity"].plots[0].note


def test_missing_measures_leave_out_their_parts():
    rows = rows_of({"ig": spread(0.7)}, model_invariance=0.9)
    only = rows[rows.measure == "equivariance"]
    assert set(by_key(result_of(only, settings={}))) == {"boxes", "flow"}
    assert PAGE.lead(result_of(only, settings={}))
    bare = result_of(rows[rows.measure == "model_invariance"])
    assert PAGE.parts(bare) == [] and PAGE.lead(bare)
    foreign = result_of(rows, settings={"group": {"name": "of_another_version", "n": 3}})
    assert "of_another_version" in by_key(foreign)["boxes"].caption
    own = result_of(
        rows,
        settings={"group": {"name": "own", "title": "change of <sign>", "interpolating": True}},
    )
    assert measured_in(own).title == "change of <sign>" and measured_in(own).interpolates
    both = [{"name": "cyclic", "dim": -1}, {"name": "dihedral", "n": 8}]
    assert measured_in(
        result_of(rows, settings={"group": {"name": "product", "factors": both}})
    ).interpolates


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
    panels = "".join(str(part.html) for part in PAGE.parts(result) if isinstance(part, Panel))
    drawn = "".join(
        plot.sheet.svg() for p in PAGE.parts(result) if isinstance(p, Chart) for plot in p.every
    )
    assert (
        "<script" not in panels and "<img src=x" not in panels and "onerror=alert(2)&gt;" in panels
    )
    assert "<script" not in drawn and "<img" not in drawn
    assert {"layers", "failures", "flow"} <= set(by_key(result))


def test_names_are_inert_on_the_page():
    from heatproof.report.page import build_report

    result = nasty()
    page = build_report([result], result.samples, result.manifest)
    assert len(re.findall("<script", page)) == 2 and "<img src=x" not in page
    assert {key.split("-")[-1] for key in re.findall('class="chart" id="([^"]+)"', page)} == {
        "boxes",
        "relaxed",
        "repair",
        "sensitivity",
    }


def test_models_are_set_side_by_side():
    loose = rows_of({"ig": spread(0.4), "lime": spread(0.3)}, model_invariance=spread(0.8)).assign(
        model="plain <b>"
    )
    tight = rows_of({"ig": spread(0.9)}, model_invariance=1.0)
    (chart,) = PAGE.across([result_of(tight), result_of(loose)])
    found = curve(chart.plots, "ig")
    assert found["x"].tolist() == pytest.approx([spread(0.8).mean(), 1.0], abs=1e-5)
    assert found["value"].tolist() == pytest.approx(
        [spread(0.4).mean(), spread(0.9).mean()], abs=1e-5
    )
    assert "plain <b> (0.79" in chart.caption and not any(
        "<b>" in plot.sheet.svg() for plot in chart.plots
    )
    assert "photos" in chart.title
    assert PAGE.across([result_of(tight)]) == []


def test_a_real_run_is_drawn():
    evaluation = Symmetry(
        group={"dihedral": {"n": 2}},
        repair=(2,),
        sensitivity=0.02,
        sensitivity_draws=2,
        layers=("10",),
    )
    done = heatproof.evaluate(
        model(), pictures(4), ["saliency", "gradient_shap", "random"], evaluation
    )
    rows = done.table()
    (result,) = done.results(gallery=True)
    parts = PAGE.parts(result)
    assert [p.key for p in parts] == [
        "boxes",
        "flow",
        "relaxed",
        "repair",
        "sensitivity",
        "layers",
        "failures",
    ]
    measured = measured_in(result)
    assert measured.whole and measured.elements == 4 and "D2" in measured.title
    wanted = rows[
        (rows.measure == "equivariance")
        & (rows.condition == "dihedral")
        & (rows.explainer == "saliency")
    ]
    assert float(measured.means.set_index("explainer").loc["saliency", "mean"]) == pytest.approx(
        wanted.value.mean()
    )
    assert (
        measured.means.set_index("explainer")
        .loc[["gradient_shap", "random"], "noise_floor"]
        .notna()
        .all()
    )
    assert parts[-1].html.count("<img") == 8, "controls have no place there"


def test_a_group_of_another_version_keeps_its_name():
    assert group_words({"group": {"name": "unheard_of", "n": 3}}) == ("unheard_of", False)
    assert group_words({"group": {"name": "dihedral", "n": 8}})[1], "it interpolates"
