"""Inpainting of removed pixels by two classical algorithms: biharmonic (scikit-image) and Telea's (OpenCV).

Both look at nothing but kept pixels, run on the CPU image by image, and are for images (B, C, H, W). Biharmonic
inpainting solves a sparse system for each hole: quick for small holes, seconds for an image of 224 pixels of which half
is gone. Telea's fast marching fills such an image in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.removal.imputers import check, refuse_empty, with_fill
from heatproof.types import parameter_class

Pixels = NDArray[np.float32]


@parameter_class
class Biharmonic:
    """Removed pixels solve the biharmonic equation Δ²u = 0, which continues values and slopes smoothly.

    The method of Damelin and Hoang (2018) as in `skimage.restoration.inpaint_biharmonic`, each channel by itself.

    >>> x, keep = torch.full((1, 1, 8, 8), 0.5), torch.ones(1, 8, 8, dtype=torch.bool)
    >>> keep[0, 3, 3:5] = False
    >>> torch.allclose(Biharmonic()(x, keep), x)
    True
    """

    name: ClassVar[str] = "biharmonic"
    needs_kept: ClassVar[bool] = True

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return images x (B, C, H, W) with biharmonic values where `keep` (B, H, W) is false; `seed` is unused."""
        _check_images(self.name, x, keep, ids)
        inpaint = _library("skimage.restoration", "scikit-image", self.name).inpaint_biharmonic

        def fill(image: Pixels, removed: NDArray[np.bool_]) -> Pixels:
            """Return an image (C, H, W) with its `removed` pixels (H, W) filled in by scikit-image."""
            filled: Pixels = inpaint(image, removed, channel_axis=0)
            return filled

        return _inpainted(fill, x, keep)


@parameter_class
class Telea:
    """Removed pixels are filled from the border of a hole inwards, from kept ones at most `radius` pixels away.

    The fast marching of Telea (2004) as in `cv2.inpaint`, each channel by itself and within the range of its kept pixels.

    >>> x, keep = torch.full((1, 1, 8, 8), 0.5), torch.ones(1, 8, 8, dtype=torch.bool)
    >>> keep[0, 3, 3:5] = False
    >>> torch.allclose(Telea()(x, keep), x)  # doctest: +SKIP
    True
    """

    name: ClassVar[str] = "telea"
    needs_kept: ClassVar[bool] = True
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3.0

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return images x (B, C, H, W) filled in by fast marching where `keep` (B, H, W) is false; `seed` is unused."""
        _check_images(self.name, x, keep, ids)
        cv2 = _library("cv2", "opencv-python-headless", self.name)

        def fill(image: Pixels, removed: NDArray[np.bool_]) -> Pixels:
            """Return an image (C, H, W) with its `removed` pixels (H, W) filled in by OpenCV, channel by channel."""
            mask = removed.astype(np.uint8)
            channels = []
            for plane in image:
                filled = cv2.inpaint(plane, mask, self.radius, cv2.INPAINT_TELEA)
                # The method continues slopes without limit. OpenCV clips bytes to 0 … 255, but not floats.
                kept = plane[~removed]
                channels.append(np.clip(filled, kept.min(), kept.max()))
            return np.stack(channels)

        return _inpainted(fill, x, keep)


def _check_images(name: str, x: Tensor, keep: Tensor, ids: Sequence[str] | None) -> None:
    """Raise `UserError` unless x holds images (B, C, H, W) and at least one pixel of each is kept."""
    names = check(x, keep, ids)
    if x.ndim != 4:
        raise UserError(
            f"{name} inpaints images (B, C, H, W), got shape {tuple(x.shape)}; noisy_linear and blur also take series"
        )
    refuse_empty(name, keep, names)


def _inpainted(
    fill: Callable[[Pixels, NDArray[np.bool_]], Pixels], x: Tensor, keep: Tensor
) -> Tensor:
    """Return images x (B, C, H, W) with the pixels filled in where `keep` (B, H, W) is false, one image at a time.

    `fill(image, removed)` fills an image (C, H, W), given its removed pixels (H, W).
    """
    # The values of removed pixels must not matter, so `fill` gets zeros in their place.
    known = with_fill(x.detach().float(), keep, torch.zeros((), device=x.device)).cpu().numpy()
    removed = (~keep).cpu().numpy()
    filled = torch.empty(x.shape, dtype=torch.float32)
    for i, (image, hole) in enumerate(zip(known, removed, strict=True)):
        filled[i] = torch.from_numpy(fill(image, hole) if hole.any() else image)
    return with_fill(x, keep, filled.to(x))


def _library(module: str, package: str, imputer: str) -> Any:
    """Import a module of an optional package."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f'the imputer {imputer} needs {package}: pip install "heatproof[inpainting]"'
        ) from error
