"""Nothing mixes devices: every explainer and axis on a device that is not there, with the numbers of the CPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import heatproof
from heatproof import Stability
from heatproof.runs.tables import KEY
from support.elsewhere import THERE, Elsewhere, from_numpy
from support.laws import ALL, AXES, EVERY_KIND, OTHERWISE, PATCHES, run_axis, run_otherwise
from support.modalities import case, seeded
from support.small import model, network, pictures

HIDDEN, REMOVED = {"tokens": {"mask_token": 1}}, {"fractions": [0.3, 0.6], "masks": 8}
OF_KINDS = {
    "series": (
        "cyclic",
        {"windows": {"size": 3}},
        [{"stability": {"k": 0.2}}, {"faithfulness": REMOVED}],
    ),
    "table": ("cyclic", "pixels", [{"stability": {"k": 0.3}}, {"faithfulness": REMOVED}]),
    "set": ("permutation", "elements", []),
    "graph": ("node_permutation", "elements", []),
    "vectors": ("permutation", HIDDEN, [{"faithfulness": {**REMOVED, "features": HIDDEN}}]),
}
"""A group, features and an axis of its own for every kind of data."""


@pytest.fixture
def elsewhere(monkeypatch):
    """Return a device that refuses what a GPU refuses."""
    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    return Elsewhere()


@pytest.fixture
def stays(elsewhere):
    """What runs a study anew, on whatever device, and asserts that its table is the same there."""

    def assert_equal(table):
        here = table().set_index(KEY)
        with elsewhere:
            there = table(device=THERE).set_index(KEY).reindex(here.index)
        assert (here.status == there.status).all(), there[
            here.status != there.status
        ].reason.value_counts()
        gap = (here.value - there.value).abs().fillna(0)
        assert gap.mean() < 1e-3, gap.groupby(["explainer", "measure"]).mean().nlargest(9)

    return assert_equal


def test_what_a_gpu_refuses_is_refused(elsewhere):
    with elsewhere:
        here, there = torch.ones(3), torch.ones(3, device=THERE)
        assert (
            (there + 1).device == there[torch.tensor([0])].device == here.to(there).device == THERE
        )
        assert there.cpu().device == here.device == torch.device("cpu")
        assert torch.equal(
            here.to(THERE) * there.sum().cpu(), 3 * there
        )  # a number is at home everywhere
        for mixed in (
            lambda: here + there,
            lambda: here[there.long()],
            lambda: torch.cat([here, there]),
            there.numpy,
        ):
            with pytest.raises((RuntimeError, TypeError), match="mps"):
                mixed()


@pytest.mark.parametrize("name", sorted(ALL))
def test_explainers_stay_on_their_device(stays, name):
    given = pictures(3), {name: ALL[name]}, Stability(perturbations=EVERY_KIND, k=50)
    stays(lambda **where: heatproof.evaluate(model(), *given, **where).table())


@pytest.mark.parametrize("axis", sorted(AXES))
def test_axes_stay_on_their_device(stays, axis):
    stays(partial(run_axis, axis, 4))


@pytest.mark.parametrize("what", sorted(OTHERWISE))
def test_so_do_explainers_with_other_parameters_on_inputs_that_move(stays, what):
    stays(partial(run_otherwise, what, 3))


@pytest.mark.parametrize("kind", sorted(OF_KINDS))
def test_data_of_other_kinds_stay_on_their_device(stays, kind):
    group, features, own = OF_KINDS[kind]
    explainers = [
        "saliency",
        {"integrated_gradients": {"steps": 4, "baseline": "random"}},
        {"gradient_shap": {"samples": 2, "sigma": 0.1}},
        {"feature_ablation": {"features": features}},
        {"feature_permutation": {"features": features, "draws": 2}},
        {"lime": {"features": features, "samples": 30}},
        {"kernel_shap": {"features": features, "samples": 30}},
        {"symmetrised": {"of": "input_x_gradient", "group": group, "n": 3}},
        "random",
    ]
    axes = [
        {"symmetry": {"group": group, "elements": 3, "sensitivity": 0.02, "repair": [2]}},
        {"certificate": {"features": features, "radii": [1], "epsilon": 0.4}},
        {
            "smoothing": {
                "keeps": [0.5],
                "radii": [1],
                "features": features,
                "samples": 8,
                "epsilon": 0.4,
            }
        },
        {"dependence": {"draws": 1, "classes": 1, "k": 0.3}},
        {"agreement": {"k": 0.3}},
        *own,
    ]

    def table(**where):
        net, batch, _ = case(kind)
        return heatproof.evaluate(net, batch, explainers, axes, **where).table()

    stays(table)


@pytest.mark.parametrize("task", ["segmentation", "regression", "multi_label", "binary"])
def test_tasks_stay_on_their_device(stays, task):
    options = {"regression": {"output": 1, "tolerance": 0.5}, "multi_label": {"label": 1}}.get(
        task, {}
    )
    axes = [
        {
            "stability": {
                "perturbations": [{"translation": {"pixels": 2}}, "gaussian_noise"],
                "k": 50,
            }
        },
        {"symmetry": {"group": {"dihedral": {"n": 4}}, "elements": 3, "sensitivity": 0.02}},
        {"faithfulness": {"imputers": ["noisy_linear"], "fractions": [0.2, 0.6], "masks": 8}},
        {"certificate": {"radii": [1], "features": PATCHES, "epsilon": 0.3}},
    ]
    explainers = [
        "saliency",
        {"integrated_gradients": {"steps": 4}},
        {"lime": {"samples": 30, "features": PATCHES}},
    ]

    def table(**where):
        net = seeded(lambda: torch.nn.Conv2d(3, 3, 1)) if task == "segmentation" else network()
        net = (
            torch.nn.Sequential(net, seeded(lambda: torch.nn.Linear(4, 1)))
            if task == "binary"
            else net
        )
        wrapped = heatproof.Model(net, task={task: options})
        return heatproof.evaluate(wrapped, pictures(3), explainers, axes, **where).table()

    stays(table)
