"""Runs beside each other: paired differences, refusals, who fell out, and the leaderboard."""

from __future__ import annotations

import copy
import dataclasses
import html
import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

import heatproof
from heatproof import perturbations
from heatproof.axes import AXES as RECORDS
from heatproof.cli.compare import compare as compare_command
from heatproof.cli.compare import leaderboard as leaderboard_command
from heatproof.errors import UserError
from heatproof.evaluation import Scores
from heatproof.report.comparison import compare, leaderboard, leaderboard_page, write_leaderboard
from heatproof.report.comparison.cautions import cautions
from heatproof.report.comparison.leaderboard_page import leaderboard_text
from heatproof.report.comparison.match import match_runs, shared_conditions
from heatproof.report.comparison.runs import ComparedRun
from heatproof.report.comparison.tables import forest_charts, main_tables
from heatproof.report.comparison.words import MOST_SENTENCES
from heatproof.runs.manifest import FORMAT
from heatproof.types import name_of, parameters
from support import small, synthetic
from support.compared import compared_run, comparison_of
from support.edits import edit_json, edit_study
from support.manifests import manifest_of
from support.pages import Page

AXES = {"stability": {"stability": {"perturbations": ["jpeg", "rotation", "gaussian_noise"]}}}
METHODS = ["saliency", {"integrated_gradients": {"steps": 4}}, "random"]


