"""Adapters for the explainers of Captum, Quantus, pytorch-grad-cam and zennit."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, BeforeValidator
from torch import Tensor, nn

from heatproof.errors import UserError, unknown
from heatproof.explainers.adapters.foreign import (
    Arguments,
    Foreign,
    Object,
    library,
    resolved,
    unwrapped,
)
from heatproof.explainers.adapters.isolation import Adapter, Compute
from heatproof.explainers.baselines import Baseline
from heatproof.explainers.cam_layer import find_layer
from heatproof.explainers.examples.training_set import Examples
from heatproof.models import Model
from heatproof.types import Batch, parameter_class

DRAWING = {
    "FeaturePermutation",
    "GradientShap",
    "InputBaselineXGradient",
    "KernelShap",
    "LayerGradientShap",
    "Lime",
    "LimeBase",
    "NeuronGradientShap",
    "NoiseTunnel",
    "RandomCAM",
    "ShapleyValueSampling",
}
"""Methods of Captum and pytorch-grad-cam that draw random numbers."""
ATTRIBUTORS = {
    "gradient": "Gradient",
    "smoothgrad": "SmoothGrad",
    "integrated_gradients": "IntegratedGradients",
}

Attributor = Literal["gradient", "smoothgrad", "integrated_gradients"]


def _check_callable(function: Foreign) -> Foreign:
    if not callable(function.value):
        raise ValueError(
            f"a function explain_func(model, inputs, targets) is needed, got {function.value!r}"
        )
    return function


@parameter_class
class Captum(Adapter):
    """A method of Captum, called as `method.attribute(model.inputs(batch), target=target, **arguments)`; (B, …).

    `attribution` is the class or its name in `captum.attr`, an object that is bound to the network under test (the
    torch module that was given to `heatproof.Model`, or `model.module`), or a function of the network that makes one,
    such as `lambda module: captum.attr.LayerGradCam(module, module.layer4)`. `layer` is the dotted path of the layer
    for a class that needs one. Maps of a layer are summed over its channels and enlarged bilinearly to the input.

    `draws` says whether the method uses random numbers; without it, this is known for Captum's own classes, and a
    function that makes a method counts as drawing. A `baseline`, one number, samples in the data's own units or the
    study's "references", is handed on as `baselines`.

    >>> model, batch = Model(nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> maps = Captum("Saliency", {"abs": False})(model, batch, torch.tensor([1]), seed=0)
    >>> bool((maps == model.module.weight[1]).all())
    True
    """

    name: ClassVar[str] = "captum"
    requires = ("gradients",)

    attribution: Object
    arguments: Arguments = None
    layer: str | None = None
    draws: bool | None = None
    baseline: Baseline | None = None

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters."""
        is_bound_method = hasattr(self.attribution.value, "attribute")
        return _draws(self.draws, self.attribution, is_bound_method)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a model that is no plain network, a layer that it does not have, and an unknown method."""
        super().check(model, shape)
        if isinstance(self.baseline, str):
            raise UserError(
                f"{self._label} needs numbers or samples as its baseline here, got {self.baseline!r}"
            )
        if self.layer is not None:
            model.layer(self.layer)
        method = resolved("captum.attr", "captum", self.attribution.value)
        if not callable(method) and not hasattr(method, "attribute"):
            raise UserError(
                f"{self._label} is neither a Captum method nor a function that makes one"
            )

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function (network, inputs, classes) → maps that calls Captum's `attribute` on a copy of the network.

        The user's arguments and baseline go into the call; samples as the baseline are normalised first.
        """
        arguments = unwrapped(self.arguments)
        if isinstance(self.baseline, Examples):
            self.baseline.check_shape(batch.x.shape[1:])
            arguments["baselines"] = model.inputs(self.baseline.batch.to(model.device)).detach()
        elif self.baseline is not None:
            arguments["baselines"] = self.baseline

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            method = self._bound_method(network)
            return method.attribute(inputs.requires_grad_(), target=classes, **arguments)

        return compute

    def _bound_method(self, network: nn.Module) -> Any:
        """Return the Captum object that explains `network`.

        The user gave a class or a function, which is called with the network (and the layer, if one is named), or an
        object that is bound to the model's network already, of which a copy is bound to this one.
        """
        method = resolved("captum.attr", "captum", self.attribution.value)
        if not isinstance(method, type) and hasattr(method, "attribute"):
            return _rebound(method, network, self._label)
        if self.layer is None:
            bound = method(network)
        else:
            bound = method(network, network.get_submodule(self.layer))
        if not hasattr(bound, "attribute"):
            raise UserError(
                f"{self._label} made {type(bound).__name__}, which has no method attribute"
            )
        return bound


@parameter_class
class Quantus(Adapter):
    """A function `explain_func(model, inputs, targets, **arguments) -> array` as Quantus takes them; (B, …).

    It gets the torch module, the normalised inputs (B, …) and the classes (B,) as arrays: one sample at a time, with
    seeded global generators, unless `draws=False` declares that it uses no random numbers.

    >>> def weights(model, inputs, targets):
    ...     return model.weight[targets].numpy()
    >>> model, batch = Model(nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> maps = Quantus(weights)(model, batch, torch.tensor([1]), seed=0)
    >>> bool((maps == model.module.weight[1]).all())
    True
    """

    name: ClassVar[str] = "quantus"

    explain_func: Annotated[Any, BeforeValidator(Foreign.of), AfterValidator(_check_callable)]
    arguments: Arguments = None
    draws: bool = True

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters."""
        return self.draws

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function (network, inputs, classes) → maps that calls the user's `explain_func` with arrays."""
        arguments = unwrapped(self.arguments)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            return self.explain_func.value(
                model=network,
                inputs=inputs.cpu().numpy(),
                targets=classes.cpu().numpy(),
                **arguments,
            )

        return compute


@parameter_class
class PytorchGradCam(Adapter):
    """A class activation map of pytorch-grad-cam, repeated for every channel; (B, C, H, W).

    `method` is the class or its name, such as "GradCAMPlusPlus"; `layer` the dotted path of the layer, or several, and
    without it the one of `GradCAM`; `options` go to the class and `arguments` to the call (`eigen_smooth`). Tokens of
    a layer are laid on their grid, unless the options have a `reshape_transform`.

    >>> PytorchGradCam("GradCAM", "layer4").stochastic, PytorchGradCam("RandomCAM", "layer4").stochastic
    (False, True)
    """

    name: ClassVar[str] = "pytorch_grad_cam"
    requires = ("layers",)

    method: Object
    layer: str | tuple[str, ...] | None = None
    options: Arguments = None
    arguments: Arguments = None
    draws: bool | None = None

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters."""
        return _draws(self.draws, self.method, is_bound_method=False)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for samples that are no images, a model that is no plain network, and unknown layers or methods."""
        super().check(model, shape)
        if len(shape) != 3:
            raise UserError(
                f"{self._label} needs images (channels, height, width), got samples of shape {shape}"
            )
        for path in self._layers:
            if path is not None:
                model.layer(path)
        resolved("pytorch_grad_cam", "grad-cam", self.method.value)

    @property
    def _layers(self) -> tuple[str | None, ...]:
        """The paths of the layers; None is the one that `GradCAM` reads."""
        return self.layer if isinstance(self.layer, tuple) else (self.layer,)

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function (network, inputs, classes) → maps that calls pytorch-grad-cam on a copy of the network."""
        targets_module = library("pytorch_grad_cam.utils.model_targets", "grad-cam")
        method = resolved("pytorch_grad_cam", "grad-cam", self.method.value)
        options, arguments = unwrapped(self.options), unwrapped(self.arguments)
        sites = [find_layer(model, batch.x.shape[1:], path) for path in self._layers]
        if any(site.side == "input" for site in sites):
            raise UserError(
                f"{self._label} reads a layer's output; name one, such as {sites[0].path}'s first norm"
            )
        if sites[0].layout != "channels_first":
            options.setdefault("reshape_transform", sites[0].spatial)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            layers = [network.get_submodule(site.path) for site in sites]
            cam = method(model=network, target_layers=layers, **options)
            targets = [targets_module.ClassifierOutputTarget(c) for c in classes.tolist()]
            # The weights are frozen, so it is the input that makes the layers' outputs differentiable.
            return cam(input_tensor=inputs.requires_grad_(), targets=targets, **arguments)

        return compute


@parameter_class
class Zennit(Adapter):
    """Layer-wise relevance propagation with a composite of zennit, from a relevance of 1 at the target; (B, …).

    `composite` is an object such as `EpsilonGammaBox(low=-2, high=2, canonizers=[ResNetCanonizer()])`, a class or
    function that makes one, or a name that zennit knows, such as "epsilon_plus_flat". It is registered for each call
    and removed after it, canonizers included. `arguments` go to the attributor, such as `n_iter` of "smoothgrad".

    >>> Zennit("epsilon_plus_flat").stochastic, Zennit("epsilon_plus_flat", attributor="smoothgrad").stochastic
    (False, True)
    """

    name: ClassVar[str] = "zennit"
    requires = ("gradients",)

    composite: Object
    attributor: Attributor = "gradient"
    arguments: Arguments = None
    draws: bool | None = None

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters."""
        return self.attributor == "smoothgrad" if self.draws is None else self.draws

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a model that is no plain network, and for an unknown composite."""
        super().check(model, shape)
        self._composite_object()

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function (network, inputs, classes) → maps that calls zennit's attributor with the composite.

        The composite is registered on the network for the call only.
        """
        attributor = getattr(library("zennit.attribution", "zennit"), ATTRIBUTORS[self.attributor])
        arguments = unwrapped(self.arguments)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            def one_at_target(scores: Tensor) -> Tensor:
                """Return the relevance that the backward pass begins with: 1 at each target's score and 0 elsewhere."""
                return torch.zeros_like(scores).scatter_(1, classes[:, None], 1.0)

            with attributor(network, self._composite_object(), **arguments) as attribute:
                _, relevance = attribute(inputs, one_at_target)
                return relevance

        return compute

    def _composite_object(self) -> Any:
        """Return the zennit composite: the one given, or a new one of a class, a function or a name."""
        composite = self.composite.value
        if isinstance(composite, str):
            by_name = library("zennit.composites", "zennit").COMPOSITES
            if composite not in by_name:
                raise unknown("composite", composite, by_name)
            composite = by_name[composite]
        if hasattr(composite, "register") and not isinstance(composite, type):
            return composite
        new = composite()
        if not hasattr(new, "register"):
            raise UserError(f"{self._label} made {type(new).__name__}, which is no composite")
        return new


def _draws(setting: bool | None, method: Foreign, is_bound_method: bool) -> bool:
    """Return whether a method draws random numbers: the user's setting, else by its name.

    A function that makes a method counts as drawing, because its name tells nothing.
    """
    if setting is not None:
        return setting
    if isinstance(method.value, str | type) or is_bound_method:
        return method.name in DRAWING
    return True


def _rebound(method: Any, network: nn.Module, name: str) -> Any:
    """Return a copy of a Captum object that refers to `network`, a copy of the network it was made for, and its layers.

    `name` is for the error if the object was made for another network.
    """
    bound_network = getattr(method, "forward_func", None)
    if not isinstance(bound_network, nn.Module):
        raise UserError(
            f"{name} is bound to {bound_network!r}, not to a network; give the class or a function that makes it"
        )
    new_layers = dict(network.named_modules())
    old_layers = dict(bound_network.named_modules())
    if _layer_types(new_layers) != _layer_types(old_layers):
        raise UserError(
            f"{name} is bound to another network than the model under test; give the class instead"
        )
    # `deepcopy` uses the objects in its memo in place of copies: here the new network's layer at the same path.
    memo = {id(layer): new_layers[path] for path, layer in old_layers.items()}
    return copy.deepcopy(method, memo)


def _layer_types(layers: Mapping[str, nn.Module]) -> list[tuple[str, type]]:
    """Return paths and types of layers, by which two copies of a network are recognised."""
    return [(path, type(layer)) for path, layer in layers.items()]
