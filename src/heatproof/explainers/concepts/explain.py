"""Concept activation vectors and regions: the presence of concepts in a layer, and the prediction's sensitivity to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.adapters.foreign import library
from heatproof.explainers.concepts.classifiers import (
    logistic_regression,
    principal_axes,
    support_vectors,
)
from heatproof.explainers.concepts.concepts import Concept, ConceptsField
from heatproof.explainers.gradient import slices
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.statistics.intervals import rate_interval
from heatproof.types import Batch, Explainer, parameter_class

Output = Literal["sensitivity", "decision", "presence"]
HeldOutShare = Annotated[float, Field(gt=0, le=0.5)]
Penalty = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_CONSTANT = 1e-5
"""A unit whose standard deviation is at most this share of its mean counts as constant."""


class HeldOut(NamedTuple):
    """The accuracy of a concept's classifier on `n` held-out examples, with its exact 95 % confidence interval.

    `chance` is the share of the larger side, which is the accuracy of a constant answer.
    """

    accuracy: float
    low: float
    high: float
    n: int
    chance: float


class Classifier(NamedTuple):
    """A concept in the activations h of a layer: z = (h − mean) / scale, its decision s(z) and the gradient ∂s/∂z.

    `decide` takes z (B, p) to (B,), `slope` to (B, p). The concept is present where the decision is positive.
    """

    mean: Tensor
    scale: Tensor
    decide: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    held_out: HeldOut

    def standardised(self, h: Tensor) -> Tensor:
        """Return z (B, p) of activations (B, …)."""
        return (h.flatten(1).double() - self.mean) / self.scale


Fit = Callable[[Tensor, Tensor], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]
"""(z of the examples, which are positive) → (decide, slope) of a `Classifier`."""


class _OfConcepts(Explainer, ABC):
    """Base class of `Cav` and `Car`, which define their parameters and the classifier."""

    kind: ClassVar[Literal["concept"]] = "concept"
    requires = ("layers",)

    concepts: ConceptsField
    layer: str
    output: Output
    held_out: HeldOutShare

    @property
    def categorical(self) -> bool:
        """Whether the output is a category (present or not) instead of a number."""
        return self.output == "presence"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` for a missing layer or for examples unlike the samples, whose shape is `shape`."""
        library("sklearn", "sklearn")
        model.layer(self.layer)
        for concept in self.concepts:
            concept.split(self.held_out)
            for side, examples in (("positive", concept.positive), ("negative", concept.negative)):
                example_shape = tuple(examples.batch.x.shape[1:])
                # Sets, graphs, texts and series may differ in length, because a layer behind the pooling has one size.
                is_image = len(shape) == 3
                differs = is_image and example_shape != tuple(shape)
                if len(example_shape) != len(shape) or differs:
                    raise UserError(
                        f"{side} examples of the concept {concept.name!r} have shape {example_shape}, but the samples "
                        f"have shape {tuple(shape)}; prepare both the same way"
                    )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return one value per concept, (B, concepts); which one, `self.output` says.

        "sensitivity" is the derivative of the logit of the class `target` along a concept's direction in the layer,
        "presence" whether the concept's classifier finds it, and "decision" the classifier's number. `seed` is unused.
        """
        classifiers = {concept.name: self.classifier(model, concept) for concept in self.concepts}
        gradient = None
        if self.output == "sensitivity":
            h, gradient = layer_gradient(model, batch, target, self.layer)
            gradient = gradient.flatten(1).double()
        else:
            h = activations(model, batch, self.layer)
        columns = []
        for name, classifier in classifiers.items():
            _check_size(self.layer, name, classifier.mean.numel(), h)
            z = classifier.standardised(h)
            if gradient is not None:
                # ∂f_t/∂z = ∂f_t/∂h · scale, along the unit vector of ∂s/∂z.
                slope = classifier.slope(z)
                length = slope.norm(dim=1).clamp(min=torch.finfo(slope.dtype).tiny)
                columns.append((gradient * classifier.scale * slope).sum(1) / length)
            elif self.categorical:
                columns.append((classifier.decide(z) > 0).double())
            else:
                columns.append(classifier.decide(z))
        return torch.stack(columns, 1).float()

    def accuracy(self, model: Model) -> dict[str, float]:
        """Return the share of held-out examples that each concept's classifier gets right."""
        return {name: held_out.accuracy for name, held_out in self.tested(model).items()}

    def tested(self, model: Model) -> dict[str, HeldOut]:
        """Return the held-out accuracy of each concept's classifier with its interval."""
        return {concept.name: self.classifier(model, concept).held_out for concept in self.concepts}

    @abstractmethod
    def classifier(self, model: Model, concept: Concept) -> Classifier:
        """Return the fitted classifier of one of the concepts."""


