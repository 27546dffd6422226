"""Class activation maps (Grad-CAM and relatives) of convolutional networks and transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.cam_layer import Site, find_layer, first_tensor, refuse_averages
from heatproof.explainers.gradient import normalised, rows_of, slices
from heatproof.explainers.rules import GuidedBackprop
from heatproof.explainers.undefined import NEEDS_A_GRID
from heatproof.models import Model
from heatproof.types import Batch, Explainer, Requirement, parameter_class

MODES = {2: "linear", 3: "bilinear", 4: "trilinear"}
"""Number of dimensions of a sample → the mode of `F.interpolate` that enlarges its map."""


@parameter_class
class _ClassActivation(Explainer):
    """Base class of Grad-CAM and relatives, which differ in the `_weights` that features are multiplied by."""

    name: ClassVar[str]
    requires: ClassVar[tuple[Requirement, ...]] = ("layers",)
    undefined_on = NEEDS_A_GRID
    hooks_into_network = True
    cost = "1 pass and its gradient"

    layer: str | None = None
    relu: bool = True

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless samples are images (C, H, W), series (C, T) or volumes (C, D, H, W) and the layer exists."""
        if len(shape) not in MODES:
            raise UserError(
                f"{self.name} needs images, series or volumes with channels, got samples of {tuple(shape)}"
            )
        is_image = len(shape) == 3
        has_convolution = any(
            isinstance(module, nn.Conv1d | nn.Conv3d) for module in model.module.modules()
        )
        if not is_image and not has_convolution:
            raise UserError(
                f"{self.name} reads a map of a convolutional network, and {model.name} has none"
            )
        refuse_averages(self.name, model)
        if self.layer is not None:
            model.layer(self.layer)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return class activation maps of the classes `target` (B,), enlarged to the inputs' shape; `seed` is unused."""
        inputs = normalised(model, batch)
        self.check(model, inputs.shape[1:])
        first_aux = rows_of(batch.aux, slice(0, 1), inputs.device)
        site = find_layer(model, inputs.shape[1:], self.layer, first_aux)
        maps = []
        for rows in slices(len(inputs), model.rows):
            aux = rows_of(batch.aux, rows, inputs.device)
            maps.append(self._layer_maps(model, site, inputs[rows], aux, target[rows]))
        return enlarged(torch.cat(maps), inputs)

    def _layer_maps(
        self, model: Model, site: Site, inputs: Tensor, aux: Mapping[str, Tensor], target: Tensor
    ) -> Tensor:
        """Return class activation maps (B, 1, h, w) in the size of the layer's feature maps, from one pass.

        They are sums over channels of the layer's features times the weights that `self._weights` takes from the gradient
        of the target's logit by the features.
        """
        count = len(inputs)
        leaves: list[Tensor] = []
        filled, aux = model.filled_up(inputs, aux)
        with torch.enable_grad(), _cut(model.layer(site.path), site.side, leaves):
            logits = model.logits(filled.clone(), aux)[:count]
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
        gradient = None
        if chosen.requires_grad:
            (gradient,) = torch.autograd.grad(chosen, leaves[-1], allow_unused=True)
        if gradient is None:
            raise UserError(
                f"the output of {model.name} does not depend on its layer {site.path!r}"
            )
        # The caller's precision from here on: sums over channels and the enlarged map would lose digits in 16 bits.
        gradient = gradient.detach().to(inputs.dtype) / model.gradient_scale
        features = leaves[-1].detach().to(inputs.dtype)
        gradient, features = site.spatial(gradient), site.spatial(features)
        weighted = self._weights(gradient, features) * features
        maps = weighted.sum(1, keepdim=True)[:count]
        return maps.relu() if self.relu else maps

    def _weights(self, gradient: Tensor, features: Tensor) -> Tensor:
        """Return what the features (B, C, h, w) are multiplied by, from their gradient of the same shape."""
        raise NotImplementedError


@parameter_class
class GradCAM(_ClassActivation):
    """ReLU(Σ_c w_c A_c) with w_c the mean over positions of ∂f_t/∂A_c, enlarged bilinearly; (B, C, H, W).

    The method of Selvaraju et al. (ICCV 2017). A are the feature maps of one layer; the map is repeated for all
    channels of the input. By default, the layer of a convolutional network is the last one whose map is larger than
    1×1. A transformer is read where features enter the last block, because after that block the image tokens no longer
    reach a classifier that reads the class token. A `layer` named by its dotted path is read at its output. Tokens are
    laid back on their grid. `relu=False` keeps negative values.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3, 8, 8)), torch.tensor([1])
    >>> GradCAM()(Model(net), batch, target, seed=0).shape
    torch.Size([1, 3, 8, 8])
    """

    name: ClassVar[str] = "grad_cam"

    def _weights(self, gradient: Tensor, features: Tensor) -> Tensor:
        return gradient.mean(tuple(range(2, gradient.ndim)), keepdim=True)


