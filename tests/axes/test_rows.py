"""Laws over the rows of every axis with the settings that it has: in range, within their bounds, whatever the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model
from heatproof.axes import axis_of
from heatproof.axes.symmetry.groups import own
from support.fixed import batch_of, fixed, of_two_minds, picture_model, row_model, with_weights

PATCHES = {"patches": {"size": 4}}
METHODS = ["saliency", {"gradient_shap": {"samples": 2}}]
CURVES = {"fractions": [0.1, 0.45, 0.8], "segments": PATCHES, "masks": 8}
RADII = {"radii": [1, 3, 7], "features": {"patches": {"size": 3}}, "epsilon": 0.25}
SWAP = own(
    lambda g, b: b.x[:, [1, 0, 3, 2, 4]] if g else b.x,
    lambda g, m: m[:, [1, 0, 3, 2, 4]] if g else m,
    [0, 1],
)


class Rings(nn.Module):
    """A network of series that is nearly invariant to where something is."""

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


def pictures(rows: int) -> tuple[Model, Any]:
    """Coarse squares with some noise, their labels, and a region for each."""
    coarse = fixed(3, 3, 3, 3, seed=5).repeat_interleave(4, 2).repeat_interleave(4, 3)
    x = 0.8 * coarse + 0.2 * fixed(3, 3, 12, 12, seed=6)
    regions = {name: (fixed(12, 12, seed=i) > 0.7).float() for i, name in enumerate("abc")}
    regions["b"] = torch.zeros(12, 12)
    batch = Batch(("a", "b", "c"), x, label=torch.tensor([0, 3, 1]))
    return picture_model(rows), heatproof.open_data(batch, regions=regions)


def series(rows: int) -> tuple[Model, Any]:
    net = with_weights(Rings(), 3)
    net = of_two_minds(net, net.head, fixed(64, 2, 12, seed=9))
    return Model(net, name="rings", rows=rows), batch_of(2, 2, 24, seed=8)


def sets(rows: int) -> tuple[Model, Any]:
    net = with_weights(Sets(), 1)
    net = of_two_minds(net, net.head, fixed(64, 5, 3, seed=9))
    mask = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    return Model(net, rows=rows), batch_of(3, 5, 3, seed=4, mask=mask)


def table(rows: int) -> tuple[Model, Any]:
    return row_model(5, rows=rows), batch_of(3, 5, seed=2)


def elements(rows: int) -> tuple[Model, Any]:
    return row_model(5, rows=rows), batch_of(3, 5, 1, seed=3)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "symmetry of the whole group": (
        pictures,
        METHODS,
        {
            "symmetry": {
                "group": {"dihedral": {"n": 4}},
                "layers": ["0", "4"],
                "sensitivity": 0.05,
                "repair": [2, 8],
            }
        },
    ),
    "symmetry of some elements": (
        pictures,
        METHODS,
        {"symmetry": {"group": {"torus": {}}, "elements": 5, "convergence": [1, 3, 9]}},
    ),
    "symmetry by ssim": (
        pictures,
        METHODS,
        {"symmetry": {"group": {"dihedral": {"n": 2}}, "similarity": "ssim", "elements": 4}},
    ),
    "symmetry by jaccard": (
        pictures,
        METHODS,
        {"symmetry": {"group": {"cyclic": {}}, "similarity": "jaccard", "elements": 4}},
    ),
    "symmetry of a continuous group": (
        pictures,
        METHODS,
        {"symmetry": {"group": {"scale": {}}, "similarity": "spearman", "elements": 2}},
    ),
    "symmetry of series": (
        series,
        METHODS,
        {"symmetry": {"group": "cyclic", "elements": 12, "layers": ["ring"], "repair": [3]}},
    ),
    "symmetry of sets with padding": (
        sets,
        ["input_x_gradient"],
        {"symmetry": {"group": "permutation", "elements": 6, "repair": [2], "layers": ["each"]}},
    ),
    "symmetry under an own group": (table, ["input_x_gradient"], {"symmetry": {"group": SWAP}}),
    "removal curves": (
        pictures,
        METHODS,
        {
            "faithfulness": {
                **CURVES,
                "imputers": ["zero", "noisy_linear"],
                "metrics": ["road", "deletion_auc", "insertion_auc", "aopc"],
            }
        },
    ),
    "random masks": (
        pictures,
        METHODS,
        {
            "faithfulness": {
                **CURVES,
                "orders": ["morf"],
                "masks": 12,
                "subsets": [0.2, 0.6],
                "baseline": "zero",
            }
        },
    ),
    "removal read by the logit of the label": (
        pictures,
        METHODS,
        {
            "faithfulness": {
                **CURVES,
                "imputers": "blur",
                "readout": "logit",
                "against": "label",
                "absolute": True,
            }
        },
    ),
    "removal read by the margin": (
        pictures,
        METHODS,
        {"faithfulness": {**CURVES, "imputers": "zero", "readout": "margin", "features": PATCHES}},
    ),
    "removal read by accuracy": (
        pictures,
        METHODS,
        {
            "faithfulness": {
                **CURVES,
                "imputers": "zero",
                "readout": "accuracy",
                "metrics": ["road", "pixel_flipping"],
            }
        },
    ),
    "removal from series": (series, ["saliency"], {"faithfulness": {}}),
    "removal from a table": (table, ["integrated_gradients"], {"faithfulness": {}}),
    "dependence in cascades": (
        pictures,
        [*METHODS, "sobel"],
        {
            "dependence": {
                "draws": 1,
                "classes": 2,
                "cascades": ["top_down", "bottom_up"],
                "steps": 3,
                "k": 20,
            }
        },
    ),
    "dependence on drawn weights": (
        pictures,
        METHODS,
        {"dependence": {"draws": 2, "scheme": "normal", "classes": 0, "noise_floor": False}},
    ),
    "localisation in regions": (
        pictures,
        ["input_x_gradient", "random"],
        {"localisation": {"any_class": True, "sign": "negative"}},
    ),
    "localisation in mosaics": (
        pictures,
        ["input_x_gradient", "random"],
        {"localisation": {"by": "mosaics"}},
    ),
    "agreement of a share": (pictures, [*METHODS, "sobel"], {"agreement": {"k": 0.05}}),
    "stability under moves": (
        pictures,
        METHODS,
        {
            "stability": {
                "perturbations": [
                    {"rotation": {"degrees": [20, -35]}},
                    {"translation": {"pixels": 2}},
                    "elastic",
                ]
            }
        },
    ),
    "stability with weights": (
        pictures,
        METHODS,
        {
            "stability": {
                "perturbations": ["identity", "contrast", "gaussian_noise"],
                "k": 0.1,
                "ties": "ordinal",
                "weights": [1, 2, 0.5],
                "max_drop": 0.02,
            }
        },
    ),
    "stability without alignment": (
        pictures,
        METHODS,
        {
            "stability": {
                "perturbations": [{"rotation": {"degrees": 20}}],
                "aligned": False,
                "noise_floor": False,
                "k": 40,
            }
        },
    ),
    "stability of series": (series, METHODS, {"stability": {}}),
    "stability of a table": (table, METHODS, {"stability": {}}),
    "smoothing": (
        pictures,
        ["saliency"],
        {
            "smoothing": {
                "keeps": [0.4, 1.0],
                "radii": [1, 2],
                "features": PATCHES,
                "samples": 10,
                "epsilon": 0.4,
            }
        },
    ),
    "certificates of two fractions": (
        pictures,
        ["saliency"],
        {
            "certificate": {
                **RADII,
                "anchor": "full",
                "fraction": (0.2, 0.5),
                "simultaneous": True,
                "fill": "mean",
            }
        },
    ),
    "decisions": (
        pictures,
        ["saliency"],
        {"certificate": {**RADII, "mode": "decide", "threshold": 0.6, "fill": 0.4}},
    ),
    "hard certificates": (
        pictures,
        ["saliency"],
        {"certificate": {**RADII, "mode": "hard", "fill": "blur"}},
    ),
    "certificates by hoeffding": (
        pictures,
        ["saliency"],
        {"certificate": {**RADII, "method": "hoeffding", "agreement": "margin"}},
    ),
    "certificates by betting": (
        pictures,
        ["saliency"],
        {"certificate": {**RADII, "method": "betting", "delta": 0.3}},
    ),
    "certificates of all radii": (
        elements,
        ["saliency"],
        {"certificate": {"radii": "all", "features": {"elements": {}}, "epsilon": 0.3}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_in_range_and_within_their_bounds_whatever_the_batch(case: str) -> None:
    make, explainers, evaluation = CASES[case]

    def rows_with(rows: int) -> Any:
        model, data = make(rows)
        run = heatproof.evaluate(model, data, explainers, [evaluation], seed=1, show_progress=False)
        return run.in_study_order()

    found = rows_with(16)
    (name,) = evaluation
    axis = axis_of(name, None)
    scored = found[found["status"] == "ok"]
    assert len(scored) and np.isfinite(scored["value"]).all()
    assert (found.loc[found["status"] != "ok", "reason"] != "").all()
    for measure, part in scored.groupby("measure", observed=True):
        known = axis.measure(str(measure))
        if name != "faithfulness":  # which has also the readouts of its curves
            assert known is not None, measure
        if known is None or known.span is None:
            continue
        low, high = known.span
        assert low is None or part["value"].min() >= low - 1e-6, measure
        assert high is None or part["value"].max() <= high + 1e-6, measure
    bounded = scored[scored["low"].notna()]
    assert (bounded["low"] <= bounded["value"] + 1e-9).all()
    assert (bounded["value"] <= bounded["high"] + 1e-9).all()

    again = rows_with(5)
    assert found["status"].tolist() == again["status"].tolist()
    measured = ~found["measure"].isin(axis.of_role("cost"))
    np.testing.assert_allclose(
        found.loc[measured, "value"], again.loc[measured, "value"], rtol=1e-3, atol=1e-4
    )
