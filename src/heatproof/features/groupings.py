"""Groupings of an input into features, one object for explainers, certificates and removal.

A grouping labels every position of a sample with the number of the feature it belongs to. Positions are the pixels of
an image (B, C, H, W), the voxels of a volume (B, C, D, H, W), the steps of a series (B, C, T) or the columns of a
table (B, F): channels always go together.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof.errors import UserError, resolve
from heatproof.features.segments import COLUMNS, spatial
from heatproof.features.superpixels import missing_skimage, quickshift, slic
from heatproof.features.tokens import Passages, Tokens
from heatproof.types import Batch, parameter_class


@parameter_class
class Pixels:
    """Every position is a feature of its own: a pixel, a time step or a column; columns of one category go together.

    >>> Pixels().segments(Batch(ids=("a",), x=torch.zeros(1, 3, 2, 2))).tolist()
    [[[0, 1], [2, 3]]]
    """

    name: ClassVar[str] = "pixels"

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape (B, …) can be grouped."""
        spatial(shape)

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of features of a sample, or None where it depends on the sample."""
        return math.prod(spatial(shape))

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, *spatial) int64, from 0 to n − 1 in each sample."""
        size = spatial(batch.x.shape)
        if COLUMNS in batch.aux and batch.x.ndim == 2:
            return batch.aux[COLUMNS].to(batch.x.device)
        labels = torch.arange(math.prod(size), device=batch.x.device).reshape(size)
        return labels.expand(len(batch), *size)


@parameter_class
class Patches:
    """Square patches of `size` pixels, in volumes cubes, row by row; the last are smaller where it does not divide.

    >>> Patches(size=2).segments(Batch(ids=("a",), x=torch.zeros(1, 3, 2, 3))).tolist()
    [[[0, 0, 1], [0, 0, 1]]]
    """

    name: ClassVar[str] = "patches"
    size: Annotated[int, Field(ge=1)] = 16

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape (B, C, H, W) or (B, C, D, H, W) have at least two patches."""
        sides = _image_sides(self.name, shape)
        _check_several(self.name, self.size, sides, f"a {'×'.join(map(str, sides))} image")

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of features of a sample, or None where it depends on the sample."""
        return math.prod(math.ceil(side / self.size) for side in _image_sides(self.name, shape))

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, H, W) or (B, D, H, W) int64, from 0 to n − 1 in each sample."""
        return _cells(self.size, _image_sides(self.name, batch.x.shape), batch)


@parameter_class
class Windows:
    """Consecutive windows of `size` time steps of a series (B, C, T) or of columns (B, F); the last may be shorter.

    >>> Windows(size=2).segments(Batch(ids=("a",), x=torch.zeros(1, 4, 5))).tolist()
    [[0, 0, 1, 1, 2]]
    """

    name: ClassVar[str] = "windows"
    size: Annotated[int, Field(ge=1)] = 10

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape (B, C, T) or (B, F) have at least two windows."""
        length = _series_length(self.name, shape)
        _check_several(self.name, self.size, (length,), f"{length} steps")

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of features of a sample, or None where it depends on the sample."""
        return math.ceil(_series_length(self.name, shape) / self.size)

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, T) int64, from 0 to n − 1 in each sample."""
        return _cells(self.size, (_series_length(self.name, batch.x.shape),), batch)


@parameter_class
class Superpixels:
    """Quickshift superpixels of the image itself, by default with the parameters of LIME.

    The number of features differs between images. Images are read in their own units, [0, 1]; a perturbed image has
    its own superpixels.

    >>> x = torch.zeros(1, 1, 8, 8)
    >>> x[..., 4:] = 1.0
    >>> Superpixels(kernel_size=1.0, max_dist=10.0).segments(Batch(ids=("a",), x=x))[0, 0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """

    name: ClassVar[str] = "superpixels"
    method: Literal["quickshift"] = "quickshift"
    kernel_size: Annotated[float, Field(ge=1, le=50, allow_inf_nan=False)] = 4.0
    max_dist: Annotated[float, Field(gt=0)] = 200.0
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.2

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape are grey or RGB images (B, C, H, W)."""
        _check_colour_image(self.name, shape)

    def total(self, shape: Sequence[int]) -> int | None:
        """Return None, because the number of features depends on the image."""
        return None

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, H, W) int64, from 0 to n − 1 in each sample."""
        _check_colour_image(self.name, batch.x.shape)
        return quickshift(batch.x, self.kernel_size, self.max_dist, self.ratio)


