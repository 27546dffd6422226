"""Symmetry: explanations of invariant networks, and maps whose score has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import heatproof
from border import nets
from border.kinds import model_and_data
from border.tables import rows, values

GROUPS = {
    "image": {"dihedral": {"n": 4}},
    "volume": "octahedral",
    "series": "cyclic",
    "set": "permutation",
    "graph": "node_permutation",
    "text": "permutation",
}
every_group = pytest.mark.parametrize("kind", GROUPS)


def invariant_model(kind: str) -> tuple[heatproof.Model, heatproof.Batch]:
    """A network that no element of the group of the kind makes a difference to, and its data."""
    model, data = model_and_data(kind)
    if kind in ("image", "volume", "series"):
        model = heatproof.Model(nets.seeded(lambda: nets.Invariant(data.x.shape[1])))
    return model, data


@every_group
def test_the_gradient_of_an_invariant_network_is_equivariant(kind):
    model, data = invariant_model(kind)
    test = heatproof.Symmetry(group=GROUPS[kind], elements=6)
    run = heatproof.evaluate(model, data, ["saliency", "input_x_gradient"], test)
    np.testing.assert_allclose(values(run, measure="equivariance"), 1.0, rtol=0, atol=1e-4)


@every_group
def test_an_invariant_network_is_found_to_be_invariant(kind):
    model, data = invariant_model(kind)
    test = heatproof.Symmetry(group=GROUPS[kind], elements=6)
    run = heatproof.evaluate(model, data, ["saliency"], test)
    assert (values(run, measure="model_agreement") == 1).all()
    np.testing.assert_allclose(values(run, measure="model_invariance"), 1.0, rtol=0, atol=1e-4)
    np.testing.assert_allclose(values(run, measure="model_change"), 0.0, rtol=0, atol=1e-2)


@every_group
def test_a_constant_map_has_no_score(kind):
    model, data = invariant_model(kind)
    test = heatproof.Symmetry(group=GROUPS[kind], elements=4)
    run = heatproof.evaluate(model, data, {"flat": nets.constant_map}, test)
    found = rows(run, measure="equivariance")
    assert set(found["status"]) == {"undefined"}
    assert (found["reason"] != "").all()


def test_a_map_that_stays_where_it_is_scores_its_mean_cosine_with_its_own_shifts():
    # Over all T shifts g the products ⟨e, g·e⟩ add up to (Σ e)², so the mean cosine is (Σ e)² / (T ‖e‖²).
    length = 12
    data = heatproof.Batch(nets.NAMES, nets.numbers(nets.SAMPLES, 1, length))
    model = heatproof.Model(nets.seeded(lambda: nets.Invariant(1)))
    test = heatproof.Symmetry(group="cyclic", elements=length)
    run = heatproof.evaluate(model, data, {"still": nets.falling}, test)
    still = torch.arange(length, 0, -1, dtype=torch.float64) / length
    expected = still.sum() ** 2 / (length * (still**2).sum())
    found = rows(run, measure="equivariance", condition="cyclic")
    assert set(found["level"]) == {length}
    np.testing.assert_allclose(found["value"], float(expected), rtol=0, atol=1e-5)


def test_over_the_whole_group_there_is_no_sampling_error():
    data = heatproof.Batch(nets.NAMES, nets.numbers(nets.SAMPLES, 1, 12))
    model = heatproof.Model(nets.seeded(lambda: nets.Invariant(1)))
    run = heatproof.evaluate(
        model, data, {"still": nets.falling}, heatproof.Symmetry(group="cyclic", elements=12)
    )
    whole = rows(run, measure="equivariance", condition="cyclic")
    assert (whole["low"] == whole["value"]).all() and (whole["high"] == whole["value"]).all()
    run = heatproof.evaluate(
        model, data, {"still": nets.falling}, heatproof.Symmetry(group="cyclic", elements=5)
    )
    part = rows(run, measure="equivariance", condition="cyclic")
    assert (part["low"] < part["value"]).all() and (part["value"] < part["high"]).all()


def test_averaged_over_the_whole_group_any_method_is_equivariant():
    data = heatproof.Batch(nets.NAMES, nets.numbers(nets.SAMPLES, 1, 12))
    model = heatproof.Model(nets.seeded(lambda: nets.Invariant(1)))
    repaired = heatproof.Symmetry(group="cyclic", elements=12, repair=(12,))

    def tilted(model, batch, target, seed):
        return batch.x * nets.falling(model, batch, target, seed)

    tilted.stochastic = False
    run = heatproof.evaluate(model, data, {"tilted": tilted}, repaired)
    before = values(run, measure="equivariance", condition="cyclic")
    after = values(run, measure="symmetrised", level=12)
    assert (before < 0.999).all()
    np.testing.assert_allclose(after, 1.0, rtol=0, atol=1e-4)


def test_a_score_never_shares_its_name_with_a_check_on_it():
    data = heatproof.Batch(nets.NAMES, nets.numbers(nets.SAMPLES, 1, 12))
    model = heatproof.Model(nets.seeded(lambda: nets.Invariant(1)))
    test = heatproof.Symmetry(group="cyclic", elements=6, repair=(2,), convergence=(1, 6))
    table = heatproof.evaluate(model, data, ["gradient_shap", "random"], test).table()
    conditions = table.groupby("measure")["condition"].unique()
    assert list(conditions["equivariance"]) == ["cyclic"]
    assert {"noise_floor", "symmetrised", "convergence"} <= set(conditions.index)
    scores = table[table["measure"] == "equivariance"]
    assert scores["chance"].notna().all() and (scores["chance"] < 0.9).all()
