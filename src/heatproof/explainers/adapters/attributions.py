"""Explainers of Captum, Quantus, pytorch-grad-cam and zennit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from heatproof.errors import UserError, unknown
from heatproof.explainers.adapters.foreign import (
    Arguments,
    Foreign,
    Object,
    class_named,
    library,
    unwrapped,
)
from heatproof.explainers.adapters.isolation import Adapter, check_network, foreign_maps
from heatproof.explainers.baselines import Baseline
from heatproof.explainers.cam_layer import find_layer
from heatproof.explainers.examples.training_set import Examples
from heatproof.models import Model
from heatproof.types import STRICT, Batch

DRAWING = {
    "FeaturePermutation",
    "GradientShap",
    "InputBaselineXGradient",
    "KernelShap",
    "LayerGradientShap",
    "Lime",
}
DRAWING |= {"LimeBase", "NeuronGradientShap", "NoiseTunnel", "RandomCAM", "ShapleyValueSampling"}
"""Methods of Captum and pytorch-grad-cam that draw random numbers."""
ATTRIBUTORS = {
    "gradient": "Gradient",
    "smoothgrad": "SmoothGrad",
    "integrated_gradients": "IntegratedGradients",
}

Attributor = Literal["gradient", "smoothgrad", "integrated_gradients"]


def _callable(value: Foreign) -> Foreign:
    if not callable(value.value):
        raise ValueError(
            f"a function explain_func(model, inputs, targets) is needed, got {value.value!r}"
        )
    return value


@dataclass(frozen=True, config=STRICT)
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
        return _draws(self.draws, self.attribution, hasattr(self.attribution.value, "attribute"))

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse a model that is no plain network, a layer that it does not have, and an unknown method."""
        check_network(self._label, model)
        if isinstance(self.baseline, str):
            raise UserError(
                f"{self._label} needs numbers or samples as its baseline here, got {self.baseline!r}"
            )
        if self.layer is not None:
            model.layer(self.layer)
        if not callable(self._found()) and not hasattr(self._found(), "attribute"):
            raise UserError(
                f"{self._label} is neither a Captum method nor a function that makes one"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        arguments = unwrapped(self.arguments)
        if isinstance(self.baseline, Examples):
            self.baseline.check_shape(batch.x.shape[1:])
            arguments["baselines"] = model.inputs(self.baseline.batch.to(model.device)).detach()
        elif self.baseline is not None:
            arguments["baselines"] = self.baseline

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            return self._bind(network).attribute(
                inputs.requires_grad_(), target=classes, **arguments
            )

        return foreign_maps(
            self._label, compute, model, batch, target, seed, draws=self.stochastic, alone=False
        )

    def _found(self) -> Any:
        given = self.attribution.value
        return class_named("captum.attr", "captum", given) if isinstance(given, str) else given

    def _bind(self, network: nn.Module) -> Any:
        found = self._found()
        if isinstance(found, type) or not hasattr(found, "attribute"):
            found = (
                found(network)
                if self.layer is None
                else found(network, network.get_submodule(self.layer))
            )
            if not hasattr(found, "attribute"):
                raise UserError(
                    f"{self._label} made {type(found).__name__}, which has no method attribute"
                )
            return found
        return _rebound(found, network, self._label)


@dataclass(frozen=True, config=STRICT)
class Quantus(Adapter):
    """A function `explain_func(model, inputs, targets, **arguments) -> array` as Quantus takes them; (B, …).

    It gets the torch module, the normalised inputs (B, …) and the classes (B,) as arrays. It sees one sample at a time
    and seeded global generators, unless `draws=False` says that it uses no random numbers.

    >>> def weights(model, inputs, targets):
    ...     return model.weight[targets].numpy()
    >>> model, batch = Model(nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> maps = Quantus(weights)(model, batch, torch.tensor([1]), seed=0)
    >>> bool((maps == model.module.weight[1]).all())
    True
    """

    name: ClassVar[str] = "quantus"

    explain_func: Annotated[Any, BeforeValidator(Foreign.of), AfterValidator(_callable)]
    arguments: Arguments = None
    draws: bool = True

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters."""
        return self.draws

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse a model that is no plain network."""
        check_network(self._label, model)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        arguments = unwrapped(self.arguments)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            arrays = inputs.cpu().numpy(), classes.cpu().numpy()
            return self.explain_func.value(
                model=network, inputs=arrays[0], targets=arrays[1], **arguments
            )

        return foreign_maps(
            self._label, compute, model, batch, target, seed, draws=self.draws, alone=False
        )


@dataclass(frozen=True, config=STRICT)
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
        return _draws(self.draws, self.method, is_method=False)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse samples that are no images, a model that is no plain network, and layers that it does not have."""
        check_network(self._label, model)
        if len(shape) != 3:
            raise UserError(
                f"{self._label} needs images (channels, height, width), got samples of shape {shape}"
            )
        for path in (self.layer,) if isinstance(self.layer, str) else self.layer or ():
            model.layer(path)
        self._found()

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, C, H, W) for the classes `target` (B,)."""
        chosen = library("pytorch_grad_cam.utils.model_targets", "grad-cam").ClassifierOutputTarget
        method, options, arguments = (
            self._found(),
            unwrapped(self.options),
            unwrapped(self.arguments),
        )
        wanted = self.layer if isinstance(self.layer, tuple) else (self.layer,)
        sites = [find_layer(model, batch.x.shape[1:], path) for path in wanted]
        if any(site.side == "input" for site in sites):
            raise UserError(
                f"{self._label} reads a layer's output; name one, such as {sites[0].path}'s first norm"
            )
        if sites[0].layout != "channels_first":
            options.setdefault("reshape_transform", sites[0].spatial)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            layers = [network.get_submodule(site.path) for site in sites]
            cam = method(model=network, target_layers=layers, **options)
            # The weights are frozen, so it is the input that makes the layers' outputs differentiable.
            targets = [chosen(c) for c in classes.tolist()]
            return cam(input_tensor=inputs.requires_grad_(), targets=targets, **arguments)

        return foreign_maps(
            self._label, compute, model, batch, target, seed, draws=self.stochastic, alone=False
        )

    def _found(self) -> Any:
        given = self.method.value
        return (
            class_named("pytorch_grad_cam", "grad-cam", given) if isinstance(given, str) else given
        )


@dataclass(frozen=True, config=STRICT)
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
        """Refuse a model that is no plain network and an unknown composite."""
        check_network(self._label, model)
        self._made()

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        attributor = getattr(library("zennit.attribution", "zennit"), ATTRIBUTORS[self.attributor])
        arguments = unwrapped(self.arguments)

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            def at_target(scores: Tensor) -> Tensor:
                return torch.zeros_like(scores).scatter_(1, classes[:, None], 1.0)

            with attributor(network, self._made(), **arguments) as attribute:
                return attribute(inputs, at_target)[1]

        return foreign_maps(
            self._label, compute, model, batch, target, seed, draws=self.stochastic, alone=False
        )

    def _made(self) -> Any:
        given = self.composite.value
        if isinstance(given, str):
            known = library("zennit.composites", "zennit").COMPOSITES
            if given not in known:
                raise unknown("composite", given, known)
            given = known[given]
        if hasattr(given, "register") and not isinstance(given, type):
            return given
        made = given()
        if not hasattr(made, "register"):
            raise UserError(f"{self._label} made {type(made).__name__}, which is no composite")
        return made


def _draws(said: bool | None, method: Foreign, is_method: bool) -> bool:
    """Whether a method draws random numbers: what the user says, else by its name, else yes for functions."""
    if said is not None:
        return said
    if isinstance(method.value, str | type) or is_method:
        return method.name in DRAWING
    return True


def _rebound(method: Any, network: nn.Module, name: str) -> Any:
    """A copy of a Captum object in which the network, and every layer that it holds, is that of the call."""
    theirs = getattr(method, "forward_func", None)
    if not isinstance(theirs, nn.Module):
        raise UserError(
            f"{name} is bound to {theirs!r}, not to a network; give the class or a function that makes it"
        )
    ours = dict(network.named_modules())
    layers = dict(theirs.named_modules())
    if [(n, type(m)) for n, m in layers.items()] != [(n, type(m)) for n, m in ours.items()]:
        raise UserError(
            f"{name} is bound to another network than the model under test; give the class instead"
        )
    return copy.deepcopy(method, {id(layer): ours[path] for path, layer in layers.items()})
