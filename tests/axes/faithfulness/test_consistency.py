"""Agreement of evaluation strategies, on tables whose answer is known."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heatproof import UserError
from heatproof.axes.faithfulness.consistency import _reliability, agreement, consistency
from heatproof.axes.faithfulness.retraining.leakage import leakage_summary
from heatproof.axes.faithfulness.summaries import detectability
from heatproof.statistics.ranks import spearman
from support.faithfulness import leaking
from support.synthetic import Entry, rows_of

METHODS = ["ig", "ig-sg", "gb", "gb-sg", "cam"]
FRACTIONS = (0.1, 0.5, 0.9)


def table(
    quality, evaluation="faithfulness", model="net", noise=0.05, n=40, seed=0, repeat=0
) -> pd.DataFrame:
    """Rows of `accuracy` for conditions → explainers' qualities; a good map falls in MoRF and stays in LeRF."""
    generator = np.random.default_rng(seed)
    rows = []
    for condition, scores in quality.items():
        sign = -1 if condition.endswith("morf") else 1
        for (explainer, score), fraction in itertools.product(
            zip(METHODS, scores, strict=True), FRACTIONS
        ):
            values = 0.5 + sign * 0.05 * score + noise * generator.standard_normal(n)
            for sample, value in enumerate(values):
                rows.append((explainer, condition, fraction, f"{sample:03d}", value))
    frame = pd.DataFrame(rows, columns=["explainer", "condition", "level", "sample", "value"])
    frame[["imputer", "order"]] = frame["condition"].str.split(" ", expand=True)
    return frame.assign(
        dataset="d",
        model=model,
        evaluation=evaluation,
        measure="accuracy",
        low=np.nan,
        high=np.nan,
        status="ok",
        reason="",
        role="method",
        repeat=repeat,
    )


UP, DOWN = (1, 2, 3, 4, 5), (5, 4, 3, 2, 1)


def overall(found: pd.DataFrame, kind: str) -> pd.DataFrame:
    return found[(found.kind == kind) & found.level.isna()].reset_index(drop=True)


def test_spearman_agrees_with_scipy_with_ties_and_in_batches():
    generator = np.random.default_rng(0)
    a, b = (
        generator.integers(0, 4, (6, 8)).astype(float),
        generator.integers(0, 4, (6, 8)).astype(float),
    )
    wanted = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert np.allclose(spearman(a, b), wanted)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert np.isnan(spearman(np.array([1.0, np.nan, 2.0]), np.arange(3.0)))


def test_orders_that_agree_and_imputers_that_do_not():
    frame = table({"lin morf": UP, "lin lerf": UP, "zero morf": UP, "zero lerf": DOWN}, noise=0.01)
    found = consistency(frame, resamples=200)
    orders = overall(found, "order").set_index("a")
    assert orders.loc["lin morf", "spearman"] == 1 and orders.loc["lin morf", "b"] == "lin lerf"
    assert orders.loc["zero morf", "spearman"] == -1
    imputers = overall(found, "imputer").set_index("a")
    assert imputers.loc["lin morf", "spearman"] == 1 and imputers.loc["lin lerf", "spearman"] == -1
    assert set(found[found.level.notna()].level) == set(FRACTIONS)
    assert (found.explainers == 5).all() and (found.samples == 40).all()
    assert "retraining" not in set(found.kind)


def test_values_are_those_of_scipy_on_the_means_and_the_mean_row_is_their_mean():
    frame = table({"lin morf": UP, "lin lerf": (2, 1, 3, 5, 4)}, noise=0.6, n=12)
    found = consistency(frame, resamples=50)
    means = frame.groupby(["condition", "level", "explainer"]).value.mean()
    for row in found[found.level.notna()].itertuples():
        a, b = means["lin morf"][row.level], means["lin lerf"][row.level]
        assert row.spearman == pytest.approx(stats.spearmanr(-a, b[a.index]).statistic)
    each = found[found.level.notna()].spearman
    assert overall(found, "order").spearman.item() == pytest.approx(each.mean())


def test_the_interval_covers_what_many_samples_say_and_narrows():
    quality = {"lin morf": UP, "lin lerf": (2, 1, 3, 5, 4)}
    truth = stats.spearmanr(*quality.values()).statistic
    covered, widths = 0, []
    for seed in range(30):
        few = overall(
            consistency(table(quality, noise=0.4, n=50, seed=seed), resamples=100), "order"
        )
        covered += bool(few.low.item() <= truth <= few.high.item())
        widths.append(few.high.item() - few.low.item())
    assert covered >= 26  # the quantiles of the draws alone cover 8 of these 30
    many = overall(consistency(table(quality, noise=0.4, n=800), resamples=100), "order")
    assert many.high.item() - many.low.item() < 0.7 * np.mean(widths)


