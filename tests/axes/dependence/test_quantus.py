"""Quantus' randomisation metrics on the same maps: they agree where the definitions do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model
from heatproof.models.randomised import random_weights, with_weights

quantus = pytest.importorskip(
    "quantus", reason="quantus is not installed; it is the reference here"
)

PLAIN = {"abs": False, "normalise": False, "disable_warnings": True}
K = 20


@pytest.fixture(scope="module")
def two_classes() -> tuple[Model, Batch, pd.DataFrame]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = Batch(tuple(f"{i}" for i in range(6)), images)
    run = heatproof.evaluate(net, batch, "saliency", [{"dependence": {"draws": 1, "k": K}}])
    return Model(net), batch, run.table()


def column(table: pd.DataFrame, measure: str, condition: str) -> np.ndarray:
    rows = table[(table.measure == measure) & (table.condition == condition)]
    return rows.sort_values("sample").value.to_numpy()


def maps(model: Model, batch: Batch, target: Any) -> np.ndarray:
    return heatproof.Saliency()(model, batch, torch.as_tensor(target), 0).numpy()


def quantus_scores(metric: Any, model: Model, batch: Batch, explain: Any) -> np.ndarray:
    target = model.logits(model.inputs(batch)).argmax(1).numpy()
    clean = maps(model, batch, target)
    given = {"x_batch": batch.x.numpy(), "y_batch": target, "a_batch": clean, "channel_first": True}
    found = metric(model=model.module, explain_func=explain, device="cpu", **given)
    return np.asarray(found, dtype=float).ravel()


def test_the_parameter_randomisation_test(two_classes):
    model, batch, table = two_classes
    twin = with_weights(model, random_weights(model, seed=0), batch)

    def under_our_network(inputs, targets, **_):
        return maps(twin, batch, targets)

    metric = quantus.MPRT(skip_layers=True, return_last_correlation=True, **PLAIN)
    theirs = quantus_scores(metric, model, batch, under_our_network)
    assert np.allclose(2 * column(table, "spearman", "weights") - 1, theirs, atol=1e-6)


def test_random_logit_where_there_is_one_other_class(two_classes):
    model, batch, table = two_classes

    def of_class(inputs, targets, **_):
        return maps(model, batch, targets)

    metric = quantus.RandomLogit(
        similarity_func=quantus.correlation_spearman, num_classes=2, **PLAIN
    )
    theirs = quantus_scores(metric, model, batch, of_class)
    assert np.allclose(2 * column(table, "spearman", "class") - 1, theirs, atol=1e-6)


def test_sparseness_and_complexity(two_classes):
    model, batch, table = two_classes
    sparse, complex_ = (
        quantus_scores(kind(**PLAIN), model, batch, None)
        for kind in (quantus.Sparseness, quantus.Complexity)
    )
    assert np.allclose(column(table, "gini", "clean"), sparse, atol=1e-4), (
        "Quantus adds 1e-7 to every value"
    )
    assert np.allclose(column(table, "entropy", "clean") * np.log(64), complex_, atol=1e-6)


def test_the_rise_of_entropy(two_classes):
    model, batch, table = two_classes
    twin = with_weights(model, random_weights(model, seed=0), batch)
    target = model.logits(model.inputs(batch)).argmax(1)
    before, after = (maps(network, batch, target) for network in (model, twin))
    entropy = [
        [quantus.complexity_func.entropy(a[0], x) for a, x in zip(m, batch.x.numpy(), strict=True)]
        for m in (before, after)
    ]
    risen = (np.array(entropy[1]) - np.array(entropy[0])) / np.array(entropy[0])
    assert np.allclose(column(table, "entropy_rise", "weights"), risen, atol=1e-6)
