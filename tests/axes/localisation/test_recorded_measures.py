"""Measures of localisation on fixed maps, mosaics, boxes; and what is shown of every axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model
from heatproof.axes.localisation.evaluation import Localisation
from heatproof.axes.localisation.measures import box, relevance, scored
from heatproof.axes.localisation.mosaic import composed
from heatproof.runs.pictures import read_exhibits
from support.fixed import batch_of, brief, digest, fixed, picture_model, refusals, with_weights
from support.recorded import recorded


def test_measures() -> None:
    values, region = (
        fixed(4, 5, 6, low=-1).double(),
        fixed(4, 5, 6, seed=1) > torch.tensor([0.5, 0.8, 0.95, 0.6])[:, None, None],
    )
    there = fixed(4, 5, 6, seed=2) > 0.2
    values[3] = (values[3] * 3).round().clamp(min=0)
    found: dict[str, Any] = {}
    for kind in ("image", "text"):
        for name, where in (("whole", torch.ones_like(there)), ("masked", there)):
            told = scored(values.clamp(min=0), region, where, kind)
            found[f"{kind} {name}"] = {measure: digest(score) for measure, score in told.items()}
    found["usual"] = list(scored(values.clamp(min=0), region, there))
    maps = fixed(2, 3, 4, seed=3, low=-1)
    for kind in ("series", "set", "table"):
        found[kind] = {
            sign: digest(relevance(maps, kind, sign))
            for sign in ("positive", "absolute", "negative")
        }  # type: ignore[arg-type]
    found["plain"] = digest(relevance(maps[:, 0], "series"))
    some = torch.zeros(2, 5, 6).bool()
    some[0, 1, 2] = some[0, 3, 4] = True
    found["box"] = str(box(some).int().tolist())
    found["line"] = str(box(torch.tensor([[0, 1, 0, 1, 0]]).bool()).int().tolist())
    recorded("localisation/measures", found)


def test_mosaics() -> None:
    recorded(
        "localisation/mosaics",
        [digest(composed(fixed(2, 4, 3, *size))) for size in ((6, 6), (5, 7), (2, 3))],
    )


def test_what_is_refused() -> None:
    model, batch = picture_model(), batch_of(2, 3, 12, 12)
    asked = {
        "rows": lambda: Localisation(by="mosaics").check((5,)),
        "thin": lambda: Localisation(by="mosaics").check((3, 1, 8)),
    }
    asked |= {"no regions": lambda: Localisation(by="regions").suited(model, batch)}
    recorded("localisation/refused", refusals(asked))
    Localisation(by="mosaics").check((3, 2, 2))
    assert Localisation().suited(model, batch).by == "mosaics" and Localisation().conditions() == [
        ("regions", 0.0)
    ]
    assert Localisation(by="mosaics").reexplains and not Localisation().reexplains


PATCHES = {"patches": {"size": 3}}
SHOWN: dict[str, dict[str, Any]] = {
    "stability": {"perturbations": [{"rotation": {"degrees": 20}}, "brightness"]},
    "symmetry": {"group": {"dihedral": {"n": 4}}},
    "faithfulness": {
        "imputers": ["zero"],
        "fractions": [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9],
        "metrics": ["road"],
    },
    "certificate": {"radii": [1], "features": PATCHES, "epsilon": 0.4},
}


@pytest.mark.parametrize("axis", SHOWN)
def test_what_is_shown(axis: str) -> None:
    """Pictures are kept as JPEG, which codecs read a little differently: only their brightness is looked at."""
    coarse = fixed(3, 3, 3, 3, seed=5).repeat_interleave(4, 2).repeat_interleave(4, 3)
    data = Batch(("a", "b", "c"), 0.8 * coarse + 0.2 * fixed(3, 3, 12, 12, seed=6))
    methods = ["saliency", "input_x_gradient"]
    run = heatproof.evaluate(
        picture_model(), data, methods, [{axis: SHOWN[axis]}], seed=1, show_progress=False
    )
    found = {}
    for one in read_exhibits(run.path):
        seen = (
            "no map"
            if one.map is None
            else f"map {brief(float(np.abs(one.map).mean()))} {brief(float(one.map.mean()))}"
        )
        key = f"{one.evaluation} {one.explainer} {one.condition} {one.level:g} {one.sample}"
        found[key] = (
            f"{one.kind} {one.image.shape} {round(float(one.image.mean()) / 8)} {seen} {one.note}"
        )
    recorded(f"shown/{axis}", found, rtol=0.02)


@pytest.mark.parametrize(("channels", "kept"), [(1, True), (2, False), (3, True)])
def test_only_pictures_of_one_or_three_channels_are_shown(channels: int, kept: bool) -> None:
    net = Model(
        with_weights(
            nn.Sequential(
                nn.Conv2d(channels, 3, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
            )
        )
    )
    asked = [{"symmetry": SHOWN["symmetry"]}]
    data = heatproof.open_data(batch_of(2, channels, 8, 8), shape=[channels, 8, 8])
    run = heatproof.evaluate(net, data, ["saliency"], asked, show_progress=False)
    assert any(one.explainer for one in read_exhibits(run.path)) == kept