def test_a_draw_takes_a_sample_in_both_strategies_or_in_neither():
    generator = np.random.default_rng(1)
    a = generator.standard_normal((4, 30)) + np.arange(4)[:, None] / 10
    assert agreement(a, a, resamples=100)[1:] == (1.0, 1.0)
    low, _ = agreement(a, a, paired=False, resamples=100)[1:]
    assert low < 1


def test_retrained_networks_are_compared_with_the_one_that_was_not():
    frame = table({"lin morf": UP, "zero morf": UP}, noise=0.01)
    repeats = [
        table({"lin morf": UP, "zero morf": DOWN}, "retraining", noise=0.01, n=25, seed=i, repeat=i)
        for i in (1, 2)
    ]
    found = consistency(pd.concat([frame, *repeats]), resamples=50)
    pairs = overall(found, "retraining").set_index("a")
    assert pairs.loc["faithfulness: lin morf", "spearman"] == 1
    assert pairs.loc["faithfulness: zero morf", "spearman"] == -1
    assert pairs.loc["faithfulness: lin morf", "b"] == "retraining: lin morf"
    assert (pairs.samples == 25).all() and (pairs.model == "net").all()
    own = overall(found, "imputer").set_index(["model", "evaluation"])
    assert own.loc[("net", "faithfulness"), "spearman"] == 1
    assert own.loc[("net", "retraining"), "spearman"] == -1
    other = pd.concat([frame, repeats[0].assign(model="other")])
    assert "retraining" not in set(consistency(other, resamples=20).kind), (
        "a network is compared with its own model"
    )


def test_the_pairing_by_mask_sets_morf_at_f_beside_lerf_at_the_rest():
    frame = table({"lin morf": UP, "lin lerf": UP}, noise=0.0)
    late = (frame.condition == "lin lerf") & (frame.level == 0.9)
    frame.loc[late, "value"] *= -1
    by_fraction = consistency(frame, resamples=20).set_index("level").spearman
    by_mask = consistency(frame, pairing="mask", resamples=20).set_index("level").spearman
    assert by_fraction[0.9] == -1 and by_fraction[0.1] == 1
    assert by_mask[0.1] == -1 and by_mask[0.9] == 1
    with pytest.raises(UserError, match=r"'removed'.*'mask'"):
        consistency(frame, pairing="kept")


def test_equal_accuracies_share_their_rank_in_every_draw():
    frame = table({"lin morf": UP, "lin lerf": UP}, noise=0.0)
    frame["value"] = (frame["sample"].astype(int) % 3 == 0).astype(float)
    row = overall(consistency(frame, resamples=50), "order")
    assert row[["spearman", "low", "high"]].isna().all(axis=None), "there is no ranking to agree on"


def test_controls_undefined_rows_and_too_few_explainers():
    frame = table({"lin morf": UP, "lin lerf": UP}, noise=0.01)
    random = frame[frame.explainer == "ig"].assign(explainer="random", role="control")
    random["value"] = np.where(random.condition == "lin morf", 9.0, 9.0)
    both = pd.concat([frame, random])
    assert overall(consistency(both, resamples=20), "order").explainers.item() == 5
    mixed = overall(consistency(both, controls=True, resamples=20), "order")
    assert mixed.explainers.item() == 6 and mixed.spearman.item() < 1
    broken = frame.copy()
    lost = (broken.explainer == "cam") & (broken.level == 0.5)
    broken.loc[lost, ["status", "value"]] = ["undefined", np.nan]
    kept = overall(consistency(broken, resamples=20), "order")
    assert kept.explainers.item() == 4 and kept.spearman.item() == 1
    two = consistency(frame[frame.explainer.isin(["ig", "gb"])], resamples=20)
    assert two.spearman.isna().all() and (two.explainers == 2).all()
    assert consistency(frame, measure="margin").empty
    one = consistency(frame[frame["sample"] == "000"], resamples=20)
    assert one.low.isna().all() and one.spearman.notna().all()


def test_methods_that_one_strategy_lacks_do_not_shift_those_of_the_other():
    frame = table({"lin morf": UP, "lin lerf": UP}, noise=0.01)
    few = frame[(frame.order == "morf") | (frame.explainer != "cam")]  # the first by name
    row = overall(consistency(few, resamples=20), "order")
    assert row.explainers.item() == 4 and row.spearman.item() == 1
    fewer = few[(few.order == "lerf") | (few["sample"] > "004")]
    pd.testing.assert_series_equal(
        consistency(fewer, resamples=20)["spearman"],
        consistency(few[few["sample"] > "004"], resamples=20)["spearman"],
    )


