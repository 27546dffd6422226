"""Class activation maps, with their layer found in convolutional networks and in transformers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.cam_layer import Site, find_layer, first_tensor, refuse_averages
from heatproof.explainers.gradient import normalised, rows_of, slices
from heatproof.explainers.undefined import NEEDS_A_GRID
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Explainer

MODES = {2: "linear", 3: "bilinear", 4: "trilinear"}
"""How maps of samples with so many dimensions are enlarged."""


@dataclass(frozen=True, config=STRICT)
class _ClassActivation(Explainer):
    """The parameters of Grad-CAM and its kin, which differ in what they multiply features by (`_WEIGHTS`)."""

    name: ClassVar[str]
    requires = ("layers",)
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
        if len(shape) != 3 and not any(
            isinstance(part, nn.Conv1d | nn.Conv3d) for part in model.module.modules()
        ):
            raise UserError(
                f"{self.name} reads a map of a convolutional network, and {model.name} has none"
            )
        refuse_averages(self.name, model)
        if self.layer is not None:
            model.layer(self.layer)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, C, H, W) for the classes `target` (B,)."""
        inputs = normalised(model, batch)
        self.check(model, inputs.shape[1:])
        site = find_layer(
            model, inputs.shape[1:], self.layer, rows_of(batch.aux, slice(0, 1), inputs.device)
        )
        parts = [
            self._rows(
                model, site, inputs[rows], rows_of(batch.aux, rows, inputs.device), target[rows]
            )
            for rows in slices(len(inputs), model.rows)
        ]
        return enlarged(torch.cat(parts), inputs)

    def _rows(
        self, model: Model, site: Site, inputs: Tensor, aux: Mapping[str, Tensor], target: Tensor
    ) -> Tensor:
        leaves: list[Tensor] = []
        filled, aux = model.filled_up(inputs, aux)
        with torch.enable_grad(), _cut(model.layer(site.path), site.side, leaves):
            logits = model.logits(filled.clone(), aux)[: len(inputs)]
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
        gradient = (
            torch.autograd.grad(chosen, leaves[-1], allow_unused=True)[0]
            if chosen.requires_grad
            else None
        )
        if gradient is None:
            raise UserError(
                f"the output of {model.name} does not depend on its layer {site.path!r}"
            )
        # The caller's precision from here on: sums over channels and the enlarged map would lose digits in 16 bits.
        gradient, features = (value.detach().to(inputs.dtype) for value in (gradient, leaves[-1]))
        gradient, features = site.spatial(gradient / model.gradient_scale), site.spatial(features)
        maps = (_WEIGHTS[self.name](gradient, features) * features).sum(1, keepdim=True)[
            : len(inputs)
        ]
        return maps.relu() if self.relu else maps


@dataclass(frozen=True, config=STRICT)
class GradCAM(_ClassActivation):
    """ReLU(Σ_c w_c A_c) with w_c the mean over positions of ∂f_t/∂A_c, enlarged bilinearly; (B, C, H, W).

    A are the feature maps of one layer; the map of one channel is repeated for all channels of the input. Without a
    `layer`, it is the last one in a convolutional network that gives a map larger than 1×1, and in a transformer the
    features that enter the last block: the input of its first norm, for behind it the image tokens no longer reach a
    classifier that reads the class token. A `layer` named by its dotted path is read at its output. Tokens are laid
    back on their grid. `relu=False` keeps negative values.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3, 8, 8)), torch.tensor([1])
    >>> GradCAM()(Model(net), batch, target, seed=0).shape
    torch.Size([1, 3, 8, 8])
    """

    name: ClassVar[str] = "grad_cam"


@dataclass(frozen=True, config=STRICT)
class GradCAMPlusPlus(_ClassActivation):
    """ReLU(Σ_c w_c A_c) with w_c = Σ_ij α_ij·ReLU(G_ij), α_ij = 1 / (2 + G_ij·Σ_ab A_ab) and G = ∂f_t/∂A; (B, C, H, W).

    This is the paper's α = G² / (2G² + ΣA·G³), which divides 0 by 0 where G is 0. The sum is over positive activations:
    after a ReLU that is all of them, and elsewhere it keeps α finite. Layer and map as in `GradCAM`.

    >>> GradCAMPlusPlus().name
    'grad_cam_plus_plus'
    """

    name: ClassVar[str] = "grad_cam_plus_plus"


@dataclass(frozen=True, config=STRICT)
class LayerCAM(_ClassActivation):
    """ReLU(Σ_c ReLU(∂f_t/∂A_c) ⊙ A_c): each place is weighed by its own positive gradient; (B, C, H, W).

    Layer and map as in `GradCAM`; meant for earlier layers too, whose maps are finer.

    >>> LayerCAM("0").name
    'layer_cam'
    """

    name: ClassVar[str] = "layer_cam"


@dataclass(frozen=True, config=STRICT)
class HiResCAM(_ClassActivation):
    """ReLU(Σ_c ∂f_t/∂A_c ⊙ A_c): the gradient is not averaged over places; (B, C, H, W). Layer and map as in `GradCAM`.

    >>> HiResCAM(relu=False).name
    'hires_cam'
    """

    name: ClassVar[str] = "hires_cam"


def _plus_plus(gradient: Tensor, features: Tensor) -> Tensor:
    places = tuple(range(2, gradient.ndim))
    positive = gradient.relu()
    return (positive / (2 + positive * features.relu().sum(places, keepdim=True))).sum(
        places, keepdim=True
    )


_WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "grad_cam": lambda gradient, features: gradient.mean(
        tuple(range(2, gradient.ndim)), keepdim=True
    ),
    "grad_cam_plus_plus": _plus_plus,
    "layer_cam": lambda gradient, features: gradient.relu(),
    "hires_cam": lambda gradient, features: gradient,
}
"""What each place of the features is multiplied by, from gradients and features (B, C, h, w)."""


def enlarged(maps: Tensor, inputs: Tensor) -> Tensor:
    """Maps (B, 1, h, w) at the size of the inputs (B, C, H, W), bilinearly, and repeated over their channels.

    >>> enlarged(torch.ones(1, 1, 2, 2), torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 8, 8])
    """
    maps = F.interpolate(
        maps, size=inputs.shape[2:], mode=MODES[inputs.ndim - 1], align_corners=False
    )
    return maps.to(inputs.dtype).expand_as(inputs).clone()


@contextmanager
def _cut(module: nn.Module, side: str, leaves: list[Tensor]) -> Iterator[None]:
    """Replace the module's input or output by a fresh leaf, so that only what follows is differentiated.

    The network goes on with a copy of the leaf, for what follows may work in place. Of a module that is used many
    times the last leaf counts.
    """

    def leaf_for(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1].clone()

    def swapped(values: Any) -> Any:
        if isinstance(values, Tensor):
            return leaf_for(values)
        place = next(
            i for i, v in enumerate(values) if isinstance(v, Tensor) and v.is_floating_point()
        )
        parts = (*values[:place], leaf_for(values[place]), *values[place + 1 :])
        return type(values)(*parts) if hasattr(values, "_fields") else type(values)(parts)

    def before(part: nn.Module, args: Any, kwargs: Any) -> Any:
        if first_tensor(args) is not None:
            return swapped(args), kwargs
        name = next(k for k, v in kwargs.items() if isinstance(v, Tensor) and v.is_floating_point())
        return args, {**kwargs, name: leaf_for(kwargs[name])}

    def after(part: nn.Module, args: Any, output: Any) -> Any:
        return swapped(output)

    if side == "input":
        handle = module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = module.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()
