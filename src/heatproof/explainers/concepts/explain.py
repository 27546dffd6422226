"""Concept explanations: the presence of a concept in a layer's activations, and the prediction's sensitivity to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
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
from heatproof.statistics import exact_share
from heatproof.types import STRICT, Batch, Explainer

Output = Literal["sensitivity", "decision", "presence"]
HeldOutShare = Annotated[float, Field(gt=0, le=0.5)]
Penalty = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_CONSTANT = 1e-5


class HeldOut(NamedTuple):
    """How well a concept's classifier does on `n` examples that it has not seen: accuracy and its exact 95 % interval.

    `chance` is the share of the larger side, which a classifier that always says the same would reach.
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
        """z (B, p) of activations (B, …)."""
        return (h.flatten(1).double() - self.mean) / self.scale


Fit = Callable[[Tensor, Tensor], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]


class _OfConcepts(Explainer, ABC):
    """What `Cav` and `Car` have in common: everything but their parameters and the classifier."""

    kind: ClassVar[Literal["concept"]] = "concept"
    requires = ("layers",)

    concepts: ConceptsField
    layer: str
    output: Output
    held_out: HeldOutShare

    @property
    def categorical(self) -> bool:
        """Whether the output says yes or no rather than how much."""
        return self.output == "presence"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` for a missing layer or for examples unlike the samples, whose shape is `shape`."""
        library("sklearn", "sklearn")
        model.layer(self.layer)
        for concept in self.concepts:
            concept.split(self.held_out)
            for side, examples in (("positive", concept.positive), ("negative", concept.negative)):
                own = tuple(examples.batch.x.shape[1:])
                # Sets, graphs, texts and series may differ in length: a layer behind the pooling does not mind.
                if len(own) != len(shape) or (len(shape) == 3 and own != tuple(shape)):
                    raise UserError(
                        f"{side} examples of the concept {concept.name!r} have shape {own}, but the samples have shape "
                        f"{tuple(shape)}; prepare both the same way"
                    )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """One value per concept, (B, concepts), for the classes `target` (B,)."""
        classifiers = {concept.name: self.classifier(model, concept) for concept in self.concepts}
        if self.output == "sensitivity":
            h, gradient = layer_gradient(model, batch, target, self.layer)
            gradient = gradient.flatten(1).double()
        else:
            h, gradient = activations(model, batch, self.layer), None
        columns = []
        for name, classifier in classifiers.items():
            _same_size(self.layer, name, classifier.mean.numel(), h)
            z = classifier.standardised(h)
            if gradient is None:
                decision = classifier.decide(z)
                columns.append((decision > 0).double() if self.categorical else decision)
                continue
            slope = classifier.slope(z)
            length = slope.norm(dim=1).clamp(min=torch.finfo(slope.dtype).tiny)
            columns.append((gradient * classifier.scale * slope).sum(1) / length)
        return torch.stack(columns, 1).float()

    def accuracy(self, model: Model) -> dict[str, float]:
        """The share of held-out examples that each concept's classifier gets right."""
        return {name: tested.accuracy for name, tested in self.tested(model).items()}

    def tested(self, model: Model) -> dict[str, HeldOut]:
        """The accuracy of each concept's classifier with its interval."""
        return {concept.name: self.classifier(model, concept).held_out for concept in self.concepts}

    @abstractmethod
    def classifier(self, model: Model, concept: Concept) -> Classifier:
        """The fitted classifier of one of the concepts."""


@dataclass(frozen=True, config=STRICT)
class Cav(_OfConcepts):
    """Concept activation vectors: a linear classifier of each concept on a layer's activations; (B, concepts).

    With z the activations standardised by the mean and deviation of each unit over the fitting examples, the
    classifier s(z) = w·z + b minimises penalty · Σ log(1 + exp(−y·s)) + ½‖w‖², to its optimum. `output` says what is
    given for a sample: "sensitivity", the derivative ∂f_t/∂z · w/‖w‖ of the target's logit along the unit vector (a
    unit that hardly varies among the examples hardly counts); "decision", s itself; "presence", 1 where s > 0, else 0.
    The share `held_out` of the examples, chosen by their content, tests the classifier: see `accuracy`.

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
        """The fitted classifier of one of the concepts."""

        def fit(
            z: Tensor, present: Tensor
        ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
            weight, bias = logistic_regression(z, present, self.penalty)
            return lambda at: at @ weight + bias, weight.expand_as

        return _fitted(model, concept, self.layer, self.held_out, (self.name, self.penalty), fit)


@dataclass(frozen=True, config=STRICT)
class Car(_OfConcepts):
    """Concept activation regions: a support vector classifier of each concept on a layer's activations; (B, concepts).

    The activations are standardised as in `Cav` and projected to their first `components` principal axes (None: all),
    u. The classifier is s(u) = Σ_i a_i k(u_i, u) + b with the kernel k(u, v) = exp(−gamma·‖u − v‖²), or u·v for
    `kernel="linear"`, and slack penalty `penalty`; gamma="scale" is 1 / (components · variance of the coordinates).
    Components and defaults are those of the paper on explanation invariance.

    `output`: "decision" is s, "presence" 1 where s > 0, else 0, and "sensitivity" the derivative of the target's logit
    along the unit vector of ∂s/∂z, the way in which the concept grows fastest. Accuracy as for `Cav`.

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
        """The fitted classifier of one of the concepts."""

        def fit(
            z: Tensor, present: Tensor
        ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
            coordinates, axes = principal_axes(z, self.components)
            spread = coordinates.var(correction=0) * coordinates.shape[1]
            gamma = 1 / float(spread) if self.gamma == "scale" else self.gamma

            def kernel(u: Tensor, v: Tensor) -> Tensor:
                if self.kernel == "linear":
                    return u @ v.T
                distance = torch.cdist(u, v, compute_mode="donot_use_mm_for_euclid_dist")
                return (-gamma * distance.square()).exp()

            share, bias = support_vectors(kernel(coordinates, coordinates), present, self.penalty)
            support, share = coordinates[share != 0], share[share != 0]

            def slope(at: Tensor) -> Tensor:
                if self.kernel == "linear":
                    return ((share @ support) @ axes.T).expand_as(at)
                u = at @ axes
                weighted = kernel(u, support) * share
                return 2 * gamma * (weighted @ support - weighted.sum(1, keepdim=True) * u) @ axes.T

            return lambda at: kernel(at @ axes, support) @ share + bias, slope

        parameters = (self.name, self.kernel, self.gamma, self.components, self.penalty)
        return _fitted(model, concept, self.layer, self.held_out, parameters, fit)


def layer_gradient(model: Model, batch: Batch, target: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """The output h of a layer and ∂f_t/∂h for the target's logit f_t, (B, …) each, float32 and detached.

    In passes of at most `model.rows` inputs; of a tuple that a layer puts out, its first tensor.

    >>> model = Model(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> h, gradient = layer_gradient(model, Batch(("a",), torch.rand(1, 3)), torch.tensor([1]), "1")
    >>> torch.equal(gradient, model.module[2].weight[1:])
    True
    """
    module = model.layer(layer)
    outputs, gradients = [], []
    for rows in slices(len(batch), model.rows):
        part = batch[rows].to(model.device)
        inputs = model.inputs(
            part
        )  # not while the layer is cut, for it may be the embedding that makes them
        leaves: list[Tensor] = []

        def cut(_: nn.Module, __: Any, output: Any, leaves: list[Tensor] = leaves) -> Any:
            """Let the network go on with a copy of a fresh leaf: what follows may work in place."""
            values = list(output) if isinstance(output, tuple | list) else [output]
            at = next((i for i, value in enumerate(values) if isinstance(value, Tensor)), None)
            if at is None or not values[at].is_floating_point():
                raise UserError(
                    f"layer {layer!r} puts out {type(output).__name__} without a gradient; name another"
                )
            leaves.append(values[at].detach().requires_grad_())
            values[at] = leaves[-1].clone()
            if not isinstance(output, tuple | list):
                return values[0]
            return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)

        with module.register_forward_hook(cut), torch.enable_grad():
            logits = model.logits(inputs, part.aux)
            chosen = logits.gather(1, target[rows].to(logits.device)[:, None]).sum()
        if len(leaves) != 1:
            raise UserError(
                f"layer {layer!r} ran {len(leaves)} times in one pass; name one that runs once"
            )
        gradient = (
            torch.autograd.grad(chosen, leaves[0], allow_unused=True)[0]
            if chosen.requires_grad
            else None
        )
        if gradient is None:
            raise UserError(f"the output of {model.name} does not depend on its layer {layer!r}")
        outputs.append(leaves[0].detach().float())
        gradients.append(gradient.float() / model.gradient_scale)
    return torch.cat(outputs), torch.cat(gradients)


def _fitted(
    model: Model,
    concept: Concept,
    layer: str,
    held_out: float,
    parameters: tuple[object, ...],
    fit: Fit,
) -> Classifier:
    def compute() -> Classifier:
        to_fit, to_test = concept.split(held_out)
        seen, present = _labelled(model, concept, layer, to_fit)
        new, truth = _labelled(model, concept, layer, to_test)
        mean, deviation = seen.mean(0), seen.std(0, correction=0)
        constant = deviation <= _CONSTANT * mean.abs()
        if bool(constant.all()):
            raise UserError(
                f"layer {layer!r} puts out the same for all examples of the concept {concept.name!r}"
            )
        scale = torch.where(constant, 1.0, deviation)
        seen = torch.where(constant, 0.0, (seen - mean) / scale)
        decide, slope = fit(seen, present)
        right = int(((decide((new - mean) / scale) > 0) == truth).sum())
        chance = float(truth.double().mean())
        tested = HeldOut(
            right / len(truth), *exact_share(right, len(truth)), len(truth), max(chance, 1 - chance)
        )
        return Classifier(mean, scale, decide, slope, tested)

    return concept.remember(model, (layer, held_out, parameters), compute)


def _labelled(
    model: Model, concept: Concept, layer: str, sides: tuple[Batch, Batch]
) -> tuple[Tensor, Tensor]:
    """Activations (n, p) float64 of positive and negative examples, and which are positive (n,) boolean."""
    parts = [activations(model, side, layer).flatten(1).double() for side in sides]
    _same_size(layer, concept.name, parts[0].shape[1], parts[1])
    seen = torch.cat(parts)
    if not bool(torch.isfinite(seen).all()):
        raise UserError(
            f"layer {layer!r} puts out values that are not finite for the concept {concept.name!r}"
        )
    return seen, torch.arange(len(seen), device=seen.device) < len(parts[0])


def _same_size(layer: str, concept: str, expected: int, found: Tensor) -> None:
    size = found[0].numel() if len(found) else expected
    if size != expected:
        raise UserError(
            f"layer {layer!r} puts out {expected} values for positive examples of the concept {concept!r} and {size} "
            "for others; name a layer behind the pooling, or pad all inputs to one size"
        )
