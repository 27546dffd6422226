"""The layer whose feature maps Grad-CAM reads: found by one pass with a probe, and remembered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from heatproof import rand
from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.smoothed import Smoothed

_MOST_PREFIX_TOKENS = 16

ADAPTIVE: tuple[type[nn.Module], ...] = (
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
)
ADAPTIVE += (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
"""Layers that give maps of a size of their own."""


@dataclass(frozen=True)
class Site:
    """Where Grad-CAM reads features: the input or the output of the module at `path`, and how they lie.

    `layout` is `channels_first` (B, C, h, w), `channels_last` (B, h, w, C) or `tokens` (B, prefix + h·w, C).
    """

    path: str
    side: Literal["input", "output"]
    layout: Literal["channels_first", "channels_last", "tokens"]
    grid: tuple[int, ...]

    def spatial(self, features: Tensor) -> Tensor:
        """The features as (B, C, h, w); class, distillation and register tokens, which come first, are dropped.

        >>> Site("blocks.11", "input", "tokens", (14, 14)).spatial(torch.zeros(2, 197, 8)).shape
        torch.Size([2, 8, 14, 14])
        """
        if self.layout == "channels_first":
            return features
        if self.layout == "channels_last":
            return features.permute(0, 3, 1, 2)
        patches = features[:, -math.prod(self.grid) :].transpose(1, 2)
        return patches.reshape(*patches.shape[:2], *self.grid)


@dataclass(frozen=True)
class _Seen:
    """What one module took and gave in the probing pass."""

    path: str
    module: nn.Module
    taken: Tensor | None
    given: Tensor | None


_FOUND: WeakKeyDictionary[Model, dict[tuple[str | None, tuple[int, ...]], Site]] = (
    WeakKeyDictionary()
)


def find_layer(
    model: Model,
    shape: Sequence[int],
    layer: str | None = None,
    aux: Mapping[str, Tensor] | None = None,
) -> Site:
    """Where Grad-CAM reads a model, for samples of `shape` (C, H, W); found by one pass and remembered.

    Of series (C, T) and volumes (C, D, H, W) candidates are maps with as many channels as the convolution before them
    gave. Otherwise they are 4-D feature maps larger than 1×1, and the inputs of blocks that take and give the same
    number of tokens, stand in a list and contain a norm. The last one that the output depends on is taken.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> find_layer(Model(net), (3, 8, 8))
    Site(path='1', side='output', layout='channels_first', grid=(6, 6))
    """
    known = _FOUND.setdefault(model, {})
    key = (layer, tuple(shape))
    if key not in known:
        known[key] = _search(model, tuple(shape), layer, aux or {})
    return known[key]


def _search(
    model: Model, shape: tuple[int, ...], layer: str | None, aux: Mapping[str, Tensor]
) -> Site:
    weight = next((p for p in model.module.parameters() if p.is_floating_point()), torch.zeros(()))
    probe = rand.normal(rand.keys(0, ("probe",), "grad_cam").to(model.device), shape).to(
        weight.dtype
    )
    seen: list[_Seen] = []
    with torch.enable_grad(), _watched(model.module, seen):
        logits = model.logits(probe.requires_grad_().clone(), aux)
        # Unequal weights, so that the gradient does not vanish for a head whose rows sum to zero.
        readout = (logits * torch.arange(1, logits.shape[1] + 1, device=logits.device).cos()).sum()
    sizes = [
        tuple(s.given.shape[2:])
        for s in seen
        if s.given is not None and s.given.ndim == 4 == len(shape) + 1
    ]
    counts = (getattr(part, "num_prefix_tokens", None) for part in model.module.modules())
    prefix = next((count for count in counts if isinstance(count, int)), None)
    if layer is not None:
        model.layer(layer)
        named = [s for s in reversed(seen) if s.path == layer]
        if len(shape) == 3:
            site = next((_output_site(s, shape, sizes, prefix) for s in named), None)
        else:
            site = next((_map_site(s) for s in named if _is_map(s, shape)), None)
        if site is None:
            raise UserError(
                f"layer {layer!r} of {model.name} gives no feature map: grad_cam needs an output (B, C, h, w), "
                f"(B, h, w, C) or (B, tokens, C) whose tokens form a grid, with more than one position"
            )
        return site
    flat = len(shape) == 3
    candidates = list(
        _candidates(model.module, seen, shape, sizes, prefix) if flat else _convolved(seen, shape)
    )
    connected: list[Site] = []
    for site, tensor in reversed(candidates):
        gradient = None
        if readout.requires_grad and tensor.requires_grad:
            (gradient,) = torch.autograd.grad(readout, tensor, retain_graph=True, allow_unused=True)
        if gradient is not None and bool(site.spatial(gradient).any()):
            return site
        if gradient is not None:
            connected.append(site)
    if (
        connected
    ):  # a head of zeros, as some networks start with, lets no gradient through to any layer
        return connected[0]
    names = [s.path for s in seen if s.path][-5:]
    raise UserError(
        f"grad_cam finds no feature map with more than one position that the output of {model.name} depends on; "
        f"name a layer, for instance one of {', '.join(names)}"
    )


def _candidates(
    module: nn.Module,
    seen: list[_Seen],
    shape: tuple[int, ...],
    sizes: list[tuple[int, ...]],
    prefix: int | None,
) -> Iterator[tuple[Site, Tensor]]:
    """Sites in the order in which their modules finish, each with its tensor in the probing pass."""
    in_lists = {
        id(child)
        for part in module.modules()
        if isinstance(part, nn.Sequential | nn.ModuleList)
        for child in part
    }
    blocks = {s.path for s in seen if id(s.module) in in_lists and _is_block(s)}
    for entry in seen:
        holds_another = any(other.startswith(f"{entry.path}.") for other in blocks)
        if entry.path in blocks and not holds_another and entry.taken is not None:
            grid = token_grid(entry.taken.shape[1], shape, sizes, prefix)
            if grid is not None:
                yield Site(entry.path, "input", "tokens", grid), entry.taken
        elif (
            entry.path
            and entry.given is not None
            and entry.given.ndim == 4
            and not isinstance(entry.module, ADAPTIVE)
        ):
            site = _output_site(entry, shape, sizes, prefix)
            if site is not None:
                yield site, entry.given


def _convolved(seen: list[_Seen], shape: tuple[int, ...]) -> Iterator[tuple[Site, Tensor]]:
    """Maps of series and volumes, which have the channels of the last convolution; tokens (B, L, C) have others."""
    channels = 0
    for entry in seen:
        if isinstance(entry.module, nn.Conv1d | nn.Conv3d):
            channels = entry.module.out_channels
        if (
            entry.path
            and entry.given is not None
            and _is_map(entry, shape)
            and entry.given.shape[1] == channels
        ):
            yield _map_site(entry), entry.given


def _is_map(entry: _Seen, shape: tuple[int, ...]) -> bool:
    """Whether a module gave channels over more than one position, as many axes as the sample has."""
    given = entry.given
    resized = isinstance(entry.module, ADAPTIVE)
    return (
        given is not None
        and given.ndim == len(shape) + 1
        and given[0, 0].numel() > 1
        and not resized
    )


def _map_site(entry: _Seen) -> Site:
    assert entry.given is not None  # as it is a map
    return Site(entry.path, "output", "channels_first", tuple(entry.given.shape[2:]))


def _is_block(entry: _Seen) -> bool:
    """Tokens in, as many tokens out, and a norm somewhere inside."""
    taken, given = entry.taken, entry.given
    if (
        taken is None
        or given is None
        or taken.ndim != 3
        or len(taken) != 1
        or taken.shape != given.shape
    ):
        return False
    inside = list(entry.module.modules())[1:]
    return taken.shape[1] > 1 and any("norm" in type(part).__name__.lower() for part in inside)


def _output_site(
    entry: _Seen, shape: tuple[int, ...], sizes: list[tuple[int, ...]], prefix: int | None
) -> Site | None:
    given = entry.given
    if given is None or len(given) != 1:
        return None
    if given.ndim == 3:
        grid = token_grid(given.shape[1], shape, sizes, prefix)
        return None if grid is None else Site(entry.path, "output", "tokens", grid)
    if given.ndim != 4:
        return None
    first, last = tuple(given.shape[2:]), tuple(given.shape[1:3])
    # A subclass of LayerNorm may move the channels itself, as ConvNeXt's does.
    over_last = type(entry.module) is nn.LayerNorm and len(entry.module.normalized_shape) == 1
    last_fits = last[0] * shape[2] == last[1] * shape[1] and _misfit(first, shape) > 0
    is_last = over_last or isinstance(entry.module, nn.Linear) or last_fits
    height, width = last if is_last else first
    if height * width < 2 or (min(height, width) == 1 and _misfit((height, width), shape) > 0):
        return None
    return Site(
        entry.path, "output", "channels_last" if is_last else "channels_first", (height, width)
    )


def _misfit(grid: tuple[int, ...], shape: tuple[int, ...]) -> float:
    """How far the grid's aspect ratio is from the input's, as a log ratio; up to one cell of rounding is none."""
    rows, columns = grid
    if not rows or not columns:
        return math.inf
    ratio = math.log(rows * shape[2] / (columns * shape[1]))
    slack = 0.0 if shape[1] == shape[2] else math.log1p(1 / min(rows, columns))
    return max(0.0, abs(ratio) - slack)


def token_grid(
    tokens: int,
    shape: Sequence[int],
    sizes: Iterable[Sequence[int]] = (),
    prefix: int | None = None,
) -> tuple[int, int] | None:
    """The grid (h, w) on which a number of tokens lies, the class token and its like left out; None if there is none.

    `sizes` are those of feature maps met on the way: the patch embedding's is the best witness. Otherwise the grid has
    the aspect ratio of the input `shape` (C, H, W) and leaves as few tokens over as possible. `prefix` fixes how many.

    >>> token_grid(197, (3, 224, 224)), token_grid(198, (3, 224, 224), [(14, 14)]), token_grid(49, (3, 224, 224))
    ((14, 14), (14, 14), (7, 7))
    """
    _, height, width = shape
    witnesses = sorted({(int(h), int(w)) for h, w in sizes if _misfit((h, w), tuple(shape)) == 0})
    for extra in range(_MOST_PREFIX_TOKENS + 1) if prefix is None else (prefix, 0):
        patches = tokens - extra
        if patches < 2:
            continue
        for rows, columns in witnesses:
            if rows * columns == patches:
                return rows, columns
    for extra in range(_MOST_PREFIX_TOKENS + 1) if prefix is None else (prefix, 0):
        patches = tokens - extra
        rows = round(math.sqrt(max(patches, 0) * height / width))
        if (
            patches > 1
            and rows
            and patches % rows == 0
            and rows * width == (patches // rows) * height
        ):
            return rows, patches // rows
    return None


@contextmanager
def _watched(module: nn.Module, seen: list[_Seen]) -> Iterator[None]:
    """Note what every submodule takes and gives, in the order in which they finish."""
    handles = []

    def watch(path: str) -> None:
        def note(part: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            taken = first_tensor([*args, *kwargs.values()])
            seen.append(_Seen(path, part, taken, first_tensor(output)))

        handles.append(module.get_submodule(path).register_forward_hook(note, with_kwargs=True))

    try:
        for path, _ in module.named_modules():
            watch(path)
        yield
    finally:
        for handle in handles:
            handle.remove()


def refuse_averages(name: str, model: Model) -> None:
    """Raise `UserError` for a smoothed model, whose many passes have no layers in common."""
    if isinstance(model, Smoothed):
        raise UserError(
            f"{name} reads layers, but {model.name} averages many passes; explain what it smooths"
        )


def first_tensor(value: Any) -> Tensor | None:
    """The tensor itself, or the first one of a tuple or list."""
    if isinstance(value, tuple | list):
        value = next((v for v in value if isinstance(v, Tensor)), None)
    return value if isinstance(value, Tensor) and value.is_floating_point() else None
