"""Whole small things of the statistics as they were found and looked at: every rule, on every kind of scores.

What is right is said by the references of the other files; these say that nothing changes unnoticed.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from heatproof import statistics as st
from heatproof.maps.chance import packed
from heatproof.statistics import (
    bootstrap,
    bounds,
    bounds_of_means,
    cubes,
    estimates,
    forms,
    intervals,
    pairs,
    power,
    radii,
    ranks,
)
from support.recorded import recorded

SIZES = (1, 2, 3, 5, 9, 30, 100, 101)
SPANS: dict[str, Any] = {
    "unit": (0.0, 1.0),
    "half": (None, 1.0),
    "none": None,
    "signed": (-1.0, 1.0),
}


def scores(kind: str, n: int) -> np.ndarray:
    """Scores of a shape that asks for another rule each."""
    u = np.random.default_rng(n).permutation((np.arange(n) + 0.37) / n)
    drawn = {
        "middle": 0.3 + 0.4 * u + 0.03 * np.sin(9 * u),
        "skewed": 1 - 0.7 * u**6,
        "other": 0.7 * u**6,
        "alike": 0.9 + 0.001 * u,
        "shares": (u < 0.7).astype(float),
        "ones": np.ones(n),
    }
    return drawn[kind]


KINDS = ("middle", "skewed", "other", "alike", "shares", "ones")


def told(seen: estimates.Estimate) -> dict[str, Any]:
    """Both bounds with their rules, intervals and p-value of scores, and of their distance to a half."""
    found: dict[str, Any] = {}
    for lower, confidence in itertools.product((True, False), (0.9, 0.995)):
        bound, rule = seen.bound(confidence, lower)
        found[f"{'above' if lower else 'below'} {confidence}"] = bound
        found[f"rule {lower} {confidence}"] = [str(name) for name in rule]
    aside = replace(seen, value=seen.value - 0.5, paired=True)
    found |= {
        "interval": seen.interval(),
        "wide": seen.interval(0.8, 2.0),
        "apart": aside.interval(0.9, np.inf),
    }
    return {**found, "p": seen.p(), "p apart": aside.p()}


@pytest.mark.parametrize("span", SPANS)
def test_every_interval_rule_at_several_sizes(span: str) -> None:
    rows = {n: np.stack([scores(kind, n) for kind in KINDS]) for n in SIZES}
    recorded(
        f"statistics/intervals_{span}",
        {n: told(estimates.of_means(rows[n], SPANS[span])) for n in SIZES},
    )


def test_intervals_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.stack([scores(kind, 9) for kind in KINDS])
    rows[1, 4] = np.nan
    seen = [
        replace(estimates.of_means(rows, span), paired=paired)
        for span in SPANS.values()
        for paired in (0, 1)
    ]
    whole = [(each.bound(0.9, True)[0], each.p(), *each.interval(widest=np.inf)) for each in seen]
    one_by_one = [
        [
            (each[i].bound(0.9, True)[0], each[i].p(), *each[i].interval(widest=np.inf))
            for i in range(len(rows))
        ]
        for each in seen
    ]
    for found, wanted in zip(one_by_one, whole, strict=True):
        np.testing.assert_allclose(np.array(found, dtype=float).T, wanted, rtol=1e-9)
    monkeypatch.setattr(intervals, "ENTRIES", 20)
    for each, wanted in zip(seen, whole, strict=True):
        pieces = (each.bound(0.9, True)[0], each.p(), *each.interval(widest=np.inf))
        np.testing.assert_allclose(np.array(pieces), np.array(wanted), rtol=1e-9)


def test_the_probability_below_zero_is_that_of_two_exponentials() -> None:
    """P(a E₁ ≤ b E₂) = b / (a + b), within what Lugannani and Rice's form leaves."""
    weights = np.array(
        [[a, -b] for a in (0.2, 1.0, 3.0) for b in (0.5, 1.0, 2.5)] + [[1.0, 2.0], [-1.0, -2.0]]
    )
    found = intervals._below_zero(weights)
    exact = [b / (a + b) for a in (0.2, 1.0, 3.0) for b in (0.5, 1.0, 2.5)]
    np.testing.assert_allclose(found[:-2], exact, atol=0.02)
    assert found[-2:].tolist() == [0.0, 1.0]
    # Σa = 0, where the form has a limit: P(2 E₁ ≤ E₂ + E₃) = 1 − 1 / 1.5²
    near = intervals._below_zero(np.array([[2.0, -1.0, -1.0], [-2.0, 1.0, 1.0]]))
    np.testing.assert_allclose(near, [1 - 1 / 1.5**2, 1 / 1.5**2], atol=0.005)
    recorded("statistics/below_zero", found)


