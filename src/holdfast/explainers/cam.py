"""Grad-CAM, with its layer found in convolutional networks and in transformers alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from holdfast.errors import UserError
from holdfast.explainers.cam_layer import Site, find_layer, first_tensor
from holdfast.explainers.gradient import normalised, rows_of, slices
from holdfast.models import Model
from holdfast.models.smoothed import Smoothed
from holdfast.types import STRICT, Batch

MODES = {2: "linear", 3: "bilinear", 4: "trilinear"}
"""How maps of samples with so many dimensions are enlarged."""


@dataclass(frozen=True, config=STRICT)
class GradCAM:
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
    kind: ClassVar[Literal["feature"]] = "feature"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

    layer: str | None = None
    relu: bool = True

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless samples are images (C, H, W), series (C, T) or volumes (C, D, H, W) and the layer exists."""
        if len(shape) not in MODES:
            raise UserError(f"grad_cam needs images, series or volumes with channels, got samples of {tuple(shape)}")
        if len(shape) != 3 and not any(isinstance(part, nn.Conv1d | nn.Conv3d) for part in model.module.modules()):
            raise UserError(f"grad_cam reads a map of a convolutional network, and {model.name} has none")
        if isinstance(model, Smoothed):
            raise UserError(f"grad_cam reads one layer, but {model.name} averages many passes; explain what it smooths")
        if self.layer is not None:
            model.layer(self.layer)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, C, H, W) for the classes `target` (B,)."""
        inputs = normalised(model, batch)
        self.check(model, inputs.shape[1:])
        site = find_layer(model, inputs.shape[1:], self.layer, rows_of(batch.aux, slice(0, 1), inputs.device))
        parts = [
            self._rows(model, site, inputs[rows], rows_of(batch.aux, rows, inputs.device), target[rows])
            for rows in slices(len(inputs), model.rows)
        ]
        mode = MODES[inputs.ndim - 1]
        maps = F.interpolate(torch.cat(parts), size=inputs.shape[2:], mode=mode, align_corners=False)
        return maps.to(inputs.dtype).expand_as(inputs).clone()

    def _rows(self, model: Model, site: Site, inputs: Tensor, aux: Mapping[str, Tensor], target: Tensor) -> Tensor:
        leaves: list[Tensor] = []
        filled, aux = model.filled_up(inputs, aux)
        with torch.enable_grad(), _cut(model.layer(site.path), site.side, leaves):
            logits = model.logits(filled.clone(), aux)[: len(inputs)]
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
        gradient = torch.autograd.grad(chosen, leaves[-1], allow_unused=True)[0] if chosen.requires_grad else None
        if gradient is None:
            raise UserError(f"the output of {model.name} does not depend on its layer {site.path!r}")
        # The caller's precision from here on: sums over channels and the enlarged map would lose digits in 16 bits.
        gradient, features = (value.detach().to(inputs.dtype) for value in (gradient, leaves[-1]))
        weights = site.spatial(gradient / model.gradient_scale).flatten(2).mean(2)
        weights = weights.reshape(*weights.shape, *[1] * (inputs.ndim - 2))
        maps = (weights * site.spatial(features)).sum(1, keepdim=True)[: len(inputs)]
        return maps.relu() if self.relu else maps


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
        place = next(i for i, v in enumerate(values) if isinstance(v, Tensor) and v.is_floating_point())
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
