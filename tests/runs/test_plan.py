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
from heatproof.runs.plan import make_plan
from heatproof.runs.references import load_references
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
    assert plan.conditions("agreement") == 1
    assert plan.conditions("stability") == 3
    assert plan.judged("agreement") == ["a", "b"]
    (left_out,) = plan.left_out("agreement").items()
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