def rows_of_a_run() -> pd.DataFrame:
    """Two datasets, a sweep, a geometric condition, the identity, redraws, repeats, a control, and references."""
    generator = np.random.default_rng(3)
    records = []
    conditions = [("turn", 10.0), ("turn", 5.0), ("noise", 0.1), ("identity", 0.0), ("redraw", 0.0)]
    for dataset, (e, explainer) in itertools.product(
        ("one", "two"), enumerate(("cam", "lime", "edges", "ig"))
    ):
        for (condition, level), s in itertools.product(conditions, range(9)):
            if condition == "redraw" and explainer != "lime":
                continue
            status = "ok"
            if (s + e) % 7 == 3 and condition in ("turn", "noise"):
                status = "flipped" if s % 2 else "undefined"
            if (dataset, explainer, condition) == ("one", "ig", "noise"):
                status = "undefined"
            measures = {}
            suffixes = [
                "",
                "_chance",
                *(["_aligned", "_aligned_chance"] if condition == "turn" else []),
            ]
            for name, suffix in itertools.product(("depth", "width"), suffixes):
                base = (
                    0.35
                    if "chance" in suffix
                    else 0.5 + 0.08 * e + 0.05 * (name == "width") * (-1) ** e
                )
                measures[name + suffix] = min(
                    1.0, base + 0.07 * generator.random() + 0.1 * (suffix == "_aligned")
                )
            for name, value in measures.items():
                if condition == "redraw" and "_" in name:
                    continue
                record = {
                    "dataset": dataset,
                    "model": "net",
                    "evaluation": "calm",
                    "explainer": explainer,
                }
                record |= {
                    "sample": f"s{8 - s}",
                    "measure": name,
                    "condition": condition,
                    "level": level,
                }
                record |= {
                    "value": value if status == "ok" else np.nan,
                    "status": status,
                    "references": None,
                }
                record |= {
                    "reason": "constant map" if status == "undefined" and e else "",
                    "imputer": f"by {condition}",
                }
                record |= {
                    "role": "control" if explainer == "edges" else "method",
                    "order": "",
                    "share": level / 100,
                }
                if name.endswith("_chance") and s in (2, 6) and dataset == "one":
                    record["references"] = packed(torch.as_tensor(generator.normal(0, 0.3, 4)))
                records.append(record)
                if s == 5 and condition == "noise":
                    records.append({**record, "value": 0.25, "references": None})  # a repeat
    table = pd.DataFrame(records)
    lost = (
        (table["explainer"] == "ig")
        & (table["measure"].str.startswith("width"))
        & (table["dataset"] == "two")
    )
    return table[~lost].reset_index(drop=True)


@pytest.fixture(scope="module")
def run() -> pd.DataFrame:
    return rows_of_a_run()


def known(cube: cubes.Cube) -> cubes.Cube:
    """With what a run knows besides the table."""
    spans = {"depth": (0.0, 1.0)}
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6, 6])
    there = (
        {"references": ("s0", "s3", "other", "s8"), "groups": groups}
        if cube.dataset == "one"
        else {}
    )
    return replace(cube, spans=spans, **there)


def spelled(cube: cubes.Cube) -> dict[str, Any]:
    parts = {field.name: getattr(cube, field.name) for field in dataclasses.fields(cube)}
    parts["reasons"] = cube.reasons.to_dict("list")
    return {
        **parts,
        "controls": sorted(cube.controls),
        "aside": sorted(cube.aside),
        "key": cube.key,
    } | {"measures": cube.measures}


