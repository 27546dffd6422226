"""Findings of stability: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from heatproof.axes import Finding, axis_results
from heatproof.axes.contract import NO_SCORE
from heatproof.axes.stability import page
from heatproof.axes.stability.findings import findings
from heatproof.axes.stability.frames import Frames, frames
from heatproof.axes.stability.words import verdict
from heatproof.maps.chance import packed
from support import synthetic

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
JPEG = (("jpeg", 40.0),)
N = 40
NOBODY = pd.DataFrame(columns=["dataset", "model", "sample", "error"])


def study(explainers: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {"study": {"explainers": explainers or {}, "evaluations": {"stability": {}}, **sections}}


def frames_of(table: pd.DataFrame, manifest: dict[str, Any] | None = None) -> Frames:
    (judged,) = axis_results(table, NOBODY, [], manifest or {})
    found = frames(judged)
    assert found is not None
    return found


def of(table: pd.DataFrame, manifest: dict[str, Any] | None = None) -> dict[str, Finding]:
    """All findings by their title; a title that comes twice is a mistake."""
    given = list(findings(frames_of(table, manifest).judged))
    assert len({(f.title, f.explainers) for f in given}) == len(given)
    assert all(f.seen and f.means and f.do and f.title and f.axis == "stability" for f in given)
    assert not [f for f in given if "{" in f.title + f.means or "  " in f.seen + f.means + f.do]
    return {f.title: f for f in given}


def titled(given: dict[str, Finding], word: str) -> list[Finding]:
    """The findings whose title has this word."""
    return [finding for title, finding in given.items() if word in title]


def held(quality: dict[str, float], n: int = N, **options: Any) -> pd.DataFrame:
    settings = {"conditions": SHORT, "flip": 0.0, "undefined": 0.0, "stochastic": (), **options}
    return synthetic.table(quality, samples=n, model="net", **settings)


def noisy(centre: float, width: float, seed: int = 0, n: int = N) -> np.ndarray:
    draws = np.random.default_rng(seed).normal(0, width, n)
    return centre + draws - draws.mean()


def test_a_good_run_gives_no_cause_to_act() -> None:
    given = of(held({"a": 0.9, "b": 0.7, "random": 0.0}))
    assert {f.severity for f in given.values()} == {"note"}
    (alone,) = titled(given, "faithfulness")
    both = study(evaluations={"stability": {}, "mine": {"name": "faithfulness"}})
    (beside,) = titled(of(held({"a": 0.9, "b": 0.7}), both), "faithfulness")
    assert "faithfulness" in alone.do and alone.do != beside.do


def test_maps_at_chance_are_told_from_wide_intervals() -> None:
    (given,) = titled(of(held({"good": 0.6, "blind": 0.0, "random": 0.0})), "unrelated")
    assert (given.severity, given.explainers) == ("act", ("blind",)) and "blind " in given.seen
    wide = held({"good": 0.6, "b": 0.05}, n=12)
    scores = (wide["explainer"] == "b") & ~wide["measure"].str.endswith("_chance")
    wide.loc[scores, "value"] += np.tile(np.linspace(-0.4, 0.4, 12), int(scores.sum()) // 12)
    row = frames_of(wide).ranking.set_index("explainer").loc["b"]
    assert row["low"] < 0 and row["high"] > 0.1
    assert not titled(of(wide), "unrelated")


def test_chance_under_one_perturbation_names_it_and_a_sweep() -> None:
    table = held({"a": 0.5, "integrated_gradients": 0.5})
    own = (table["explainer"] == "integrated_gradients") & (table["condition"] == "jpeg")
    for measure in ("ssim", "spearman", "jaccard", "fass"):
        values = table.loc[own & (table["measure"] == f"{measure}_chance"), "value"].to_numpy()
        table.loc[own & (table["measure"] == measure), "value"] = values + noisy(0.0, 0.005)
    (card,) = titled(of(table), "jpeg quality 40")
    assert (
        card.explainers == ("integrated_gradients",)
        and "jpeg: {quality: [94, 85, 70, 40]}" in card.do
    )
    assert "smoothgrad: {of: integrated_gradients}" in card.do


@pytest.mark.parametrize(
    ("component", "title"),
    [
        ("ssim", "Spatial"),
        ("spearman", "Ordinal"),
        ("jaccard", "Salient"),
    ],
)
def test_the_component_that_gives_way_is_the_diagnosis(component: str, title: str) -> None:
    table = held({"a": 0.7, "b": 0.7}, conditions=JPEG)
    own = (table["explainer"] == "a") & (table["measure"] == component)
    table.loc[own, "value"] = synthetic.CHANCE[component] + (
        1 - synthetic.CHANCE[component]
    ) * noisy(0.2, 0.05)
    cards = [a for t, a in of(table, study({"a": {"name": "lime"}})).items() if "failure" in t]
    assert [(c.title.startswith(title), c.explainers) for c in cards] == [(True, ("a",))]
    if component == "ssim":
        assert "patches" in cards[0].do, "segments that are cut anew do not keep their place"
    table.loc[own, "value"] = synthetic.CHANCE[component] + (
        1 - synthetic.CHANCE[component]
    ) * noisy(0.6, 0.05)
    assert not [t for t in of(table) if "failure" in t], "lower than the others, but not low"


def test_controls_that_beat_methods() -> None:
    (card,) = titled(of(held({"a": 0.9, "b": 0.3, "sobel": 0.7})), "sobel")
    assert card.explainers == ("b",) and "faithfulness" in card.do
    assert not titled(of(held({"a": 0.9, "b": 0.3, "sobel": 0.1})), "sobel")


def test_random_draws_say_which_parameter_to_raise() -> None:
    table = held({"lime": 0.4, "b": 0.5}, conditions=JPEG, stochastic=("lime",))
    redraw = table["condition"] == "redraw"
    table.loc[redraw, "value"] = np.tile(noisy(0.55, 0.02), int(redraw.sum()) // N)
    manifest = study({"lime": {"name": "lime", "samples": 32}})
    (card,) = titled(of(table, manifest), "draws")
    assert card.severity == "act" and "lime: {samples: 128}" in card.do and "32" in card.do, (
        "0.55 against pairs at about 0.62"
    )
    table.loc[redraw, "value"] = np.tile(noisy(0.75, 0.02), int(redraw.sum()) // N)
    assert [one.severity for one in titled(of(table, manifest), "draws")] == ["mind"]
    table.loc[redraw, "value"] = np.tile(noisy(0.97, 0.02), int(redraw.sum()) // N)
    assert not titled(of(table, manifest), "draws")


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
    (lost,) = [title for title in given if "predictions" in title]
    assert "rotation 15°" in lost
    table = held({"grad_cam": 0.6, "b": 0.5}, n=60)
    assert not titled(of(table), "predictions")
    lost_rows = (table["explainer"] == "grad_cam") & table["sample"].isin(
        [f"img/{i:04d}.jpg" for i in range(20)]
    )
    table.loc[lost_rows, ["value", "status", "reason"]] = [np.nan, "undefined", "constant map"]
    card = of(table)[NO_SCORE]
    assert (card.severity, card.explainers) == ("act", ("grad_cam",)) and "relu: false" in card.do
    assert "grad_cam 40 of 120 (constant map)" in card.seen
    bare = table[~table["measure"].str.contains("_aligned")]
    (moved,) = titled(of(bare), "moved")
    assert moved.severity == "act"
    assert not titled(of(table), "moved")


@pytest.mark.parametrize("count", [1, 2, 12])
def test_verdict_reads_well_with_any_number_of_methods(count: int) -> None:
    quality = {f"m{i:02d}": 0.0 if i else 0.5 for i in range(count)} | {"random": 0.0, "sobel": 0.9}
    said = verdict(frames_of(held(quality, n=20)))
    assert all(s.endswith(".") and len(s) < 400 for s in said)
    text = " ".join(said)
    assert "sobel" in text
    if count > 1:
        (beside_random,) = [s for s in said if "random" in s]
        assert re.search(r"m\d\d", beside_random)
        assert ("5 more" in beside_random) == (count == 12)


def test_below_chance_is_not_called_noise() -> None:
    table = held({"a": 0.5, "b": 0.3}, conditions=JPEG)
    own = (table["explainer"] == "b") & (table["measure"] == "fass")
    table.loc[own, "value"] = noisy(0.2, 0.01)
    found = frames_of(table)
    (below,) = [s for s in verdict(found) if "elow chance" in s]
    assert "b " in below and "jpeg quality 40" in below
    assert not [s for s in verdict(found) if "noise" in s]


def test_what_has_a_finding_of_its_own_is_not_told_twice() -> None:
    table = synthetic.table({"a": 0.0, "b": 0.3, "lime": 0.2}, samples=20)
    table.loc[(table["explainer"] == "b") & (table["condition"] == "jpeg"), ["value", "status"]] = [
        np.nan,
        "undefined",
    ]
    given = of(table)
    (missing,) = titled(given, "conditions")
    assert [re.findall(r"\d+", item) for item in missing.items] == [["4", "5"]]
    assert missing.items[0].startswith("b")
    assert [item for item in given[NO_SCORE].items if item.startswith("b: ")]
    (few,) = titled(given, "pairs")
    assert any("jpeg quality 40" in item and "0 of 20" in item for item in few.items)
    hardly = any("a" in one.explainers for one in titled(given, "unrelated"))
    listed = [i for one in titled(given, "at chance") for i in one.items if i.startswith("a, ")]
    assert hardly != bool(listed)
    draws = [f for f in given.values() if "lime" in f.explainers and "draws" in f.title]
    assert len(draws) == 1


def test_scores_that_reach_chance_are_listed() -> None:
    table = held({"good": 0.6, "b": 0.05}, n=15)
    scores = (table["explainer"] == "b") & ~table["measure"].str.endswith("_chance")
    table.loc[scores, "value"] += np.tile(np.linspace(-0.4, 0.4, 15), int(scores.sum()) // 15)
    (card,) = titled(of(table), "at chance")
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
    card = of(table)[NO_SCORE]
    (item,) = card.items
    assert (card.severity, card.explainers) == ("mind", ())
    assert "random" in item and "1" in item and "flat" in item


def test_steady_draws_are_no_finding() -> None:
    table = held({"lime": 0.4, "b": 0.5}, conditions=JPEG, stochastic=("lime",))
    table.loc[table["condition"] == "redraw", "value"] = np.tile(
        noisy(0.97, 0.02), (table["condition"] == "redraw").sum() // N
    )
    assert not any("draws" in title for title in of(table))


def test_references_that_make_most_of_the_error_are_told() -> None:
    def said(apart: float, references: int) -> list[str]:
        table = held({"a": 0.5, "b": 0.3}, n=40)
        above = 40 * apart * torch.linspace(-1, 1, references)
        first = (table["sample"] == "img/0000.jpg") & (table["measure"].str.endswith("fass_chance"))
        table["references"] = pd.Series(
            [packed(above) if yes else None for yes in first], dtype=object
        )
        datasets = {"photos": {"references": [f"img/{i:04d}.jpg" for i in range(references)]}}
        return [
            f.seen for f in of(table, study(datasets=datasets)).values() if "samples" in f.title
        ]

    (text,) = said(0.1, 8)
    share = re.search(r"(\d+) ?%", text)
    assert share is not None and int(share[1]) > 33
    assert re.search(r"\b8\b", text)
    assert not said(0.001, 8)


def test_series_and_tables_are_not_called_pictures() -> None:
    for kind, sample in (("series", "series"), ("table", "row"), ("image", "picture")):
        manifest = study(tasks={"photos": {"net": {"modality": kind}}})
        (card,) = titled(of(held({"good": 0.6, "blind": 0.0}), manifest), "unrelated")
        assert sample in card.means


def test_without_fass_there_is_nothing_to_find_or_to_draw() -> None:
    table = held({"a": 0.9, "b": 0.7})
    (judged,) = axis_results(table[~table["measure"].str.startswith("fass")], NOBODY, [], {})
    assert list(findings(judged)) == [] and page.parts(judged) == []
    assert "score" in " ".join(page.lead(judged))


def test_of_many_methods_the_first_are_drawn_at_every_level_and_that_is_said() -> None:
    levels = (("jpeg", 20.0), ("jpeg", 40.0))
    for count, drawn in (
        (page.MOST_SWEPT - 1, ""),
        (page.MOST_SWEPT, f" {page.MOST_SWEPT - 1} methods"),
    ):
        (chart,) = page.severity_charts(
            frames_of(held({f"m{i}": 0.5 for i in range(count)}, 12, conditions=levels))
        )
        assert len(chart.plots) == page.MOST_SWEPT
        assert drawn in chart.caption