def moved_model(seed: int = 3) -> heatproof.Model:
    """The trained net with noise on its weights: another model with other maps and some other predictions."""
    net = copy.deepcopy(small.network())
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in net.parameters():
            weights.add_(
                0.1 * weights.std(unbiased=False) * torch.randn(weights.shape, generator=g)
            )
    return heatproof.Model(
        net, mean=(0.5,) * 3, std=(0.5,) * 3, classes=small.CLASSES, name="moved"
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    x, _ = small.pictures(16)

    def run(name, model, explainers=METHODS, axes=AXES, data=x, **options):
        out = root / name
        heatproof.evaluate(
            model,
            {"shapes": data},
            explainers,
            axes,
            out,
            shard_size=8,
            show_progress=False,
            **options,
        )
        return out

    wider = {"stability": {"stability": {"perturbations": ["jpeg", {"rotation": {"degrees": 5}}]}}}
    return {
        "base": run("base", small.model()),
        "again": run("again", small.model()),
        "moved": run("moved", moved_model()),
        "one method": run("one", small.model(), ["saliency"]),
        "other data": run("other", small.model(), ["random"], data=1 - x),
        "other seed": run("seed", small.model(), ["random"], seed=5),
        "more references": run("references", small.model(), ["random"], references=12),
        "wider": run(
            "wider", small.model(), ["saliency", {"integrated_gradients": {"steps": 6}}], wider
        ),
    }


def edited(run: Path, to: Path, change) -> Path:
    """A copy of a run with another manifest."""
    shutil.copytree(run, to)
    edit_study(to, change)
    return to


def test_differences_are_those_of_the_joined_samples(runs):
    found = compare(runs["base"], runs["moved"])
    row = found.differences.query(
        "explainer == 'saliency' and condition == 'gaussian_noise' and measure == 'fass'"
    ).iloc[0]
    wide = []
    for name in ("base", "moved"):
        table = (
            heatproof.read(runs[name])
            .table()
            .query("explainer == 'saliency' and condition == 'gaussian_noise'")
        )
        ok = table[table["status"] == "ok"]
        wide.append(ok[ok["measure"] == "fass"].set_index("sample"))
    a, b = wide
    both = a.index.intersection(b.index)
    assert 2 < len(both) < 16  # some fell out, or the join is not tested
    a, b = (
        ((s["value"] - s["chance"].mean()) / (1 - s["chance"].mean()))
        for s in (a.loc[both], b.loc[both])
    )
    assert (row["joined"], row["form"]) == (len(both), "calibrated")
    assert row["difference"] == pytest.approx((b - a).mean(), abs=1e-12)
    excludes_zero = (found.differences["low"] > 0) | (found.differences["high"] < 0)
    assert (found.differences["significant"] == excludes_zero).all()
    rows = found.differences
    fell = rows[["joined", "flipped", "undefined", "absent", "unreadable"]].sum(axis=1)
    assert (fell == rows["samples"]).all()
    assert "weights: no. 1 in base, no. 2 in moved" in found.subject
    assert "model: shapes in base, moved in moved" in found.subject


def test_p_is_corrected_for_the_other_methods_of_a_family(runs):
    """A corrected p lies between that of the difference alone and Bonferroni's, and its interval is wider."""
    family = compare(runs["base"], runs["moved"]).differences.query("family == 'overall'")
    single = compare(runs["one method"], runs["moved"], only_shared=True).differences
    (alone,) = single.query("family == 'overall'").itertuples()
    (among_two,) = family[family["explainer"] == alone.explainer].itertuples()
    assert len(family) == 2
    assert among_two.difference == pytest.approx(alone.difference, abs=1e-9)
    assert alone.p <= among_two.p <= min(1, 2 * alone.p)
    assert (family["p"] > 0.05).any() or among_two.p > alone.p
    assert among_two.low < alone.low < alone.high < among_two.high


def test_order_of_the_runs_turns_the_sign(runs):
    ahead, back = (
        compare(*pair).differences
        for pair in ((runs["base"], runs["moved"]), (runs["moved"], runs["base"]))
    )
    assert ahead["difference"].to_numpy() == pytest.approx(
        -back["difference"].to_numpy(), abs=1e-12
    )
    assert (ahead["better"].map({"base": "base", "moved": "moved", "": ""}) == back["better"]).all()


def test_a_repeated_run_is_identical(runs, tmp_path):
    found = compare(runs["base"], runs["again"])
    assert found.subject == []
    assert (found.differences["difference"].dropna() == 0).all()
    assert found.differences.query("joined > 0")["identical"].all()
    (sentence,) = found.verdict()
    assert "identical" in sentence and "base" in sentence and "again" in sentence
    page = " ".join(Page(found.page(tmp_path / "page.html").read_text()).words)
    for text in (found.text(), page.partition("All numbers")[0]):
        assert "identical" in text
        assert "[" not in text, "identical scores have no interval"
        assert "lost-samples" not in text, "nothing is missed where all is identical"
    three = compare(runs["base"], runs["again"], runs["moved"])
    assert set(zip(three.differences["a"], three.differences["b"], strict=True)) == {
        ("base", "again"),
        ("base", "moved"),
        ("again", "moved"),
    }
    assert [("base against moved" in t.title) for t in main_tables(three)] == [False, False]
    assert len(main_tables(three)) == 2, "no table of the two identical runs"


def test_another_score_of_one_sample_is_not_identical():
    scores = {f"s{i}": (0.1 * i, "ok") for i in range(9)}
    other = scores | {"s3": (0.31, "ok")}
    flipped = scores | {"s3": (float("nan"), "flipped")}
    first = made_up("A", scores)
    for changed in (other, flipped):
        rows = comparison_of(first, made_up("B", changed)).differences
        assert not rows["identical"].any()
    assert comparison_of(first, made_up("B", scores)).differences["identical"].all()
    fewer = {name: score for name, score in scores.items() if name != "s3"}
    found = comparison_of(first, made_up("B", fewer))
    assert "8 samples that both" in found.verdict()[0]


def test_what_is_not_comparable_is_refused_by_name(runs, tmp_path):
    with pytest.raises(UserError, match=r"datasets\.shapes.*16 samples.*base"):
        compare(runs["base"], runs["other data"])
    with pytest.raises(UserError, match=r"(?s)seed.*0 in base.*5 in seed.*--across-seeds"):
        compare(runs["base"], runs["other seed"])
    with pytest.raises(
        UserError, match=r"(?s)references.*10 in base.*12 in references.*--across-seeds"
    ):
        compare(runs["base"], runs["more references"])
    with pytest.raises(
        UserError,
        match=r"rotation\(degrees=15.0\).*in base.*rotation\(degrees=5.0\).*in wider",
    ):
        compare(runs["base"], runs["wider"])

    def preset(name):
        def change(manifest):
            chosen = perturbations.PRESETS[name]
            stability = manifest["study"]["evaluations"]["stability"]
            stability["perturbations"] = [{"name": name_of(p), **parameters(p)} for p in chosen]
            stability["conditions"] = [
                [perturbations.condition(p), perturbations.level(p)] for p in chosen
            ]

        return change

    mild, paper = (
        edited(runs["base"], tmp_path / name, preset(name)) for name in ("fass-mild", "fass-paper")
    )
    with pytest.raises(
        UserError,
        match=r"stability\.perturbations.*fass-mild.*fass-paper",
    ):
        compare(mild, paper)

    def several(manifest):
        manifest["study"]["evaluations"]["stability"]["k"] = 7
        manifest["study"]["explainers"]["saliency"]["absolute"] = False

    with pytest.raises(UserError) as refused:
        compare(runs["base"], edited(runs["moved"], tmp_path / "several", several))
    assert "explainers.saliency.absolute: true in base, false in several" in str(refused.value)
    assert "stability.k: 100 in base, 7 in several" in str(refused.value)
    older = shutil.copytree(runs["base"], tmp_path / "older")
    edit_json(older / "manifest.json", lambda manifest: manifest.update(format=1))
    with pytest.raises(UserError, match=rf"format 1\b.*format {FORMAT}\b"):
        compare(runs["base"], older, only_shared=True)
    with pytest.raises(UserError, match=r"two.*1"):
        compare(runs["base"])
    with pytest.raises(UserError, match=r"level.*95"):
        compare(runs["base"], runs["moved"], level=95)
    with pytest.raises(UserError, match="given twice"):
        compare(runs["base"], runs["base"])
    with pytest.raises(UserError, match=r"'stabilty'.*'stability'"):
        compare(runs["base"], runs["again"], evaluations="stabilty")


def test_the_verdict_counts_what_it_leaves_to_the_table_and_concludes_nothing_from_nothing(runs):
    found = compare(runs["base"], runs["moved"], evaluations="stability")
    row = found.overall.iloc[[0]].assign(
        significant=True, p=0.001, better="moved", difference=0.3, low=0.1, high=0.5
    )
    several = [row.assign(explainer=f"m{i}") for i in range(MOST_SENTENCES + 2)]
    many = dataclasses.replace(found, differences=pd.concat(several))
    first, *_, last = many.verdict()
    assert "moved better in 8 of 8" in first
    assert last.startswith("2 more") and len(many.verdict()) == MOST_SENTENCES + 2
    none = dataclasses.replace(found, differences=found.differences.assign(joined=0))
    (sentence,) = none.verdict()
    assert "no sample" in sentence and "base" in sentence and "moved" in sentence
    assert list(forest_charts(found)) and list(forest_charts(none)) == []
    few = found.differences.assign(joined=3, significant=False, p=0.25, low=math.nan)
    (sentence,) = dataclasses.replace(found, differences=few).verdict()
    assert "3 samples" in sentence and "at least 8" in sentence


def test_a_significant_difference_that_no_digit_shows_is_no_win():
    scores = {f"s{i}": (0.1 * i, "ok") for i in range(9)}
    rounded = {name: (value + 1e-9, status) for name, (value, status) in scores.items()}
    found = comparison_of(made_up("A", scores), made_up("B", rounded))
    (row,) = found.differences.itertuples()
    assert row.significant and row.better == "" and not row.identical
    assert "No significant difference" in found.verdict()[0]
    assert "equal" in found.text()


def test_only_shared_compares_what_both_have(runs, tmp_path):
    found = compare(runs["base"], runs["wider"], only_shared=True)
    stability = found.differences[found.differences["explainer"] == "saliency"]
    assert set(stability["condition"]) == {"jpeg", "overall"}
    assert (stability["difference"] == 0).all()
    assert any(line.startswith("stability.perturbations") for line in found.left_out)
    assert "explainer random: only in base" in found.left_out
    # the one method that each run has of a kind is compared, and its parameters are the subject
    other = found.differences[found.differences["explainer_b"] == "integrated_gradients(steps=6)"]
    assert set(other["explainer_a"]) == {"integrated_gradients(steps=4)"}
    assert any(line.endswith(".steps: 4 in base, 6 in wider") for line in found.subject)

    def fewer_values(manifest):
        manifest["study"]["evaluations"]["stability"]["k"] = 7

    with pytest.raises(UserError, match=r"(?s)stability\.k: 100 in base, 7 in k"):
        compare(runs["base"], edited(runs["again"], tmp_path / "k", fewer_values), only_shared=True)


def test_other_seeds_are_compared_raw(runs):
    found = compare(runs["base"], runs["other seed"], across_seeds=True)
    assert set(found.differences["form"]) == {"raw"}
    assert "seed" in found.subject[0] and "5" in found.subject[0]
    found = compare(runs["base"], runs["more references"], across_seeds=True)
    assert set(found.differences["form"]) == {"raw"}
    assert "references" in found.subject[0] and "12" in found.subject[0]


def test_runs_without_any_row_in_common_differ_in_nothing_that_is_known(runs, tmp_path):
    bare = edited(runs["moved"], tmp_path / "bare", lambda manifest: None)
    shutil.rmtree(bare / "parts")
    found = compare(runs["base"], bare)
    assert found.differences.empty and len(found.verdict()) == 1


def test_conditions_of_another_version_are_shared_only_where_each_has_an_entry():
    both = {
        "perturbations": [{"name": "rotation"}],
        "conditions": [["rotation", 5], ["rotation", 10]],
    }
    assert shared_conditions([both, both], "perturbations") == {
        ("rotation", 5.0),
        ("rotation", 10.0),
    }
    assert shared_conditions([both, both], "perturbations", one_version=False) == set()


def test_a_part_that_is_missing_leaves_its_samples_absent(runs, tmp_path):
    partial = edited(runs["moved"], tmp_path / "partial", lambda manifest: None)
    next(partial.glob("parts/**/saliency/00001.*.parquet")).unlink()
    rows = compare(runs["base"], partial).differences.query(
        "explainer == 'saliency' and condition == 'jpeg'"
    )
    assert set(rows["absent"]) == {8}


def made_up(
    label: str, values: dict[str, tuple[float, str]], unreadable: tuple[str, ...] = ()
) -> ComparedRun:
    """A run of one explainer under one condition, with the value and the status of each sample."""
    rows = [
        {"dataset": "d", "model": "m", "explainer": "e", "evaluation": "stability", "sample": sample, "measure": "fass",
         "condition": "jpeg", "level": 40.0, "value": value, "low": None, "high": None, "status": status, "reason": ""}
        for sample, (value, status) in values.items()
    ]  # fmt: skip
    samples = pd.DataFrame({"dataset": "d", "model": "m", "sample": [*values, *unreadable]})
    samples["error"] = ["broken" if name in unreadable else "" for name in samples["sample"]]
    samples["predicted"], samples["predicted_name"] = 0, "cat"
    return compared_run(label, pd.DataFrame(rows), samples)


def test_every_sample_that_falls_out_is_counted_once():
    nan = float("nan")
    a = {f"s{i}": (0.1 * i, "ok") for i in range(5)} | {
        "f": (nan, "flipped"),
        "u": (0.5, "ok"),
        "gone": (0.5, "ok"),
    }
    b = {f"s{i}": (0.1 * i + 0.2, "ok") for i in range(5)} | {
        "f": (0.5, "ok"),
        "u": (nan, "undefined"),
    }
    runs = made_up("A", a, ("broken",)), made_up("B", b, ("broken", "worse"))
    rows = comparison_of(*runs).differences
    assert len(rows) == 1  # one condition is the overall one
    row = rows.iloc[0]
    assert row[["samples", "joined", "flipped", "undefined", "absent", "unreadable"]].tolist() == [
        10,
        5,
        1,
        1,
        1,
        2,
    ]
    assert row["difference"] == pytest.approx(0.2)
    assert math.isnan(row["low"]) and math.isnan(row["high"]), "five samples have no interval"
    assert row["p"] == 2 ** (1 - 5), "the smallest p that five samples can give"
    assert not row["significant"]


def test_the_test_of_the_mean_over_conditions_is_that_of_swapping_the_runs():
    """By brute force: a mean over levels, then conditions, and every way to swap the two runs on a sample."""
    generator = np.random.default_rng(0)
    conditions = [("rotation", 5.0), ("rotation", 10.0), ("jpeg", 40.0)]
    scores = generator.uniform(0, 1, (2, len(conditions), 9)).round(3)
    scores[0, 0, :2] = scores[1, 2, 8] = np.nan  # samples that only one of the runs scored
    runs = []
    for label, of_run in zip("AB", scores, strict=True):
        entries = [("e", "fass", *c, values) for c, values in zip(conditions, of_run, strict=True)]
        table = synthetic.rows_of(entries, "stability").assign(dataset="d", model="m")
        samples = pd.DataFrame({"dataset": "d", "model": "m", "sample": table["sample"].unique()})
        samples = samples.assign(error="", predicted=0, predicted_name="cat")
        runs.append(compared_run(label, table, samples))
    rows = comparison_of(*runs).differences
    row = rows[rows["family"] == "overall"].iloc[0]

    gaps = scores[1] - scores[0]  # missing where a run has no score
    means = np.nanmean(gaps, axis=1)
    assert row["difference"] == pytest.approx((means[:2].mean() + means[2]) / 2, abs=1e-12)
    weights = np.array([0.25, 0.25, 0.5]) / np.isfinite(gaps).sum(1)
    of_sample = np.nansum(gaps * weights[:, None], axis=0)
    signs = np.array(list(itertools.product((1, -1), repeat=9)))
    swapped = np.abs(signs @ of_sample)
    assert row["p"] == pytest.approx((swapped >= swapped[0] - 1e-12).mean(), abs=1e-12)
    assert row["low"] < row["difference"] < row["high"]


def test_dependence_is_compared_where_a_run_lacks_samples(tmp_path):
    """The random networks of the samples that both runs have."""
    tests = {"dependence": {"dependence": {"draws": 2, "k": 50}}}
    images = {"shapes": small.pictures(12)[0]}
    whole, part = tmp_path / "whole", tmp_path / "part"
    options = {"shard_size": 8, "show_progress": False}
    heatproof.evaluate(small.model(), images, ["saliency"], tests, whole, **options)
    heatproof.evaluate(moved_model(), images, ["saliency"], tests, part, **options)
    for file in part.glob("parts/**/00001.*.parquet"):
        file.unlink()
    rows = compare(whole, part).differences.query("measure == 'dependence'")
    assert set(rows["joined"]) == {8} and set(rows["absent"]) == {4}
    tables = [heatproof.read(path).table() for path in (whole, part)]
    first, second = (
        t[t["measure"] == "dependence"].groupby("sample")["value"].mean() for t in tables
    )
    expected = (second - first).dropna().mean()
    assert rows["difference"].iloc[0] == pytest.approx(expected, abs=1e-12)


def test_every_caution_has_its_rule(runs):
    found = compare(runs["base"], runs["moved"])
    assert {"few-samples", "other-predictions"} <= {caution.rule for caution in cautions(found)}
    whole = found.differences.assign(joined=found.differences["samples"], significant=False)
    fine = {caution.rule for caution in cautions(replace(found, differences=whole))}
    assert not {"lost-samples", "controls-differ"} & fine
    rows = found.differences.assign(joined=1, significant=True, identical=False)
    lost = {caution.rule for caution in cautions(replace(found, differences=rows))}
    assert {"lost-samples", "controls-differ"} <= lost


def test_pages_and_text_hold_the_verdict(runs, tmp_path):
    found = compare(runs["base"], runs["moved"])
    page = found.page(tmp_path / "page.html").read_text()
    told = [html.unescape(" ".join(Page(page).words)), " ".join(found.text().split())]
    for text in told:
        assert " ".join(text.split()).index(found.verdict()[0]) < 300, "the result comes first"
    assert "default-src 'none'" in page
    assert heatproof.read(runs["base"]).manifest.study.model("shapes").fingerprint[:12] in page


def test_measures_have_a_direction():
    leading = {m.name: m for axis in RECORDS for m in axis.measures if m.role == "headline"}
    assert [name for name, m in leading.items() if not m.sign] == ["dependence", "spearman"]
    assert {name for name, m in leading.items() if m.sign < 0} == {
        "road_morf_accuracy",
        "deletion_auc",
        "pixel_flipping",
        "infidelity",
        "infidelity_scaled",
        "average_sensitivity",
        "max_sensitivity",
        "local_lipschitz",
        "relative_input_stability",
        "relative_output_stability",
        "relative_representation_stability",
    }


def test_the_leaderboard_keeps_apart_what_does_not_compare(runs, tmp_path):
    names = ("base", "again", "moved", "other data", "other seed", "wider")
    data, page = write_leaderboard([runs[name] for name in names], tmp_path)
    held = json.loads(data.read_text())
    assert held["schema"] == "heatproof-leaderboard/1"
    assert page.read_text() == leaderboard_page(held)
    assert sorted({row["run"] for row in board["rows"]} for board in held["boards"]) == sorted(
        [{"base", "again", "moved"}, {"other"}, {"seed"}, {"wider"}], key=sorted
    )
    assert all(run["command"] for run in held["runs"])
    board = next(board for board in held["boards"] if len(board["rows"]) == 9)
    own = heatproof.read(runs["moved"]).ranking("stability").set_index("explainer")
    for row in board["rows"]:
        if row["run"] == "moved":
            assert row["score"] == pytest.approx(own["score"][row["explainer"]], abs=1e-6)
            assert row["attempted"] == 48 == row["retained"] + row["flipped"] + row["undefined"]
    twins = {}
    for row in board["rows"]:
        if row["run"] in ("base", "again"):
            twins.setdefault(row["explainer"], set()).add(
                (row["rank"], row["rank_low"], row["rank_high"], row["score"])
            )
    assert all(len(same) == 1 for same in twins.values())
    ranks = [row["rank"] for row in board["rows"] if not row["control"]]
    assert ranks == sorted(ranks)
    controls = [row for row in board["rows"] if row["control"]]
    assert controls and all(row["rank"] is None and row["unranked"] for row in controls)
    assert ranks[0] == 1
    with pytest.raises(UserError, match="heatproof-leaderboard/9"):
        leaderboard_page({**held, "schema": "heatproof-leaderboard/9"})


def test_the_leaderboard_of_one_run_says_what_the_run_says(runs):
    run = heatproof.read(runs["base"])
    (board,) = leaderboard(run)["boards"]
    ranking = run.ranking("stability").set_index("explainer")
    for row in board["rows"]:
        for end in ("score", "low", "high", "rank", "rank_low", "rank_high"):
            known = ranking.loc[row["explainer"], end]
            expected = None if math.isnan(known) else pytest.approx(known, abs=1e-6)
            assert row[end] == expected, (row["explainer"], end)
    (result,) = run.results()
    verdict = result.verdict(result.headlines[0])
    labels = {row["explainer"]: row["label"] for row in board["rows"]}
    assert labels == {name: str(label) for name, label in verdict.labels.items()}
    assert board["verdict"] == result.decided()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_result_first_and_no_line_is_cut(runs, width):
    lines = compare(runs["base"], runs["moved"]).text(width).splitlines()
    assert "base" in lines[0] and "moved" in lines[0] and "comparisons" in lines[0]
    assert max(map(len, lines)) <= width
    standings = leaderboard(*(runs[name] for name in ("base", "moved", "other data")))
    board = [line for line, _ in leaderboard_text(standings, width)]
    assert "Stability" in board[0]
    assert max(map(len, board)) <= width


def test_too_few_samples_have_no_result(runs, tmp_path):
    few = {"few": small.pictures(4)[0], "shapes": small.pictures(16)[0]}
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, net in zip(paths, (small.model(), moved_model()), strict=True):
        heatproof.evaluate(net, few, ["saliency", "lrp"], AXES, path, show_progress=False)
    found = compare(*paths)
    assert "2 comparisons (2 more have too few samples)" in found.text()
    labels = {}
    for board in leaderboard(*paths)["boards"]:
        labels[board["dataset"]] = {row["label"] for row in board["rows"]}
    assert labels["few"] == {""}
    assert labels["shapes"] != {""}


def test_no_label_of_a_leaderboard_is_turned(runs):
    held = leaderboard(runs["base"], runs["other data"])
    for board in held["boards"]:
        for row in board["rows"]:
            cell = row["conditions"][0]
            row["conditions"] = [
                {**cell, "condition": f"an_extraordinarily_long_name_{i}"} for i in range(20)
            ]
    assert "rotate(" not in leaderboard_page(held)


def test_an_unfinished_row_has_no_rank(runs, tmp_path):
    partial = edited(runs["moved"], tmp_path / "partial", lambda manifest: None)
    next(partial.glob("parts/**/saliency/00001.*.parquet")).unlink()
    held = leaderboard(runs["base"], partial)
    rows = {(row["run"], row["explainer"]): row for row in held["boards"][0]["rows"]}
    row = rows["partial", "saliency"]
    assert row["rank"] is None and "8 of 16" in row["unranked"]
    assert row["score"] is not None
    others = [
        r["rank"] for key, r in rows.items() if key != ("partial", "saliency") and not r["control"]
    ]
    assert set(others) <= set(range(1, 6))
    page = leaderboard_page(held)
    assert "8 of 16" in page
    assert len(held["boards"]) == 1 and "scores-title" not in page, "one board is its own table"


def test_runs_go_by_their_names_and_no_page_shows_a_hash(runs, tmp_path):
    """Which run is which is told by the end of its path, more of it where that is not enough."""
    for year in ("2025", "2026"):
        shutil.copytree(runs["moved"], tmp_path / year / "moved")
    found = compare(runs["base"], *(tmp_path / year / "moved" for year in ("2025", "2026")))
    assert [side.label for side in found.runs] == ["base", "2025/moved", "2026/moved"]
    page = found.page(tmp_path / "page.html").read_text()
    pair, other = (
        compare(runs["base"], runs["moved"]).page(tmp_path / "pair.html").read_text(),
        runs["other data"],
    )
    assert (
        ">base</th>" in pair and ">moved</th>" in pair
    )  # the heads of the means, where there is one pair
    held = leaderboard(runs["base"], runs["moved"], other)
    board = leaderboard_page(held)
    assert len(held["boards"]) > 1 and "scores-title" in board
    prints = [
        p for run in held["runs"] for kind in ("models", "datasets") for p in run[kind].values()
    ]
    for text in (page, pair, board):
        seen = text[
            : text.index('aria-labelledby="made"')
        ]  # how the runs were made is folded away, with everything
        assert not any(p.removeprefix("sha256:")[:12] in seen for p in prints)
    # the charts are drawn from the numbers of the boards
    for row in held["boards"][0]["rows"]:
        assert f'data-value="{row["score"]:g}"' in board or f"{row['score']:.4g}" in board


def test_less_is_better_where_it_is(tmp_path):
    x, _ = small.pictures(8)
    axes = {
        "faithfulness": {
            "faithfulness": {"imputers": ["zero"], "fractions": [0.3], "metrics": "deletion_auc"}
        }
    }
    runs_ = [
        heatproof.evaluate(
            model, {"shapes": x}, ["saliency", "random"], axes, tmp_path / name, show_progress=False
        )
        for name, model in (("a", small.model()), ("b", moved_model()))
    ]
    board = leaderboard(*runs_)["boards"][0]
    assert (board["measure"], board["lower_is_better"]) == ("deletion_auc", True)
    scores = [row["score"] for row in board["rows"] if not row["control"]]
    assert scores == sorted(scores)
    assert all(row["low"] <= row["score"] <= row["high"] for row in board["rows"])
    found = compare(*runs_)
    row = found.differences.query("measure == 'deletion_auc' and explainer == 'saliency'").iloc[0]
    tables = [
        run.table()
        .query("measure == 'deletion_auc' and explainer == 'saliency'")
        .set_index("sample")
        for run in runs_
    ]
    assert row["difference"] == pytest.approx((tables[1]["value"] - tables[0]["value"]).mean())


class Sharpness:
    """An evaluation of one's own that does not say which way is better."""

    name = "sharpness"

    def conditions(self):
        return [("clean", 0.0)]

    def __call__(self, subject):
        for explainer in subject.explainers:
            maps = subject.maps(explainer).abs().flatten(1)
            yield Scores.column(
                explainer, "peak", ("clean", 0.0), maps.amax(1) / maps.mean(1), [""] * len(maps)
            )


def test_without_a_direction_nothing_is_better_and_nothing_is_ranked():
    x, _ = small.pictures(12)
    pair = [
        heatproof.evaluate(net, x, ["saliency", "random"], {"own": Sharpness()})
        for net in (small.model(), moved_model())
    ]
    rows = compare(*pair).differences
    assert set(rows["measure"]) == {"peak"} and set(rows["better"]) == {""}
    held = leaderboard(*pair)
    (board,) = held["boards"]
    assert all(row["rank"] is None and row["unranked"] for row in board["rows"])


def test_the_commands(runs, tmp_path):
    app = typer.Typer()
    app.command("compare")(compare_command)
    app.command("leaderboard")(leaderboard_command)
    call = CliRunner()
    shown = call.invoke(app, ["compare", str(runs["base"]), str(runs["moved"])])
    assert shown.exit_code == 0, shown.output
    assert "base" in shown.output and "moved" in shown.output
    assert "--out comparison.html" in shown.output
    page = tmp_path / "page.html"
    shown = call.invoke(app, ["compare", str(runs["base"]), str(runs["moved"]), "--out", str(page)])
    assert shown.output.strip().endswith("page.html")
    assert page.stat().st_size < 10_000_000
    refused = call.invoke(app, ["compare", str(runs["base"]), str(runs["other seed"])])
    assert isinstance(refused.exception, UserError)
    shown = call.invoke(app, ["leaderboard", str(runs["base"]), "--out", str(tmp_path)])
    assert (tmp_path / "leaderboard.html").exists(), shown.output


def test_what_is_blind_is_marked_in_comparison_and_leaderboard(tmp_path):
    axes = [
        {"stability": {"perturbations": ["jpeg"], "k": 50}},
        {"dependence": {"draws": 2, "k": 50}},
    ]
    paths = [tmp_path / name for name in ("a", "b")]
    for path, net in zip(paths, (small.model(), moved_model()), strict=True):
        heatproof.evaluate(
            net, small.pictures(10), ["saliency", "sobel"], axes, path, show_progress=False
        )
    compared = compare(*paths)
    page = compared.page(tmp_path / "page.html").read_text()
    assert "Edge filter (ignores model)" in page and "Saliency (ignores model)" not in page
    rows = compared.differences[compared.differences["measure"] == "fass"]
    assert {compared.named(row) for row in rows.itertuples()} == {
        "Saliency",
        "Edge filter (ignores model)",
    }
    boards = leaderboard(*paths)["boards"]
    marks = {(row["explainer"], row["mark"]) for board in boards for row in board["rows"]}
    assert marks == {("saliency", ""), ("sobel", "blind")} and {b["axis"] for b in boards} == {
        "stability",
        "dependence",
    }
    shown = leaderboard_page(leaderboard(*paths))
    assert "Edge filter (ignores model)" in shown and "Saliency (ignores model)" not in shown


def planned(
    label: str, models: dict[str, str], datasets: dict[str, str], **study: object
) -> ComparedRun:
    """A run of which only the study is known: names with their fingerprints."""
    test = {"name": "stability", "conditions": [["jpeg", 40.0]]}
    entries = {
        "seed": 0,
        "models": {name: {"fingerprint": print_} for name, print_ in models.items()},
        "datasets": {
            name: {"fingerprint": print_, "samples": 2} for name, print_ in datasets.items()
        },
        "explainers": {"e": {"name": "e"}},
        "evaluations": {"stability": test},
    }
    samples = made_up(label, {"s": (0.5, "ok")}).samples
    return ComparedRun(label, label, manifest_of({**entries, **study}), [], samples)


def test_other_versions_and_devices_are_told():
    sides = [planned(label, {"m": "1"}, {"d": "x"}) for label in "AB"]
    for i, one in enumerate(sides):
        versions = {"torch": f"2.{i}", "numpy": "1"}
        sessions = [{"devices": [f"cuda:{i}", "cpu"]}, {}]
        study = one.manifest.study.as_mapping()
        manifest = manifest_of(study, versions=versions, sessions=sessions)
        sides[i] = dataclasses.replace(one, manifest=manifest)
    told = [line for line in match_runs(sides).subject if "torch" in line or "cuda" in line]
    assert (
        len(told) == 2
        and "2.0 in A, 2.1 in B" in told[0]
        and "cpu, cuda:0 in A, cpu, cuda:1 in B" in told[1]
    )


def test_several_models_are_matched_by_their_names():
    one = planned("A", {"shared": "1" * 20, "old": "2" * 20}, {"d": "x"})
    other = planned("B", {"new": "3" * 20, "shared": "4" * 20}, {"d": "x"})
    found = match_runs([one, other])
    assert found.models == [("shared", "shared")]
    assert [line for line in found.left_out if line.startswith("model")] == [
        "model old: only in A",
        "model new: only in B",
    ]
    assert "weights: no. 1 in A, no. 2 in B" in found.subject
    renamed = match_runs(
        [planned("A", {"old": "1" * 20}, {"d": "x"}), planned("B", {"new": "1" * 20}, {"d": "x"})]
    )
    assert renamed.models == [("old", "new")], (
        "where each run has one model, that is what is compared"
    )
    with pytest.raises(UserError, match="no models in common"):
        match_runs(
            [
                planned("A", {"a": "1", "b": "2"}, {"d": "x"}),
                planned("B", {"c": "1", "e": "2"}, {"d": "x"}),
            ]
        )


def test_data_are_matched_by_content_and_by_name_among_equals():
    one = planned("A", {"m": "1"}, {"d": "x", "twin": "x", "only": "y"})
    other = planned("B", {"m": "1"}, {"other": "x", "twin": "x"})
    found = match_runs([one, other])
    assert found.datasets == [("d", "other"), ("twin", "twin")]
    assert found.left_out == ["data only: only in A"]
    assert any("d / other" in line and "same data" in line for line in found.subject)
    with pytest.raises(UserError, match=r"datasets\.d\b"):
        match_runs([planned("A", {"m": "1"}, {"d": "x"}), planned("B", {"m": "1"}, {"d": "z"})])


def configured(k: int) -> dict[str, object]:
    """A study of two data sets in which stability has another k for the second one."""
    other = {"name": "stability", "conditions": [["jpeg", 40.0]], "k": k}
    return {"configured": {"y": {"m": {"evaluations": {"stability": other}}}}}


def test_settings_are_compared_for_each_data_set_and_model():
    data = {"x": "1", "y": "2"}
    first = planned("A", {"m": "1"}, data, **configured(7))
    second = planned("B", {"m": "1"}, data, **configured(9))
    with pytest.raises(UserError, match=r"stability\.k: 7 in A, 9 in B \(for y, m\)"):
        match_runs([first, second])
    found = match_runs([first, second], only_shared=True)
    assert [test.datasets for test in found.tests] == [("x", "x")]
    assert any("stability.k" in line for line in found.left_out)
    again = planned("B", {"m": "1"}, data, **configured(7))
    assert len(match_runs([first, again]).tests) == 2


def test_runs_that_explain_another_number_are_refused():
    def explaining(label: str, readout: str) -> ComparedRun:
        tasks = {"d": {"m": {"readout": readout, "unchanged": "the class stays"}}}
        return planned(label, {"m": "1"}, {"d": "x"}, tasks=tasks)

    with pytest.raises(UserError, match=r"readout: logit in A, probability in B"):
        match_runs([explaining("A", "logit"), explaining("B", "probability")])
    assert match_runs([explaining("A", "logit"), explaining("B", "logit")]).tests


def test_a_condition_is_shared_where_the_same_entry_made_it():
    def asked(*entries: tuple[str, float]) -> dict[str, object]:
        made_by = [{"name": name, "strength": level} for name, level in entries]
        return {
            "name": "stability",
            "perturbations": made_by,
            "conditions": [[n, x] for n, x in entries],
        }

    one, other = asked(("jpeg", 40.0), ("noise", 0.1)), asked(("blur", 2.0), ("jpeg", 40.0))
    sides = [
        planned(label, {"m": "1"}, {"d": "x"}, evaluations={"stability": each})
        for label, each in (("A", one), ("B", other))
    ]
    with pytest.raises(UserError, match="perturbations"):
        match_runs(sides)
    (evaluated,) = match_runs(sides, only_shared=True).tests
    assert evaluated.conditions == {("jpeg", 40.0)}
    other["perturbations"][1]["strength"] = 41.0
    sides = [
        planned(label, {"m": "1"}, {"d": "x"}, evaluations={"stability": each})
        for label, each in (("A", one), ("B", other))
    ]
    with pytest.raises(UserError, match="no evaluations in common"):
        match_runs(sides, only_shared=True)


def test_a_run_with_nothing_that_counts_is_on_no_board(tmp_path):
    asked = {"stability": heatproof.Stability(perturbations="identity", k=50)}
    run = heatproof.evaluate(
        small.model(), small.pictures(4)[0], ["saliency", "random"], asked, tmp_path / "run"
    )
    assert heatproof.leaderboard(run)["boards"] == []


def test_a_board_says_what_a_run_was_made_of_and_leaves_out_what_is_set_aside(tmp_path):
    asked = {
        "stability": heatproof.Stability(
            perturbations=["identity", "jpeg", {"rotation": {"degrees": 15}}], k=50
        )
    }
    run = heatproof.evaluate(
        small.model(), small.pictures(4)[0], ["saliency", "random"], asked, tmp_path / "run"
    )
    board = heatproof.leaderboard(run)
    (told,) = board["runs"]
    study = run.manifest.study
    assert told["datasets"] == {name: data.fingerprint for name, data in study.datasets.items()}
    assert told["models"] == {name: model.fingerprint for name, model in study.models.items()}
    assert (told["versions"], told["command"]) == (run.manifest.versions, run.manifest.command)
    for row in board["boards"][0]["rows"]:
        assert [cell["condition"] for cell in row["conditions"]] == ["jpeg", "rotation"]
        assert row["attempted"] == 8 == row["retained"] + row["flipped"] + row["undefined"]
        assert (row["rank"] is None) == bool(row["unranked"]) == row["control"]
