"""The statistics against scipy, brute force and tables whose truth is known."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heatproof.evaluation import STATUS, Measure
from heatproof.maps.similarity import COMPONENTS
from heatproof.results.arrays import rows_to_arrays
from heatproof.runs.results import arrays_of_run
from heatproof.statistics import bootstrap as resampling
from heatproof.statistics.intervals import rate_interval
from support import row_statistics as st
from support import synthetic


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return synthetic.table()


@pytest.fixture(scope="module")
def shuffled(table: pd.DataFrame) -> pd.DataFrame:
    return table.sample(frac=1, random_state=np.random.RandomState(0)).reset_index(drop=True)


@pytest.mark.parametrize(("k", "n"), [(0, 7), (7, 7), (3, 11), (499, 500), (1, 1), (120, 5000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_rate_intervals_are_scipys(k: int, n: int, level: float) -> None:
    wanted = stats.binomtest(k, n).proportion_ci(level, method="exact")
    assert rate_interval(k, n, level) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_a_share_without_trials_is_undefined() -> None:
    assert np.isnan(rate_interval(0, 0)).all()


def test_retention_counts_rows(table: pd.DataFrame) -> None:
    found = st.retention(arrays_of_run(table)).set_index(["explainer", "condition"])
    fass = table[table["measure"] == "fass"]
    assert len(found) == len(synthetic.QUALITY) * len(synthetic.CONDITIONS)
    for key, rows in fass.groupby(["explainer", "condition"]):
        counts = rows["status"].value_counts()
        row = found.loc[key]
        assert row["attempted"] == len(rows) == row["retained"] + row["flipped"] + row["undefined"]
        assert [row["retained"], row["flipped"], row["undefined"], row["open"]] == [
            counts.get(s, 0) for s in STATUS
        ]
        assert row["retention"] == row["retained"] / len(rows)
        assert (row["retention_low"], row["retention_high"]) == rate_interval(
            row["retained"], len(rows)
        )


def test_flags_speak_of_few_pairs_and_of_rare_ones() -> None:
    many = synthetic.table({"a": 0.5}, (("jpeg", 40.0),), samples=400, flip=0.0, undefined=0.0)
    assert st.retention(many)["flag"].tolist() == [""]
    ids = many["sample"].unique()
    many.loc[~many["sample"].isin(ids[:2]), ["value", "status"]] = [np.nan, "flipped"]
    assert st.retention(many)["flag"].tolist() == ["few pairs: 2; low retention: 0.5 %"]


def test_summary_means_are_those_of_the_rows(table: pd.DataFrame, shuffled: pd.DataFrame) -> None:
    found = st.summary(table)
    keys = ["explainer", "condition", "level", "measure"]
    means = table.groupby(keys)[["value", "chance"]].mean()
    for row in found.to_dict("records"):
        where = tuple(row[k] for k in keys)
        mean, chance = means.loc[where]
        assert row["mean"] == pytest.approx(mean, abs=1e-12)
        assert row["low"] < row["mean"] < row["high"]
        if where[3].startswith("noise_floor"):
            assert np.isnan(row["chance"]) and np.isnan(row["calibrated"])
            continue
        assert row["chance"] == pytest.approx(chance, abs=1e-12)
        assert row["calibrated"] == pytest.approx((mean - chance) / (1 - chance), abs=1e-12)
        assert row["calibrated_low"] < row["calibrated"] < row["calibrated_high"]


def test_the_noise_floor_stands_beside_the_scores_of_its_measure(table: pd.DataFrame) -> None:
    declared = [Measure("ssim", "SSIM", "", "higher", "component", noise_floor="noise_floor_ssim")]
    (arrays,) = rows_to_arrays(table, {"stability": declared})
    found = st.summary([arrays])
    floor = table[table["measure"] == "noise_floor_ssim"]["value"].mean()
    ssim = found[found["measure"] == "ssim"].set_index("explainer")["noise_floor"]
    assert ssim["lime"].to_numpy() == pytest.approx(floor)
    assert ssim.drop("lime").isna().all()


def test_row_order_decides_nothing(table: pd.DataFrame, shuffled: pd.DataFrame) -> None:
    keys = ["explainer", "condition", "level", "measure"]
    found, again = (st.summary(t).sort_values(keys, ignore_index=True) for t in (table, shuffled))
    pd.testing.assert_frame_equal(found, again)
    found, again = (st.ranking(t, "fass") for t in (table, shuffled))
    pd.testing.assert_frame_equal(found, again)


def test_intervals_cover_the_truth() -> None:
    hits = 0
    for seed in range(40):
        one = synthetic.table({"a": 0.4}, (("jpeg", 40.0),), flip=0.3, undefined=0.0, seed=seed)
        row = st.summary(one).query("measure == 'jaccard'").iloc[0]
        hits += row["calibrated_low"] <= 0.4 <= row["calibrated_high"]
    assert hits >= 33  # 38 expected; 90 % coverage would fail with probability 0.04


@pytest.mark.parametrize("samples", [1, 2, 7, 8])
def test_below_eight_samples_no_table_has_an_interval(samples: int) -> None:
    rows = synthetic.table(samples=samples, flip=0.0, undefined=0.0)
    for table in (st.summary(rows), st.ranking(rows, "fass"), st.paired_tests(rows, "fass")):
        has_interval = table[["low", "high"]].notna().to_numpy()
        assert (has_interval == (samples >= 8)).all()
    reasons = st.summary(rows)["no_interval"]
    assert reasons.str.contains(str(samples)).all() if samples < 8 else (reasons == "").all()


def test_nothing_retained_is_nan_and_flagged() -> None:
    none = synthetic.table(flip=1.1)
    found = st.summary(arrays_of_run(none[~none["measure"].str.startswith("noise_floor")]))
    assert (
        found["mean"].isna().all()
        and (found["retained"] == 0).all()
        and found["flag"].str.len().min() > 0
    )
    ranks = st.ranking(none, "fass")
    assert ranks[["score", "rank", "rank_low", "rank_high"]].isna().all(axis=None)
    assert (
        st.paired_tests(none, "fass")["p"].isna().all()
        and not st.paired_tests(none, "fass")["significant"].any()
    )
    assert st.disagreement(none, COMPONENTS)["compared"].tolist() == [0]


def test_measures_without_chance_still_summarise() -> None:
    rows = synthetic.table({"a": 0.4}, (("jpeg", 40.0),))
    rows = rows[rows["measure"] == "ssim"].assign(
        measure="certified_rate", evaluation="certificate", chance=np.nan
    )
    row = st.summary(rows).iloc[0]
    assert (
        row["measure"] == "certified_rate"
        and np.isfinite(row[["mean", "low", "high"]].astype(float)).all()
    )
    assert row[["chance", "calibrated", "calibrated_low", "noise_floor"]].isna().all()
    assert row["retained"] > 0
    assert st.ranking(rows, "certified_rate")["score"].tolist() == pytest.approx([row["mean"]])


def test_ranking_knows_the_true_order(table: pd.DataFrame) -> None:
    found = st.ranking(table, "fass")
    assert found["explainer"].tolist() == sorted(
        synthetic.QUALITY, key=lambda e: -synthetic.QUALITY[e]
    )
    assert found["rank"].tolist() == pytest.approx([np.nan, 1, 2, 3, np.nan], nan_ok=True), (
        "controls have no rank"
    )
    assert found.set_index("explainer")["control"].to_dict() == {
        e: e in synthetic.CONTROLS for e in synthetic.QUALITY
    }
    assert found["rank_low"].tolist()[1:4] == found["rank_high"].tolist()[1:4] == [1, 2, 3]
    assert (found["low"] <= found["score"]).all() and (found["score"] <= found["high"]).all()
    by = st.summary(table).query("measure == 'fass' and explainer == 'grad_cam'")
    score = found.set_index("explainer").loc["grad_cam", "score"]
    assert score == pytest.approx(by["calibrated"].mean())
    assert found.set_index("explainer").loc["grad_cam", "raw"] == pytest.approx(by["mean"].mean())


def test_a_sweep_counts_as_one_condition() -> None:
    sweep = synthetic.table(
        {"a": 0.5, "b": 0.2}, (("jpeg", 10.0), ("jpeg", 40.0), ("noise", 0.1)), flip=0.1
    )
    by = (
        st.summary(sweep)
        .query("measure == 'fass' and explainer == 'a'")
        .set_index(["condition", "level"])["calibrated"]
    )
    wanted = ((by["jpeg", 10.0] + by["jpeg", 40.0]) / 2 + by["noise", 0.1]) / 2
    assert st.ranking(sweep, "fass").set_index("explainer").loc["a", "score"] == pytest.approx(
        wanted
    )


def test_equal_methods_share_the_ranks() -> None:
    twins = synthetic.table({"a": 0.4, "b": 0.4, "c": 0.1}, flip=0.1)
    found = st.ranking(twins, "fass").set_index("explainer")
    assert found.loc[["a", "b"], "rank_low"].tolist() == [1, 1]
    assert found.loc[["a", "b"], "rank_high"].tolist() == [2, 2]
    assert found.loc["c", ["rank_low", "rank_high"]].tolist() == [3, 3]


def test_paired_tests_use_what_both_retain() -> None:
    pair = synthetic.table({"a": 0.5, "b": 0.4}, flip=0.3, undefined=0.3, seed=3)
    wide = pair.pivot(
        index=["sample", "condition"], columns=["explainer", "measure"], values="value"
    )
    apart = (wide["a"]["fass"] - wide["b"]["fass"]).dropna().unstack("condition")
    row = st.paired_tests(pair, "fass", calibrate=False).iloc[0]
    assert row["n"] == len(apart)
    assert row["difference"] == pytest.approx(apart.mean().mean())
    assert row["score_a"] - row["score_b"] == pytest.approx(row["difference"])
    assert row["low"] < row["difference"] < row["high"]


def test_a_comparison_of_two_does_not_depend_on_the_others() -> None:
    """Whichever samples other methods have scores of, and where a chance level is missing."""
    qualities = {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.45}
    rows = synthetic.table(qualities, flip=0.2, undefined=0.2, seed=4)
    first_condition = rows["condition"].iloc[0]
    lacks_chance = (rows["explainer"] == "c") & (rows["condition"] == first_condition)
    rows.loc[lacks_chance, "chance"] = np.nan
    columns = ["n", "score_a", "score_b", "difference"]
    together = st.paired_tests(rows, "fass").set_index(["a", "b"])[columns]
    for a, b in together.index:
        alone = st.paired_tests(rows[rows["explainer"].isin([a, b])], "fass").iloc[0]
        assert together.loc[(a, b)].tolist() == pytest.approx(alone[columns].tolist())


def test_identical_methods_are_never_separated(table: pd.DataFrame) -> None:
    one = table[table["explainer"] == "lime"]
    row = st.paired_tests(pd.concat([one, one.assign(explainer="copy")]), "fass").iloc[0]
    assert (row["p"], row["difference"], bool(row["significant"])) == (1.0, 0.0, False)


def test_family_of_tests_is_one_dataset_and_model(table: pd.DataFrame) -> None:
    both = pd.concat([table, table.assign(model="other")])
    alone, together = st.paired_tests(table, "fass"), st.paired_tests(both, "fass")
    assert together[together["model"] == "mobilenet"]["p"].tolist() == alone["p"].tolist()
    assert len(together) == 2 * len(alone)


def test_component_disagreement_by_brute_force(table: pd.DataFrame) -> None:
    tight = synthetic.table({"a": 0.3, "b": 0.3, "c": 0.31, "d": 0.5}, flip=0.1, seed=9)
    found = st.disagreement(tight, COMPONENTS).iloc[0]
    by = st.summary(tight)
    by["score"] = by["calibrated"]
    wide = by.pivot(index=["condition", "level"], columns=["measure", "explainer"], values="score")
    orders = []
    for a, b in itertools.combinations("abcd", 2):
        orders += [
            tuple(np.sign(row[m][a] - row[m][b]) for m in COMPONENTS) for _, row in wide.iterrows()
        ]
    assert found["compared"] == len(orders) == 30
    assert found["count"] == sum(len(set(signs)) > 1 for signs in orders) > 0
    assert found["share"] == found["count"] / 30
    assert found["ssim_jaccard"] == pytest.approx(np.mean([s[0] != s[2] for s in orders]))


def test_categorical_columns_and_cubes_give_the_same(table: pd.DataFrame) -> None:
    text = [
        "dataset",
        "model",
        "explainer",
        "evaluation",
        "sample",
        "measure",
        "condition",
        "status",
    ]
    categorical = table.astype({column: "category" for column in text})
    plain = st.summary(table)
    pd.testing.assert_frame_equal(st.summary(categorical), plain)
    pd.testing.assert_frame_equal(st.summary(rows_to_arrays(table)), plain)


def test_results_do_not_touch_the_global_generator(table: pd.DataFrame) -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first, second = st.ranking(table, "fass"), st.ranking(table, "fass")
    pd.testing.assert_frame_equal(first, second)
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]  # noqa: NPY002


def test_draws_in_pieces_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random((5, 40))
    values[0, ::3] = np.nan
    counts = resampling.bootstrap_counts(40, 100, 0)
    assert (counts.sum(1) == 40).all()
    whole = resampling.resampled_means(values, counts)
    monkeypatch.setattr(resampling, "AT_ONCE", 7 * 40)
    np.testing.assert_allclose(resampling.resampled_means(values, counts), whole, rtol=1e-6)
    drawn = np.repeat(values[1], counts[4])
    assert whole[4, 1] == pytest.approx(drawn.mean(), abs=1e-6)
