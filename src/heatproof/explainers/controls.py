"""Controls: random maps and edge maps, which ignore the model, and noise that depends on the weights only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.undefined import except_on
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class


@parameter_class
class RandomMap(Explainer):
    """Standard normal noise, independent between any two different inputs; (B, …) in the shape of the input.

    The draws are keyed by seed, sample id and the input's content. The same input twice gives the same map, so the
    identity scores 1; a perturbed input gives an unrelated map, so the control scores at chance.

    >>> model, x, target = Model(torch.nn.Linear(3, 2)), torch.rand(1, 3), torch.tensor([0])
    >>> a, b, c = (RandomMap()(model, Batch(("a",), v), target, seed=0) for v in (x, x.clone(), x + 0.1))
    >>> torch.equal(a, b), bool((a == c).any())
    (True, False)
    """

    name: ClassVar[str] = "random"
    stochastic: ClassVar[bool] = True
    control: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False
    cost = "no pass"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …); the target and the weights play no part."""
        return _noise(model, batch, seed, "random")


@parameter_class
class WeightNoise(Explainer):
    """Standard normal noise, independent between any two inputs and any two networks; (B, …) like the input.

    The draws are keyed by the model's weights, seed, sample id and content. So a map changes completely with the
    weights although it explains nothing: the upper end of the scale of `Dependence`.

    >>> batch, target = Batch(("a",), torch.ones(1, 3)), torch.tensor([0])
    >>> models = [Model(torch.nn.Linear(3, 2)) for _ in range(2)]
    >>> a, b = (WeightNoise()(model, batch, target, seed=0) for model in models)
    >>> bool((a == b).any())
    False
    """

    name: ClassVar[str] = "weight_noise"
    stochastic: ClassVar[bool] = True
    control: ClassVar[bool] = True
    cost = "no pass"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return random maps (B, …), the same for the same weights, sample and seed; the target is unused."""
        return _noise(model, batch, seed, model.weights_fingerprint)


def _noise(model: Model, batch: Batch, seed: int, purpose: str) -> Tensor:
    """Return a map of normal numbers for each sample, (B, …), that depends on its id and values, the seed and `purpose`."""
    key = rand.keys(seed, batch.ids, purpose)
    for word in content_words(batch.x).unbind(1):
        key = rand.fold(key, word)
    return rand.normal(key.to(model.device), batch.x.shape[1:])


def content_words(x: Tensor) -> Tensor:
    """Return a hash of each input that ignores rounding errors, as two int64 words (B, 2) on the CPU.

    Random maps are drawn by it, so the same input gets the same map on any device. Each word is a weighted sum of all
    values, with fixed random weights of size 1 to 2 and random signs, in steps of 2⁻⁸ of the sample's amplitude (its
    root mean square, rounded down to a power of two). So a single value changed by one step always changes the words,
    and differences in the last bit, which depend on device and batch size, hardly ever do.

    >>> x = torch.rand(1, 50)
    >>> bool((content_words(x) == content_words(x + 0.01)).all())
    False
    """
    values = torch.nan_to_num(x.detach().to("cpu", torch.float64).flatten(1))
    key = rand.keys(0, ("first", "second"), "content")
    sign = rand.uniform(rand.fold(key, 0), (values.shape[1],)).sub_(0.5).sign_()
    weight = (1 + rand.uniform(rand.fold(key, 1), (values.shape[1],))) * sign
    amplitude = values.square().mean(1, keepdim=True).sqrt()
    exponent = torch.where(amplitude > 0, amplitude.log2().floor(), torch.zeros_like(amplitude))
    steps = values @ weight.double().T * torch.exp2(8 - exponent)
    return torch.round(steps).to(torch.int64)


@parameter_class
class SobelEdges(Explainer):
    """|∇ grey(x)| by Sobel's 3×3 filters, in data units per pixel, the same for all channels; (B, C, H, W).

    Grey is 0.299 R + 0.587 G + 0.114 B of three channels, the mean of any other number. The border is repeated.

    >>> ramp = torch.linspace(0, 1, 11).expand(1, 3, 5, 11)
    >>> maps = SobelEdges()(Model(torch.nn.Flatten()), Batch(("a",), ramp), torch.tensor([0]), seed=0)
    >>> round(float(maps[0, 0, 2, 5]), 4)
    0.1
    """

    name: ClassVar[str] = "sobel"
    control: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False
    undefined_on = except_on("only pictures have edges", "image")
    cost = "no pass"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless samples are images (C, H, W)."""
        if len(shape) != 3:
            raise UserError(
                f"sobel needs images (channels, height, width), got samples of shape {tuple(shape)}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the strength of edges at every pixel, the same in all channels, (B, C, H, W).

        The target, the seed and the model's weights are unused: this is a control that ignores the model.
        """
        self.check(model, batch.x.shape[1:])
        x = batch.x.detach().to(model.device)
        if not x.is_floating_point():
            x = x.float()
        channels = x.shape[1]
        if channels == 3:
            luma = x.new_tensor([0.299, 0.587, 0.114])  # ITU-R BT.601
        else:
            luma = x.new_full((channels,), 1 / channels)
        grey = (x * luma[:, None, None]).sum(1, keepdim=True)
        horizontal = x.new_tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        # One filter for each direction; the other one is transposed.
        filters = torch.stack([horizontal, horizontal.T])[:, None]
        derivatives = F.conv2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), filters)
        edges = derivatives.square().sum(1, keepdim=True).sqrt()
        return edges.expand_as(x).clone()
