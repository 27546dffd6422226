"""The contract of an axis: an own evaluation, the order of results, what is shown of them, and what is made of none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes import AXES, axis_of
from heatproof.axes.tiles import tiles_of, worst_pair_tiles
from heatproof.axis import axis_of_own_evaluation
from heatproof.evaluation import GalleryItem, Measure, Scores, wrap_evaluation
from heatproof.report.sections import leads
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import components_across, findings_of
from heatproof.runs.gallery import read_gallery
from heatproof.runs.results import axis_results
from support.fixed import batch_of, row_model, with_weights
from support.manifests import manifest_of
from support.synthetic import Entry, rows_of


class Bare:
    """An evaluation that leaves out all that may be left out."""

    def __call__(self, subject: Any) -> Iterator[Scores]:
        yield from ()

    def conditions(self) -> list[tuple[str, float]]:
        return [("here", 1.0)]


class Picky(Bare):
    kinds, reexplains = frozenset({"concept"}), False
    measures = (Measure("depth", "Depth", "how deep", "lower", "headline", (0.0, 2.0)),)
    data = "pictures"

    def configured_for(self, model: Any, sample: Batch) -> Bare:
        if sample.x.shape[1:] == (2,):
            raise UserError("not of 2 columns")
        return Bare()


def test_an_own_evaluation_gets_defaults_for_what_it_leaves_out() -> None:
    bare: Any = wrap_evaluation(Bare(), "mine")
    assert bare.name == "mine"
    assert bare.kinds == {"feature"}
    assert bare.reexplains
    assert bare.measures == ()
    assert bare.data is None
    assert bare.configured_for(row_model(2), batch_of(1, 2)) is bare
    assert bare.notes(row_model(2)) == []
    assert list(bare(None)) == []
    assert wrap_evaluation(bare, "another name") is bare


def test_an_own_evaluation_keeps_what_it_declares() -> None:
    picky: Any = wrap_evaluation(Picky(), "hers")
    with pytest.raises(UserError, match="2 columns"):
        picky.configured_for(row_model(2), batch_of(1, 2))
    assert picky.kinds == {"concept"}
    assert not picky.reexplains
    assert picky.conditions() == [("here", 1.0)]
    assert picky.data == ("pictures",)
    assert isinstance(picky.configured_for(row_model(3), batch_of(1, 3)).wrapped, Bare)


def test_the_first_undeclared_measure_of_an_own_evaluation_is_its_headline() -> None:
    depth = {"name": "depth", "title": "D", "text": "", "better": "lower", "role": "headline"}
    measured = ["depth", "width"]
    declared = axis_of_own_evaluation("my_own", {"measures": [{**depth, "span": [0, 1]}]}, measured)
    plain = axis_of_own_evaluation("my_own", {}, measured)
    assert [(m.name, m.role, m.better) for m in declared.measures] == [
        ("depth", "headline", "lower"),
        ("width", "component", "neither"),
    ]
    assert declared.measures[0].span == (0, 1)
    assert [(m.name, m.role) for m in plain.measures] == [
        ("depth", "headline"),
        ("width", "component"),
    ]


def dependence_of(model: str, dataset: str, seed: int) -> pd.DataFrame:
    """Two methods that depend on the model, an edge filter that does not, and an own measure."""
    g = np.random.default_rng(seed)
    entries: list[Entry] = []
    for name, level in (("a", 0.6), ("b", 0.2), ("sobel", 0.0)):
        change = np.abs(g.normal(level, 0.02 if level else 0.0, 8))
        entries += [
            (name, "dependence", "weights", 0.0, change),
            (name, "class_dependence", "class", 0.0, change),
        ]
    own: list[Entry] = [("a", "depth", "here", 1.0, g.random(8))]
    pairs: list[Entry] = [
        (name, "spearman", other, 0.0, g.random(8)) for name, other in (("a", "b"), ("b", "a"))
    ]
    blocks = [
        rows_of(own, "mine", model=model),
        rows_of(pairs, "agreement", model=model),
        *(rows_of(entries, "dependence", model=model, repeat=network) for network in range(3)),
    ]
    return pd.concat(blocks, ignore_index=True).assign(dataset=dataset)


def test_results_come_by_dataset_and_model_with_own_axes_last() -> None:
    places = [("photos", "net"), ("faces", "net"), ("photos", "deep")]
    table = pd.concat(
        [dependence_of(model, dataset, i) for i, (dataset, model) in enumerate(places)],
        ignore_index=True,
    )
    samples = table.drop_duplicates(["dataset", "model", "sample"])[["dataset", "model", "sample"]]
    samples = samples.assign(error="", group=[i % 8 for i in range(len(samples))])
    every = axis_results(table, samples, [], manifest_of())

    found = [(one.dataset, one.model, one.label) for one in every]
    assert found == [
        (*place, label) for place in places for label in ("dependence", "agreement", "mine")
    ]
    for one in every:
        assert one.marks == {"sobel": "blind"}
        assert one.groups == 8
        assert len(one.samples) == 8
    first = every[0]
    assert "ignores model" in first.looks["sobel"].name
    means = table[(table["measure"] == "dependence") & (table["dataset"] == "photos")]
    means = means[means["model"] == "net"].groupby("explainer")["value"].mean()
    assert first.ranking["explainer"].tolist() == ["a", "b", "sobel"]
    assert first.ranking["score"].tolist() == pytest.approx(means.tolist())
    assert first.ranking["control"].tolist() == [False, False, True]
    differences = {(t["a"], t["b"]): t["difference"] for t in first.tests.to_dict("records")}
    assert differences["a", "b"] == pytest.approx(means["a"] - means["b"])


def test_an_evaluation_with_a_name_of_its_own_is_of_the_axis_that_it_names() -> None:
    manifest = manifest_of({"evaluations": {"mild": {"name": "stability"}}})
    assert axis_of("mild", manifest).name == "stability"


def test_no_results_have_no_components_across_models() -> None:
    assert components_across([]) == []


def test_measures_are_found_by_their_names_and_noise_floors_are_declared() -> None:
    for axis in AXES:
        for measure in axis.measures:
            assert axis.measure(measure.name) is measure
            if measure.noise_floor:
                floor = axis.measure(measure.noise_floor)
                assert floor is not None
                assert floor.role == "diagnostic"
        assert axis.measure("no_such_measure") is None


CONDITIONS = (("rotation", 15.0), ("jpeg", 40.0))


def stability_rows() -> pd.DataFrame:
    """Two methods and a control; two maps of `b` have no score."""
    g = np.random.default_rng(2)
    entries: list[Entry] = []
    for name in ("a", "b", "sobel"):
        for condition in CONDITIONS:
            values = g.random(8)
            if name == "b":
                values[[1, 5]] = np.nan
            entries.append((name, "fass", *condition, values, 0.1 * g.random(8)))
    rows = rows_of(entries, "stability")
    flipped = rows["value"].isna() & rows["condition"].eq("jpeg")
    rows.loc[flipped, ["status", "reason"]] = ["flipped", "top-1 changed"]
    rows["predicted_after"] = np.where(flipped, "dog", None)
    return rows


def exhibits_of(explainers: tuple[str, ...]) -> list[GalleryItem]:
    g, shown = np.random.default_rng(0), []
    for explainer in explainers:
        for sample in ("s03", "s00", "s05"):
            for condition in (("clean", 0.0), *CONDITIONS):
                image = g.integers(0, 255, (8, 8, 3)).astype(np.uint8)
                attribution = g.random((8, 8)).astype(np.float32)
                place = ("photos", "net", explainer, *condition, sample)
                shown.append(GalleryItem(*place, image, attribution, "stability"))
    return shown


def test_tiles_hold_calibrated_scores_and_the_reason_where_there_is_none() -> None:
    rows = stability_rows()
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    (judged,) = axis_results(rows, samples, exhibits_of(("a", "b", "sobel")), manifest_of())
    tiles = tiles_of(judged)
    assert tiles is not None
    assert [condition for condition, _ in tiles.columns] == [("clean", 0.0), *CONDITIONS]
    assert set(tiles.samples) == {"s00", "s03", "s05"}

    cells = rows.set_index(["explainer", "condition", "sample"])
    for (explainer, (condition, _), sample), (score, reason) in tiles.scores.items():
        value, chance = cells.loc[(explainer, condition, sample), ["value", "chance"]]
        expected = (value - chance) / (1 - chance)
        np.testing.assert_allclose(score, expected, rtol=1e-6, atol=1e-9)
        assert (reason == "") == np.isfinite(score)
    assert "constant map" in tiles.scores["b", ("rotation", 15.0), "s05"][1]
    assert "dog" in tiles.scores["b", ("jpeg", 40.0), "s05"][1]


def test_tiles_leave_out_what_the_measure_has_no_rows_of() -> None:
    rows = stability_rows()
    check = rows[rows["condition"] == "jpeg"].assign(
        measure="identity_check", condition="identity", level=0.0, value=1.0, status="ok"
    )
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    of_identity = [
        replace(e, condition="identity", level=0.0)
        for e in exhibits_of(("a",))
        if e.condition == "jpeg"
    ]
    (result,) = axis_results(
        pd.concat([rows, check]), samples, [*exhibits_of(("a",)), *of_identity], manifest_of()
    )
    tiles = tiles_of(result)
    assert tiles is not None
    assert [condition for condition, _ in tiles.columns] == [("clean", 0.0), *CONDITIONS]


def test_the_worst_pairs_have_the_lowest_score_of_each_method_and_no_control() -> None:
    rows = stability_rows()
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    (result,) = axis_results(rows, samples, exhibits_of(("a", "b", "sobel")), manifest_of())
    tiles = tiles_of(result)
    assert tiles is not None
    lowest = {}
    for name in ("a", "b"):
        finite = [
            (score, sample)
            for (explainer, _, sample), (score, _) in tiles.scores.items()
            if explainer == name and np.isfinite(score)
        ]
        lowest[name] = min(finite)
    worst_first = sorted(lowest, key=lambda name: lowest[name])
    pairs = worst_pair_tiles(result)
    originals, changed = pairs[::2], pairs[1::2]
    assert [tile.item.explainer for tile in originals] == worst_first
    assert [(tile.score, tile.item.sample) for tile in changed] == [
        (pytest.approx(lowest[name][0], abs=1e-6), lowest[name][1]) for name in worst_first
    ]


def test_without_pictures_or_the_measure_there_are_no_tiles() -> None:
    rows = stability_rows()
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    (bare,) = axis_results(rows, samples, [], manifest_of())
    (judged,) = axis_results(rows, samples, exhibits_of(("a",)), manifest_of())
    assert tiles_of(bare) is None
    unpictured = replace(judged, axis=replace(judged.axis, describe_change=None))
    assert tiles_of(judged) is not None and tiles_of(unpictured) is None
    assert worst_pair_tiles(bare) == []


@pytest.mark.parametrize(("channels", "shown"), [(1, True), (2, False), (3, True)])
def test_only_pictures_of_one_or_three_channels_are_shown(channels: int, shown: bool) -> None:
    layers = [nn.Conv2d(channels, 3, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = Model(with_weights(nn.Sequential(*layers)))
    data = heatproof.open_data(batch_of(2, channels, 8, 8), shape=[channels, 8, 8])
    symmetry = {"symmetry": {"group": {"dihedral": {"n": 4}}}}
    run = heatproof.evaluate(net, data, ["saliency"], [symmetry], show_progress=False)
    assert any(one.explainer for one in read_gallery(run.path)) == shown


def made_up(entries: list[Entry], evaluation: str, **settings: Any) -> AxisResult:
    networks = range(3 if evaluation == "dependence" else 1)
    rows = pd.concat([rows_of(entries, evaluation, repeat=network) for network in networks])
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    manifest = manifest_of({"evaluations": {evaluation: settings}})
    (one,) = axis_results(rows, samples, [], manifest)
    return one


def near(centre: float, width: float = 0.03, n: int = 9, seed: int = 0) -> np.ndarray:
    return centre + np.random.default_rng(seed).normal(0, width, n)


def test_a_blind_method_is_a_finding_of_dependence() -> None:
    entries: list[Entry] = []
    scores = {"a": near(0.9, 0.01), "b": near(0.3, 0.15), "blind": np.abs(near(0.02, 0.01))}
    for name, values in {**scores, "sobel": np.zeros(9)}.items():
        entries += [
            (name, "dependence", "weights", 0.0, values),
            (name, "class_dependence", "class", 0.0, values / 2),
        ]
    judged = made_up(entries, "dependence", draws=3)
    (finding,) = [one for one in findings_of(judged) if one.severity == "problem"]
    assert finding.explainers == ("blind",)
    text = " ".join(leads(judged))
    assert re.search(r"blind .*0\.02", text)
    assert re.search(r"Edge filter.* 0\.00", text)


def test_a_method_that_does_not_find_the_class_is_a_finding_of_localisation() -> None:
    entries: list[Entry] = []
    for name, score in {"a": 0.7, "b": 0.31}.items():
        entries.append(
            (name, "relevance_mass", "regions", 0.0, near(score, n=20), near(0.3, n=20, seed=1))
        )
    judged = made_up(entries, "localisation")
    (finding,) = findings_of(judged)
    assert finding.explainers == ("b",)
    ranked = judged.ranking.set_index("explainer")["score"]
    assert f"{ranked['a']:.2f}" in leads(judged)[0]


def test_methods_that_disagree_are_a_finding_of_agreement() -> None:
    entries: list[Entry] = []
    for pair, score in {("a", "b"): 0.95, ("a", "c"): 0.35, ("b", "c"): 0.9}.items():
        for one, other in (pair, pair[::-1]):
            entries.append((one, "spearman", other, 0.0, near(score), near(0.3, seed=1)))
    judged = made_up(entries, "agreement")
    (finding,) = findings_of(judged)
    assert set(finding.explainers) == {"a", "c"}
    assert "1 of 3" in finding.seen


@pytest.mark.parametrize(("right", "costs"), [(5, True), (23, False)])
def test_smoothing_that_costs_accuracy_is_a_finding(right: int, costs: bool) -> None:
    n = 24
    entries: list[Entry] = []
    for keep in (0.25, 1.0):
        count = n - 1 if keep == 1 else right
        correct = np.r_[np.arange(n - 1) < count, np.nan]
        entries += [
            ("a", "correct", f"λ={keep:g}", 0.0, correct),
            ("a", "hard_radius", f"λ={keep:g}", 0.0, np.where(np.arange(n) < 3, 2.0, 0.0)),
            ("a", "certified", f"λ={keep:g}", 2.0, np.full(n, 0.5)),
            ("a", "rate", f"λ={keep:g}", 2.0, np.full(n, 0.6)),
        ]
    judged = made_up(entries, "smoothing")
    findings = [one for one in findings_of(judged) if one.severity == "problem"]
    assert len(findings) == costs
    if costs:
        assert "22" in findings[0].seen  # 5 of 23 labelled samples, in percent
        assert "0.25" in findings[0].seen


def test_a_fragile_explanation_is_a_finding_of_certificates() -> None:
    entries: list[Entry] = []
    for name, rate in {"a": 0.3, "b": 0.95}.items():
        for measure, values in (("rate", near(rate)), ("certified", near(rate - 0.1))):
            entries.append((name, measure, "radius", 5.0, np.clip(values, 0, 1)))
    judged = made_up(entries, "certificate", fraction=[0.1, 0.3], epsilon=0.2)
    (finding,) = [one for one in findings_of(judged) if one.severity == "problem"]
    assert finding.explainers == ("a",)
    assert "r = 5" in finding.seen
    assert "b" in finding.do
