"""The measures as plain functions: they equal independent references, and the rows of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import heatproof
from heatproof import UserError, metrics
from support import small


def maps(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


def test_spearman_is_that_of_scipy_with_ties():
    a = np.round(maps(0, 3, 40) * 5)
    b = np.round(maps(1, 3, 40) * 5)
    expected = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert metrics.spearman(a, b).numpy() == pytest.approx(expected)


def test_fass_is_the_mean_of_its_components():
    a, b = maps(0, 4, 3, 16, 16), maps(1, 4, 3, 16, 16)
    components = [
        metrics.ssim(a, b),
        (metrics.spearman(a, b) + 1) / 2,
        metrics.jaccard(a, b, k=50),
    ]
    assert metrics.fass(a, b, k=50).numpy() == pytest.approx(sum(components).numpy() / 3)


def test_arrays_and_tensors_score_alike():
    a, b = maps(0, 2, 3, 16, 16), maps(1, 2, 3, 16, 16)
    assert torch.equal(metrics.fass(a, b), metrics.fass(torch.tensor(a), torch.tensor(b)))


def test_a_map_outside_its_mask_has_no_mass_there():
    mask = np.zeros((2, 8, 8), bool)
    mask[:, :4] = True
    inside = mask[:, None].astype(float)
    assert metrics.relevance_mass(inside, mask).tolist() == [1.0, 1.0]
    assert metrics.relevance_mass(1 - inside, mask).tolist() == [0.0, 0.0]
    assert metrics.pointing_game(1 - inside, mask, margin=15).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_the_curve_of_road_is_that_of_a_run(order):
    x, _ = small.pictures(4)
    net = small.model()
    fractions = (0.2, 0.6)
    run = heatproof.evaluate(
        net,
        x,
        ["saliency"],
        [{"faithfulness": {"imputers": ["zero"], "fractions": list(fractions), "masks": 4}}],
        keep_maps=True,
        show_progress=False,
    )
    rows = run.table()
    rows = rows[
        (rows["order"] == order)
        & rows["level"].isin(fractions)
        & (rows["measure"] == "probability")
    ]
    expected = rows.pivot(index="sample", columns="level", values="value").sort_index().to_numpy()
    kept = run.maps("saliency")
    curve = metrics.road_curve(
        net,
        x,
        np.stack([kept[sample] for sample in sorted(kept)]),
        fractions=fractions,
        order=order,
        imputer="zero",
        readout="probability",
    )
    assert curve.numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.fass(maps(0, 2, 3, 8, 8), maps(0, 2, 3, 8, 9)), r"8, 8.*8, 9"),
        (lambda: metrics.cosine(maps(0, 5), maps(0, 5)), r"\(5,\)"),
        (lambda: metrics.relevance_mass(maps(0, 2, 8, 8), np.ones((2, 8, 9), bool)), r"8, 9"),
        (
            lambda: metrics.road_curve(small.model(), small.pictures(2)[0], maps(0, 2, 4, 4)),
            r"4, 4",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, words):
    with pytest.raises(UserError, match=words):
        call()