def test_the_table_as_cubes(run: pd.DataFrame) -> None:
    few = run[run["sample"].isin(["s0", "s3", "s5"])].copy()
    few.loc[(few["sample"] == "s5") & (few["measure"] == "depth"), ["value", "status"]] = [
        np.nan,
        "undefined",
    ]
    few.loc[(few["sample"] == "s5") & (few["explainer"] == "cam"), "reason"] = None
    by_depth, by_last = (
        cubes.arrange(few, headlines)[0].status[0, 0].tolist() for headlines in (("depth",), ())
    )
    assert by_depth == [0, 0, 2] and by_last == [0, 0, 1]
    made = cubes.arrange(few, ("width", "depth"))
    recorded("statistics/cubes", [spelled(cube) for cube in made])
    recorded(
        "statistics/cubes_last",
        [spelled(cube)["status"] for cube in cubes.arrange(few.iloc[::-1], aside=["turn"])],
    )
    chosen = made[0].select(["edges", "cam"], [("noise", 0.1), ("turn", 5.0)], ["width"])
    recorded(
        "statistics/cubes_selected", [spelled(chosen), spelled(made[1].counted())["conditions"]]
    )
    assert [made[0].span(name) for name in ("depth", "depth_aligned_chance")] == [None, None]
    assert (
        known(made[0]).span("depth_aligned_chance") == (0.0, 1.0)
        and known(made[0]).span("width") is None
    )
    assert made[0].made_of("turn") == cubes.Makeup("by turn", "", 0.1) and made[0].made_of(
        "?"
    ) == made[1].made_of("!")
    categories = few.astype(
        {name: "category" for name in ("dataset", "explainer", "condition", "measure", "sample")}
    )
    again = cubes.arrange(categories, ("width", "depth"))
    for one, other in zip(made, again, strict=True):
        np.testing.assert_equal(spelled(one), spelled(other))


def test_rows_without_a_name_are_in_no_cube(run: pd.DataFrame) -> None:
    few = run[run["sample"].isin(["s0", "s3"])].copy()
    few.loc[few["dataset"] == "two", "model"] = None
    assert [cube.dataset for cube in cubes.arrange(few)] == ["one"]
    assert cubes.arrange(few.iloc[:0]) == [] and cubes.arrange(()) == []
    column = pd.Series(["b", None, "a", "b"])
    for kind, by_name in itertools.product((object, "category"), (False, True)):
        numbers, names = cubes.numbered(column.astype(kind), by_name)
        assert names == (["a", "b"] if by_name else ["b", "a"])
        assert numbers.tolist() == ([1, -1, 0, 1] if by_name else [0, -1, 1, 0])


def test_groups_by_the_samples_table(run: pd.DataFrame) -> None:
    cube, other = cubes.arrange(run)
    frame = pd.DataFrame(
        {"dataset": "one", "sample": [f"s{i}" for i in range(9)], "group": list("pq") * 4 + [None]}
    )
    assert cubes.groups_of(cube, frame).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2]
    assert cubes.groups_of(other, frame) is None and cubes.groups_of(cube, None) is None
    assert cubes.groups_of(cube, frame.drop(columns="group")) is None
    assert cubes.groups_of(cube, frame.assign(group="")) is None


@pytest.fixture(scope="module")
def made(run: pd.DataFrame) -> list[cubes.Cube]:
    return [known(cube) for cube in cubes.arrange(run, ("depth",))]


def test_summary_of_a_run(made: list[cubes.Cube]) -> None:
    summary = st.with_best(st.summary(made))
    recorded("statistics/summary", {"columns": list(summary), "rows": summary.to_numpy()})
    recorded("statistics/retention", st.retention(made, 0.8).to_numpy())
    assert list(st.summary([])) == list(summary)[:-3] and list(st.retention([])) == list(
        st.retention(made)
    )


@pytest.mark.parametrize(
    ("form", "better"), [("best", "higher"), ("raw", "lower"), ("best", "neither")]
)
def test_ranking_of_a_run(made: list[cubes.Cube], form: Any, better: Any) -> None:
    rows = st.ranking(made, "depth", form, 0.9, better)
    recorded(
        f"statistics/ranking_{form}_{better}", {"columns": list(rows), "rows": rows.to_numpy()}
    )
    assert list(st.ranking([], "x")) == list(rows) and st.ranking(made, "x").empty


