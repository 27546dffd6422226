"""Plans of a study: what is refused, which explainers an evaluation leaves out, and which samples are references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.runs import engine
from heatproof.runs.merge import merge
from heatproof.runs.plan import describe, make_plan
from heatproof.runs.references import load_references
from heatproof.runs.study import registry
from heatproof.runs.verify import missing
from support.fixed import fixed, with_weights
from support.whole import BASE, MOVED

STABILITY = {"stability": {"perturbations": ["brightness", {"rotation": {"degrees": [5, 10]}}]}}


def linear_model() -> Model:
    """A linear classifier of pictures (3, 16, 16)."""
    net = with_weights(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3)))
    return Model(net, classes=["c0", "c1", "c2"], name="net")


class People:
    """Seven pictures of three people, one of which cannot be read."""

    ids = ("ann/0", "ann/1", "bob/2", "bob/3", "eve/4", "eve/5", "eve/6")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Any:
        if self.ids[i] == "eve/5":
            raise ValueError("no picture")
        return fixed(3, 16, 16, seed=i), i % 3


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"seed": 1.5}, r"seed.*1\.5"),
    "references": ({"references": 1}, "references.*1"),
    "precision": ({"precision": "float8"}, "float8.*float32"),
    "compile": ({"compile": "yes"}, "compile.*yes"),
    "sample to keep": ({"keep_maps": ["0001", "9999"]}, "keep_maps.*9999"),
    "one explainer to compare": ({"evaluations": "agreement"}, "agreement"),
    "missing parameter": ({"explainers": ["cav"]}, r"cav\.concepts"),
    "label given twice": (
        {"explainers": [{"random": {}, "as": "a"}, {"sobel": {}, "as": "a"}]},
        "'a'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_plan_refuses_a_wrong_argument_and_names_it(what: str) -> None:
    wrong, facts = REFUSED[what]
    given = {
        "model": linear_model(),
        "data": fixed(5, 3, 16, 16),
        "explainers": "random",
        "evaluations": [STABILITY],
        **wrong,
    }
    with pytest.raises(UserError, match=facts):
        make_plan(**given)


def test_an_evaluation_leaves_out_explainers_of_another_kind_and_does_not_count_them() -> None:
    def of_examples(model: Any, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return torch.ones(len(batch), 4)

    of_examples.kind = "example"  # type: ignore[attr-defined]
    methods = {"a": "random", "b": "saliency", "c": of_examples}
    plan = make_plan(linear_model(), fixed(5, 3, 16, 16), methods, ["agreement", STABILITY])
    study = plan.configured["data", "net"]
    assert study.condition_count("agreement") == 1
    assert study.condition_count("stability") == 3
    assert study.judged("agreement") == ["a", "b"]
    (left_out,) = study.left_out("agreement").items()
    assert left_out[0] == "c"
    assert "example" in left_out[1]


def test_a_plan_keeps_only_the_maps_that_were_asked_for() -> None:
    asked = ["0001", "0003"]
    plan = make_plan(
        linear_model(), fixed(5, 3, 16, 16), "random", [STABILITY], keep_maps=asked, shard_size=2
    )
    assert [plan.keeps(f"{i:04d}") for i in range(5)] == [False, True, False, True, False]
    assert [list(shard) for shard in plan.shards("data")] == [[0, 1], [2, 3], [4]]


def test_references_are_readable_samples_chosen_by_seed_and_fewer_are_the_first_of_more() -> None:
    data = heatproof.open_data(People())
    readable = set(People.ids) - {"eve/5"}
    every = load_references(data, 0, len(People.ids)).ids
    assert set(every) == readable
    assert load_references(data, 0, 3).ids == every[:3]
    orders = {load_references(data, seed, len(People.ids)).ids for seed in range(5)}
    assert len(orders) > 1
    assert load_references(data, 0, 2, ("eve/6", "ann/1")).ids == ("eve/6", "ann/1")
    with pytest.raises(UserError, match=r"eve/5.*no picture"):
        load_references(data, 0, 2, ("eve/5",))


def test_the_samples_on_show_depend_on_the_seed_and_grow_with_their_number() -> None:
    ids = tuple("abcdefghijklmnop")
    few, more = engine.gallery_ids(ids, 0, 3), engine.gallery_ids(ids, 0, 6)
    assert len(few) == 3
    assert few < more
    assert engine.gallery_ids(ids, 1, 3) != few
    assert engine.gallery_ids(ids[::-1], 0, 3) == few


def test_runs_of_two_models_are_merged_with_all_rows_and_gaps_named(tmp_path: Path) -> None:
    base, moved = heatproof.read(BASE), heatproof.read(MOVED)
    both = merge(tmp_path / "both", [base.path, moved.path])
    assert [*both.manifest.study.models] == ["shapes", "moved"]
    assert len(both.table()) == len(base.table()) + len(moved.table())
    # The second run lacks some evaluations of the first, so only its model has gaps.
    gaps = missing(both.path)
    assert gaps
    assert all("on moved" in gap for gap in gaps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "auto"}, r"precision 'auto'.*float16"),
        ({"compile": "auto"}, r"compile.*true or false.*'auto'"),
    ],
)
def test_precision_and_compiling_are_never_chosen_by_themselves(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make_plan(linear_model(), torch.rand(3, 3, 16, 16), "saliency", **options)


class Averages(nn.Module):
    """A classifier of anything: images, series and rows, by 16 averages of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.head = nn.AdaptiveAvgPool1d(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.pool(x.flatten(1)[:, None])[:, 0])
        return scores


