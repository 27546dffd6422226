"""No sentence says more than its numbers: digits, differences, flags, guarantees, ranks and names, rule by rule."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof import Stability
from heatproof.axes.certificate.smoothing_report import FURTHER
from heatproof.axes.faithfulness.report import lead as faithful_lead
from heatproof.axes.stability.report import findings, lead
from heatproof.axes.symmetry.report import lead as symmetry_lead
from heatproof.report.latex import Cell, digits_for
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import looks, settings_of
from heatproof.results.reports import components_of
from heatproof.results.verdict import best_methods
from heatproof.runs.results import axis_results
from heatproof.text import ahead_of, at_least, digits_of, with_interval
from support import row_statistics as st
from support import synthetic
from support.compared import compared_run, comparison_of
from support.manifests import manifest_of
from support.small import model, pictures

NOBODY = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
NUMBER = r"−?\d+\.?\d*"


def judged(table: pd.DataFrame, **settings: Any) -> AxisResult:
    (one,) = axis_results(table, NOBODY, [], manifest_of())
    return replace(one, settings=settings)


def scores(
    of: dict[str, Any], measure: str = "fass", evaluation: str = "stability"
) -> pd.DataFrame:
    return synthetic.rows_of(
        [(name, measure, "jpeg", 40.0, values) for name, values in of.items()], evaluation
    )


def spread(centre: float, n: int = 40, width: float = 0.02, seed: int = 0) -> Any:
    draws = np.random.default_rng(seed).normal(0, width, n)
    return centre + draws - draws.mean()


def rules(table: pd.DataFrame) -> list[str]:
    return [finding.rule for finding in findings(judged(table))]


def few_pairs(table: pd.DataFrame) -> bool:
    return "few-pairs" in rules(table)


def low_retention(table: pd.DataFrame) -> bool:
    return "low-retention" in rules(table)


def flag_of(table: pd.DataFrame) -> str:
    """The flag of the one condition of a table."""
    (flag,) = st.retention(table)["flag"]
    return str(flag)


def numbers(text: str) -> list[float]:
    return [float(each.replace("−", "-")) for each in re.findall(NUMBER, text)]


@pytest.mark.parametrize("width", [3e-5, 0.004, 0.049, 0.051, 0.3, 0.6, 4.0, 60.0])
def test_the_last_place_is_between_a_fiftieth_and_a_fifth_of_the_width(width: float) -> None:
    digits = digits_of(1.23, 1.23 - width / 3, 1.23 + 2 * width / 3)
    assert 10.0**-digits <= width / 5 + 1e-12 or digits == 6
    assert digits == 0 or 10.0**-digits > width / 50
    text = with_interval(1.2345678, 1.2345678 - width / 2, 1.2345678 + width / 2)
    assert {len(each.partition(".")[2]) for each in re.findall(NUMBER, text)} == {digits}


def test_tables_for_papers_and_boards_have_the_same_digits() -> None:
    narrow, wide = Cell(0.6143, 0.6121, 0.6165), Cell(0.6, 0.1, 0.9)
    assert [digits_for([cell]) for cell in (narrow, wide, Cell(0.5))] == [4, 1, 2]
    assert digits_for([wide, narrow, narrow]) == 4


def test_a_bound_is_never_rounded_up() -> None:
    assert all(float(at_least(bound)) <= bound + 1e-12 for bound in np.linspace(0, 1, 997))


def test_few_pairs_and_low_retention_are_two_flags() -> None:
    everyone = synthetic.table({"a": 0.5}, (("jpeg", 40.0),), samples=24, flip=0.0, undefined=0.0)
    assert flag_of(everyone).startswith("few") and "24" in flag_of(everyone)
    assert "retention" not in flag_of(everyone), "all were retained: nothing is low"
    assert not few_pairs(everyone) and not low_retention(everyone)
    many = synthetic.table({"a": 0.5}, (("jpeg", 40.0),), samples=197, flip=0.0, undefined=0.0)
    many.loc[many["sample"].isin(many["sample"].unique()[37:]), ["value", "status"]] = [
        np.nan,
        "flipped",
    ]
    assert "retention" in flag_of(many) and "19 %" in flag_of(many)
    assert "few" not in flag_of(many), "37 are not few"
    assert not few_pairs(many) and low_retention(many)
    both = many.copy()
    both.loc[both["sample"].isin(both["sample"].unique()[5:]), ["value", "status"]] = [
        np.nan,
        "flipped",
    ]
    assert re.search("few.* 5.*retention.*2.5 %", flag_of(both))
    assert few_pairs(both) and low_retention(both)


def test_nothing_is_claimed_of_predictions_that_did_not_survive() -> None:
    table = synthetic.table(
        {"a": 0.6, "b": 0.0}, (("jpeg", 40.0), ("noise", 0.1)), samples=60, flip=0.0, undefined=0.0
    )
    table.loc[
        (table["explainer"] == "b")
        & (table["condition"] == "noise")
        & (table["measure"] == "fass"),
        "value",
    ] += 0.3
    (found,) = [f for f in findings(judged(table)) if "chance" in f.rule]
    assert "where the prediction stays" in found.means.lower()
    texts = " ".join(f.means for f in findings(judged(synthetic.table(flip=0.9, samples=60))))
    assert "model itself ignores" not in texts and "The prediction survives" not in texts


def told_apart(sentence: str, a: str, b: str) -> tuple[float, ...]:
    """n, the two scores, their difference and its interval, as a sentence says them."""
    scores_of_both = rf"(\d+) samples.*?\b{a}\b.*?({NUMBER}).*?\b{b}\b.*?({NUMBER})"
    gap = rf".*?({NUMBER}) \[({NUMBER}), ({NUMBER})\]"
    found = re.search(scores_of_both + gap, sentence)
    assert found is not None, sentence
    return tuple(float(each.replace("−", "-")) for each in found.groups())


def test_a_difference_stands_beside_the_two_numbers_of_the_common_samples() -> None:
    """The methods retain different samples, so that the means of all samples differ by something else."""
    good, bad = spread(0.7), spread(0.5, seed=1)
    good[:10], bad[30:] = np.nan, np.nan
    good[30:] += 0.2
    found = judged(scores({"good": good, "bad": bad}))
    n, own, other, gap, low, high = told_apart(" ".join(lead(found)), "good", "bad")
    assert n == 20 and own == pytest.approx(good[10:30].mean(), abs=0.01)
    assert other == pytest.approx(bad[10:30].mean(), abs=0.01) and gap == pytest.approx(
        own - other, abs=0.011
    )
    assert low < gap < high
    assert abs(np.nanmean(good) - np.nanmean(bad) - gap) > 0.03, (
        "the overall means would not give this difference"
    )


def test_other_axes_reconcile_too() -> None:
    road = synthetic.rows_of(
        [
            (e, "road", "noisy_linear", 0.0, v)
            for e, v in (("a", spread(0.4)), ("b", spread(0.1, seed=1)))
        ],
        "faithfulness",
    )
    told_apart(" ".join(faithful_lead(judged(road))), "a", "b")
    pairs = (("a", spread(0.8)), ("b", spread(0.3, seed=1)))
    turned = synthetic.rows_of(
        [(e, "equivariance", "dihedral", 0.0, v) for e, v in pairs], "symmetry"
    )
    told_apart(" ".join(symmetry_lead(judged(turned))), "a", "b")


def test_nothing_is_best_by_nothing() -> None:
    base = spread(0.7)
    small = {"a": base + 3e-4 + spread(0, width=1e-5, seed=2), "b": base}
    unending = st.paired_tests(scores(small, "infidelity", "mine"), "infidelity")
    means = pd.DataFrame({"explainer": ["a", "b"], "control": False, "score": [0.7003, 0.7]})
    assert best_methods(means, unending) == {"a"}
    _, own, other, gap, low, _ = told_apart(ahead_of(unending, "a", "b"), "a", "b")
    assert gap > 0 and low > 0 and own > other, (
        "a small difference that is shown is written so that it is seen"
    )
    tiny = {"a": base + 2e-7 + spread(0, width=1e-9, seed=2), "b": base}
    written_as_nothing = st.paired_tests(scores(tiny, "infidelity", "mine"), "infidelity")
    assert written_as_nothing["significant"].all()
    assert best_methods(means, written_as_nothing) == {"a", "b"}


def test_what_is_guaranteed_names_its_delta() -> None:
    entries = [
        ("a", "rate", "radius", 1.0, [0.9] * 10),
        ("a", "certified", "radius", 1.0, [0.8] * 10),
    ]
    one = judged(synthetic.rows_of(entries, "certificate"), delta=0.07)
    (chart,) = (part for part in components_of(one) if part.key == "rates")
    assert "δ = 0.07" in chart.caption
    entries = [(e, m, "λ=0.5", x, v) for e, m, _, x, v in entries]
    assert "{delta:g}" in FURTHER.seen
    swept = judged(synthetic.rows_of(entries, "smoothing"), delta=0.07)
    (chart,) = (part for part in components_of(swept) if part.key == "rates")
    assert "δ = 0.07" in chart.caption


def test_two_evaluations_of_one_kind_are_told_apart_in_words_and_in_comparisons() -> None:
    asked = {label: Stability(perturbations="jpeg", k=50) for label in ("first", "second")}
    run = heatproof.evaluate(model(), pictures(6)[0], ["saliency", "random"], asked)
    text = run.text()
    assert "Stability: first" in text and "Stability: second" in text
    runs = []
    for label, lift in (("A", 0.0), ("B", 0.2)):
        parts = [
            synthetic.rows_of(
                [("e", "fass", "jpeg", 40.0, spread(0.4 + lift, seed=i))], "stability"
            ).assign(dataset="d", model="m", evaluation=name)
            for i, name in enumerate(asked)
        ]
        table = pd.concat(parts)
        known = pd.DataFrame(
            {"dataset": "d", "model": "m", "sample": table["sample"].unique(), "error": ""}
        )
        known["predicted"], known["predicted_name"] = 0, "cat"
        study = {"evaluations": {name: {"name": "stability"} for name in asked}}
        runs.append(compared_run(label, table, known, manifest_of(study)))
    said = comparison_of(*runs, evaluations=tuple(asked)).verdict()
    assert any("first" in sentence for sentence in said)
    assert any("second" in sentence for sentence in said)


def test_compare_shows_the_two_scores_that_give_the_difference() -> None:
    runs = []
    for label, values in (("A", spread(0.4)), ("B", spread(0.63, seed=1))):
        table = scores({"e": values}).assign(dataset="d", model="m")
        known = pd.DataFrame(
            {"dataset": "d", "model": "m", "sample": table["sample"].unique(), "error": ""}
        )
        known["predicted"], known["predicted_name"] = 0, "cat"
        runs.append(compared_run(label, table, known))
    found = comparison_of(*runs)
    gap, _, _, later, earlier = numbers(found.verdict()[1].partition("by ")[2])[:5]
    assert gap == pytest.approx(later - earlier, abs=0.0011) and gap == pytest.approx(
        0.23, abs=1e-3
    )
    (line,) = [line for line in found.text().splitlines() if line.startswith("  e ")]
    assert numbers(line)[:2] == [earlier, later]


def test_methods_of_other_libraries_and_imputers_have_human_names() -> None:
    explainers = [
        "saliency",
        "captum(attribution=Saliency)",
        "captum(attribution=LayerGradCam, layer=features)",
    ]
    explainers += [
        "pytorch_grad_cam(method=GradCAMPlusPlus)",
        "zennit(composite=epsilon_plus)",
        "shap(method=deep)",
    ]
    known = looks(explainers)
    assert [look.name for look in known.values()] == [
        "Saliency",
        "Saliency (Captum)",
        "LayerGradCam (Captum)",
        "Grad-CAM++ (pytorch-grad-cam)",
        "Epsilon plus (Zennit)",
        "Deep (SHAP)",
    ]
    ours, theirs = (known[e] for e in explainers[:2])
    assert ours.colour == theirs.colour and (ours.open, theirs.open) == (False, True), (
        "one method, one colour"
    )
    assert (
        settings_of("captum(attribution=IntegratedGradients, arguments={'n_steps': 20})")
        == "20 steps"
    )
