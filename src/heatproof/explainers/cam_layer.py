"""Search for the layer whose feature maps Grad-CAM reads, by one pass with a probe input."""

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

_MAX_PREFIX_TOKENS = 16
"""The most class, distillation and register tokens before the tokens of an image."""

ADAPTIVE: tuple[type[nn.Module], ...] = (
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)
"""Layers whose maps have a fixed size, whatever the input."""


@dataclass(frozen=True)
class Site:
    """Where Grad-CAM reads features: the input or the output of the module at `path`, with their layout and grid.

    `layout` is `channels_first` (B, C, h, w), `channels_last` (B, h, w, C) or `tokens` (B, prefix + h·w, C).
    """

    path: str
    side: Literal["input", "output"]
    layout: Literal["channels_first", "channels_last", "tokens"]
    grid: tuple[int, ...]

    def spatial(self, features: Tensor) -> Tensor:
        """Return features as (B, C, h, w); class, distillation and register tokens, which come first, are dropped.

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
class _ModuleCall:
    """One call of a module in the pass of the probe: its first tensor argument and its (first) output."""

    path: str
    module: nn.Module
    input: Tensor | None
    output: Tensor | None


@dataclass(frozen=True)
class _ProbePass:
    """The pass of one probe input: the calls of all modules in the order in which they finish, and a scalar readout.

    `shape` is that of the sample, `map_sizes` those of the feature maps that modules put out, and `prefix` the number
    of class and other extra tokens, if the network tells.
    """

    model: Model
    shape: tuple[int, ...]
    calls: list[_ModuleCall]
    readout: Tensor
    map_sizes: list[tuple[int, ...]]
    prefix: int | None

    @property
    def is_image(self) -> bool:
        """Whether samples are images (C, H, W); otherwise they are series (C, T) or volumes (C, D, H, W)."""
        return len(self.shape) == 3


_SITES: WeakKeyDictionary[Model, dict[tuple[str | None, tuple[int, ...]], Site]] = (
    WeakKeyDictionary()
)
"""The site of each model, layer and shape of samples that was searched for before."""


def find_layer(
    model: Model,
    shape: Sequence[int],
    layer: str | None = None,
    aux: Mapping[str, Tensor] | None = None,
) -> Site:
    """Return which layer Grad-CAM reads in a model, and how its values lie on the image; the result is cached.

    `shape` is that of a sample, (C, H, W). A `layer` is read at its output. Without it, the last candidate that the
    output depends on is chosen. For images, candidates are 4-D feature maps larger than 1×1, and the inputs of
    transformer blocks: modules in a list that contain a norm and return as many tokens as they get. For series (C, T)
    and volumes (C, D, H, W), they are maps with as many channels as the last convolution gave.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> find_layer(Model(net), (3, 8, 8))
    Site(path='1', side='output', layout='channels_first', grid=(6, 6))
    """
    sites = _SITES.setdefault(model, {})
    key = (layer, tuple(shape))
    if key not in sites:
        probe_pass = _run_probe(model, tuple(shape), aux or {})
        sites[key] = _last_used_site(probe_pass) if layer is None else _site_of(layer, probe_pass)
    return sites[key]


def _run_probe(model: Model, shape: tuple[int, ...], aux: Mapping[str, Tensor]) -> _ProbePass:
    """Run one random input (1, *shape) through the model, and return the input and output of every module's call.

    The result also has a weighted sum of the logits, by which it is found out which layers the output depends on.
    """
    weight = next((p for p in model.module.parameters() if p.is_floating_point()), torch.zeros(()))
    noise = rand.normal(rand.keys(0, ("probe",), "grad_cam").to(model.device), shape)
    probe = noise.to(weight.dtype).requires_grad_()
    calls: list[_ModuleCall] = []
    with torch.enable_grad(), _recorded(model.module, calls):
        logits = model.logits(probe.clone(), aux)
        # Unequal weights, so that the gradient does not vanish for a head whose rows sum to zero.
        class_weights = torch.arange(1, logits.shape[1] + 1, device=logits.device).cos()
        readout = (logits * class_weights).sum()
    map_sizes = []
    for call in calls:
        if call.output is not None and call.output.ndim == 4 == len(shape) + 1:
            map_sizes.append(tuple(call.output.shape[2:]))
    # timm's vision transformers tell how many tokens come before those of the image.
    prefixes = (getattr(module, "num_prefix_tokens", None) for module in model.module.modules())
    prefix = next((count for count in prefixes if isinstance(count, int)), None)
    return _ProbePass(model, shape, calls, readout, map_sizes, prefix)


def _site_of(layer: str, probe_pass: _ProbePass) -> Site:
    """Return the output of the layer at a path as the place that Grad-CAM reads; raise if it is no feature map."""
    probe_pass.model.layer(layer)  # raises for an unknown layer
    calls = [call for call in reversed(probe_pass.calls) if call.path == layer]
    if probe_pass.is_image:
        # Of a layer that is used many times, the last call decides.
        site = _output_site(calls[0], probe_pass) if calls else None
    else:
        maps = [call for call in calls if _is_map(call, probe_pass.shape)]
        site = _map_site(maps[0]) if maps else None
    if site is None:
        raise UserError(
            f"layer {layer!r} of {probe_pass.model.name} gives no feature map: grad_cam needs an output (B, C, h, w), "
            f"(B, h, w, C) or (B, tokens, C) whose tokens form a grid, with more than one position"
        )
    return site


def _last_used_site(probe_pass: _ProbePass) -> Site:
    """Return the place that Grad-CAM reads by default: the last feature map or token sequence with a gradient.

    Candidates are tried from the last one on. The first whose gradient is not zero everywhere is taken.
    """
    if probe_pass.is_image:
        candidates = list(_image_candidates(probe_pass))
    else:
        candidates = list(_convolution_candidates(probe_pass))
    readout = probe_pass.readout
    connected: list[Site] = []
    for site, features in reversed(candidates):
        if not readout.requires_grad or not features.requires_grad:
            continue
        (gradient,) = torch.autograd.grad(readout, features, retain_graph=True, allow_unused=True)
        if gradient is None:
            continue
        if bool(site.spatial(gradient).any()):
            return site
        connected.append(site)
    if connected:
        # Some networks start with a head of zeros, which lets no gradient through to any layer.
        return connected[0]
    names = [call.path for call in probe_pass.calls if call.path][-5:]
    raise UserError(
        f"grad_cam finds no feature map with more than one position that the output of {probe_pass.model.name} depends "
        f"on; name a layer, for instance one of {', '.join(names)}"
    )


def _image_candidates(probe_pass: _ProbePass) -> Iterator[tuple[Site, Tensor]]:
    """Yield the places of an image network that Grad-CAM could read, each with its tensor, in the order of the pass.

    These are the inputs of the innermost transformer blocks, and 4-D feature maps.
    """
    in_lists: set[int] = set()  # ids of the modules in lists, where transformers have their blocks
    for module in probe_pass.model.module.modules():
        if isinstance(module, nn.Sequential | nn.ModuleList):
            in_lists.update(id(child) for child in module)
    blocks = {
        call.path for call in probe_pass.calls if id(call.module) in in_lists and _is_block(call)
    }
    for call in probe_pass.calls:
        is_innermost = not any(block.startswith(f"{call.path}.") for block in blocks)
        if call.path in blocks and is_innermost and call.input is not None:
            grid = token_grid(
                call.input.shape[1], probe_pass.shape, probe_pass.map_sizes, probe_pass.prefix
            )
            if grid is not None:
                yield Site(call.path, "input", "tokens", grid), call.input
        elif call.path and call.output is not None and call.output.ndim == 4:
            is_adaptive = isinstance(call.module, ADAPTIVE)
            site = None if is_adaptive else _output_site(call, probe_pass)
            if site is not None:
                yield site, call.output


def _convolution_candidates(probe_pass: _ProbePass) -> Iterator[tuple[Site, Tensor]]:
    """Yield the feature maps that Grad-CAM could read in a network of series or volumes, each with its tensor.

    They have as many channels as the last convolution before them gave. The number of channels tells maps (B, C, T)
    from tokens (B, L, C).
    """
    channels = 0
    for call in probe_pass.calls:
        if isinstance(call.module, nn.Conv1d | nn.Conv3d):
            channels = call.module.out_channels
        if not call.path or call.output is None or not _is_map(call, probe_pass.shape):
            continue
        if call.output.shape[1] == channels:
            yield _map_site(call), call.output


def _is_map(call: _ModuleCall, shape: tuple[int, ...]) -> bool:
    """Return whether a call's output is a feature map of a series or volume: (1, channels, …) with several positions.

    `shape` is that of a sample. Adaptive pooling is left out: its output has a fixed size, whatever the input.
    """
    output = call.output
    if output is None or output.ndim != len(shape) + 1 or isinstance(call.module, ADAPTIVE):
        return False
    return output[0, 0].numel() > 1


def _map_site(call: _ModuleCall) -> Site:
    """Return the output of a call, a feature map (1, C, …), as a place that Grad-CAM can read."""
    assert call.output is not None  # because `_is_map` is true
    return Site(call.path, "output", "channels_first", tuple(call.output.shape[2:]))


def _is_block(call: _ModuleCall) -> bool:
    """Return whether a module looks like a transformer block: it keeps the shape (1, L, C) and contains a norm."""
    if call.input is None or call.output is None or call.input.shape != call.output.shape:
        return False
    if call.input.ndim != 3 or len(call.input) != 1 or call.input.shape[1] < 2:
        return False
    submodules = list(call.module.modules())[1:]
    return any("norm" in type(module).__name__.lower() for module in submodules)


def _output_site(call: _ModuleCall, probe_pass: _ProbePass) -> Site | None:
    """Return the output of a call in an image network as a place that Grad-CAM can read, or None.

    It can be (1, C, h, w), (1, h, w, C) or tokens (1, L, C) that lie on a grid, with more than one position. A single row
    or column is no map of the image unless the image has that form too.
    """
    output, shape = call.output, probe_pass.shape
    if output is None or len(output) != 1:
        return None
    if output.ndim == 3:
        grid = token_grid(output.shape[1], shape, probe_pass.map_sizes, probe_pass.prefix)
        return None if grid is None else Site(call.path, "output", "tokens", grid)
    if output.ndim != 4:
        return None
    if _has_channels_last(call.module, output, shape):
        layout: Literal["channels_first", "channels_last"] = "channels_last"
        height, width = output.shape[1:3]
    else:
        layout = "channels_first"
        height, width = output.shape[2:]
    is_strip = min(height, width) == 1 and _aspect_error((height, width), shape) > 0
    if height * width < 2 or is_strip:
        return None
    return Site(call.path, "output", layout, (height, width))


def _has_channels_last(module: nn.Module, output: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether a 4-D output is (B, h, w, C), by the kind of module or by the aspect ratio of the image."""
    # A subclass of LayerNorm may move the channels itself, as ConvNeXt's does.
    if type(module) is nn.LayerNorm and len(module.normalized_shape) == 1:
        return True
    if isinstance(module, nn.Linear):
        return True
    rows, columns = output.shape[1:3]
    last_fits = rows * shape[2] == columns * shape[1]
    first_fits = _aspect_error(tuple(output.shape[2:]), shape) == 0
    return last_fits and not first_fits