@parameter_class
class Slic:
    """SLIC superpixels or supervoxels, about `n_segments` compact regions of similar colour; an extra, `superpixels`.

    >>> x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> Slic(n_segments=4).segments(Batch(ids=("a",), x=x)).shape
    torch.Size([1, 16, 16])
    """

    name: ClassVar[str] = "slic"
    n_segments: Annotated[int, Field(ge=2)] = 50
    compactness: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless scikit-image is there and inputs are grey or RGB images or volumes."""
        _check_colour_image(self.name, shape)
        if importlib.util.find_spec("skimage") is None:
            raise missing_skimage()

    def total(self, shape: Sequence[int]) -> int | None:
        """Return None, because the number of features depends on the image."""
        return None

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, H, W) or (B, D, H, W) int64, from 0 to n − 1 in each sample."""
        _check_colour_image(self.name, batch.x.shape)
        return slic(batch.x, self.n_segments, self.compactness)


@parameter_class
class Elements:
    """Every element of a set, or node of a graph, (B, N, F), is a feature: all F values of it together.

    >>> Elements().segments(Batch(ids=("a",), x=torch.zeros(1, 3, 2))).tolist()
    [[[0, 0], [1, 1], [2, 2]]]
    """

    name: ClassVar[str] = "elements"

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape are sets or graphs (B, N, F) of at least two elements."""
        if len(shape) != 3 or shape[1] < 2:
            raise UserError(
                f"elements are features of sets and graphs (B, N, F) with N above 1, got {tuple(shape)}"
            )

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of elements of a sample, padding included."""
        self.check(shape)
        return int(shape[1])

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, N, F) int64: the number of the element."""
        self.check(batch.x.shape)
        return torch.arange(batch.x.shape[1], device=batch.x.device)[:, None].expand(batch.x.shape)

    def fixed(self, batch: Batch) -> Tensor:
        """Return which elements are never hidden, (B, N) boolean: padding, where `aux["mask"]` is false."""
        is_real = batch.aux.get("mask")
        if is_real is None:
            return torch.zeros(batch.x.shape[:2], dtype=torch.bool, device=batch.x.device)
        return ~is_real.bool()


class LabelMap:
    """Labels of all positions of a sample, (*spatial) int64 from 0 without gaps, that are the same for all samples.

    >>> LabelMap([[7, 7], [9, 7]])
    LabelMap(2×2, 2 features, ...)
    """

    def __init__(self, labels: Any) -> None:
        """Take whole numbers, one for each position, and number the different ones from 0 on without gaps."""
        try:
            values = torch.as_tensor(labels)
        except (TypeError, ValueError, RuntimeError):
            raise UserError(
                f"labels of features are whole numbers, one for each position, got {labels!r}"
            ) from None
        if values.is_floating_point() or values.dtype == torch.bool or not values.numel():
            kind = str(values.dtype).removeprefix("torch.")
            raise UserError(
                f"labels of features are whole numbers, one for each position, got {kind} of shape {tuple(values.shape)}"
            )
        _, self.labels = torch.unique(values.cpu(), return_inverse=True)

    @property
    def count(self) -> int:
        """The number of features."""
        return int(self.labels.max()) + 1

    def of_shape(self, shape: Sequence[int]) -> Tensor:
        """Return the feature numbers of all positions, (*spatial), for inputs of a shape (B, …); raise if they do not fit.

        Captum's masks have a batch axis of 1, and channels; these must agree, because channels go together.
        """
        size = spatial(shape)
        labels: Tensor = self.labels
        if labels.ndim == len(shape) and len(labels) == 1:
            labels = labels[0]
        if labels.ndim == len(size) + 1:
            if bool((labels != labels[:1]).any()):
                raise UserError("labels of features differ between channels, which go together")
            labels = labels[0]
        if tuple(labels.shape) != size:
            raise UserError(
                f"labels of features have shape {tuple(self.labels.shape)}, and the inputs have {size} positions"
            )
        return labels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelMap) and torch.equal(self.labels, other.labels)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.labels.shape))
        digest = hashlib.sha256(self.labels.contiguous().numpy().tobytes()).hexdigest()
        return f"LabelMap({shape}, {self.count} features, {digest[:8]})"


def _label_map(value: Any) -> LabelMap:
    return value if isinstance(value, LabelMap) else LabelMap(value)


@parameter_class
class Labels:
    """Features given as whole numbers, one for each position, which are the same for all samples.

    A tensor or an array in the place of a grouping means these: `FeatureAblation(features=labels)`, as a `feature_mask`
    of Captum.

    >>> Labels([5, 5, 8]).segments(Batch(ids=("a",), x=torch.zeros(1, 3))).tolist()
    [[0, 0, 1]]
    """

    name: ClassVar[str] = "labels"
    labels: Annotated[LabelMap, BeforeValidator(_label_map)]

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless there is a label for each position of inputs of this shape (B, …)."""
        self.labels.of_shape(shape)

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of features of a sample."""
        return self.labels.count

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, *spatial) int64, from 0 to n − 1 in each sample."""
        labels = self.labels.of_shape(batch.x.shape).to(batch.x.device)
        return labels.expand(len(batch), *labels.shape)