@pytest.mark.parametrize("form", ["best", "raw"])
def test_paired_tests_of_a_run(made: list[cubes.Cube], form: Any) -> None:
    tests = st.paired_tests(made, "depth", form, 0.9)
    recorded(f"statistics/tests_{form}", {"columns": list(tests), "rows": tests.to_numpy()})
    assert list(st.paired_tests([], "x")) == list(tests) and st.paired_tests(made, "x").empty
    recorded(
        f"statistics/disagreement_{form}",
        st.disagreement(made, ["width", "depth"], form).to_dict("list"),
    )
    assert st.disagreement(made, ["depth", "x"]).empty


@pytest.mark.parametrize("measure", ["depth", "width"])
def test_estimates_of_a_run(made: list[cubes.Cube], measure: str) -> None:
    """Every part of the errors, as they are, nested and of a difference."""
    found = {}
    for cube, names in ((cube, [name for name, _ in cube.conditions]) for cube in made):
        for form in ("best", "raw"):
            seen = estimates.estimates(cube, measure, form)
            overall = seen.nested(names)
            apart = overall[np.array([0])].minus(overall[np.array([3])])
            for what, each in (("each", seen[1]), ("overall", overall), ("apart", apart)):
                errors = each.errors()
                parts = {
                    name: getattr(errors, name)
                    for name in ("value", "df", "below", "above", "exact", "drawn")
                }
                found[f"{cube.dataset} {form} {what}"] = {
                    **parts,
                    "parts": errors.parts[:2],
                    "n": each.n,
                }
            found[f"{cube.dataset} {form} share"] = overall.share_of_references
    recorded(f"statistics/estimates_{measure}", found)


def test_defaults_of_levels_and_forms(run: pd.DataFrame) -> None:
    made = [known(cube) for cube in cubes.arrange(run)][:1]
    for ask in (st.retention, st.summary):
        pd.testing.assert_frame_equal(ask(made), ask(made, 0.95))
    for ask in (st.ranking, st.paired_tests):
        pd.testing.assert_frame_equal(ask(made, "depth"), ask(made, "depth", "best", 0.95))
    pd.testing.assert_frame_equal(
        st.ranking(made, "depth"), st.ranking(made, "depth", better="higher")
    )
    tests = st.paired_tests(made, "depth")
    pd.testing.assert_frame_equal(st.ranking(made, "depth"), st.ranking(made, "depth", tests=tests))
    nothing = st.ranking(made, "depth", tests=tests.assign(significant=False))
    assert nothing["rank_low"].dropna().eq(1).all() and nothing["rank_high"].dropna().eq(3).all()
    assert st.exact_share(3, 4) == st.exact_share(3, 4, 0.95)


def test_pairs_in_pieces_are_the_same(run: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [known(cube) for cube in cubes.arrange(run)]
    wanted = st.paired_tests(made, "depth")
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 18)
    pd.testing.assert_frame_equal(st.paired_tests(made, "depth"), wanted)


def test_forms_of_scores(run: pd.DataFrame) -> None:
    cube = cubes.arrange(run)[0]
    found = {form: forms.sample_scores(cube, "depth", form)[:2, :, :4] for form in ("best", "raw")}
    found["columns"] = [
        (here, *names) for here, *names in forms.best_columns(cube, "depth", "best")
    ]
    columns = {
        "a": [0.5, 0.6, 0.7],
        "a_chance": [0.2, 1.0, np.nan],
        "a_aligned": [0.9, np.nan, 0.4],
    }
    found["pairs"] = forms.pair_scores({**columns, "a_aligned_chance": [0.1, 0.2, 0.3]}, "a")
    recorded("statistics/forms", found)


