"""Whole tables of small runs, every axis with the settings that it has: no value, bound, status or reason moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model
from heatproof.axes.symmetry.groups import own
from support.fixed import (
    batch_of,
    fixed,
    of_two_minds,
    picture_model,
    row_model,
    rows_in_short,
    with_weights,
)
from support.recorded import recorded

PATCHES = {"patches": {"size": 4}}
METHODS = ["saliency", {"gradient_shap": {"samples": 2}}]


def pictures(n: int = 2, classes: tuple[int, ...] = (0, 3, 1, 2)) -> Batch:
    """Coarse squares with some noise, one of them like nothing else, and their labels."""
    coarse = fixed(n, 3, 3, 3, seed=5).repeat_interleave(4, 2).repeat_interleave(4, 3)
    x = 0.8 * coarse + 0.2 * fixed(n, 3, 12, 12, seed=6)
    return Batch(tuple("abcd"[:n]), x, label=torch.tensor(classes[:n]))


def with_regions() -> Any:
    held = {name: (fixed(12, 12, seed=i) > 0.7).float() for i, name in enumerate("abcd")}
    held["b"] = torch.zeros(12, 12)
    held["c"] = torch.ones(12, 12)
    return heatproof.open_data(pictures(4), regions=held)


class Rings(nn.Module):
    """A network of series that does not see where something is, but for a little."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular")
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.ring(x)).mean(2)) + 0.02 * x[:, :1, :3].sum(2)


