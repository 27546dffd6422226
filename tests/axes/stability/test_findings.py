"""Findings of stability: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heatproof.axes import Finding, axis_results
from heatproof.axes.stability import page
from heatproof.axes.stability.findings import findings
from heatproof.axes.stability.frames import Frames, frames
from heatproof.axes.stability.words import verdict
from heatproof.runs.manifest import Manifest
from support import synthetic
from support.manifests import manifest_of

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
JPEG = (("jpeg", 40.0),)
N = 40
NOBODY = pd.DataFrame(columns=["dataset", "model", "sample", "error"])


def study(explainers: dict[str, Any] | None = None, **sections: Any) -> Manifest:
    stability: dict[str, Any] = {"evaluations": {"stability": {}}}
    return manifest_of({"explainers": explainers or {}, **stability, **sections})


def frames_of(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    references: pd.DataFrame | None = None,
) -> Frames:
    (result,) = axis_results(table, NOBODY, [], manifest or manifest_of(), references)
    found = frames(result)
    assert found is not None
    return found


def of(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    references: pd.DataFrame | None = None,
) -> list[Finding]:
    """All findings; one that comes twice is a mistake."""
    given = list(findings(frames_of(table, manifest, references).result))
    assert len({(f.title, f.explainers) for f in given}) == len(given)
    assert all(f.seen and f.means and f.do and f.title and f.axis == "stability" for f in given)
    assert not [f for f in given if "{" in f.title + f.means or "  " in f.seen + f.means + f.do]
    return given


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
    row = frames_of(wide).ranking.set_index("explainer").loc["b"]
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
    assert card.change["explainers"] == [{"smoothgrad": {"of": "integrated_gradients"}}]


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
    if component == "ssim":
        (fixed,) = cards[0].change["explainers"]
        assert "patches" in fixed["lime"]["features"], "superpixels do not keep their place"
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
    assert (card.severity, card.explainers) == (
        "problem",
        ("grad_cam",),
    ) and "relu: false" in card.do
    assert "grad_cam 40 of 120 (constant map)" in card.seen
    bare = table[~table["measure"].str.endswith("_unaligned")]
    (moved,) = by_rule(of(bare), "unaligned-maps")
    assert moved.severity == "problem"
    assert not by_rule(of(table), "unaligned-maps")


@pytest.mark.parametrize("count", [1, 2, 12])
def test_verdict_reads_well_with_any_number_of_methods(count: int) -> None:
    quality = {f"m{i:02d}": 0.0 if i else 0.5 for i in range(count)} | {"random": 0.0, "sobel": 0.9}
    said = verdict(frames_of(held(quality, n=20)))
    assert all(s.endswith(".") and len(s) < 400 for s in said)
    text = " ".join(said)
    assert "Sobel" in text
    assert "Random" not in text, "chance is what the score is calibrated by"
    if count > 1:
        (at_chance,) = [s for s in said if "ot significantly above chance" in s]
        assert "m00" not in at_chance and re.search(r"m\d\d", at_chance)
        assert bool(re.search(r"\d+ more", at_chance)) == (count == 12)


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
    assert "random" in item and "1" in item and "flat" in item


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
    assert list(findings(result)) == [] and page.parts(result) == []
    assert "score" in " ".join(page.lead(result))


def test_the_page_has_fass_as_the_paper_computes_it() -> None:
    table = held({"a": 0.6, "b": 0.3})
    (panel,) = [part for part in page.parts(frames_of(table).result) if part.key == "paper"]
    html = str(panel.html)
    rows = table[table["explainer"] == "a"].set_index("condition")
    jpeg = rows[rows["measure"] == "fass"].loc["jpeg", "value"].mean()
    rotation = rows[rows["measure"] == "fass_unaligned"].loc["rotation", "value"].mean()
    assert f"{(jpeg + rotation) / 2:.2f}" in html
    assert "rotation 15°" in panel.caption and "jpeg" not in panel.caption
    unmoved = held({"a": 0.6, "b": 0.3}, conditions=JPEG)
    (plain,) = [part for part in page.parts(frames_of(unmoved).result) if part.key == "paper"]
    assert "nalign" not in plain.caption + str(plain.html), "nothing was moved"


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
