"""Pictures as the image processor of a model in transformers prepares them: its size and crop, pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from heatproof.data.arrays import numbered_channels, open_arrays, open_dataset
from heatproof.data.dataset import Data, how_to
from heatproof.data.encodings import class_names_of
from heatproof.errors import UserError

PIXELS = "pixel_values"
_PICTURES = ("image", "img")
_ROUNDING = 1e-4
"""How far pixels may leave [0, 1] because they were normalised and are brought back."""


def is_pixels(source: Any) -> bool:
    """Whether something is the output of an image processor, a mapping with `pixel_values`.

    >>> is_pixels({"pixel_values": torch.zeros(1, 3, 2, 2)}), is_pixels({"a": 1})
    (True, False)
    """
    return isinstance(source, Mapping) and PIXELS in source


class ProcessedImages:
    """The pictures of a list or a Dataset, each prepared by an image processor but not normalised: the model does that.

    What the processor has normalised already, `pixel_values`, is brought back to [0, 1] by the `mean` and `std` of the
    model.
    """

    def __init__(
        self, source: Any, processor: Any, mean: Sequence[float] | None, std: Sequence[float] | None
    ) -> None:
        self.source = source
        self.processor = processor
        self.mean = mean
        self.std = std

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> Any:
        """Return pixels (C, H, W) and label; what is no picture stays as it is."""
        item = self.source[position]
        if is_pixels(item):
            pixels = plain_pixels(torch.as_tensor(item[PIXELS]), self.mean, self.std)
            return pixels, item.get("label", item.get("labels"))
        picture, label = item, None
        if isinstance(item, Mapping):
            picture = next((item[key] for key in _PICTURES if key in item), None)
            label = item.get("label", item.get("labels"))
        elif isinstance(item, tuple | list) and len(item) == 2:
            picture, label = item
        if not isinstance(picture, Image.Image):
            return item
        prepared = self.processor(picture.convert("RGB"), do_normalize=False, return_tensors="pt")
        return prepared[PIXELS][0], label


def plain_pixels(
    pixels: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None
) -> Tensor:
    """Return normalised pixels (…, C, H, W) in [0, 1] again.

    >>> plain_pixels(torch.tensor([[[-1.0, 1.0]]]), [0.5], [0.5]).tolist()
    [[[0.0, 1.0]]]
    """
    values = pixels.double()
    if std is not None:
        values = values * numbered_channels(std)
    if mean is not None:
        values = values + numbered_channels(mean)
    within = values.clamp(0, 1)
    if bool(((values - within).abs() > _ROUNDING).any()):
        raise UserError(
            f"pixel_values from {float(pixels.min()):.4g} to {float(pixels.max()):.4g} are not normalised by the "
            "mean and std of this model; give the pictures themselves, or the output of its own processor"
        )
    return within.float()


def open_processed(source: Any, processor: Any, mean: Any, std: Any) -> Data | None:
    """Open pictures of a list or Dataset, or the output of an image processor; None for anything else."""
    if is_pixels(source):
        pixels = plain_pixels(torch.as_tensor(source[PIXELS]), mean, std)
        labels = source.get("labels", source.get("label"))
        return open_arrays("pictures", pixels, how_to("auto", "squash"), labels=labels)
    is_dataset = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not is_dataset or isinstance(source, str | Mapping | Tensor) or not len(source):
        return None
    first = source[0]
    if isinstance(first, Mapping):
        is_picture = is_pixels(first) or any(
            isinstance(first.get(key), Image.Image) for key in _PICTURES
        )
    else:
        value = first[0] if isinstance(first, tuple | list) and first else first
        is_picture = isinstance(value, Image.Image)
    if not is_picture:
        return None
    processed = ProcessedImages(source, processor, mean, std)
    data = open_dataset(processed, how_to("auto", "squash"))
    return replace(data, name=type(source).__name__, class_names=class_names_of(source))