class Sets(nn.Module):
    """A network of sets with a mask, which sums over the elements."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        there = torch.ones_like(x[..., :1]) if mask is None else mask[..., None]
        return self.head((torch.tanh(self.each(x)) * there).sum(1))


def sets() -> Batch:
    mask = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    return batch_of(3, 5, 3, seed=4, mask=mask)


def series_model() -> Model:
    net = with_weights(Rings(), 3)
    return Model(of_two_minds(net, net.head, fixed(64, 2, 12, seed=9)), name="rings", rows=16)


def rows(
    model: Model, data: Any, explainers: list[Any], axis: str, **settings: Any
) -> dict[str, str]:
    run = heatproof.evaluate(
        model, data, explainers, [{axis: settings}], seed=1, show_progress=False
    )
    return rows_in_short(run.in_study_order())


SYMMETRY: dict[str, dict[str, Any]] = {
    "whole": {
        "group": {"dihedral": {"n": 4}},
        "layers": ["0", "4"],
        "sensitivity": 0.05,
        "repair": [2, 8],
    },
    "drawn": {
        "group": {"torus": {}},
        "elements": 5,
        "convergence": [1, 3, 9],
        "delta": 0.2,
        "sensitivity_draws": 3,
    },
    "turned": {"group": "so2", "elements": 3},
    "ssim": {"group": {"dihedral": {"n": 2}}, "similarity": "ssim", "elements": 4},
    "jaccard": {"group": {"cyclic": {}}, "similarity": "jaccard", "elements": 4},
    "spearman": {"group": {"scale": {}}, "similarity": "spearman", "elements": 2},
}


@pytest.mark.parametrize("case", SYMMETRY)
def test_symmetry(case: str) -> None:
    recorded(
        f"axes/symmetry_{case}",
        rows(picture_model(), pictures(), METHODS, "symmetry", **SYMMETRY[case]),
    )


def test_symmetry_of_series() -> None:
    given = {
        "group": "cyclic",
        "elements": 12,
        "layers": ["ring"],
        "repair": [3],
        "sensitivity": 0.1,
    }
    recorded(
        "axes/symmetry_series",
        rows(series_model(), batch_of(2, 2, 12, seed=8), METHODS, "symmetry", **given),
    )


def test_symmetry_of_sets_with_padding() -> None:
    net = with_weights(Sets(), 1)
    model = Model(of_two_minds(net, net.head, fixed(64, 5, 3, seed=9)), rows=16)
    given = {
        "group": "permutation",
        "elements": 6,
        "sensitivity": 0.1,
        "repair": [2],
        "layers": ["each"],
    }
    recorded("axes/symmetry_sets", rows(model, sets(), ["input_x_gradient"], "symmetry", **given))


def test_symmetry_under_a_group_of_ones_own() -> None:
    swap = own(
        lambda g, b: b.x[:, [1, 0, 3, 2, 4]] if g else b.x,
        lambda g, m: m[:, [1, 0, 3, 2, 4]] if g else m,
        [0, 1],
    )
    found = rows(row_model(5), batch_of(3, 5, seed=2), ["input_x_gradient"], "symmetry", group=swap)
    recorded("axes/symmetry_own", found)


FAITHFULNESS: dict[str, dict[str, Any]] = {
    "curves": {
        "imputers": ["zero", "noisy_linear"],
        "metrics": ["road", "deletion_auc", "insertion_auc", "aopc"],
    },
    "masks": {
        "orders": ["morf"],
        "segments": PATCHES,
        "masks": 12,
        "subsets": [0.2, 0.6],
        "baseline": "zero",
    },
    "label": {"imputers": "blur", "readout": "logit", "against": "label", "absolute": True},
    "prediction": {
        "imputers": "zero",
        "readout": "margin",
        "against": "prediction",
        "features": PATCHES,
    },
    "accuracy": {"imputers": "zero", "readout": "accuracy", "metrics": ["road", "pixel_flipping"]},
}


@pytest.mark.parametrize("case", FAITHFULNESS)
def test_faithfulness(case: str) -> None:
    given = {"fractions": [0.1, 0.45, 0.8], "segments": PATCHES, "masks": 8, **FAITHFULNESS[case]}
    recorded(
        f"axes/faithfulness_{case}",
        rows(picture_model(), pictures(), METHODS, "faithfulness", **given),
    )


def test_faithfulness_as_it_comes() -> None:
    recorded(
        "axes/faithfulness_series",
        rows(series_model(), batch_of(2, 2, 24), ["saliency"], "faithfulness"),
    )
    recorded(
        "axes/faithfulness_table",
        rows(row_model(7), batch_of(3, 7), ["integrated_gradients"], "faithfulness"),
    )


DEPENDENCE: dict[str, dict[str, Any]] = {
    "usual": {},
    "cascades": {
        "draws": 1,
        "classes": 2,
        "cascades": ["top_down", "bottom_up"],
        "steps": 3,
        "k": 20,
    },
    "drawn": {
        "draws": 2,
        "scheme": "normal",
        "batch_norms": "keep",
        "classes": 0,
        "noise_floor": False,
    },
}


@pytest.mark.parametrize("case", DEPENDENCE)
def test_dependence(case: str) -> None:
    found = rows(
        picture_model(), pictures(3), [*METHODS, "sobel"], "dependence", **DEPENDENCE[case]
    )
    recorded(f"axes/dependence_{case}", found)


LOCALISATION: dict[str, dict[str, Any]] = {
    "regions": {"by": "regions"},
    "any_class": {"any_class": True, "sign": "absolute"},
    "negative": {"any_class": True, "sign": "negative"},
    "mosaics": {"by": "mosaics"},
}


@pytest.mark.parametrize("case", LOCALISATION)
def test_localisation(case: str) -> None:
    methods = ["input_x_gradient", "random"]
    recorded(
        f"axes/localisation_{case}",
        rows(picture_model(), with_regions(), methods, "localisation", **LOCALISATION[case]),
    )


@pytest.mark.parametrize("k", ["usual", 30, 0.05])
def test_agreement(k: Any) -> None:
    methods = ["input_x_gradient", "saliency", "sobel"]
    recorded(f"axes/agreement_{k}", rows(picture_model(), pictures(3), methods, "agreement", k=k))


STABILITY: dict[str, dict[str, Any]] = {
    "moved": {
        "perturbations": [
            {"rotation": {"degrees": [20, -35]}},
            {"translation": {"pixels": 2}},
            "elastic",
        ]
    },
    "changed": {
        "perturbations": [
            "identity",
            "brightness",
            "gaussian_noise",
            "gaussian_blur",
            "occluding_patch",
        ]
    },
    "weighed": {
        "perturbations": ["contrast"],
        "k": 0.1,
        "ties": "ordinal",
        "weights": [1, 2, 0.5],
        "max_drop": 0.02,
    },
    "bare": {
        "perturbations": [{"rotation": {"degrees": 20}}],
        "aligned": False,
        "noise_floor": False,
        "k": 40,
    },
}


@pytest.mark.parametrize("case", STABILITY)
def test_stability(case: str) -> None:
    recorded(
        f"axes/stability_{case}",
        rows(picture_model(), pictures(3), METHODS, "stability", **STABILITY[case]),
    )


def test_stability_as_it_comes() -> None:
    recorded(
        "axes/stability_series", rows(series_model(), batch_of(2, 2, 24), METHODS, "stability")
    )
    recorded("axes/stability_table", rows(row_model(12), batch_of(3, 12), METHODS, "stability"))


def test_smoothing() -> None:
    given = {
        "keeps": [0.4, 1.0],
        "radii": [1, 2],
        "features": PATCHES,
        "samples": 10,
        "epsilon": 0.4,
    }
    recorded(
        "axes/smoothing", rows(picture_model(), pictures(), ["saliency"], "smoothing", **given)
    )


MODES: dict[str, dict[str, Any]] = {
    "usual": {},
    "full": {"anchor": "full", "fraction": (0.2, 0.5), "simultaneous": True, "fill": "mean"},
    "decide": {"mode": "decide", "threshold": 0.6, "fill": 0.4},
    "hard": {"mode": "hard", "fill": "blur"},
    "hoeffding": {"method": "hoeffding", "agreement": "margin"},
    "betting": {"method": "betting", "delta": 0.3},
}


@pytest.mark.parametrize("case", MODES)
def test_certificate(case: str) -> None:
    given = {
        "radii": [1, 3, 7],
        "features": {"patches": {"size": 3}},
        "epsilon": 0.25,
        **MODES[case],
    }
    recorded(
        f"axes/certificate_{case}",
        rows(picture_model(), pictures(3), ["saliency"], "certificate", **given),
    )


def test_certificate_of_all_radii() -> None:
    given = {"radii": "all", "features": {"elements": {}}, "epsilon": 0.3}
    recorded(
        "axes/certificate_all",
        rows(row_model(5), batch_of(3, 5, 1, seed=3), ["saliency"], "certificate", **given),
    )
