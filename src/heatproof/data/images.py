"""One picture: from a file, bytes or a Pillow image to a tensor (3, H, W) in [0, 1]; and the resizing of tensors."""

from __future__ import annotations

import io
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from heatproof.errors import UserError, counted, unknown

Resize = Literal["squash", "crop"]

MAX_PIXELS = 89_478_485
"""A picture that declares more pixels is refused before it is decoded: a quarter of a GiB as 8-bit RGB."""

CROP_RATIO = 0.875
"""`resize="crop"` keeps the central `size` pixels of a short side of `size / CROP_RATIO`, as ImageNet tests do."""

READ_ERRORS = (
    OSError,  # cannot be opened, not an image, truncated, broken stream
    ValueError,
    SyntaxError,  # Pillow's word for a malformed header or chunk
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
"""What reading a sample that is damaged or missing raises; anything else is a mistake in code and stops the run."""

_ODD_ERRORS = (
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
)  # from plugins, on malformed headers

_NOT_PICTURES = {
    "BUFR",
    "EPS",
    "GRIB",
    "HDF5",
    "IPTC",
    "MPEG",
    "PDF",
    "WMF",
}  # containers, or run by other programs
_GREY_16 = {"I", "I;16", "I;16L", "I;16B", "I;16N"}
_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112


@lru_cache(maxsize=1)
def formats() -> tuple[str, ...]:
    """The names of the picture formats that this installation of Pillow decodes by itself.

    >>> "JPEG" in formats(), "EPS" in formats()
    (True, False)
    """
    Image.init()
    return tuple(sorted(set(Image.OPEN) - _NOT_PICTURES))


@lru_cache(maxsize=1)
def suffixes() -> frozenset[str]:
    """The file suffixes of `formats()`, in lower case with their dot.

    >>> ".jpg" in suffixes(), ".txt" in suffixes()
    (True, False)
    """
    return frozenset(
        suffix for suffix, name in Image.registered_extensions().items() if name in formats()
    )


def decode(
    source: Path | bytes | Image.Image, size: int | None = 224, resize: Resize = "squash"
) -> Tensor:
    """Return a picture as a float32 tensor in [0, 1], (3, size, size), or (3, H, W) if `size` is None.

    It is the first frame, turned as its EXIF orientation says, with transparency over white. 16-bit grey (modes I;16 and
    I) is divided by 65535; floating-point grey (F) must lie in [0, 1] already. A damaged picture raises one of
    `READ_ERRORS`.

    >>> decode(Image.new("LA", (40, 20), (0, 0)), size=8).unique()
    tensor([1.])
    """
    if isinstance(source, Image.Image):
        return _tensor(_fit(_plain(source), size, resize))
    if isinstance(source, bytes) and not source:
        raise ValueError("the file is empty")
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with Image.open(file, formats=formats()) as picture:
            upright = _plain(picture)
    except _ODD_ERRORS as error:
        raise ValueError(f"malformed picture ({type(error).__name__}: {error})") from error
    return _tensor(_fit(upright, size, resize))


def reason(error: BaseException) -> str:
    """Return why something could not be read, as a text that is the same in every run, without memory addresses.

    >>> reason(OSError("image file is truncated"))
    'OSError: image file is truncated'
    """
    if isinstance(error, UnidentifiedImageError):
        return "not a picture in a format that Pillow can read"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"refused: more than {MAX_PIXELS} pixels, possibly a decompression bomb"
    return f"{type(error).__name__}: {error}"


def resize_tensor(x: Tensor, size: int, resize: Resize = "squash") -> Tensor:
    """Return pictures (N, C, H, W) resized to (N, C, size, size), bilinear with antialiasing.

    "squash" changes the proportions; "crop" scales the short side to size / 0.875 and takes the central square.

    >>> resize_tensor(torch.rand(2, 3, 10, 20), 5, "crop").shape
    torch.Size([2, 3, 5, 5])
    """
    height, width = x.shape[-2:]
    new_width, new_height = _target(width, height, size, resize)
    if (new_height, new_width) != (height, width):
        x = torch.nn.functional.interpolate(
            x, (new_height, new_width), mode="bilinear", antialias=True
        )
    top, left = (new_height - size) // 2, (new_width - size) // 2
    return x[..., top : top + size, left : left + size].clamp(0, 1)


def check_size(size: int | None, resize: str) -> None:
    """Refuse a size below 1 and an unknown way to resize.

    >>> check_size(224, "crop")
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise UserError(
            f"size must be a whole number of pixels, at least 1, or None for no resizing; got {size!r}"
        )
    if resize not in ("squash", "crop"):
        raise unknown("resize", resize, ("squash", "crop"))


def check_pixels(x: Tensor, what: str, any_channels: bool = False) -> Tensor:
    """Return pixels (…, C, H, W) as float32 in [0, 1]; raise a `UserError` that says how to correct them.

    `any_channels` accepts other channel counts than 1 and 3.

    >>> check_pixels(torch.ones(2, 3, 4, 4, dtype=torch.float64), "x").dtype
    torch.float32
    """
    channels, last = x.shape[-3], x.shape[-1]
    if not any_channels and channels not in (1, 3):
        shape = tuple(x.shape)
        if last in (1, 3, 4):
            order = "0, 3, 1, 2" if x.ndim == 4 else "2, 0, 1"
            raise UserError(
                f"{what} has shape {shape}: channels come before rows and columns; use permute({order})"
            )
        raise UserError(
            f"{what} has shape {shape}: a picture has 1 or 3 channels, got {channels}; "
            f"for a network that takes {channels}, say so with shape={list(shape[-3:])}"
        )
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise UserError(
            f"{what} holds {kind}: give pixels in [0, 1] as floats; for 0–255 divide by 255"
        )
    if x.numel() and not bool(torch.isfinite(x).all()):
        raise not_finite(x, what)
    x = x.detach()
    low, high = (float(x.min()), float(x.max())) if x.numel() else (0.0, 0.0)
    if low < -_SLACK:
        raise UserError(
            f"{what} has pixels from {low:.4g} to {high:.4g}: give [0, 1]; Model(mean=…, std=…) normalises"
        )
    if high > 1 + _SLACK:
        raise UserError(
            f"{what} has pixels from {low:.4g} to {high:.4g}: they must lie in [0, 1]; divide by 255"
        )
    return x.to(torch.float32).clamp(0, 1)


def not_finite(x: Tensor, what: str) -> UserError:
    """Return the error for values that are not finite, with the first sample of several (N, …) that has some."""
    if x.ndim not in (2, 4):  # a single picture
        return UserError(f"{what} has values that are not finite (NaN or infinite)")
    has_some = (~torch.isfinite(x)).flatten(1).any(1).nonzero().flatten()
    count, first = len(has_some), int(has_some[0])
    return UserError(
        f"{what} has values that are not finite (NaN or infinite) in {counted(count, 'sample')}; the first is at "
        f"position {first}"
    )


_SLACK = 1e-3  # resampling overshoots a little


def over_white(rgba: Tensor) -> Tensor:
    """Return pictures with transparency, (…, 4, H, W) with alpha as the last channel, over white, (…, 3, H, W).

    >>> over_white(torch.zeros(1, 4, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """
    colour, alpha = rgba[..., :3, :, :], rgba[..., 3:, :, :]
    return colour * alpha + (1 - alpha)


def _plain(picture: Image.Image) -> Image.Image:
    """Return a picture decoded, upright and without transparency, in Pillow's mode RGB.

    16-bit and floating-point grey keep their precision: mode F, in [0, 1].
    """
    if picture.width * picture.height > MAX_PIXELS:
        raise Image.DecompressionBombError(f"{picture.width}×{picture.height} pixels")
    # Load it before the orientation is read: loading a TIFF turns the picture and clears the tag.
    picture.load()
    turn = _TURN.get(picture.getexif().get(_ORIENTATION, 1))
    if turn is not None:
        picture = picture.transpose(turn)
    if picture.mode in _GREY_16:
        return _unit(
            np.asarray(picture).astype(np.float32) / np.float32(65535), "16-bit grey, 0 to 65535"
        )
    if picture.mode == "F":
        return _unit(np.asarray(picture), "floating-point grey, 0 to 1")
    if picture.has_transparency_data:
        front = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert("RGB")
    if picture.mode == "LAB":
        return _rgb_of_lab(picture)
    return picture.convert("RGB")


def _unit(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], expected: str) -> Image.Image:
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"values outside the range of {expected}")
    return Image.fromarray(values)


def _rgb_of_lab(picture: Image.Image) -> Image.Image:
    from PIL import ImageCms

    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    converted = ImageCms.profileToProfile(picture, lab, srgb, outputMode="RGB")
    assert converted is not None  # which only a conversion in place gives
    return converted


def _target(width: int, height: int, size: int, resize: Resize) -> tuple[int, int]:
    """Return the width and height to which a picture is scaled before the central square of `size` is taken."""
    if resize == "squash":
        return size, size
    short = round(size / CROP_RATIO)
    scale = short / min(width, height)
    return max(short, round(width * scale)), max(short, round(height * scale))


def _fit(picture: Image.Image, size: int | None, resize: Resize) -> Image.Image:
    """Return a picture resized to size × size: squashed, or scaled and cropped to its centre; None keeps its size."""
    if size is None:
        return picture
    width, height = _target(*picture.size, size, resize)
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.crop((left, top, left + size, top + size))


def _tensor(picture: Image.Image) -> Tensor:
    values = torch.from_numpy(np.array(picture))
    if picture.mode == "F":
        return values.clamp(0, 1).expand(3, -1, -1).contiguous()
    return values.permute(2, 0, 1).to(torch.float32).div_(255)