def test_categories_without_rows_are_no_strategies_and_no_probes():
    """Tables of runs hold their texts as categories, also those that none of the rows at hand has."""
    frame = table({"lin morf": UP, "lin lerf": UP, "zero morf": DOWN}, noise=0.3)
    again = table({"lin morf": UP}, "retraining", "other")
    told = [
        ("cam", "detectability", f"{imputer} random", 0.5, np.arange(60) / 60)
        for imputer in ("lin", "zero")
    ]
    probes = leaking()
    some = ~((probes["imputer"] == "zero") & probes["measure"].str.startswith("both"))
    for rows, summed in (
        (pd.concat([frame, again], ignore_index=True), partial(consistency, resamples=20)),
        (rows_of(told), detectability),
        (probes[some], leakage_summary),
    ):
        texts = [name for name in rows if isinstance(rows[name].iloc[0], str)]
        coded = rows.assign(
            **{n: pd.Categorical(rows[n], ["nowhere", *sorted({*rows[n]}), "zz"]) for n in texts}
        )
        plain, found = summed(rows), summed(coded)
        assert len(plain)
        pd.testing.assert_frame_equal(found.astype(plain.dtypes), plain)


def test_the_result_does_not_depend_on_the_order_of_the_rows():
    frame = table({"lin morf": UP, "lin lerf": (2, 1, 3, 5, 4)}, noise=0.5)
    shuffled = frame.sample(frac=1, random_state=3)
    keys = ["kind", "a", "b", "level"]
    first, second = (
        consistency(f, resamples=50).sort_values(keys, ignore_index=True) for f in (frame, shuffled)
    )
    pd.testing.assert_frame_equal(first, second)


def test_methods_are_ranked_on_the_samples_that_all_of_them_have() -> None:
    """`a` has scores of the easy samples only, and would come first by them."""
    n, hard = 40, np.arange(40) >= 20
    entries: list[Entry] = []
    for rank, name in enumerate("abcd"):
        for imputer in ("zero", "blur"):
            score = 0.1 * rank + np.where(hard, 0.0, 0.5) + 1e-3 * np.arange(n)
            value = np.where(hard & (name == "a") & (imputer == "zero"), np.nan, score)
            entries.append((name, "probability", f"{imputer} lerf", 0.5, value))
    found = consistency(rows_of(entries), "probability").query("kind == 'imputer' and level.isna()")
    assert found.spearman.item() == 1.0 and found.samples.item() == 20


@pytest.mark.parametrize("n", [30, 100])
def test_the_interval_covers_where_methods_are_close(n: int) -> None:
    g = np.random.default_rng(n)
    covered = 0
    for _ in range(100):
        base = g.normal(0, 0.1, 8)
        truth = [base + g.normal(0, 0.05, 8) for _ in range(2)]
        shared = g.normal(size=n)
        scores = [t[:, None] + shared + g.normal(size=(8, n)) for t in truth]
        _, low, high = agreement(*scores, resamples=300)
        covered += low - 1e-9 <= stats.spearmanr(*truth).statistic <= high + 1e-9
    assert covered >= 93


def test_means_that_are_equal_or_drowned_in_noise_are_hardly_reliable():
    draws = np.random.default_rng(0).normal(size=(400, 3))
    assert _reliability(np.ones(3), draws) == _reliability(np.array([0.0, 0.1, 0.2]), draws) == 1e-3
    assert _reliability(np.array([0.0, 10.0, 20.0]), draws) == pytest.approx(0.99, abs=0.005)


def test_the_pairing_by_mask_holds_for_strategies_that_differ_in_several_respects() -> None:
    """As Table 7 of the ROAD paper has it: MoRF at f is always beside LeRF at 1 − f, retrained or not."""
    frame = table({"lin morf": UP, "lin lerf": UP, "zero morf": UP, "zero lerf": UP}, noise=0.0)
    late = frame["condition"].str.endswith("lerf") & (frame.level == 0.9)
    frame.loc[late, "value"] *= -1
    both = pd.concat([frame, frame.assign(evaluation="retraining")])
    pairs = consistency(both, pairing="mask", resamples=20, every_pair=True)
    assert len(overall(pairs.assign(kind="any"), "any")) == 8 * 7 / 2, "an 8 × 8 table"
    is_morf_first = pairs.a_order == "morf"
    of_morf = pairs[(pairs.a_order != pairs.b_order) & is_morf_first].set_index("level").spearman
    assert (of_morf[0.1] == -1).all() and (of_morf[0.9] == 1).all()
    of_lerf = pairs[(pairs.a_order != pairs.b_order) & ~is_morf_first].set_index("level").spearman
    assert (of_lerf[0.9] == -1).all() and (of_lerf[0.1] == 1).all()
