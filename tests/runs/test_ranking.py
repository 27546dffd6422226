"""`Run.ranking` and `Run.tests`: every evaluation by what speaks for its axis, told apart and in its own direction."""

from __future__ import annotations

import pytest
import torch

import heatproof
from heatproof import Faithfulness, Stability, Symmetry, UserError
from heatproof.axes import Measure
from heatproof.evaluation import OK, Scores
from heatproof.runs import manifest, tables
from heatproof.runs.directory import PartKey, RunDirectory
from support.small import model, pictures

EXPLAINERS = ["saliency", {"integrated_gradients": {"steps": 4}}, "random"]


def run(evaluations, explainers=EXPLAINERS, n=6) -> heatproof.Run:
    return heatproof.evaluate(model(), pictures(n)[0], explainers, evaluations)


class Spread:
    """Two measures of the map itself, of which the first speaks for it."""

    name = "spread"

    def conditions(self):
        return [("clean", 0.0)]

    def __call__(self, subject):
        for explainer in subject.explainers:
            maps = subject.maps(explainer).flatten(1).double().cpu()
            for measure, value in (("deviation", maps.std(1)), ("height", maps.amax(1))):
                yield Scores(
                    explainer,
                    measure,
                    "clean",
                    0.0,
                    value,
                    torch.full((len(value),), OK),
                    ("",) * len(value),
                )


class Declared(Spread):
    measures = (
        Measure("height", "height", "the largest value", "lower", "headline"),
        Measure("deviation", "deviation", "of the values", "neither", "component"),
    )


@pytest.fixture(scope="module")
def several() -> heatproof.Run:
    faith = Faithfulness(
        imputers="zero", fractions=(0.3, 0.6), metrics=("deletion_auc", "insertion_auc")
    )
    turned = Symmetry(group={"dihedral": {"n": 1}})
    return run(
        {
            "jpeg": Stability(perturbations="jpeg", k=50),
            "turned": turned,
            "faith": faith,
            "spread": Spread(),
        }
    )


def test_two_evaluations_of_one_axis_are_told_apart():
    settings = {"mild": "fass-mild", "jpeg": "jpeg"}
    both = run({label: Stability(perturbations=p, k=50) for label, p in settings.items()})
    ranked, tested = both.ranking(), both.tests()
    assert list(ranked.groupby("evaluation").size().items()) == [("jpeg", 3), ("mild", 3)]
    assert list(tested.groupby("evaluation").size().items()) == [("jpeg", 3), ("mild", 3)]
    assert set(ranked.measure) == set(tested.measure) == {"fass"}
    assert list(ranked.index) == list(tested.index) == list(range(6)), (
        "one table, not two with their own numbers"
    )
    for label, perturbations in settings.items():
        alone = run({label: Stability(perturbations=perturbations, k=50)})
        for whole, only in (
            (both.ranking(label), alone.ranking()),
            (both.tests(label), alone.tests()),
        ):
            assert set(whole.evaluation) == {label}
            torch.testing.assert_close(
                *(torch.tensor(f.select_dtypes("number").to_numpy()) for f in (whole, only)),
                equal_nan=True,
            )
    scores = ranked.pivot(index="explainer", columns="evaluation", values="score")
    assert (scores["mild"] != scores["jpeg"]).any()


def test_each_axis_is_ranked_by_its_headline_in_its_direction(several):
    ranked = several.ranking()
    measures = ranked.groupby("evaluation").measure.unique().map(list).to_dict()
    assert measures == {
        "jpeg": ["fass"],
        "turned": ["equivariance"],
        "faith": ["deletion_auc"],
        "spread": ["deviation"],
    }
    first = ranked[ranked["rank"] == 1].set_index("evaluation").score
    assert (
        ranked[ranked.control]["rank"].isna().all() and ranked[ranked.control].score.notna().all()
    )
    scores = ranked[~ranked.control].groupby("evaluation").score
    assert first["faith"] == scores.min()["faith"], "less under the deletion curve is better"
    assert first["jpeg"] == scores.max()["jpeg"] and first["turned"] == scores.max()["turned"]
    spread = ranked[ranked.evaluation == "spread"]
    assert spread["rank"].isna().all() and spread.score.notna().all(), (
        "nobody said which way is better"
    )
    assert set(several.tests().evaluation) == set(measures)


def test_one_evaluation_or_measure_may_be_named(several):
    insertion = several.ranking(measure="insertion_auc")
    assert set(insertion.evaluation) == {"faith"} and insertion["rank"].dropna().tolist() == [1, 2]
    assert insertion.score.is_monotonic_decreasing
    component = several.tests("jpeg", "ssim")
    assert set(component.measure) == {"ssim"} and set(component.evaluation) == {"jpeg"}
    assert several.ranking("spread", "height")["rank"].isna().all()
    with pytest.raises(UserError, match=r"'jpg'.*'jpeg'"):
        several.ranking("jpg")
    with pytest.raises(UserError, match=r"'insertion'.*'insertion_auc'"):
        several.tests(measure="insertion")
    with pytest.raises(UserError, match="'insertion_auc'"):
        several.ranking("jpeg", "insertion_auc")


def test_an_evaluation_of_ones_own_may_say_which_measure_speaks_and_which_way_is_better():
    ranked = run({"mine": Declared()}).ranking()
    assert set(ranked.measure) == {"height"} and ranked["rank"].dropna().tolist() == [1, 2]
    assert ranked.score.is_monotonic_increasing


def test_an_evaluation_without_a_headline_has_no_rows(tmp_path):
    leak = manifest.EvaluationEntry(name="leakage")
    study = manifest.Study(
        seed=0, models={}, datasets={}, explainers={}, evaluations={"leak": leak}
    )
    manifest.begin(tmp_path, study, 2, "test")
    hit = Scores("saliency", "mask_hit", "zero", 0.0, torch.ones(2), torch.full((2,), OK), ("", ""))
    rows = tables.score_rows("d", "m", "leak", "method", ["a", "b"], [hit])
    RunDirectory(tmp_path).write(PartKey.scores(("d", "m", 0), "leak", "saliency"), rows)
    found = heatproof.read(tmp_path)
    assert found.ranking().empty and found.tests().empty
    assert {"evaluation", "measure"} <= set(found.ranking().columns) & set(found.tests().columns)
    assert found.ranking("leak", "mask_hit")["rank"].isna().all()


def test_a_control_stays_one_under_another_label():
    methods = ["saliency", {"random": {}, "as": "noise"}, {"sobel": {}, "as": "edges"}]
    done = heatproof.evaluate(
        model(), pictures(4), methods, [{"stability": {"perturbations": "jpeg", "k": 50}}]
    )
    roles = done.table().groupby("explainer").role.unique().map(list).to_dict()
    assert roles == {"saliency": ["method"], "noise": ["control"], "edges": ["control"]}
    assert done.ranking().set_index("explainer").control.to_dict() == {
        "saliency": False,
        "noise": True,
        "edges": True,
    }
    assert done.manifest.study.explainer("noise").role == "control"
    assert 'data-method="noise" class="control"' in done.report().read_text(encoding="utf-8")