def test_bounds_of_overall_scores() -> None:
    values = np.stack([scores("middle", 12), scores("skewed", 12), scores("other", 12)])
    values[1, 3] = np.nan
    names = ["turn", "turn", "noise"]
    seen = estimates.of_means(values, (0.0, 1.0))
    found: dict[str, Any] = {}
    for lower in (True, False):
        found[f"bound {lower}"] = bounds_of_means.bound_mean(seen, names, 0.9, lower)
        found[f"guaranteed {lower}"] = bounds_of_means.guaranteed(
            values, (0.0, 1.0), names, 0.9, lower
        )
        for threshold in (0.2, 0.45, 0.52, 0.535, 0.7):
            needed = bounds_of_means.samples_needed(seen.nested(names), threshold, 0.9, lower)
            found[f"needed {threshold} {lower}"] = needed
    few = estimates.of_means(scores("middle", 4), (0.0, 1.0))
    found["few"] = [
        bounds_of_means.samples_needed(few, t, 0.95, True) for t in (0.1, 0.3, 0.4, 0.45, 0.47)
    ]
    found["many"] = [
        bounds_of_means.samples_needed(few, float(few.value) - t, 0.95, True) for t in (1e-3, 1e-8)
    ]
    one = estimates.of_means(values[:1, :1], (0.0, 1.0))
    found["one"] = bounds_of_means.bound_mean(one, ["turn"], 0.9, True)
    found["nothing"] = bounds_of_means.guaranteed(
        values[:1] * np.nan, (0.0, 1.0), ["turn"], 0.9, True
    )
    assert bounds_of_means.samples_needed(one[0], 0.1, 0.9, True) is None
    found["overall"] = [seen.nested(names).n, *seen.nested(names).interval(0.8)]
    recorded("statistics/bounds_of_means", found)


def test_samples_needed_beyond_those_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = estimates.of_means(scores("middle", 12), (0.0, 1.0))
    near = float(seen.value) - 0.02
    exact = bounds_of_means.samples_needed(seen, near, 0.9, True)
    monkeypatch.setattr(bounds_of_means, "TRIED", 24)
    assert exact == 60 and bounds_of_means.samples_needed(seen, near, 0.9, True) == pytest.approx(
        exact, rel=0.15
    )
    monkeypatch.setattr(bounds_of_means, "MOST_SAMPLES", 40)
    assert bounds_of_means.samples_needed(seen, near, 0.9, True) == 40


def test_bounds_of_rates() -> None:
    found: dict[str, Any] = {}
    for s, n in ((0, 1), (1, 1), (1, 2), (0, 20), (7, 20), (19, 20), (20, 20), (150, 200)):
        row = [
            *bounds.clopper_pearson(s, n, 0.1),
            *bounds.hoeffding(s, n, 0.05),
            *bounds.betting(s, n, 0.1),
        ]
        row += [bounds.clopper_pearson_low(s, n, 0.1), bounds.clopper_pearson_high(s, n, 0.1)]
        found[f"{s} of {n}"] = [float(x) for x in row] + [
            float(bounds.capital(s, n, t, side)) for side in ("above", "below") for t in (0.5, 0.9)
        ]
    found["nothing"] = [float(x) for x in bounds.betting(0, 0, 0.1)]
    recorded("statistics/rates", found)


def test_sizes_and_bounds_of_means() -> None:
    found: dict[str, Any] = {
        f"{epsilon} {delta}": [
            bounds.sample_size(epsilon, delta), bounds.sample_size(epsilon, delta, "hoeffding"),
            bounds.hard_size(epsilon, delta),
        ]
        for epsilon, delta in ((0.3, 0.3), (0.2, 0.05), (0.1, 0.1), (0.9, 0.5), (0.5, 0.125))
    }  # fmt: skip
    found["miss"] = [
        bounds.worst_miss(n, epsilon) for n in (1, 2, 7, 40) for epsilon in (0.05, 0.21, 0.5)
    ]
    shares, draws = (
        torch.tensor([1.0, 0.9, 0.5, 0.25, 0.75, 0.0]),
        torch.tensor([20, 20, 0, 4, 4, 1]),
    )
    found["rates"] = [bounds.mean_rate_low(shares, draws, delta) for delta in (0.05, 0.25, 0.6)]
    values = torch.as_tensor(np.stack([4 * scores(kind, 25) - 1 for kind in KINDS]))
    values[3, 4] = torch.nan
    found["means"] = [
        torch.stack(bounds.mean_interval(values, -1.0, 3.0, delta)) for delta in (0.1, 0.7)
    ]
    found["one"] = [float(end) for end in bounds.mean_interval(values[:1, :1], -1.0, 3.0, 0.3)]
    recorded("statistics/sizes", found)
    assert (
        bounds.mean_rate_low(torch.tensor([1.0]), torch.tensor([1]), 0.1) == 0.0
    )  # one agreement says nothing