@parameter_class
class Cav(_OfConcepts):
    """Concept activation vectors: a linear classifier of each concept on a layer's activations; (B, concepts).

    The method of Kim et al. (TCAV, ICML 2018). z are the activations, standardised by the mean and deviation of each
    unit over the examples that the classifier is fitted to. s(z) = w·z + b minimises
    penalty · Σ log(1 + exp(−y·s)) + ½‖w‖², to its optimum. `output` selects the value of a sample: "sensitivity" is the
    derivative ∂f_t/∂z · w/‖w‖ of the target's logit along the unit vector, in which units that hardly vary among the
    examples hardly count; "decision" is s, and "presence" 1 where s > 0, else 0. The share `held_out` of the examples,
    chosen by their content, tests the classifier: see `accuracy`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(60, 4, generator=generator)
    >>> bright = Concept("bright", positive=x[x[:, 0] > 0], negative=x[x[:, 0] <= 0])
    >>> model = Model(nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    >>> explainer = Cav(bright, layer="0")
    >>> explainer(model, Batch(("a", "b"), x[:2]), torch.tensor([0, 1]), seed=0).shape
    torch.Size([2, 1])
    >>> explainer.accuracy(model)["bright"] > 0.7
    True
    """

    name: ClassVar[str] = "cav"

    concepts: ConceptsField
    layer: str
    output: Output = "sensitivity"
    penalty: Penalty = 1.0
    held_out: HeldOutShare = 0.25

    def classifier(self, model: Model, concept: Concept) -> Classifier:
        """Return the logistic regression of a concept on the activations of `self.layer`, fitted and tested."""

        def fit(
            z: Tensor, present: Tensor
        ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
            """Return two functions of a logistic regression fitted to z: its decision s(z) and the gradient ∂s/∂z."""
            weight, bias = logistic_regression(z, present, self.penalty)
            # The slope of a linear classifier is its weight everywhere.
            return lambda z: z @ weight + bias, weight.expand_as

        parameters = (self.name, self.penalty)
        return _fitted(model, concept, self.layer, self.held_out, parameters, fit)


@parameter_class
class Car(_OfConcepts):
    """Concept activation regions: a support vector classifier of each concept on a layer's activations; (B, concepts).

    The method of Crabbé and van der Schaar (NeurIPS 2022). The activations are standardised as in `Cav` and projected
    on their first `components` principal axes (None: all), u. The classifier is s(u) = Σ_i a_i k(u_i, u) + b with the
    kernel k(u, v) = exp(−gamma·‖u − v‖²), or u·v for `kernel="linear"`, and slack penalty `penalty`; gamma="scale" is
    1 / (components · variance of the coordinates). Components and defaults are those of the paper on explanation
    invariance.

    `output`: "decision" is s, "presence" 1 where s > 0, else 0, and "sensitivity" the derivative of the target's logit
    along the unit vector of ∂s/∂z, the direction in which s grows fastest. Accuracy as for `Cav`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(80, 4, generator=generator)
    >>> ring = Concept("large", positive=x[x.norm(dim=1) > 2], negative=x[x.norm(dim=1) <= 2])
    >>> model = Model(nn.Sequential(nn.Identity(), nn.Linear(4, 2)))
    >>> explainer = Car(ring, layer="0", output="presence")
    >>> explainer(model, Batch(("a", "b"), torch.stack([x[0] * 0, x[0] / x[0].norm() * 3])), torch.zeros(2).long(), 0)
    tensor([[0.], [1.]])
    """

    name: ClassVar[str] = "car"

    concepts: ConceptsField
    layer: str
    output: Output = "decision"
    kernel: Literal["rbf", "linear"] = "rbf"
    gamma: Literal["scale"] | Penalty = "scale"
    components: Annotated[int, Field(ge=1)] | None = 10
    penalty: Penalty = 1.0
    held_out: HeldOutShare = 0.25

    def classifier(self, model: Model, concept: Concept) -> Classifier:
        """Return the support vector classifier of a concept on the activations of `self.layer`, fitted and tested."""

        def fit(
            z: Tensor, present: Tensor
        ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
            """Return two functions of a support vector classifier: its decision s(z) and the gradient ∂s/∂z.

            It is fitted on the first principal axes of the examples z (n, p); `present` (n,) are the positive ones.
            """
            coordinates, axes = principal_axes(z, self.components)
            if self.gamma == "scale":
                total_variance = coordinates.var(correction=0) * coordinates.shape[1]
                gamma = 1 / float(total_variance)
            else:
                gamma = self.gamma

            def kernel(u: Tensor, v: Tensor) -> Tensor:
                """Return the kernel k(u_i, v_j) between the rows of two matrices."""
                if self.kernel == "linear":
                    return u @ v.T
                distance = torch.cdist(u, v, compute_mode="donot_use_mm_for_euclid_dist")
                return (-gamma * distance.square()).exp()

            weight, bias = support_vectors(kernel(coordinates, coordinates), present, self.penalty)
            is_support = weight != 0
            support, weight = coordinates[is_support], weight[is_support]

            def decide(z: Tensor) -> Tensor:
                """Return the decision s (B,): positive where the concept is present."""
                return kernel(z @ axes, support) @ weight + bias

            def slope(z: Tensor) -> Tensor:
                """Return ∂s/∂z (B, p): ∂s/∂u, taken back from the principal axes."""
                if self.kernel == "linear":
                    return ((weight @ support) @ axes.T).expand_as(z)
                # ∂s/∂u = 2·gamma · Σ_i a_i k(u_i, u)·(u_i − u)
                coordinates = z @ axes
                weighted = kernel(coordinates, support) * weight
                by_coordinate = weighted @ support - weighted.sum(1, keepdim=True) * coordinates
                return 2 * gamma * by_coordinate @ axes.T

            return decide, slope

        parameters = (self.name, self.kernel, self.gamma, self.components, self.penalty)
        return _fitted(model, concept, self.layer, self.held_out, parameters, fit)


def layer_gradient(model: Model, batch: Batch, target: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """Return a layer's output h and the gradient ∂f_t/∂h of the target's logit f_t, (B, …) each, in float32.

    In passes of at most `model.rows` inputs. If the layer puts out a tuple, h is its first tensor.

    >>> model = Model(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> h, gradient = layer_gradient(model, Batch(("a",), torch.rand(1, 3)), torch.tensor([1]), "1")
    >>> torch.equal(gradient, model.module[2].weight[1:])
    True
    """
    module = model.layer(layer)
    outputs, gradients = [], []
    for rows in slices(len(batch), model.rows):
        samples = batch[rows].to(model.device)
        # Before the layer is cut, because it may be the embedding that makes the inputs.
        inputs = model.inputs(samples)
        leaves: list[Tensor] = []
        with module.register_forward_hook(_cut_output(layer, leaves)), torch.enable_grad():
            logits = model.logits(inputs, samples.aux)
            chosen = logits.gather(1, target[rows].to(logits.device)[:, None]).sum()
        if len(leaves) != 1:
            raise UserError(
                f"layer {layer!r} ran {len(leaves)} times in one pass; name one that runs once"
            )
        gradient = None
        if chosen.requires_grad:
            (gradient,) = torch.autograd.grad(chosen, leaves[0], allow_unused=True)
        if gradient is None:
            raise UserError(f"the output of {model.name} does not depend on its layer {layer!r}")
        outputs.append(leaves[0].detach().float())
        gradients.append(gradient.float() / model.gradient_scale)
    return torch.cat(outputs), torch.cat(gradients)


def _cut_output(layer: str, leaves: list[Tensor]) -> Callable[..., Any]:
    """Return a forward hook that replaces a layer's output by a leaf of the graph, to differentiate by.

    The leaf is appended to `leaves`; `layer` is the layer's path, for the error. The network continues with a copy of
    the leaf, because the next function may work in place.
    """

    def hook(_: nn.Module, args: Any, output: Any) -> Any:
        """Return the output with its first tensor replaced; tuples and lists keep their type."""
        values = list(output) if isinstance(output, tuple | list) else [output]
        index = next((i for i, value in enumerate(values) if isinstance(value, Tensor)), None)
        if index is None or not values[index].is_floating_point():
            raise UserError(
                f"layer {layer!r} puts out {type(output).__name__} without a gradient; name another"
            )
        leaves.append(values[index].detach().requires_grad_())
        values[index] = leaves[-1].clone()
        if not isinstance(output, tuple | list):
            return values[0]
        is_named_tuple = hasattr(output, "_fields")
        return type(output)(*values) if is_named_tuple else type(output)(values)

    return hook


def _fitted(
    model: Model,
    concept: Concept,
    layer: str,
    held_out: float,
    parameters: tuple[object, ...],
    fit: Fit,
) -> Classifier:
    """Return the classifier of a concept in the activations of a layer, with its accuracy on held-out examples.

    `fit(z, is_positive)` fits it to the examples' standardised activations; the share `held_out` of the examples tests it.
    The result is cached with the concept by the layer and the classifier's `parameters`.
    """

    def compute() -> Classifier:
        """Fit and test the classifier; called where it is not in the cache."""
        to_fit, to_test = concept.split(held_out)
        fit_h, fit_present = _labelled(model, concept, layer, to_fit)
        test_h, test_present = _labelled(model, concept, layer, to_test)

        mean, deviation = fit_h.mean(0), fit_h.std(0, correction=0)
        is_constant = deviation <= _CONSTANT * mean.abs()
        if bool(is_constant.all()):
            raise UserError(
                f"layer {layer!r} puts out the same for all examples of the concept {concept.name!r}"
            )
        scale = torch.where(is_constant, 1.0, deviation)
        fit_z = torch.where(is_constant, 0.0, (fit_h - mean) / scale)
        decide, slope = fit(fit_z, fit_present)

        test_z = (test_h - mean) / scale
        n = len(test_present)
        correct = int(((decide(test_z) > 0) == test_present).sum())
        low, high = rate_interval(correct, n)
        positive_share = float(test_present.double().mean())
        chance = max(positive_share, 1 - positive_share)  # always answering the larger side
        return Classifier(mean, scale, decide, slope, HeldOut(correct / n, low, high, n, chance))

    return concept.remember(model, (layer, held_out, parameters), compute)


def _labelled(
    model: Model, concept: Concept, layer: str, sides: tuple[Batch, Batch]
) -> tuple[Tensor, Tensor]:
    """Return a layer's activations for the examples of a concept, (n, p) float64, and which are positive, (n,) boolean.

    `sides` are the positive and the negative examples.
    """
    positive, negative = (activations(model, side, layer).flatten(1).double() for side in sides)
    _check_size(layer, concept.name, positive.shape[1], negative)
    h = torch.cat([positive, negative])
    if not bool(torch.isfinite(h).all()):
        raise UserError(
            f"layer {layer!r} puts out values that are not finite for the concept {concept.name!r}"
        )
    return h, torch.arange(len(h), device=h.device) < len(positive)


def _check_size(layer: str, concept: str, expected: int, h: Tensor) -> None:
    """Raise unless a layer's output h (B, …) has as many values per sample as for a concept's positive examples."""
    size = h[0].numel() if len(h) else expected
    if size != expected:
        raise UserError(
            f"layer {layer!r} puts out {expected} values for positive examples of the concept {concept!r} and {size} "
            "for others; name a layer behind the pooling, or pad all inputs to one size"
        )