THREE_KINDS = {
    "pictures": fixed(3, 3, 48, 48),
    "series": fixed(3, 1, 100, seed=1),
    "rows": fixed(3, 20, seed=2),
}


def anything() -> Model:
    """A model that accepts every data set of `THREE_KINDS`."""
    return Model(with_weights(Averages()), name="net")


def test_each_data_set_gets_the_defaults_of_its_own_kind(tmp_path: Path) -> None:
    run = heatproof.evaluate(
        anything(), THREE_KINDS, ["saliency", "lime"], ["stability"], tmp_path, show_progress=False
    )
    study = run.manifest.study
    perturbed = run.table().groupby("dataset").condition.agg(set)
    assert perturbed["pictures"] >= {"rotation", "jpeg"}
    assert perturbed["series"] >= {"jitter", "time_shift"}
    assert perturbed["rows"] >= {"column_noise"}
    assert not perturbed["pictures"] & perturbed["series"] - {"redraw"}
    k = {name: study.evaluation("stability", name, "net").parameters["k"] for name in THREE_KINDS}
    assert k == {"pictures": 100, "series": 0.1, "rows": 0.1}
    features = {
        name: study.explainer("lime", name, "net").parameters["features"]["name"]
        for name in THREE_KINDS
    }
    assert features == {"pictures": "superpixels", "series": "windows", "rows": "pixels"}
    assert missing(tmp_path) == []


def test_each_data_set_scores_as_it_does_alone(tmp_path: Path) -> None:
    settings = {"show_progress": False}
    together = heatproof.evaluate(
        anything(), THREE_KINDS, ["saliency"], ["stability"], **settings
    ).table()
    for name, values in THREE_KINDS.items():
        alone = heatproof.evaluate(
            anything(), {name: values}, ["saliency"], ["stability"], **settings
        ).table()
        of_this = together[together.dataset == name].reset_index(drop=True)
        assert len(alone) == len(of_this)
        assert alone.value.equals(of_this.value)


def test_an_evaluation_is_run_on_the_data_that_it_names_alone(tmp_path: Path) -> None:
    evaluations = {
        "stability": heatproof.Stability(),
        "texture": heatproof.Localisation(by="mosaics", data="pictures"),
    }
    given = (anything(), THREE_KINDS, ["saliency"])
    run = heatproof.evaluate(*given, evaluations, tmp_path, show_progress=False)
    by_evaluation = run.table().groupby("evaluation").dataset.agg(set)
    assert by_evaluation["texture"] == {"pictures"}
    assert by_evaluation["stability"] == set(THREE_KINDS)
    assert missing(tmp_path) == []
    # An evaluation without data applies to all, and where it cannot, the error says how to name the data.
    with pytest.raises(UserError, match=r"mosaics(.|\n)*data: \[series\]"):
        make_plan(*given, {"texture": heatproof.Localisation(by="mosaics")})
    with pytest.raises(UserError, match=r"'picture'.*'pictures'"):
        make_plan(*given, {"texture": heatproof.Localisation(by="mosaics", data="picture")})


def test_a_run_resumes_only_with_the_settings_that_each_data_set_had(tmp_path: Path) -> None:
    given = (anything(), THREE_KINDS, ["saliency"])
    stability = {"perturbations": "usual"}
    heatproof.evaluate(*given, [{"stability": stability}], tmp_path, show_progress=False)
    before = (tmp_path / "manifest.json").read_bytes()
    heatproof.evaluate(*given, [{"stability": stability}], tmp_path, show_progress=False)
    assert (tmp_path / "manifest.json").read_bytes() == before
    # 100 is the default of pictures alone, so only the other data sets contradict the run.
    with pytest.raises(UserError, match=r"series.*k.*0\.1.*100"):
        heatproof.evaluate(
            anything(),
            {"pictures": THREE_KINDS["pictures"], "series": fixed(3, 1, 200, seed=1)},
            ["saliency"],
            [{"stability": {"perturbations": "usual", "k": 100}}],
            tmp_path,
            show_progress=False,
        )


def test_a_run_of_one_kind_of_data_has_no_settings_by_data_set() -> None:
    plan = make_plan(linear_model(), fixed(5, 3, 16, 16), ["saliency", "lime"], [STABILITY])
    assert "configured" not in describe(plan).as_mapping()


def test_a_parameter_may_have_the_name_of_another_test() -> None:
    built = registry.evaluations({"certificate": {"agreement": "margin", "radii": [2]}})
    assert built == {"certificate": heatproof.Certificate(agreement="margin", radii=(2,))}