def _aspect_error(grid: tuple[int, ...], shape: tuple[int, ...]) -> float:
    """Return how much the aspect ratios of a grid and of an image (C, H, W) differ, as |log ratio|; 0 if they agree.

    A difference that rounding the grid by one cell explains counts as 0, except for square images.
    """
    rows, columns = grid
    if not rows or not columns:
        return math.inf
    ratio = math.log(rows * shape[2] / (columns * shape[1]))
    is_square = shape[1] == shape[2]
    slack = 0.0 if is_square else math.log1p(1 / min(rows, columns))
    return max(0.0, abs(ratio) - slack)


def token_grid(
    tokens: int,
    shape: Sequence[int],
    sizes: Iterable[Sequence[int]] = (),
    prefix: int | None = None,
) -> tuple[int, int] | None:
    """Return the grid (h, w) of image patches that a transformer's tokens stand for; None if they form no grid.

    `tokens` is their number, which may include a class token and others. `sizes` are those of feature maps in the same
    pass: one of them, such as the patch embedding's, is the grid if the numbers match. Otherwise the grid has the
    aspect ratio of the input `shape` (C, H, W) and leaves as few tokens over as possible. `prefix` is the number of
    tokens before those of the image, if known.

    >>> token_grid(197, (3, 224, 224)), token_grid(198, (3, 224, 224), [(14, 14)]), token_grid(49, (3, 224, 224))
    ((14, 14), (14, 14), (7, 7))
    """
    _, height, width = shape
    prefixes = range(_MAX_PREFIX_TOKENS + 1) if prefix is None else (prefix, 0)
    patch_counts = [tokens - extra for extra in prefixes if tokens - extra > 1]

    fitting = {(int(h), int(w)) for h, w in sizes if _aspect_error((h, w), tuple(shape)) == 0}
    for patches in patch_counts:
        for rows, columns in sorted(fitting):
            if rows * columns == patches:
                return rows, columns
    for patches in patch_counts:
        rows = round(math.sqrt(patches * height / width))
        if not rows or patches % rows:
            continue
        columns = patches // rows
        if rows * width == columns * height:
            return rows, columns
    return None


@contextmanager
def _recorded(module: nn.Module, calls: list[_ModuleCall]) -> Iterator[None]:
    """Append every call of a submodule, with its input and output, to `calls` while the context is open.

    The calls come in the order in which they finish.
    """
    handles = []

    def record_calls_of(path: str, submodule: nn.Module) -> None:
        """Register a hook on the submodule at `path` that appends its calls."""

        def record(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            module_input = first_tensor([*args, *kwargs.values()])
            calls.append(_ModuleCall(path, submodule, module_input, first_tensor(output)))

        handles.append(submodule.register_forward_hook(record, with_kwargs=True))

    try:
        for path, submodule in module.named_modules():
            record_calls_of(path, submodule)
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
    """Return a tensor, or the first one of a tuple or list, if it is floating-point."""
    if isinstance(value, tuple | list):
        value = next((item for item in value if isinstance(item, Tensor)), None)
    is_floating = isinstance(value, Tensor) and value.is_floating_point()
    return value if is_floating else None