def test_radii_of_smoothed_models() -> None:
    generator = np.random.default_rng(5)
    outputs = torch.as_tensor(generator.dirichlet([3.0, 1.0, 0.5, 0.4], (3, 12)))
    outputs[1, :, 0] += 4.0
    outputs /= outputs.sum(-1, keepdim=True)
    unsure = torch.zeros(3, 12, dtype=torch.bool)
    unsure[1, 3] = True
    lead = radii.leads(outputs, unsure)
    votes = radii.leads(torch.nn.functional.one_hot(outputs.argmax(-1), 4).double())
    bank = torch.as_tensor(generator.random((12, 9)) < 0.15)
    free = torch.ones(3, 9, dtype=torch.bool)
    free[2, :4] = False
    found: dict[str, Any] = {
        "lead": lead[1, 2:5],
        "radius": radii.per_mask_radius(lead, bank, free),
    }
    found["votes"] = radii.per_mask_radius(votes, bank, free)
    found["guarded"] = radii.per_mask_radius(lead, bank, free, 0.4)
    found["gap"] = [radii.bernoulli_gap(lead, 0.1), radii.bernoulli_gap(votes, 0.1, votes=True)]
    gaps = torch.tensor([-0.5, 0.0, 0.2, 0.25, 0.5, 0.77, 1.0])
    found["lipschitz"] = [radii.mus_radius(gaps, keep) for keep in (0.05, 0.125, 0.5, 1.0)]
    found["bernoulli"] = [
        radii.mus_radius(gaps, keep, "bernoulli") for keep in (0.05, 0.125, 0.5, 1.0)
    ]
    found["largest"] = [
        radii.largest_radius(0.02, samples, classes, 0.1, rule, vote)
        for rule in ("lipschitz", "bernoulli") for vote in (0, 1) for samples in (40, 300) for classes in (2, 3, 9)
    ]  # fmt: skip
    recorded("statistics/radii", found)
    assert radii.per_mask_radius(lead[:0], bank, free[:0]).shape == (0,)
    nowhere, anything = torch.zeros(2, 3).bool(), torch.ones(1, 3).bool()
    for ahead, radius in ((1.5e-6, 3), (0.9e-6, 0)):  # a lead that rounding could have made is none
        assert radii.per_mask_radius(torch.full((1, 2, 1), ahead), nowhere, anything).tolist() == [
            radius
        ]
    edge = torch.tensor(
        [[[0.5], [0.5]]]
    )  # the loss of one mask, 1.5, is more than the sum of the leads; of none, not
    assert radii.per_mask_radius(
        edge, torch.zeros(2, 3).bool(), torch.ones(1, 3).bool()
    ).tolist() == [3]


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
    values = np.stack([scores("middle", 6), scores("skewed", 6), np.full(6, np.nan)])
    values[1, [0, 2, 3, 4]] = np.nan  # so few that a draw can miss them all
    means = bootstrap.resampled_means(values, counts)
    by_hand = [np.nanmean(np.repeat(values[0], row)) for row in counts]
    np.testing.assert_allclose(means[:, 0], by_hand, rtol=1e-6)
    assert np.isnan(means[:, 1]).any() and np.isnan(means[:, 2]).all()
    low, high = bootstrap.percentiles(means, 0.8)
    np.testing.assert_allclose([low[1], high[1]], np.nanquantile(means[:, 1], [0.1, 0.9]))
    room = bootstrap.calibrate(np.array([0.5, 0.5, 0.2]), np.array([0.2, 1.0, 1.5]))
    recorded(
        "statistics/bootstrap",
        [counts[:3], means[:4, :2], low, high, room, bootstrap.mean_of_finite(values)],
    )


def test_what_samples_could_separate() -> None:
    found = {f"{n} {m}": [power.smallest_difference(n, m), power.power_sentence(n, m)] for n in (1, 2, 4, 20, 120)
             for m in (1, 2, 3, 12)}  # fmt: skip
    found["other"] = [power.smallest_difference(20, 3, 0.3, 0.8), power.power_sentence(20, 3, 0.5)]
    recorded("statistics/power", found)


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
