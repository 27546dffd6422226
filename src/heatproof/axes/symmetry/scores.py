"""Scores of symmetry: does an explanation respect what the model is invariant to?

For each sample, every score is a mean over the elements g of a group G: all of G if it has at most n elements, else n
elements drawn uniformly from G, keyed by seed and sample id. The identity is an element like any other. Both
explanations of a comparison share their random draws, because a moved sample keeps its id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from heatproof.axes.symmetry.criterion import Criterion, compare
from heatproof.axes.symmetry.groups import Group
from heatproof.axes.symmetry.groups.contract import check_inputs
from heatproof.axes.symmetry.model import ModelInvariance, model_scores
from heatproof.axes.symmetry.orbit import (
    Estimate,
    Explain,
    Orbit,
    explanation_scores,
    layer_errors,
    orbit_of,
    sensitivities,
)
from heatproof.batching import BatchRunner
from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.types import Batch, Explainer, name_of, wrap_explainer

Verdict = Literal["invariant", "equivariant", "neither"]
NO_BALL = "token ids have no neighbours to perturb to"
TOLERANCE = 1e-4
"""The largest relative error of a layer that is called invariant or equivariant."""


@dataclass(frozen=True)
class LayerSymmetry:
    """What a layer does under a group; the errors (B,) are the largest over the elements that were tried.

    `equivariance_error` is None where the group cannot move the layer's output, as after pooling.
    """

    verdict: Verdict
    invariance_error: Tensor
    equivariance_error: Tensor | None
    elements: Tensor
    exact: bool


def model_invariance(
    model: Model, batch: Batch, group: Group, n: int = 32, seed: int = 0, delta: float = 0.05
) -> ModelInvariance:
    """Return how similar a model's outputs f (B, classes) are on moved inputs, as means over g.

    These are the cosine of f(g·x) and f(x) as probabilities; whether the top class c agrees; and the change of the
    output that is explained, |f_c(g·x) − f_c(x)|, in units of what it differs by between the samples of the batch. The
    first two have their chance level, against the other samples. A model is invariant if the change is 0: the cosine
    of outputs that are nearly uniform, or saturated, is close to 1 for any model.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten(), torch.nn.Linear(2, 3))
    >>> alike = model_invariance(Model(net), Batch(("a",), torch.rand(1, 2, 8)), cyclic())
    >>> alike.agreement.value.tolist(), round(float(alike.cosine.value), 6)
    ([1.0], 1.0)
    """
    orbit = orbit_of(group, _checked(model, batch), n, seed)
    check_inputs(orbit.group, batch)
    return model_scores(orbit, BatchRunner(model, model.rows).predict, delta, task=model.task)


def equivariance(
    model: Model,
    batch: Batch,
    target: Tensor,
    explainer: Explainer,
    group: Group,
    n: int = 32,
    seed: int = 0,
    similarity: str = "cosine",
    delta: float = 0.05,
) -> Estimate:
    """Return (1/|G|) Σ_g s(e(g·x), g·e(x)) for explanations e in the shape of the input, by sample; 1 is equivariant.

    `similarity` is "cosine", "agreement" (the share of equal entries), "spearman", "ssim" or "jaccard" (of the top
    tenth). `target` (B,) is explained on both sides.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> from heatproof.explainers import Saliency
    >>> ring = torch.nn.Conv1d(1, 3, 3, padding=1, padding_mode="circular")
    >>> net = torch.nn.Sequential(ring, torch.nn.Tanh(), torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten())
    >>> score = equivariance(Model(net), Batch(("a",), torch.rand(1, 1, 8)), torch.tensor([0]), Saliency(), cyclic())
    >>> round(float(score.value), 5), score.exact, score.each.shape
    (1.0, True, torch.Size([1, 8]))
    """
    orbit = orbit_of(group, _checked(model, batch, target), n, seed)
    return _score(model, orbit, target, explainer, seed, Criterion(similarity, True, delta))


def invariance(
    model: Model,
    batch: Batch,
    target: Tensor,
    explainer: Explainer,
    group: Group,
    n: int = 32,
    seed: int = 0,
    similarity: str = "cosine",
    delta: float = 0.05,
) -> Estimate:
    """Return (1/|G|) Σ_g s(e(g·x), e(x)) for explanations e by examples or concepts, (B, n_examples); 1 is invariant.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> class Logits:
    ...     kind, stochastic = "concept", False
    ...     def __call__(self, model, batch, target, seed):
    ...         return model.logits(model.inputs(batch))
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
    >>> score = invariance(Model(net), Batch(("a",), torch.rand(1, 1, 8)), torch.tensor([0]), Logits(), cyclic())
    >>> bool(score.value < 1)
    True
    """
    orbit = orbit_of(group, _checked(model, batch, target), n, seed)
    return _score(model, orbit, target, explainer, seed, Criterion(similarity, False, delta))


def _score(
    model: Model,
    orbit: Orbit,
    target: Tensor,
    explainer: Explainer,
    seed: int,
    criterion: Criterion,
) -> Estimate:
    """Return how well an explainer keeps a symmetry: the mean score over the elements of a group, for each sample.

    `orbit` has the samples and the group elements that move them, `target` (B,) the classes to explain, and `criterion`
    says how explanations are compared. A stochastic explainer gets a noise floor as well: the score of two explanations
    of the same input with different random draws.
    """
    kind = wrap_explainer(explainer).kind
    if (kind == "feature") != criterion.moves:
        other = "equivariance" if kind == "feature" else "invariance"
        raise UserError(
            f"{name_of(explainer)} explains by {kind}s, which is judged by symmetry.{other}"
        )
    check_inputs(orbit.group, orbit.batch)
    explain = _explain(model, explainer, seed)
    clean = explain(orbit.batch, target)
    score = explanation_scores(orbit, explain, clean, target, criterion)
    if not wrap_explainer(explainer).stochastic:
        return score
    second = _explain(model, explainer, seed + 1)(orbit.batch, target)
    return replace(score, noise_floor=compare(criterion.similarity, second, clean))


def _checked(model: Model, batch: Batch, target: Tensor | None = None) -> Batch:
    """Return the samples on the model's device; refuse a network that is not wrapped, and targets of another shape.

    There must be one target, a class to explain, for each sample.
    """
    if not isinstance(model, Model):
        raise UserError(
            f"a heatproof.Model is needed, got {type(model).__name__}; wrap the network: Model(net)"
        )
    if target is not None and (not isinstance(target, Tensor) or target.shape != (len(batch),)):
        got = tuple(target.shape) if isinstance(target, Tensor) else repr(target)
        raise UserError(
            f"target holds one class for each of the {len(batch)} samples, ({len(batch)},); got {got}"
        )
    return batch.to(model.device)


def _explain(model: Model, explainer: Explainer, seed: int) -> Explain:
    """Return a function of samples and classes (B,) that explains them, in batches that fit into memory."""
    runner = BatchRunner(model, model.rows)
    wrapped, name = wrap_explainer(explainer), type(explainer).__name__

    def explain(batch: Batch, target: Tensor) -> Tensor:
        return runner.explain(wrapped, name, batch, target, seed)

    return explain


def layer_symmetry(
    model: Model,
    batch: Batch,
    layer: str,
    group: Group,
    n: int = 32,
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> LayerSymmetry:
    """Return whether a layer's output h is invariant, h(g·x) = h(x), equivariant, h(g·x) = g·h(x), or neither.

    The errors are max_g ‖h(g·x) − h(x)‖ / ‖h(x)‖ and max_g ‖h(g·x) − g·h(x)‖ / ‖h(x)‖; an error of at most
    `tolerance` on every sample decides. A layer that shrinks what the group moves is neither: it may be equivariant
    under a subgroup.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> ring = torch.nn.Conv1d(1, 3, 3, padding=1, padding_mode="circular")
    >>> net = torch.nn.Sequential(ring, torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten())
    >>> batch = Batch(("a",), torch.rand(1, 1, 8))
    >>> [layer_symmetry(Model(net), batch, layer, cyclic()).verdict for layer in ("0", "1")]
    ['equivariant', 'invariant']
    """
    orbit = orbit_of(group, _checked(model, batch), n, seed)
    invariance, equivariance = layer_errors(orbit, lambda batch: activations(model, batch, layer))
    largest_equivariance, of_samples = math.nan, None
    if equivariance is not None:
        largest_equivariance, of_samples = float(equivariance.max()), equivariance.amax(1)
    verdict = layer_verdict(float(invariance.max()), largest_equivariance, tolerance)
    return LayerSymmetry(verdict, invariance.amax(1), of_samples, orbit.elements, orbit.exact)


def layer_verdict(invariance: float, equivariance: float, tolerance: float = TOLERANCE) -> Verdict:
    """Return whether a layer is invariant or equivariant, from the largest relative error of either.

    An error may be NaN where it does not exist, as that of equivariance if the group cannot move the layer's output.

    >>> layer_verdict(0.7, 1e-6), layer_verdict(1e-6, math.nan), layer_verdict(0.7, math.nan)
    ('equivariant', 'invariant', 'neither')
    """
    if invariance <= tolerance:
        return "invariant"
    return "equivariant" if equivariance <= tolerance else "neither"


def max_sensitivity(
    model: Model,
    batch: Batch,
    target: Tensor,
    explainer: Explainer,
    radius: float = 0.02,
    n: int = 10,
    seed: int = 0,
    relative: bool = True,
) -> Tensor:
    """Return max ‖e(x′) − e(x)‖₂ / ‖e(x)‖₂ over n draws x′ uniform on ‖x′ − x‖∞ ≤ radius, (B,) float64.

    The radius is in units of the data. It is a lower bound of the maximum over the ball. `relative=False` leaves out the
    division, as the paper prints it. NaN for a zero, constant or non-finite explanation. Padding that `aux["mask"]`
    marks is not perturbed.

    >>> from heatproof.explainers import Saliency
    >>> batch, target = Batch(("a",), torch.rand(1, 4)), torch.tensor([0])
    >>> max_sensitivity(Model(torch.nn.Linear(4, 2)), batch, target, Saliency()).tolist()
    [0.0]
    """
    if not (math.isfinite(radius) and radius > 0):
        raise UserError(f"radius must be a positive number, got {radius}")
    if n < 1:
        raise UserError(f"at least one draw is needed, got n={n}")
    if not batch.x.is_floating_point():
        raise UserError(f"max_sensitivity: {NO_BALL}")
    explain = _explain(model, explainer, seed)
    batch = _checked(model, batch, target)
    clean = explain(batch, target)
    return sensitivities(explain, batch, target, clean, radius, n, seed, relative).amax(1)
