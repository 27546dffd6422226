"""Tables of a run as arrays, their groups, defaults and edges, ranks and the bootstrap against brute force."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from heatproof.evaluation import Measure
from heatproof.results import comparisons
from heatproof.results.arrays import (
    ConditionSettings,
    ScoreArrays,
    groups_of,
    numbered,
    rows_to_arrays,
)
from heatproof.statistics import bootstrap, ranks
from heatproof.statistics.intervals import rate_interval
from support import row_statistics as st

DEPTH = Measure("depth", "Depth", "", "higher", "headline", (0.0, 1.0), noise_floor="floor")
WIDTH = Measure("width", "Width", "", "higher", "headline")
FLOOR = Measure("floor", "Noise floor", "", "higher", "diagnostic")


def rows_of_a_run() -> pd.DataFrame:
    """Two datasets, a sweep, redraws of a stochastic explainer, repeats, a control, and missing scores."""
    generator = np.random.default_rng(3)
    records = []
    conditions = [("turn", 10.0), ("turn", 5.0), ("noise", 0.1), ("redraw", 0.0)]
    for dataset, (e, explainer) in itertools.product(
        ("one", "two"), enumerate(("cam", "lime", "edges", "ig"))
    ):
        for (condition, level), s in itertools.product(conditions, range(9)):
            is_redraw = condition == "redraw"
            if is_redraw and explainer != "lime":
                continue
            status = "ok"
            if (s + e) % 7 == 3 and not is_redraw:
                status = "flipped" if s % 2 else "undefined"
            if (dataset, explainer, condition) == ("one", "ig", "noise"):
                status = "undefined"
            for name in ("floor",) if is_redraw else ("depth", "width"):
                goal = 0.5 + 0.08 * e + 0.05 * (name == "width") * (-1) ** e
                value = min(1.0, goal + 0.07 * generator.random())
                chance = np.nan if is_redraw else 0.35 + 0.07 * generator.random()
                is_ok = status == "ok"
                record = {
                    "dataset": dataset,
                    "model": "net",
                    "evaluation": "calm",
                    "explainer": explainer,
                    "role": "control" if explainer == "edges" else "method",
                    "sample": f"s{8 - s}",
                    "measure": name,
                    "condition": condition,
                    "level": level,
                    "imputer": f"by {condition}",
                    "order": "",
                    "share": level / 100,
                    "value": value if is_ok else np.nan,
                    "chance": chance if is_ok else np.nan,
                    "status": status,
                    "reason": "constant map" if status == "undefined" and e else "",
                }
                records.append(record)
                if s == 5 and condition == "noise":
                    records.append({**record, "value": 0.25})  # a repeat
    table = pd.DataFrame(records)
    lost = (
        (table["explainer"] == "ig") & (table["measure"] == "width") & (table["dataset"] == "two")
    )
    return table[~lost].reset_index(drop=True)


def references_of_a_run() -> pd.DataFrame:
    """What four references add to the chance of both measures in the first dataset."""
    generator = np.random.default_rng(4)
    about = {"dataset": "one", "model": "net", "evaluation": "calm", "repeat": 0, "count": 9}
    names = itertools.product(
        ("cam", "lime"), ("depth", "width"), [("turn", 5.0)], ("s0", "s3", "other", "s8")
    )
    return pd.DataFrame(
        [
            {
                **about,
                "explainer": explainer,
                "measure": measure,
                "condition": condition,
                "level": level,
                "reference": reference,
                "sum": float(generator.normal(0, 0.3)),
            }
            for explainer, measure, (condition, level), reference in names
        ]
    )


@pytest.fixture(scope="module")
def run() -> pd.DataFrame:
    return rows_of_a_run()


def arranged(table: pd.DataFrame, *measures: Measure) -> list[ScoreArrays]:
    return rows_to_arrays(table, {"calm": measures or (DEPTH, WIDTH, FLOOR)})


def known(arrays: ScoreArrays) -> ScoreArrays:
    """With what a run knows besides the table."""
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6, 6])
    return replace(arrays, groups=groups) if arrays.dataset == "one" else arrays


def assert_equal_arrays(one: ScoreArrays, other: ScoreArrays) -> None:
    for field in fields(ScoreArrays):
        found, expected = getattr(one, field.name), getattr(other, field.name)
        if isinstance(expected, pd.DataFrame):
            found, expected = found.to_dict("list"), expected.to_dict("list")
        np.testing.assert_equal(found, expected)


def test_arrays_hold_the_values_of_the_table(run: pd.DataFrame) -> None:
    made = arranged(run, WIDTH, DEPTH, FLOOR)
    assert [arrays.dataset for arrays in made] == ["one", "two"]
    chosen = run[
        (run["explainer"] == "lime") & (run["condition"] == "turn") & (run["level"] == 5.0)
    ]
    for arrays in made:
        own = chosen[chosen["dataset"] == arrays.dataset]
        part = arrays.select(["lime"], [("turn", 5.0)], ["depth"])
        values = own[own["measure"] == "depth"].set_index("sample")["value"]
        np.testing.assert_array_equal(
            part.values["depth"].squeeze(), values.reindex(list(part.samples)).to_numpy()
        )


def test_the_status_of_a_pair_is_that_of_its_headline(run: pd.DataFrame) -> None:
    few = run[run["sample"].isin(["s0", "s3", "s5"])].copy()
    lost = (few["sample"] == "s5") & (few["measure"] == "depth")
    few.loc[lost, ["value", "status"]] = [np.nan, "undefined"]
    (by_depth,), (by_last,) = arranged(few, DEPTH, FLOOR)[:1], rows_to_arrays(few)[:1]
    turn = by_depth.conditions.index(("turn", 5.0))
    assert by_depth.status[0, turn].tolist() == [0, 0, 2]
    assert by_last.status[0, turn].tolist() == [0, 0, 1]


def test_a_diagnostic_decides_about_no_pair(run: pd.DataFrame) -> None:
    arrays = arranged(run)[0]
    redraw = arrays.conditions.index(("redraw", 0.0))
    assert (arrays.status[:, redraw] == -1).all()
    assert set(st.retention([arrays])["condition"]) == {"turn", "noise"}


def test_the_conditions_of_a_measure_are_those_it_has_rows_of(run: pd.DataFrame) -> None:
    arrays = arranged(run)[0]
    assert {name for name, _ in arrays.for_measure("depth").conditions} == {"turn", "noise"}
    assert arrays.for_measure("floor").conditions == [("redraw", 0.0)]
    floor = arrays.noise_floor("depth")
    assert floor is not None and np.isfinite(floor[arrays.explainers.index("lime")]).any()
    assert arrays.noise_floor("width") is None


def test_chance_stands_beside_the_value(run: pd.DataFrame) -> None:
    arrays = arranged(run)[0]
    own = run[(run["dataset"] == "one") & (run["measure"] == "depth") & (run["explainer"] == "cam")]
    own = own[(own["condition"] == "turn") & (own["level"] == 5.0)].set_index("sample")["chance"]
    part = arrays.select(["cam"], [("turn", 5.0)], ["depth"])
    np.testing.assert_array_equal(
        part.chance["depth"].squeeze(), own.reindex(list(part.samples)).to_numpy()
    )
    assert "floor" not in arrays.chance and arrays.is_calibrated("depth")
    beside = replace(DEPTH, chance="compare")
    assert not arranged(run, beside)[0].is_calibrated("depth")


def test_what_references_add_is_their_sum_by_the_number_compared(run: pd.DataFrame) -> None:
    references = references_of_a_run()
    twice = pd.concat([references, references])  # two shards
    for table in (references, twice):
        arrays, other = rows_to_arrays(run, {"calm": (DEPTH, WIDTH, FLOOR)}, table)
        assert arrays.references == ("other", "s0", "s3", "s8") and not other.references
        e, c = arrays.explainers.index("lime"), arrays.conditions.index(("turn", 5.0))
        own = references[(references["explainer"] == "lime") & (references["measure"] == "depth")]
        wanted = own.set_index("reference")["sum"].loc[list(arrays.references)] / 9
        np.testing.assert_allclose(arrays.by_reference["depth"][e, c], wanted)


def test_a_measure_has_the_span_that_it_declares(run: pd.DataFrame) -> None:
    arrays = arranged(run)[0]
    assert arrays.span("depth") == (0.0, 1.0) and arrays.span("width") is None
    assert rows_to_arrays(run)[0].span("depth") is None
    assert arrays.settings_of("turn") == ConditionSettings("by turn", "", 0.1)


def test_categorical_columns_give_the_same_arrays(run: pd.DataFrame) -> None:
    names = ("dataset", "explainer", "condition", "measure", "sample")
    categories = run.astype(dict.fromkeys(names, "category"))
    pairs_of_arrays = zip(
        arranged(run, WIDTH, DEPTH, FLOOR),
        arranged(categories, WIDTH, DEPTH, FLOOR),
        strict=True,
    )
    for one, other in pairs_of_arrays:
        assert_equal_arrays(one, other)


def test_rows_without_a_name_are_in_no_arrays(run: pd.DataFrame) -> None:
    few = run[run["sample"].isin(["s0", "s3"])].copy()
    few.loc[few["dataset"] == "two", "model"] = None
    assert [arrays.dataset for arrays in rows_to_arrays(few)] == ["one"]
    assert rows_to_arrays(few.iloc[:0]) == []
    column = pd.Series(["b", None, "a", "b"])
    for kind, by_name in itertools.product((object, "category"), (False, True)):
        numbers, names = numbered(column.astype(kind), by_name)
        assert names == (["a", "b"] if by_name else ["b", "a"])
        assert numbers.tolist() == ([1, -1, 0, 1] if by_name else [0, -1, 1, 0])


def test_groups_by_the_samples_table(run: pd.DataFrame) -> None:
    arrays, other = rows_to_arrays(run)
    frame = pd.DataFrame(
        {"dataset": "one", "sample": [f"s{i}" for i in range(9)], "group": list("pq") * 4 + [None]}
    )
    assert groups_of(arrays, frame).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2]
    assert groups_of(other, frame) is None and groups_of(arrays, None) is None
    assert groups_of(arrays, frame.drop(columns="group")) is None
    assert groups_of(arrays, frame.assign(group="")) is None


@pytest.fixture(scope="module")
def made(run: pd.DataFrame) -> list[ScoreArrays]:
    return [known(arrays) for arrays in arranged(run)]


def test_an_empty_table_has_the_columns_of_a_full_one(made: list[ScoreArrays]) -> None:
    assert list(st.summary([])) == list(st.summary(made))
    assert list(st.retention([])) == list(st.retention(made))
    assert list(st.ranking([], "x")) == list(st.ranking(made, "depth"))
    assert list(st.paired_tests([], "x")) == list(st.paired_tests(made, "depth"))
    for frame in (
        st.ranking(made, "x"),
        st.paired_tests(made, "x"),
        st.disagreement(made, ["depth", "x"]),
    ):
        assert frame.empty


def test_defaults_of_levels_and_forms(run: pd.DataFrame) -> None:
    made = [known(arrays) for arrays in arranged(run)][:1]
    for ask in (st.retention, st.summary):
        pd.testing.assert_frame_equal(ask(made), ask(made, level=0.95))
    for ask in (st.ranking, st.paired_tests):
        pd.testing.assert_frame_equal(
            ask(made, "depth"), ask(made, "depth", calibrate=True, level=0.95)
        )
    pd.testing.assert_frame_equal(
        st.ranking(made, "depth"), st.ranking(made, "depth", better="higher")
    )
    tests = st.paired_tests(made, "depth")
    pd.testing.assert_frame_equal(st.ranking(made, "depth"), st.ranking(made, "depth", tests=tests))
    nothing = st.ranking(made, "depth", tests=tests.assign(significant=False))
    assert nothing["rank_low"].dropna().eq(1).all() and nothing["rank_high"].dropna().eq(3).all()
    assert rate_interval(3, 4) == rate_interval(3, 4, 0.95)


def test_pairs_in_pieces_are_the_same(run: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [known(arrays) for arrays in arranged(run)]
    wanted = st.paired_tests(made, "depth")
    monkeypatch.setattr(comparisons, "SCORES_AT_ONCE", 1)
    pd.testing.assert_frame_equal(st.paired_tests(made, "depth"), wanted)


def test_a_draw_that_takes_one_sample_too_often_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AlwaysTheFirst:
        def integers(self, low: int, high: int, n: int) -> np.ndarray:
            return np.zeros(n, dtype=np.int64)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: AlwaysTheFirst())
    assert bootstrap.bootstrap_counts.__wrapped__(255, 1, 0)[0, 0] == 255
    with pytest.raises(OverflowError):
        bootstrap.bootstrap_counts.__wrapped__(256, 1, 0)


def test_the_bootstrap() -> None:
    counts = bootstrap.bootstrap_counts(6, 40, 2)
    assert (counts.sum(1) == 6).all() and not counts.flags.writeable
    values = np.stack([np.linspace(0.3, 0.7, 6), np.linspace(0, 1, 6) ** 6, np.full(6, np.nan)])
    values[1, [0, 2, 3, 4]] = np.nan  # so few that a draw can miss them all
    means = bootstrap.resampled_means(values, counts)
    by_hand = [np.nanmean(np.repeat(values[0], row)) for row in counts]
    np.testing.assert_allclose(means[:, 0], by_hand, rtol=1e-6)
    assert np.isnan(means[:, 1]).any() and np.isnan(means[:, 2]).all()
    low, high = bootstrap.percentiles(means, 0.8)
    np.testing.assert_allclose([low[1], high[1]], np.nanquantile(means[:, 1], [0.1, 0.9]))


def test_ranks_and_rank_correlations() -> None:
    values = np.array(
        [[1.0, 2.0, 2.0, 5.0], [4.0, 1.0, 0.0, 0.5], [1.0, 1.0, 1.0, 1.0], [np.nan, 1.0, 2.0, 3.0]]
    )
    found = ranks.spearman(values, values[[1, 0, 0, 0]])
    np.testing.assert_allclose(found[:2], pd.DataFrame(values[:2]).T.corr("spearman").iloc[0, 1])
    assert np.isnan(found[2:]).all()
    ahead = np.zeros((4, 4), dtype=bool)
    ahead[0, 1:] = ahead[1, 3] = True
    assert [ends.tolist() for ends in ranks.rank_ranges(ahead)] == [[1, 2, 2, 3], [1, 3, 4, 4]]


def test_diagnostics_stand_in_the_summary_and_belong_to_no_pair(run: pd.DataFrame) -> None:
    found = st.summary(arranged(run)).set_index("measure")
    counts = ["attempted", "retained", "flipped", "undefined", "open"]
    assert (found[counts].dtypes == np.int64).all()
    assert (found.loc[["floor"], counts] == 0).all(axis=None) and found.loc["floor", "mean"].all()
    assert (found.loc["depth", "attempted"] > 0).all()
