"""Measures as plain functions of arrays: maps in, one score for each sample out.

They are the functions that the tests use, for those who have maps and need a number. Maps (B, …) are tensors or
arrays with the samples first; scores (B,) are float64 tensors, NaN where a map is constant or not finite.

A raw score says little by itself: unrelated maps reach 0.2 to 0.5 by most measures of similarity. `heatproof.evaluate`
sets chance levels, intervals and controls beside the scores; `calibrate` does it for one score and its chance level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatproof.axes.faithfulness import curves
from heatproof.axes.faithfulness.sweeps import check_fractions, removal
from heatproof.axes.localisation.measures import region_scores, relevance
from heatproof.errors import UserError, resolve, unknown
from heatproof.maps import complexity, similarity
from heatproof.maps.ranks import Ties
from heatproof.models import Model
from heatproof.removal import IMPUTERS
from heatproof.types import Batch

__all__ = [
    "aopc",
    "area_under_curve",
    "calibrate",
    "cosine",
    "entropy",
    "fass",
    "gini",
    "jaccard",
    "pointing_game",
    "relevance_mass",
    "relevance_rank",
    "road",
    "road_curve",
    "spearman",
    "ssim",
]

Maps = Tensor | NDArray[Any]
Sign = Literal["positive", "absolute", "negative"]
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


# ---- similarity of two maps ------------------------------------------------------------------------------------------


def fass(
    maps: Maps,
    others: Maps,
    k: float = 100,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    ties: Ties = "average",
) -> Tensor:
    """Return FASS (B,): the mean of SSIM, (Spearman's ρ + 1) / 2 and the Jaccard overlap of the top k.

    `k` below 1 is a share of the values. `weights` are those of the three components. Maps without neighbours, (B, n),
    are compared as series.

    >>> maps = torch.rand(2, 3, 16, 16)
    >>> fass(maps, maps).tolist()
    [1.0, 1.0]
    """
    first, second = _pair(maps, others)
    components = similarity.compare(
        similarity.profile(first, k, ties), similarity.profile(second, k, ties)
    )
    return similarity.composite(components, weights).double()


def ssim(maps: Maps, others: Maps, window: int = 11) -> Tensor:
    """Return the structural similarity (B,) of maps that are each scaled to [0, 1], over uniform windows.

    >>> maps = torch.rand(2, 1, 16, 16)
    >>> ssim(maps, maps).tolist()
    [1.0, 1.0]
    """
    return similarity.ssim(*_pair(maps, others), window=window).double()


def spearman(maps: Maps, others: Maps, ties: Ties = "average") -> Tensor:
    """Return Spearman's rank correlation (B,) of flattened maps, in [−1, 1].

    >>> spearman(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 9.0, 4.0]])).tolist()
    [0.5]
    """
    return similarity.spearman(*_pair(maps, others), ties=ties).double()


def jaccard(maps: Maps, others: Maps, k: float = 100, ties: Ties = "average") -> Tensor:
    """Return the overlap |A ∩ B| / |A ∪ B| (B,) of the places with the k largest values; k below 1 is a share.

    >>> jaccard(np.array([[3.0, 2.0, 1.0]]), np.array([[3.0, 1.0, 2.0]]), k=1).tolist()
    [1.0]
    """
    return similarity.jaccard(*_pair(maps, others), k=k, ties=ties).double()


def cosine(maps: Maps, others: Maps) -> Tensor:
    """Return the cosine (B,) of the angle between flattened maps.

    >>> cosine(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])).tolist()
    [0.0]
    """
    return similarity.cosine(*_pair(maps, others)).double()


def calibrate(score: Maps, chance: Maps) -> Tensor:
    """Return (score − chance) / (1 − chance): 0 is what uninformative maps score, 1 is perfect.

    Calibrate the mean score by the mean chance level; the mean of calibrated scores is biased.

    >>> calibrate(np.array([0.75]), np.array([0.5])).tolist()
    [0.5]
    """
    values, levels = _tensor(score), _tensor(chance)
    return (values - levels) / (1 - levels)


# ---- complexity of one map -------------------------------------------------------------------------------------------


def gini(maps: Maps) -> Tensor:
    """Return the Gini index (B,) of the sizes of the values: 0 if all are equal, near 1 if one has it all.

    >>> gini(np.array([[0.0, 0.0, 0.0, 1.0]])).tolist()
    [0.75]
    """
    return complexity.gini(_tensor(maps))


def entropy(maps: Maps) -> Tensor:
    """Return the entropy (B,) of the sizes of the values as shares of their sum, from 0 to 1 (all equal).

    >>> entropy(np.array([[0.5, 0.5, 0.5, 0.5]])).tolist()
    [1.0]
    """
    return complexity.entropy(_tensor(maps))


# ---- localisation ----------------------------------------------------------------------------------------------------


def relevance_mass(maps: Maps, masks: Maps, sign: Sign = "positive") -> Tensor:
    """Return the share (B,) of the relevance that lies in the masks (B, H, W): relevance mass accuracy.

    Channels are added up first; `sign` says which values count. By chance a map scores the share of its mask.

    >>> relevance_mass(np.array([[[3.0, 1.0]]]), np.array([[[True, False]]])).tolist()
    [0.75]
    """
    return _region_score("relevance_mass", maps, masks, sign)


def relevance_rank(maps: Maps, masks: Maps, sign: Sign = "positive") -> Tensor:
    """Return the share (B,) of the k most relevant places that lie in a mask of k places: relevance rank accuracy.

    >>> relevance_rank(np.array([[[3.0, 1.0, 2.0]]]), np.array([[[True, True, False]]])).tolist()
    [0.5]
    """
    return _region_score("relevance_rank", maps, masks, sign)


def pointing_game(maps: Maps, masks: Maps, margin: int = 0, sign: Sign = "positive") -> Tensor:
    """Return 1 where the largest value of a map lies at most `margin` pixels from its mask, else 0, (B,).

    The original pointing game has a margin of 15 pixels. A peak that is tied counts by its share within the mask.

    >>> pointing_game(np.array([[[3.0, 1.0]]]), np.array([[[False, True]]])).tolist()
    [0.0]
    """
    return _region_score("pointing", maps, masks, sign, margin)


def _region_score(name: str, maps: Maps, masks: Maps, sign: Sign, margin: int = 0) -> Tensor:
    """Return the score (B,) of maps by one measure of localisation, the one of this name.

    Maps with one more axis than the masks have channels, which are added up.
    """
    values = _tensor(maps)
    if values.ndim > 2 and values.ndim == np.ndim(masks) + 1:
        values = relevance(values, "image", sign)  # adds the channels up
    else:
        values = relevance(values, "table", sign)  # has none
    region = torch.as_tensor(masks).bool()
    if region.shape != values.shape:
        raise UserError(
            f"masks must have a value for every place of the maps, {tuple(values.shape)}; "
            f"got {tuple(region.shape)}"
        )
    kind = "image" if region.ndim == 3 else "table"
    scores = region_scores(values, region, torch.ones_like(region), kind, margin)
    return scores[name].value


# ---- faithfulness ----------------------------------------------------------------------------------------------------


def road_curve(
    model: Any,
    x: Tensor,
    maps: Maps,
    target: int | Tensor | None = None,
    fractions: Sequence[float] = FRACTIONS,
    order: Literal["morf", "lerf", "random"] = "morf",
    imputer: Any = "noisy_linear",
    readout: Literal["accuracy", "probability", "logit", "margin"] = "accuracy",
    seed: int = 0,
) -> Tensor:
    """Return the removal curve (B, S) of each map: the model's output after each of S fractions of the pixels is removed.

    Pixels are removed in the order of the map, the most relevant first ("morf") or the least relevant first ("lerf"), or
    at random, and replaced by the `imputer`: a name (`heatproof ls imputers`) or an object. "noisy_linear" is that of
    the ROAD paper, whose score is the mean over samples of the accuracy after MoRF. `readout` says what is read off the
    output for the class `target`, by default the predicted one. `model` is a module or a `heatproof.Model`.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    >>> x = torch.rand(2, 3, 8, 8)
    >>> road_curve(net, x, torch.rand(2, 3, 8, 8), fractions=(0.5, 0.9)).shape
    torch.Size([2, 2])
    """
    wrapped = model if isinstance(model, Model) else Model(model)
    readings = ("accuracy", "probability", "logit", "margin")
    if readout not in readings:
        raise unknown("readout", readout, readings)
    values = _tensor(maps)
    if values.shape[0] != len(x) or values.shape[-2:] != x.shape[-2:]:
        raise UserError(
            f"maps must have the samples, height and width of x, {tuple(x.shape)}; got {tuple(values.shape)}"
        )
    height, width = x.shape[-2:]
    # Ids as `open_data` numbers samples: they decide how ties are broken.
    ids = tuple(f"{i:04d}" for i in range(len(x)))
    batch = Batch(ids, x)
    # Every pixel is a feature of its own.
    labels = torch.arange(height * width).reshape(1, height, width).expand(len(x), -1, -1)
    counts = torch.full((len(x),), height * width)

    def predict(some: Batch) -> Tensor:
        """Return the logits of some samples on the CPU."""
        with torch.no_grad():
            on_device = some.to(wrapped.device)
            return wrapped.logits(wrapped.inputs(on_device), on_device.aux).cpu()

    clean = predict(batch)
    of_pixels = values.double().sum(1) if values.ndim == 4 else values.double()
    logits, _ = removal(
        predict,
        batch,
        clean,
        of_pixels,
        labels,
        counts,
        check_fractions(fractions),
        (order,),
        resolve("imputer", IMPUTERS, imputer),
        seed,
    )
    classes = clean.argmax(1) if target is None else torch.as_tensor(target).expand(len(x))
    return curves.readouts(logits[0], classes)[readout]


def road(morf: Maps, lerf: Maps) -> Tensor:
    """Return the mean over fractions of (LeRF − MoRF) / 2 of two curves (B, S), (B,); 0 is a random order.

    >>> road(np.array([[0.5, 0.25]]), np.array([[1.0, 0.75]])).tolist()
    [0.25]
    """
    return curves.road(_tensor(morf), _tensor(lerf))


def area_under_curve(fractions: Sequence[float], curve: Maps, start: Maps) -> Tensor:
    """Return the mean height (B,) of a curve (B, S) from `start` (B,), the clean value, by the trapezoid rule.

    Of a MoRF curve it is the deletion AUC.

    >>> area_under_curve((0.5, 1.0), np.array([[0.5, 0.0]]), np.array([1.0])).tolist()
    [0.5]
    """
    return curves.area(fractions, _tensor(curve), _tensor(start))


def aopc(fractions: Sequence[float], curve: Maps, start: Maps) -> Tensor:
    """Return the mean drop (B,) of a MoRF curve (B, S) below `start` (B,), the untouched input counted as step 0.

    >>> aopc((0.5, 1.0), np.array([[0.5, 0.0]]), np.array([1.0])).tolist()
    [0.5]
    """
    return curves.aopc(fractions, _tensor(curve), _tensor(start))


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().double().cpu()


def _pair(maps: Maps, others: Maps) -> tuple[Tensor, Tensor]:
    """Return two sets of maps, or say that their shapes differ."""
    first, second = _tensor(maps), _tensor(others)
    if first.shape != second.shape:
        raise UserError(
            f"maps to compare must have one shape, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    if first.ndim < 2:
        raise UserError(f"maps have the samples first, (B, …); got the shape {tuple(first.shape)}")
    return first, second
