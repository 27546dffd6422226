"""Errors of scores against brute force, and what the references of a run add to them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import heatproof
from heatproof.data import open_data
from heatproof.maps.chance import profile_of
from heatproof.maps.similarity import compare_all, composite, spearman
from heatproof.results.arrays import ScoreArrays, rows_to_arrays
from heatproof.results.score_estimates import chance_estimates, raw_estimates, score_estimates
from heatproof.runs.results import arrays_of_run
from heatproof.statistics.estimates import calibrated, of_means
from heatproof.statistics.power import power_sentence, smallest_difference
from support import row_statistics as st
from support import synthetic
from support.small import model, pictures

UNIT = (0.0, 1.0)


def one_study(seed: int = 0, n: int = 20, r: int = 6) -> tuple[ScoreArrays, np.ndarray, np.ndarray]:
    """The arrays of one explainer, its scores (n,) and the scores (r, n) against its first r samples."""
    generator = np.random.default_rng(seed)
    scores, pairs = (
        generator.uniform(0.5, 0.9, n),
        generator.uniform(0.2, 0.5, (r, n)) + generator.normal(0, 0.1, (r, 1)),
    )
    pairs[np.arange(r), np.arange(r)] = np.nan
    level = np.nanmean(pairs, 0)
    entries = [("e", "fass", "jpeg", 1.0, scores, level)]
    (arrays,) = rows_to_arrays(synthetic.rows_of(entries, "stability"))
    parts = {
        "references": tuple(arrays.samples[:r]),
        "by_reference": {"fass": np.nanmean(pairs - level, 1)[None, None]},
        "spans": {"fass": UNIT},
    }
    return ScoreArrays(**{**arrays.__dict__, **parts}), scores, pairs


def test_parts_of_a_calibrated_score_are_its_derivatives() -> None:
    """Weight one sample a little more, as a sample and as a reference, and see where the score goes."""
    arrays, scores, pairs = one_study()
    n, r = len(scores), len(pairs)

    def score(sample_weights: np.ndarray, reference_weights: np.ndarray) -> float:
        weights = np.where(np.isnan(pairs), 0.0, reference_weights[:, None])
        level = (np.nan_to_num(pairs) * weights).sum(0) / weights.sum(0)
        m, c = np.average(scores, weights=sample_weights), np.average(level, weights=sample_weights)
        return float((m - c) / (1 - c))

    found = calibrated(raw_estimates(arrays, "fass"), chance_estimates(arrays, "fass"))[0, 0]
    assert found.value == pytest.approx(score(np.ones(n), np.ones(r)))
    step = 1e-5
    for i in range(n):
        more = np.ones(n)
        more[i] += step
        moved = (score(more, np.ones(r)) - score(np.ones(n), np.ones(r))) / step
        assert found.sample_parts[i] / np.sqrt(n / (n - 1)) == pytest.approx(moved, abs=2e-4)
    for i in range(r):
        more = np.ones(r)
        more[i] += step
        moved = (score(np.ones(n), more) - score(np.ones(n), np.ones(r))) / step
        assert found.reference_parts[i] / np.sqrt(r / (r - 1)) == pytest.approx(
            moved, rel=0.1, abs=1e-3
        )
    assert found.reference_index.tolist() == list(range(r)) and 0 < found.share_of_references < 1
    without = calibrated(raw_estimates(arrays, "fass"), of_means(arrays.chance["fass"]))[0, 0]
    wide, narrow = (float(np.ptp(each.interval())) for each in (found, without))
    assert wide > narrow


def test_doubled_samples_of_one_group_say_no_more_than_one() -> None:
    values = np.random.default_rng(3).beta(6, 4, 30)
    alone, groups = of_means(values, UNIT), np.repeat(np.arange(30), 2)
    doubled = of_means(np.repeat(values, 2), UNIT, groups)
    np.testing.assert_allclose(doubled.interval(), alone.interval(), atol=1e-9)
    assert (doubled.n, doubled.df) == (30, 29)
    naive = of_means(np.repeat(values, 2), UNIT)
    assert np.ptp(naive.interval()) < np.ptp(alone.interval())


def test_sweeps_weigh_alike_in_ranking_and_tests_and_lie_within_their_interval() -> None:
    """Five levels of one perturbation where a is worse, one of another where it is better."""
    generator, even = np.random.default_rng(4), np.linspace(-0.17, 0.17, 30)
    entries = []
    for name, sweep, single in (("a", 0.5, 0.7), ("b", 0.6, 0.5)):
        entries += [
            (name, "fass", "rotation", float(x), sweep + generator.permutation(even))
            for x in range(5)
        ]
        entries.append((name, "fass", "jpeg", 1.0, single + generator.permutation(even)))
    rows = synthetic.rows_of(entries, "stability")
    ranked, tested = (
        st.ranking(rows, "fass").set_index("explainer"),
        st.paired_tests(rows, "fass").iloc[0],
    )
    assert ranked.loc["a", "score"] > ranked.loc["b", "score"]
    assert tested["difference"] == pytest.approx(
        ranked.loc["a", "score"] - ranked.loc["b", "score"]
    )
    assert (ranked["low"] < ranked["score"]).all() and (ranked["score"] < ranked["high"]).all()
    wide = rows.pivot(index="sample", columns=["explainer", "condition", "level"], values="value")
    each = {e: (wide[e]["rotation"].mean(axis=1) + wide[e]["jpeg"].mean(axis=1)) / 2 for e in "ab"}
    assert (ranked.loc["a", "high"] - ranked.loc["a", "low"]) / 2 == pytest.approx(
        stats.t.ppf(0.975, 29) * stats.sem(each["a"]), rel=0.1
    )


def test_identical_explainers_share_their_rank_and_controls_have_none() -> None:
    one = synthetic.table({"a": 0.5}, flip=0.1)
    other = synthetic.table({"sobel": 0.7, "c": 0.1}, flip=0.1)
    found = st.ranking(pd.concat([one, one.assign(explainer="twin"), other]), "fass").set_index(
        "explainer"
    )
    ranks = found.loc[["a", "twin", "c"], ["rank", "rank_low", "rank_high"]].to_numpy().tolist()
    assert ranks == [[1, 1, 2], [1, 1, 2], [3, 3, 3]]
    assert found.loc["c", "rank"] == 3 and np.isnan(found.loc["sobel", "rank"])


@pytest.mark.parametrize(
    "asked",
    [
        {"stability": {"perturbations": "brightness", "k": 50}},
        {"symmetry": {"group": {"dihedral": {"n": 1}}}},
        {"agreement": {"k": 50}},
        {"dependence": {"draws": 2, "k": 50}},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_references_add_does_not_depend_on_shards(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    data, methods = pictures(12)[0], ["saliency", "input_x_gradient"]
    runs = [
        heatproof.evaluate(model(), data, methods, {"s": asked}, tmp_path / str(n), shard_size=n)
        for n in (3, 12)
    ]
    first, second = (
        arrays_of_run(run.compact(), run.manifest, references=run.references())[0] for run in runs
    )
    known = {m for m in first.chance if not m.startswith("model_")}
    headlines = {"dependence", "class_dependence"} & set(
        first.values
    )  # divided by their own chance, sample by sample
    assert set(first.by_reference) == set(second.by_reference) == headlines | known
    for name, sums in first.by_reference.items():
        np.testing.assert_allclose(sums, second.by_reference[name], atol=1e-5)
        assert np.abs(sums).max() > 0
    np.testing.assert_allclose(
        *(run.ranking()[["low", "high"]].to_numpy() for run in runs), atol=2e-2
    )
    assert "references" not in runs[0].table()


def test_what_a_reference_adds_to_dependence_is_the_slope_of_the_mean(tmp_path: Path) -> None:
    """Against other references: the mean moves by the parts of those that leave and come, to first order."""
    asked = {"d": {"dependence": {"draws": 2, "k": 50, "classes": 0, "noise_floor": False}}}
    run = heatproof.evaluate(model(), pictures(10)[0], "saliency", asked, tmp_path, references=10)
    (arrays,) = arrays_of_run(run.compact(), run.manifest, references=run.references())
    maps = heatproof.Saliency()(
        model(), open_data(pictures(10)[0]).load(range(10)).batch, targets(run), seed=0
    )
    own = profile_of(maps, "image", 50)
    pairs = composite(compare_all(own, own)).numpy()
    np.fill_diagonal(pairs, np.nan)
    order = [arrays.samples.index(name) for name in arrays.references]
    at = arrays.conditions.index(("weights", 0.0))
    gone = 1 - arrays.values["similarity"][0, at]

    def mean(weights: np.ndarray) -> float:
        there = np.isfinite(pairs) * weights[:, None]
        return float(np.mean(gone / (1 - np.nansum(pairs * there, 0) / there.sum(0))))

    step = 1e-4
    slopes = (
        np.array(
            [mean(np.ones(10) + step * (np.arange(10) == r)) - mean(np.ones(10)) for r in range(10)]
        )
        / step
    )
    # The mean over the nine samples that each reference was compared with, and a tenth of it for the mean of ten.
    found = arrays.by_reference["dependence"][0, at] / 10
    np.testing.assert_allclose(found, slopes[order], atol=0.03 * np.abs(slopes).max())


def targets(run: heatproof.Run) -> torch.Tensor:
    return torch.tensor(run.samples().sort_values("sample")["predicted"].to_numpy(dtype=np.int64))


def test_groups_reach_the_interval_through_a_run() -> None:
    asked = {"s": {"stability": {"perturbations": "brightness", "k": 50}}}
    twice = torch.cat([pictures(12)[0]] * 2)
    plain = heatproof.evaluate(model(), twice, "saliency", asked)
    paired = heatproof.evaluate(
        model(), open_data(twice, groups=[str(i % 12) for i in range(24)]), "saliency", asked
    )
    wide, narrow = (
        np.ptp(run.ranking()[["raw_low", "raw_high"]].to_numpy()) for run in (paired, plain)
    )
    assert wide > narrow and paired.samples()["group"].nunique() == 12
    assert re.search(r"\b24\b.*\b12\b", paired.text())


def test_a_map_too_small_for_float32_is_compared_all_the_same() -> None:
    maps = torch.rand(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(spearman(maps[:1] * 1e-60, maps[1:]), spearman(maps[:1], maps[1:]))


def test_more_samples_separate_smaller_differences() -> None:
    found = [smallest_difference(n, 5) for n in (6, 14, 30, 100)]
    assert found == sorted(found, reverse=True) and 0.08 < found[1] < 0.15
    assert np.isnan(smallest_difference(1, 5)) and smallest_difference(
        30, 10
    ) > smallest_difference(30, 2)


def test_estimates_of_some_samples_are_those_of_a_smaller_table() -> None:
    arrays, scores, _ = one_study()
    keep = np.arange(len(scores)) % 2 == 0
    found = score_estimates(arrays, "fass", calibrate=False, use=keep)[0, 0]
    assert found.value == pytest.approx(scores[keep].mean()) and found.n == keep.sum()


def test_a_rank_is_no_surer_than_the_tests_from_four_samples_on() -> None:
    """Whatever is not separated keeps its rank open, and what is separated closes it."""
    for n in (4, 8, 60):
        rows = synthetic.table(
            {"a": 0.55, "b": 0.5, "c": 0.45, "d": 0.1}, samples=n, flip=0.0, undefined=0.0
        )
        every_arrays = [
            replace(arrays, spans={"fass": (0.0, 1.0)}) for arrays in rows_to_arrays(rows)
        ]
        found, tests = (
            st.ranking(every_arrays, "fass").set_index("explainer"),
            st.paired_tests(every_arrays, "fass"),
        )
        for name, r in found.iterrows():
            shown = tests[tests["significant"]]
            gain = {"a": 1, "b": -1}
            better = sum(
                int((gain[s] * shown[shown[s] == name]["difference"] < 0).sum()) for s in gain
            )
            worse = sum(
                int((gain[s] * shown[shown[s] == name]["difference"] > 0).sum()) for s in gain
            )
            assert (r["rank_low"], r["rank_high"]) == (1 + better, len(found) - worse)
        if n == 4:
            assert found.loc[["a", "b", "c"], "rank_low"].tolist() == [1, 1, 1], (
                "four photographs separate none of these"
            )
    assert found.loc["d", "rank_low"] == 4, "with 60 samples the last is known"


def test_what_rounding_left_is_no_difference() -> None:
    same = np.full((1, 60), 0.7)
    rows = synthetic.rows_of(
        [("a", "fass", "jpeg", 1.0, same[0]), ("b", "fass", "jpeg", 1.0, same[0] + 1e-12)], "x"
    )
    tested = st.paired_tests(rows, "fass").iloc[0]
    assert tested["p"] == 1 and not tested["significant"] and tested["difference"] != 0


def test_a_reference_adds_what_it_lies_above_the_others() -> None:
    arrays, _, _ = one_study(n=5, r=3)
    means = np.array([0.1, 0.4, 0.2])
    arrays = replace(
        arrays,
        references=(arrays.samples[1], arrays.samples[3], "elsewhere"),
        by_reference={"fass": means[None, None]},
    )
    found = chance_estimates(arrays, "fass")
    np.testing.assert_allclose(found.reference_parts[0, 0], (means - means.mean()) / np.sqrt(6))
    assert found.reference_index.tolist() == [1, 3, -1]


def test_two_methods_are_enough_to_separate_something():
    assert power_sentence(14, 2).startswith("14 samples, 2 methods")
    assert "one method" in power_sentence(14, 1)