_KINDS: tuple[Any, ...] = (
    Elements,
    Labels,
    Passages,
    Patches,
    Pixels,
    Slic,
    Superpixels,
    Tokens,
    Windows,
)
GROUPINGS: dict[str, type[Any]] = {kind.name: kind for kind in _KINDS}


@runtime_checkable
class Grouping(Protocol):
    """What every grouping has: the classes of this module, or a user's own."""

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape (B, …) can be grouped."""

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of features of a sample, or None where it depends on the sample."""

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, *spatial) int64, from 0 to n − 1 in each sample."""


@runtime_checkable
class WithFixed(Protocol):
    """A grouping some of whose features always stay, such as the special tokens of a text."""

    def fixed(self, batch: Batch) -> Tensor:
        """Return which features are never hidden, (B, n) boolean."""


@runtime_checkable
class Hiding(Protocol):
    """A grouping that hides features itself, as token ids are masked; of all others a value takes their place."""

    def hide(
        self, inputs: Tensor, aux: Mapping[str, Tensor], kept: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return samples (R, …) and auxiliary tensors with only the features `kept` (R, n)."""


def fixed(features: Grouping, batch: Batch) -> Tensor | None:
    """Return which of the n features are never hidden, such as padding, (B, n) boolean; None where all may be hidden.

    >>> batch = Batch(("a",), torch.ones(1, 2, 2), {"mask": torch.tensor([[True, False]])})
    >>> fixed(Elements(), batch).tolist(), fixed(Pixels(), batch)
    ([[False, True]], None)
    """
    if not isinstance(features, WithFixed):
        return None
    return features.fixed(batch).to(batch.x.device)


def grouping(value: Any) -> Any:
    """Return a grouping from its name, from `{name: {parameters}}` or from `{"name": …, parameters}`, or an object itself.

    >>> grouping("pixels"), grouping({"patches": {"size": 8}}), grouping({"name": "windows", "size": 5})
    (Pixels(), Patches(size=8), Windows(size=5))
    """
    if isinstance(value, Tensor) or type(value).__module__ == "numpy":
        return Labels(value)
    if isinstance(value, Mapping) and "name" in value:
        value = {value["name"]: {key: field for key, field in value.items() if key != "name"}}
    return resolve("grouping", GROUPINGS, value, lambda item: isinstance(item, Grouping))


GroupingField = Annotated[Grouping, BeforeValidator(grouping)]
"""The type of a field that holds a grouping and is also given by name in a study file."""


def _check_several(name: str, size: int, sides: Sequence[int], whole: str) -> None:
    """Raise `UserError` where a cell of `size` covers the whole sample, so that there is one feature only."""
    if size >= max(sides):
        raise UserError(
            f"{name} of size {size} make one feature of {whole}; stay below {max(sides)}"
        )


def _cells(size: int, sides: Sequence[int], batch: Batch) -> Tensor:
    """Return the number of the cell that each position lies in, (B, *sides), for a grid of cells over each sample.

    Cells have `size` positions along each axis and are numbered row by row; those at the end may be smaller.
    """
    labels = torch.zeros((), dtype=torch.int64, device=batch.x.device)
    for side in sides:
        cells_on_axis = math.ceil(side / size)
        cell_on_axis = torch.arange(side, device=batch.x.device) // size
        # Add an axis to the labels, with as many numbers for each old label as there are cells on this axis.
        labels = labels[..., None] * cells_on_axis + cell_on_axis
    return labels.expand(len(batch), *labels.shape)


def _image_sides(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return (H, W) of images, or (D, H, W) of volumes where the features exist on them; raise for other shapes."""
    is_image = len(shape) == 4
    is_volume = len(shape) == 5 and name in (Patches.name, Slic.name)
    if not is_image and not is_volume:
        raise UserError(
            f"{name} are features of images (B, C, H, W), but the inputs have shape {tuple(shape)}; there are patches "
            "and slic for volumes too, windows for series, pixels for single steps and columns, elements for sets and "
            "graphs, tokens for text"
        )
    return tuple(map(int, shape[2:]))


def _check_colour_image(name: str, shape: Sequence[int]) -> None:
    """Raise `UserError` unless inputs are grey or RGB images (or volumes, for SLIC)."""
    _image_sides(name, shape)
    if shape[1] not in (1, 3):
        raise UserError(
            f"{name} need grey or RGB images, but the inputs have {shape[1]} channels; use patches"
        )


def _series_length(name: str, shape: Sequence[int]) -> int:
    """Return the number of steps of series (B, C, T) or of columns (B, F); raise for other shapes."""
    if len(shape) not in (2, 3):
        raise UserError(
            f"{name} are features of series or columns, got {tuple(shape)}; for images use patches"
        )
    return int(shape[-1])
