"""SimplEx and representation similarity, which find training examples close to a sample in the space of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof.errors import UserError
from heatproof.explainers.examples.loss_gradients import head
from heatproof.explainers.examples.training_set import ByExamples, Examples, ExamplesField
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.models.smoothed import Smoothed
from heatproof.types import Batch, parameter_class

_STEPS_PER_EXAMPLE = 30


class _ByLayer(ByExamples):
    """Base class of methods that compare the outputs of a layer."""

    name: ClassVar[str]
    requires = ("layers",)

    train: Examples
    layer: str

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless the layer exists and the training examples have the samples' shape; no pass is made."""
        check_layer(model, self.train, self.layer, shape, self.name)


@parameter_class
class SimplEx(_ByLayer):
    """argmin over w ≥ 0, Σw = 1 of ‖h(x) − Σₙ wₙ h(xₙ)‖²: a sample as a mixture of training examples; (B, n) float32.

    The method of Crabbé et al. (NeurIPS 2021). h is the flattened output of `layer`, or by default the input of the
    last linear layer. The problem is solved to its optimum: a duality gap above `tolerance`, relative to the mean
    squared distance of the examples from the sample, is an error. With more examples than dimensions many mixtures may
    be equally good; `ridge`, in the same unit, adds ridge·‖w‖² and so picks the most even one.

    >>> train = Batch(("a", "b", "c"), torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 9.0]]))
    >>> sample = Batch(("x",), torch.tensor([[0.5, 0.0]]))
    >>> SimplEx(train)(Model(nn.Linear(2, 2)), sample, torch.tensor([0]), seed=0).round(decimals=3).tolist()
    [[0.75, 0.25, 0.0]]
    """

    name: ClassVar[str] = "simplex"
    train: ExamplesField
    layer: str = ""
    ridge: Annotated[float, Field(ge=1e-10, le=1)] = 1e-7
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-9

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the weights (B, n) of the training examples in the mixture that is nearest to each sample.

        Near means in the layer's representation. Classes and seed are unused.
        """
        samples, examples = representations(model, self.train, self.layer, batch, self.name)
        weights, gap = simplex_weights(examples, samples, self.ridge)
        worst = float(gap.max())
        if not worst <= self.tolerance:
            raise UserError(
                f"simplex stopped with a duality gap of {worst:.1e}, above its tolerance {self.tolerance:g}; "
                "raise ridge or tolerance"
            )
        return weights.float()


@parameter_class
class RepresentationSimilarity(_ByLayer):
    """The cosine between h(x) and h(xₙ), or with "dot" their product h(x)ᵀh(xₙ), per training example; (B, n) float32.

    h is the flattened output of `layer`, or by default the input of the last linear layer. A representation of zeros
    has no direction; its cosine with every other is 0.

    >>> train = Batch(("a", "b"), torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
    >>> sample = Batch(("x",), torch.tensor([[2.0, 0.0]]))
    >>> RepresentationSimilarity(train)(Model(nn.Linear(2, 2)), sample, torch.tensor([0]), seed=0).tolist()
    [[1.0, 0.6000000238418579]]
    """

    name: ClassVar[str] = "representation_similarity"
    train: ExamplesField
    layer: str = ""
    metric: Literal["cosine", "dot"] = "cosine"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the similarity (B, n) of each sample's representation to that of each training example.

        `self.metric` is the cosine or the dot product. Classes and seed are unused.
        """
        samples, examples = representations(model, self.train, self.layer, batch, self.name)
        if self.metric == "cosine":
            samples, examples = F.normalize(samples, dim=1), F.normalize(examples, dim=1)
        return (samples @ examples.T).float()


def check_layer(model: Model, train: Examples, layer: str, shape: Sequence[int], what: str) -> None:
    """Raise `UserError` for a model, a layer or training examples that the method `what` is not defined on.

    It compares the values of a layer. `shape` is that of a sample. No pass is made.
    """
    if isinstance(model, Smoothed):
        raise UserError(
            f"{what} reads one layer, but {model.name} averages many passes; explain what it smooths"
        )
    train.check_shape(shape)
    if layer:
        model.layer(layer)
    elif not any(isinstance(module, nn.Linear) for module in model.module.modules()):
        raise UserError(
            f"{model.name} has no linear layer, so name the layer that {what} should read"
        )


def representations(
    model: Model, train: Examples, layer: str, batch: Batch, what: str
) -> tuple[Tensor, Tensor]:
    """Return a layer's values for the samples, (B, d), and for the training examples, (n, d), in float64.

    Those of the training examples are cached. `layer` is empty for the input of the last linear layer; `what` is the
    name of the method.

    >>> train = Examples(Batch(("a", "b"), torch.zeros(2, 3)))
    >>> samples, examples = representations(Model(nn.Linear(3, 5)), train, "", Batch(("x",), torch.ones(1, 3)), "mine")
    >>> samples.tolist(), examples.shape
    ([[1.0, 1.0, 1.0]], torch.Size([2, 3]))
    """
    check_layer(model, train, layer, batch.x.shape[1:], what)
    path = layer or head(model, train)
    reads_input = not layer
    examples = train.remember(
        model,
        ("representations", layer),
        lambda: activations(model, train.batch, path, reads_input),
    )
    samples = activations(model, batch, path, reads_input)
    if samples.shape[1:] != examples.shape[1:]:
        raise UserError(
            f"layer {path!r} of {model.name} gives {tuple(samples.shape[1:])} for the samples but "
            f"{tuple(examples.shape[1:])} for the training examples, so {what} cannot compare them; "
            "name a layer behind the pooling"
        )
    return samples.flatten(1).double(), examples.flatten(1).double()


def simplex_weights(points: Tensor, targets: Tensor, ridge: float = 1e-7) -> tuple[Tensor, Tensor]:
    """Return the weights (B, n) of the convex combination of `points` (n, d) nearest to each of `targets` (B, d).

    Also returned are the duality gaps (B,), which bound how far each solution is from the optimum. Minimised is ½wᵀGw
    over the simplex with G = (points − target)(points − target)ᵀ/s + ridge·I, s the mean squared distance. The gap wᵀGw
    − minₙ (Gw)ₙ bounds how far the value is from the minimum.

    The objective is homogeneous, so w ∝ u where u ≥ 0 minimises ½uᵀ(G + 11ᵀ)u − Σu. With the Cholesky factor L of
    G + 11ᵀ this is the non-negative least squares problem ‖Lᵀu − L⁻¹1‖², which an active set method solves exactly.

    >>> weights, gap = simplex_weights(torch.eye(3).double(), torch.tensor([[0.2, 0.3, 0.5]]).double())
    >>> weights.round(decimals=4).tolist(), bool(gap < 1e-12)
    ([[0.2, 0.3, 0.5]], True)
    """
    # Relative to their mean, products lose no digits to the distance from the origin, and s is the sum of two squares:
    # of the points around their mean (`spread`), and of the target.
    centre = points.double().mean(0)
    centred = points.double() - centre
    products = centred @ centred.T
    spread = centred.square().sum(1).mean()
    ones = torch.ones_like(centred[:, :1])
    tiny = torch.finfo(torch.float64).tiny
    max_steps = _STEPS_PER_EXAMPLE * len(points)
    weights, gaps = [], []
    for target in targets.double() - centre:
        cross = centred @ target
        target_square = target.square().sum()
        gram = products - cross[:, None] - cross + target_square
        gram /= (spread + target_square).clamp(min=tiny)
        gram.diagonal().add_(ridge)
        factor = torch.linalg.cholesky(gram + 1)
        right = torch.linalg.solve_triangular(factor, ones, upper=False)[:, 0]
        solution, _ = nnls(factor.T.cpu().numpy(), right.cpu().numpy(), maxiter=max_steps)
        weight = torch.from_numpy(solution / solution.sum()).to(gram)
        gradient = gram @ weight
        weights.append(weight)
        gaps.append(weight @ gradient - gradient.min())
    return torch.stack(weights), torch.stack(gaps)
