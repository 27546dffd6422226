"""The laws of the bench, applied to every explainer, perturbation and evaluation; an unlisted one fails."""

from __future__ import annotations

import random
import subprocess
import sys
from inspect import ismodule

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model, Stability
from heatproof.axes import EVALUATIONS
from heatproof.axes.stability.perturbations import PERTURBATIONS
from heatproof.runs.study.registry import EXPLAINERS
from heatproof.runs.tables import KEY
from heatproof.types import Explainer
from support.laws import ALL, AXES, EVERY_KIND, OF_ATTENTION, OTHER_KINDS, SMALL, undeclared
from support.small import drawn, model, pictures
from support.tables import assert_one_to_rounding, assert_same_table
from support.vit_shapes import seeded_vit


def run(
    explainers=ALL,
    perturbations=("identity", {"rotation": {"degrees": 10}}, "jpeg"),
    n=7,
    net=None,
    **options,
) -> heatproof.Run:
    data = options.pop("data", pictures(n))
    return heatproof.evaluate(
        net or model(), data, explainers, Stability(perturbations=perturbations, k=50), **options
    )


@pytest.fixture(scope="module")
def reference() -> pd.DataFrame:
    return run(batch_size=64, shard_size=50).table()


RUNS = ((64, 50), (3, 5))
"""Sizes of batches and of shards."""


def test_every_explainer_perturbation_and_evaluation_is_under_law():
    stored = {"precomputed"}  # it has maps of given samples only; see explainers/test_adapters.py
    assert set(SMALL) | set(OTHER_KINDS) | set(OF_ATTENTION) | stored == set(EXPLAINERS)
    assert all(isinstance(explainer, Explainer) for explainer in ALL.values())
    assert {next(iter(p)) if isinstance(p, dict) else p for p in EVERY_KIND} == set(PERTURBATIONS)
    assert {"stability", *AXES} == set(EVALUATIONS)


def test_every_measure_is_declared_with_direction_and_role(reference):
    assert undeclared(reference) == set()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_table_does_not_depend_on_the_batch_size(reference, batch_size):
    assert_same_table(reference, run(batch_size=batch_size, shard_size=50).table())


@pytest.mark.parametrize("seed", range(20))
def test_nor_does_it_for_any_other_weights(seed):
    tables = [
        run(n=2, perturbations="jpeg", net=drawn(seed), batch_size=size).table() for size in (64, 1)
    ]
    assert_same_table(*tables)


def test_the_table_does_not_depend_on_the_shard_size(reference):
    assert_same_table(reference, run(batch_size=64, shard_size=5).table())


def test_the_table_does_not_depend_on_the_order_of_the_samples(reference):
    images, _ = pictures(7)
    order = [4, 1, 6, 0, 3, 5, 2]
    ids = [f"{i:04d}" for i in range(7)]
    known = sorted(reference["sample"].unique())
    shuffled = Batch(ids=tuple(known[i] for i in order), x=images[order])
    assert len(ids) == len(known)
    assert_same_table(reference, run(data=shuffled, batch_size=64, shard_size=4).table())


def test_the_second_run_of_the_same_study_is_the_same_to_the_last_bit(reference):
    pd.testing.assert_frame_equal(reference, run(batch_size=64, shard_size=50).table())


def test_the_laws_hold_for_explainers_of_transformers():
    net = Model(seeded_vit(), name="vit")
    tables = [
        run(list(OF_ATTENTION), net=net, batch_size=size, shard_size=shard).table()
        for size, shard in RUNS
    ]
    assert_same_table(*tables)
    same = tables[0][tables[0].measure.str.startswith("identity_check")]
    assert set(same[same.status == "ok"].explainer) == set(OF_ATTENTION)
    assert_one_to_rounding(same)


def test_one_row_per_attempted_pair_and_measure():
    table = run({"saliency": ALL["saliency"], "lime": ALL["lime"]}, EVERY_KIND, n=9).table()
    assert not table.duplicated(KEY).any()
    assert set(table.status) <= {"ok", "flipped", "undefined"}
    pairs = table[table.measure.isin(["fass", "identity_check"])]
    counts = (
        pairs.groupby(["explainer", "condition"], observed=True)
        .status.value_counts()
        .unstack(fill_value=0)
    )
    assert (counts.sum(axis=1) == 9).all()
    assert len(counts) == 2 * len(EVERY_KIND)
    assert table[table.status == "ok"].value.notna().all()
    assert table[table.status != "ok"].value.isna().all()
    assert (table[table.status != "ok"].reason.str.len() > 0).all()
    assert (table[table.status == "ok"].reason == "").all()


