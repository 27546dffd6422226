"""How well filled inputs are told from real ones, against scikit-learn, known areas, and the laws of the bench."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Ridge
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Faithfulness, Model
from heatproof.axes.faithfulness.realism import (
    RIDGE,
    area_and_interval,
    detection_scores,
    discriminate,
    folds,
    outputs_and_features,
)
from heatproof.axes.faithfulness.summaries import detectability


def gaussian(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_the_discriminator_is_ridge_regression_on_standardised_features() -> None:
    real, filled, asked = gaussian(30, 8, 0), gaussian(30, 8, 1) + 0.3, gaussian(12, 8, 2)
    both = torch.cat([real, filled]).double().numpy()
    z = (both - both.mean(0)) / both.std(0, ddof=1)
    penalty = RIDGE * (z**2).sum(1).mean()
    fitted = Ridge(alpha=penalty, fit_intercept=False).fit(z, np.repeat([-1.0, 1.0], 30))
    expected = fitted.predict((asked.double().numpy() - both.mean(0)) / both.std(0, ddof=1))
    assert np.allclose(discriminate(real, filled, [asked])[0], expected, atol=1e-9)


def test_features_are_what_the_last_layer_takes() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Flatten(2),
        nn.Linear(36, 5),
        nn.Flatten(),
        nn.Linear(20, 2),
    )
    x = torch.rand(3, 3, 8, 8)
    found = outputs_and_features(Model(net), Batch(("a", "b", "c"), x))
    assert torch.allclose(found, torch.cat([net(x), net[:5](x)], 1), atol=1e-6)
    convolution = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    found = outputs_and_features(Model(convolution), Batch(("a", "b", "c"), x))
    assert torch.allclose(found[:, 2:], convolution[:2](x).mean((2, 3)), atol=1e-6)


def test_the_mean_of_the_parts_is_the_area_over_all_pairs_within_folds() -> None:
    names = [f"s{i}" for i in range(60)]
    real, filled = gaussian(60, 3, 0), gaussian(60, 3, 1) + 0.5
    parts = detection_scores(real, filled, names, (real, filled), names, 0)
    place, areas = folds(names, names, 0), []
    for fold in range(5):
        held = place == fold
        clean, seen = discriminate(real[~held], filled[~held], [real[held], filled[held]])
        wins = [
            float(seen[i] > clean[j]) for i in range(len(seen)) for j in range(len(clean)) if i != j
        ]
        areas.append(np.mean(wins))
    assert parts.mean().item() == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(("n", "shift"), [(60, 0.0), (60, 1.0), (200, 0.4)])
def test_its_interval_covers(n: int, shift: float) -> None:
    """With one feature every discriminator orders alike, so that the area is known: Φ(shift / √2)."""
    truth, covered, population = stats.norm.cdf(shift / np.sqrt(2)), 0, 64
    generator = np.random.default_rng(0)
    for _ in range(200):
        real, filled = generator.normal(size=n), generator.normal(size=n) + shift
        peers = min(n, population)
        wins = (filled[:, None] > real[:peers]).astype(float) + (filled[:peers] > real[:, None])
        own = np.arange(n)[:, None] == np.arange(peers)
        parts = np.where(own, 0, wins / 2).sum(1) / (~own).sum(1)
        _, low, high = area_and_interval(parts, population)
        covered += low <= truth <= high
    assert covered / 200 >= 0.9


def noisy(n: int) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return Model(net), Batch(tuple(f"s{i}" for i in range(n)), x)


def told(n: int, **options: Any) -> pd.DataFrame:
    model, batch = noisy(n)
    axis = Faithfulness(imputers=["noise", "zero"], fractions=(0.1, 0.9), metrics=())
    return (
        heatproof.evaluate(model, batch, ["random"], axis, **options)
        .table()
        .query("measure == 'detectability'")
    )


def test_fills_like_the_data_are_not_told_and_black_is_and_no_batch_changes_it() -> None:
    table = told(70)
    areas = detectability(table).set_index(["imputer", "level"])
    assert (areas.loc["noise"].low < 0.5).all() and (areas.loc["noise"].high > 0.5).all()
    assert areas.loc[("zero", 0.9), "low"] > 0.9
    other = told(70, batch_size=7, shard_size=13)
    pd.testing.assert_frame_equal(table, other, atol=1e-6)


def test_fewer_than_fifty_samples_are_too_few() -> None:
    table = told(49)
    assert set(table.status) == {"undefined"}
    assert table.reason.str.contains("50 samples").all()
    assert detectability(table).empty
