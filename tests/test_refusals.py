"""Checks at the entrance of single functions: what does not fit is refused there, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from heatproof import Batch, Examples, Model, Smoothed, UserError, open_data
from heatproof.axes import EVALUATIONS
from heatproof.axes.agreement.evaluation import Agreement
from heatproof.axes.faithfulness.retraining.information import fano, hellman_raviv
from heatproof.axes.stability.perturbations import KNOWN
from heatproof.axes.stability.perturbations.series import TimeShift
from heatproof.axes.stability.perturbations.texts import PassageOrder, Synonyms
from heatproof.axes.symmetry.groups import GROUPS
from heatproof.axes.symmetry.groups import build as group_of
from heatproof.data import Vocabulary
from heatproof.explainers.ablation import FeatureAblation, FeaturePermutation
from heatproof.explainers.baselines import starting_points
from heatproof.explainers.controls import SobelEdges
from heatproof.explainers.examples import influence
from heatproof.explainers.examples.simplex import representations
from heatproof.explainers.examples.training_set import examples
from heatproof.explainers.masking import Occlusion, Rise
from heatproof.explainers.sampling import KernelShap, Lime
from heatproof.features import GROUPINGS, Elements, Patches, Superpixels, Tokens
from heatproof.features.groupings import Labels
from heatproof.removal import CONTEXTUAL, IMPUTERS
from heatproof.removal.imputers import DatasetMean, Value
from heatproof.rules import check_rules
from heatproof.runs.executors.local import Processes
from heatproof.runs.storage import place
from heatproof.runs.study.file import read_study
from heatproof.runs.study.registry import EXPLAINERS
from heatproof.statistics import bounds, radii

# Values that some parameter does not take, of every kind that a call or a study file can have.
BAD_VALUES: list[Any] = [object(), -7, 10**9, 1.5, "no-such-thing", float("nan"), [], {}, [1, "a"]]
BAD_VALUES += [{"x": 1}, {"patches": {"size": -3}}, None, (1, 2, 3, 4, 5, 6), True, [float("nan")]]
BAD_VALUES += [["", ""], b"x", torch.tensor(1.5), np.array(1.5), torch.rand(3), [[1], [2, 3]], int]
CLASSES = [*EXPLAINERS.values(), *EVALUATIONS.values(), *KNOWN.values(), *GROUPS.values()]
CLASSES += [*GROUPINGS.values(), Labels, *IMPUTERS.values(), *CONTEXTUAL.values()]
ROWS, PICTURES = Batch(("a",), torch.ones(1, 4)), Batch(("a", "b"), torch.ones(2, 3, 8, 8))
TEXTS = Batch(("a",), torch.tensor([[1, 2, 3]]))
WORDS = [{"text": "good film"}] * 2
GRAPH = SimpleNamespace(
    x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0])
)
FLAT, ASKED = Batch(("a",), torch.ones(1, 5, 2)), torch.tensor([0, 0])


def net(*shape: int) -> Model:
    return Model(nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 2)))


def train(*shape: int) -> Examples:
    return Examples(Batch(("p", "q"), torch.ones(2, *shape), label=torch.tensor([0, 1])))


def called(explainer: Any, batch: Batch = PICTURES) -> Callable[[], Any]:
    return lambda: explainer(net(*batch.x.shape[1:]), batch, ASKED[: len(batch)], 0)


SMOOTH = Smoothed(net(3, 8, 8), 0.5, 4, Patches(4))
CHANGING = Smoothed(net(3, 8, 8), 0.5, 4, Superpixels())
LONG = group_of({"torus": {"dims": [-2, -1]}})
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "k of agreement": (lambda: Agreement(k=100_000).configured_for(net(3, 8, 8), PICTURES), "k"),
    "accuracy": (lambda: fano(1.5, 3), r"accuracy.*1\.5"),
    "classes": (lambda: hellman_raviv(0.5, 1), "2 classes.* 1"),
    "maps of a shift": (lambda: TimeShift(steps=1).move(torch.ones(2, 1, 5), ["a"], 0), "2 maps.*1 id"),
    "synonyms without words": (lambda: Synonyms({"film": ["movie"]})(TEXTS, 0), "tokenizer"),
    "order of numbers": (lambda: PassageOrder()(ROWS, 0), "token ids"),
    "points turned": (lambda: group_of("so3").act(torch.eye(3), FLAT), "so3.*points"),
    "maps of a square": (lambda: group_of("dihedral").move(torch.tensor([1]), torch.ones(1, 3, 4, 5)), "square"),
    "maps of a cube": (lambda: group_of("octahedral").move(torch.tensor([1]), torch.ones(1, 3, 4, 5)), "cubes"),
    "all shifts": (lambda: LONG.elements(Batch(("a",), torch.zeros(1, 1, 4096, 4096))), "elements"),
    "all products": (
        lambda: group_of({"product": {"factors": [LONG, "cyclic"]}}).elements(
            Batch(("a",), torch.zeros(1, 1, 101, 101))
        ),
        "product.*elements",
    ),
    "all orders of passages": (
        lambda: group_of({"passage_permutation": {"features": {"passages": {"mask_token": 0}}}}).elements(
            Batch(("a",), torch.ones(1, 14).long(), {"_passages": torch.arange(1, 15)[None]})
        ),
        "passage_permutation.*elements",
    ),
    "texts of passages": (lambda: group_of("passage_permutation").check((3, 8)), "token ids"),
    "ablation": (lambda: FeatureAblation(features=Patches(3)).check(net(4), (4,)), "patches"),
    "permutation": (lambda: FeaturePermutation(features=Patches(3)).check(net(4), (4,)), "patches"),
    "pool of a permutation": (called(FeaturePermutation(pool=train(5)), ROWS), "shape"),
    "sobel": (called(SobelEdges(), ROWS), "sobel.*images"),
    "occlusion": (called(Occlusion(window=9, stride=2)), "occlusion window.* 9"),
    "rise": (called(Rise(samples=4, grid=9)), "rise grid.* 9"),
    "lime": (called(Lime(samples=4, features=Patches(9))), "patches"),
    "kernel shap": (called(KernelShap(samples=3, features=Patches(2))), "16 patches"),
    "baselines": (lambda: starting_points("mine", train(5), net(4), ROWS, 0), "shape"),
    "layers of influence": (called(influence.Influence(train=train(5)), ROWS), "shape"),
    "layers of TracIn": (called(influence.TracIn(train=train(5)), ROWS), "shape"),
    "representations": (lambda: representations(net(4), train(5), "", ROWS, "simplex"), "shape"),
    "keys of train": (lambda: examples({"source": "x.npz", "limits": 3}), "limits.*'limit'"),
    "elements of rows": (lambda: Elements().total((1, 4)), "sets and graphs"),
    "elements of a sample": (lambda: Elements().segments(ROWS), "sets and graphs"),
    "tokens of pictures": (lambda: Tokens().total((1, 3, 8, 8)), "token ids"),
    "tokens of a sample": (lambda: Tokens().segments(PICTURES), "token ids"),
    "delta of radii": (lambda: SMOOTH.radii(PICTURES, delta=1.5), "delta"),
    "features of radii": (lambda: CHANGING.radii(PICTURES), "superpixels"),
    "mask of a value": (lambda: Value()(torch.ones(1, 3, 4, 4), torch.ones(1, 5, 4).bool()), "keep"),
    "mask of a mean": (lambda: DatasetMean(mean=(0.5,))(torch.ones(1, 3, 4, 4), torch.ones(1, 5, 4).bool()), "keep"),
    "delta of a mean": (lambda: bounds.mean_interval(torch.ones(1, 4), 0.0, 1.0, 1.0), "delta"),
    "threshold of a capital": (lambda: bounds.capital(1, 2, 1.0, "above"), "threshold"),
    "epsilon of a size": (lambda: bounds.sample_size(0.0, 0.1), "epsilon"),
    "delta of a size": (lambda: bounds.sample_size(0.1, 2.0), "delta"),
    "delta of bounds": (lambda: bounds.clopper_pearson(1, 2, 0.0), "delta"),
    "delta of a gap": (lambda: radii.bernoulli_gap(torch.ones(1, 16, 3), -0.1), "delta"),
    "size of graphs": (lambda: open_data([GRAPH, GRAPH], size=8), "size"),
    "size of texts": (lambda: open_data(WORDS, vocabulary=Vocabulary(("good",)), size=8), "size"),
    "memory of one process": (
        lambda: Processes(lambda: None, 2)(None, place("memory://run"), [], lambda *_: None),  # type: ignore[arg-type]
        "memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    call, said = CASES[case]
    with pytest.raises(UserError, match=said):
        call()


@pytest.mark.parametrize(("smooth", "delta"), [(SMOOTH, 1.5), (CHANGING, 0.1)])
def test_radii_that_cannot_be_cost_no_pass(smooth: Smoothed, delta: float) -> None:
    before = smooth.base.passes
    with pytest.raises(UserError):
        smooth.radii(PICTURES, delta=delta)
    assert smooth.base.passes == before


def test_influence_over_too_many_weights_of_a_head_that_nobody_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(influence, "LARGEST_SOLUTION", 10)
    with pytest.raises(UserError, match="1 GiB"):
        called(influence.Influence(train=train(4)), ROWS)()


def test_what_files_of_texts_and_tables_do_not_offer(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("good",))
    text = tmp_path / "a.jsonl"
    text.write_text('{"text": "good"}\n')
    with pytest.raises(UserError, match="size"):
        open_data(text, vocabulary=vocabulary, size=8)
    with pytest.raises(UserError, match=r"split.*'test'"):
        open_data(text, vocabulary=vocabulary, split="test")
    import pandas as pd

    pd.DataFrame({"text": ["good"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="size"):
        open_data(tmp_path / "a.parquet", vocabulary=vocabulary, size=8)
    with pytest.raises(UserError, match=r"split.*'test'"):
        open_data(tmp_path / "a.parquet", split="test")


@pytest.mark.parametrize(
    ("study", "line"),
    [
        ("seed: 1\nseed: 2\n", 2),
        ("model: {source: a, source: b}\n", 1),
        ("explainers:\n  - lime: {samples: 1, samples: 2}\n", 2),
    ],
)
def test_keys_given_twice_at_every_depth(tmp_path: Path, study: str, line: int) -> None:
    (tmp_path / "study.yaml").write_text(study)
    with pytest.raises(UserError, match=rf"study\.yaml, line {line}: .*twice"):
        read_study(tmp_path / "study.yaml")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_constructor_takes_a_value_or_refuses_it_with_our_error(cls: Any) -> None:
    parameters = fields(cls)
    needed = [p.name for p in parameters if p.default is MISSING and p.default_factory is MISSING]
    for parameter in parameters:
        if needed not in ([], [parameter.name]):
            continue
        for value in BAD_VALUES:
            with suppress(UserError):
                cls(**{parameter.name: value})
    with pytest.raises(UserError, match="no_such_parameter"):
        cls(no_such_parameter=1)


@pytest.mark.parametrize("shape", ["rows", ["rows"], -3, 3, True, [3.5], [], [0], [[3]], {"a": 1}])
def test_a_shape_that_is_none_is_refused(shape: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,2,3,0\n4,5,6,1\n")
    for source in (path, np.ones((2, 3))):
        with pytest.raises(UserError) as refused:
            open_data(source, shape=shape)
        assert repr(shape) in str(refused.value) and "[1, 96]" in str(refused.value)


@pytest.mark.parametrize("names", [5, None, "few-samples", [["few-samples"]], ["few_samples"]])
def test_ignored_rules_are_a_list_of_names(names: Any) -> None:
    with pytest.raises(UserError, match=r"few.samples"):
        check_rules(names)