def test_the_identity_scores_one(reference):
    same = reference[reference.measure.str.startswith("identity_check")]
    assert set(same.explainer) == set(ALL)
    assert_one_to_rounding(same)
    defined = same[same.status == "ok"].explainer.unique()
    assert set(defined) == set(ALL), "an explainer that is never defined proves nothing"


def test_an_equivariant_explainer_on_an_invariant_model_scores_one_when_aligned():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pixelwise = nn.Sequential(
            nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
    images, _ = pictures(4)
    turned = Stability(perturbations=[{"rotation": {"degrees": [90, 180]}}], k=50)
    explainers = [
        "saliency",
        "input_x_gradient",
        {"integrated_gradients": {"steps": 4}},
        "deep_lift",
    ]
    table = heatproof.evaluate(pixelwise, images, explainers, turned).table()
    aligned = table[table.measure.isin(["ssim", "spearman", "jaccard", "fass"])]
    assert (aligned.status == "ok").all()
    assert (
        aligned.value.min() > 1 - 0.02
    )  # Jaccard: one of fifty places may change sides by rounding
    smooth = aligned[~aligned.measure.str.startswith(("jaccard", "fass"))]
    assert smooth.value.min() > 1 - 1e-4


def test_a_constant_map_is_undefined_and_never_a_score():
    class Blind(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

        def forward(self, x):
            return self.bias + 0 * x.flatten(1)[:, :2]

    images, _ = pictures(3)
    table = heatproof.evaluate(
        Blind(), images, ["saliency", "integrated_gradients"], Stability(k=50)
    ).table()
    assert set(table.status) == {"undefined"}
    assert set(table.reason) == {"the clean map is constant"}


def test_a_non_finite_map_is_undefined():
    def broken(model, batch, target, seed):
        maps = model.inputs(batch).clone()
        maps[:, 0, 0, 0] = torch.nan
        return maps

    images, _ = pictures(3)
    table = heatproof.evaluate(
        model(), images, [broken], Stability(perturbations="jpeg", k=50)
    ).table()
    assert set(table.status) == {"undefined"}
    assert set(table.reason) == {"the clean map is not finite"}


def test_no_global_random_state_is_read_or_changed():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    first = run(n=3).table()
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after
    random.seed(2), np.random.seed(2), torch.manual_seed(2)  # noqa: NPY002
    pd.testing.assert_frame_equal(first, run(n=3).table())


def test_importing_is_light_and_touches_nothing():
    code = (
        "import sys, socket; socket.socket = None; before = set(sys.modules); import heatproof; import heatproof.cli; "
        "heavy = {'torch', 'numpy', 'pandas', 'scipy', 'matplotlib', 'captum'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_opens_no_connection():
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = refuse; socket.create_connection = refuse\n"
        "import torch, heatproof\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))\n"
        "run = heatproof.evaluate(net, torch.rand(2, 3, 16, 16), 'saliency', heatproof.Stability(perturbations='jpeg'))\n"
        "run.report()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in sorted(set(heatproof.__all__) - {"Run", "UserError"})
        if not ismodule(getattr(heatproof, n))
    ],
)
def test_every_public_name_has_a_docstring_with_an_example(name):
    doc = getattr(heatproof, name).__doc__
    assert doc and ">>>" in doc, f"heatproof.{name} shows no example"


def test_the_public_names_are_those_listed():
    assert sorted(heatproof.__all__) == sorted(dir(heatproof))
    for name in heatproof.__all__:
        assert getattr(heatproof, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        heatproof.no_such_name  # noqa: B018


def test_the_users_model_is_not_changed_by_a_run():
    net = model().module.train()
    for parameter in net.parameters():
        parameter.requires_grad_(True)
    heatproof.evaluate(
        Model(net), pictures(2)[0], list(ALL.values())[:7], Stability(perturbations="jpeg", k=50)
    )
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert not any(
        m._forward_hooks or m._backward_hooks or m._forward_pre_hooks for m in net.modules()
    )