@parameter_class
class GradCAMPlusPlus(_ClassActivation):
    """ReLU(Σ_c w_c A_c) with w_c = Σ_ij α_ij·ReLU(G_ij), α_ij = 1 / (2 + G_ij·Σ_ab A_ab) and G = ∂f_t/∂A; (B, C, H, W).

    The paper (Chattopadhyay et al., WACV 2018) writes α = G² / (2G² + ΣA·G³), which divides 0 by 0 where G is 0. The
    sum is over positive activations: after a ReLU these are all, and elsewhere it keeps α finite. Layer and map as in
    `GradCAM`.

    >>> GradCAMPlusPlus().name
    'grad_cam_plus_plus'
    """

    name: ClassVar[str] = "grad_cam_plus_plus"

    def _weights(self, gradient: Tensor, features: Tensor) -> Tensor:
        positions = tuple(range(2, gradient.ndim))
        positive = gradient.relu()
        activation_sum = features.relu().sum(positions, keepdim=True)
        return (positive / (2 + positive * activation_sum)).sum(positions, keepdim=True)


@parameter_class
class LayerCAM(_ClassActivation):
    """ReLU(Σ_c ReLU(∂f_t/∂A_c) ⊙ A_c): every position is weighted by its own positive gradient; (B, C, H, W).

    Layer and map as in `GradCAM`; meant for earlier layers too, whose maps are finer.

    >>> LayerCAM("0").name
    'layer_cam'
    """

    name: ClassVar[str] = "layer_cam"

    def _weights(self, gradient: Tensor, features: Tensor) -> Tensor:
        return gradient.relu()


@parameter_class
class HiResCAM(_ClassActivation):
    """ReLU(Σ_c ∂f_t/∂A_c ⊙ A_c): the gradient is not averaged over positions; (B, C, H, W).

    The method of Draelos and Carin (2020). Layer and map as in `GradCAM`.

    >>> HiResCAM(relu=False).name
    'hires_cam'
    """

    name: ClassVar[str] = "hires_cam"

    def _weights(self, gradient: Tensor, features: Tensor) -> Tensor:
        return gradient


@parameter_class
class GuidedGradCAM(GradCAM):
    """Guided backpropagation times Grad-CAM: the details of the first where the second is large; (B, C, H, W).

    The method of Selvaraju et al. (ICCV 2017). Layer and enlargement as in `GradCAM`. The network needs ReLUs.

    >>> GuidedGradCAM(layer="3").name
    'guided_grad_cam'
    """

    name: ClassVar[str] = "guided_grad_cam"
    requires = ("gradients", "layers")
    cost = "2 passes and their gradients"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return guided Grad-CAM maps (B, C, H, W): guided backpropagation times Grad-CAM, for the classes `target`."""
        guided = GuidedBackprop()(model, batch, target, seed)
        return guided * super().__call__(model, batch, target, seed)


def enlarged(maps: Tensor, inputs: Tensor) -> Tensor:
    """Return maps (B, 1, h, w) enlarged bilinearly to the inputs (B, C, H, W) and repeated over their channels.

    >>> enlarged(torch.ones(1, 1, 2, 2), torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 8, 8])
    """
    maps = F.interpolate(
        maps, size=inputs.shape[2:], mode=MODES[inputs.ndim - 1], align_corners=False
    )
    return maps.to(inputs.dtype).expand_as(inputs).clone()


@contextmanager
def _cut(module: nn.Module, side: str, leaves: list[Tensor]) -> Iterator[None]:
    """Replace a module's input or output by a leaf of the graph while the context is open.

    So the logit can be differentiated by it, and only what follows is differentiated. The leaves of all calls of the
    module are appended to `leaves`; of a module that is used many times the last counts. The network continues with a
    copy of the leaf, because the next function may work in place.
    """

    def leaf_for(tensor: Tensor) -> Tensor:
        """Append a leaf with the values of a tensor to `leaves`, and return a copy for the network to go on with."""
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1].clone()

    def with_leaf(values: Any) -> Any:
        """Return a module's values with a leaf for the first floating-point tensor: of a tensor, tuple or list."""
        if isinstance(values, Tensor):
            return leaf_for(values)
        index = next(i for i, value in enumerate(values) if _is_floating(value))
        replaced = list(values)
        replaced[index] = leaf_for(values[index])
        is_named_tuple = hasattr(values, "_fields")
        return type(values)(*replaced) if is_named_tuple else type(values)(replaced)

    def cut_input(_: nn.Module, args: Any, kwargs: Any) -> Any:
        """Return the arguments of a call with a leaf for the first floating-point tensor."""
        if first_tensor(args) is not None:
            return with_leaf(args), kwargs
        name = next(name for name, value in kwargs.items() if _is_floating(value))
        return args, {**kwargs, name: leaf_for(kwargs[name])}

    def cut_output(_: nn.Module, args: Any, output: Any) -> Any:
        return with_leaf(output)

    if side == "input":
        handle = module.register_forward_pre_hook(cut_input, with_kwargs=True)
    else:
        handle = module.register_forward_hook(cut_output)
    try:
        yield
    finally:
        handle.remove()


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
