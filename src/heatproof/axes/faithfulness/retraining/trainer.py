"""A ready trainer for small image classifiers: the part of retraining that a user may replace by an own function."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from heatproof.errors import UserError
from heatproof.models.randomised import seeded
from heatproof.types import label_of

Trainer = Callable[[TensorDataset, int], nn.Module]
"""`train(dataset, seed) -> module`: the data set holds images (N, C, H, W) in [0, 1] and classes (N,) int64, and the
module takes such images; a `heatproof.Model` may be returned as well."""


def described(trainer: Any) -> str:
    """Return a text that identifies a trainer in the manifest: its name, and a digest of the code of its functions.

    By the digest, a function that was edited but kept its name is another trainer. Memory addresses, which differ from
    process to process, are left out of the name.

    >>> described(ImageTrainer(small_net, epochs=3)).split(" ")[0]
    'ImageTrainer(build=<function'
    >>> described(lambda dataset, seed: None) == described(lambda dataset, seed: 3)
    False
    """
    functions = [trainer]
    if is_dataclass(trainer):
        functions = [getattr(trainer, field.name) for field in fields(trainer)]
    digest = blake2b(digest_size=6)
    for function in functions:
        for code in _codes(function):
            digest.update(code.encode())
    label = trainer.__name__ if isinstance(trainer, type) else label_of(trainer)
    return f"{re.sub(r' at 0x[0-9a-fA-F]+', '', label)} {digest.hexdigest()}"


def _codes(function: Any) -> Iterator[str]:
    """Yield texts that identify the code of a function: its byte code, constants, inner functions and closed-over values.

    For what is not a function nothing is yielded.
    """
    if isinstance(function, partial):
        yield f"{function.args} {function.keywords}"
        function = function.func
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if code is None:
        return
    yield f"{code.co_code.hex()} {code.co_names} {getattr(function, '__defaults__', None)}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
        else:
            yield repr(constant)
    for cell in getattr(function, "__closure__", None) or ():
        value = cell.cell_contents
        if callable(value):
            yield from _codes(value)
        elif isinstance(value, bool | int | float | str | tuple | type(None)):
            yield repr(value)


@dataclass(frozen=True)
class ImageTrainer:
    """A fresh network from `build()`, trained by SGD with a one-cycle rate; the best epoch on held-out images wins.

    The share `validation` of the training images chooses the epoch; no test image is ever seen. `augment` shifts by up
    to four pixels and mirrors. Initial weights, order and augmentation depend on the seed alone; the global random
    state is left as it was. On a GPU the network computes in bfloat16 and its weights stay in float32.

    >>> x, y = torch.rand(40, 1, 6, 6), torch.arange(40) % 2
    >>> x[y == 1] += 1
    >>> trainer = ImageTrainer(lambda: small_net(1, 2), epochs=8, batch_size=8, augment=False)
    >>> net = trainer(TensorDataset(x, y), seed=0)
    >>> accuracy(net, x, y, batch_size=40) > 0.9
    True
    """

    build: Callable[[], nn.Module]
    epochs: int = 20
    batch_size: int = 256
    rate: float = 0.1
    weight_decay: float = 5e-4
    validation: float = 0.1
    augment: bool = True
    device: str | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise UserError(
                f"epochs and batch_size must be at least 1, got {self.epochs} and {self.batch_size}"
            )
        if not 0 < self.validation < 1:
            raise UserError(
                f"validation is the share of images that chooses the epoch, in (0, 1), got {self.validation}"
            )

    def __call__(self, dataset: TensorDataset, seed: int) -> nn.Module:
        """Return the trained network in eval mode, on the device."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        x, y = (tensor.to(device) for tensor in dataset.tensors)
        held_out = max(1, round(self.validation * len(x)))
        if len(x) <= held_out:
            raise UserError(f"{len(x)} images are too few to train on and to hold {held_out} back")
        generator = torch.Generator().manual_seed(seed)
        shuffled = torch.randperm(len(x), generator=generator).to(device)
        validation, train = shuffled[:held_out], shuffled[held_out:]
        network = seeded(self.build, seed).to(device)
        if device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.SGD(
            network.parameters(), self.rate, 0.9, weight_decay=self.weight_decay, nesterov=True
        )
        steps = self.epochs * math.ceil(len(train) / self.batch_size)
        step = 0
        best_accuracy, best_weights = -1.0, copy.deepcopy(network.state_dict())
        for _ in range(self.epochs):
            network.train()
            order = train[torch.randperm(len(train), generator=generator).to(device)]
            # Moves are transferred once per epoch: on a GPU one transfer at every step would make each step wait.
            moves = drawn_moves(len(train), generator).to(device) if self.augment else None
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                for group in optimiser.param_groups:
                    group["lr"] = self.rate * one_cycle(step / max(1, steps))
                step += 1
                if len(rows) == 1 and len(order) > 1:  # batch norm has no variance of one image
                    continue
                images = x[rows]
                if moves is not None:
                    images = shifted(images, moves[:, start : start + len(rows)])
                self._step(network, optimiser, images, y[rows])
            validation_accuracy = accuracy(network, x[validation], y[validation], self.batch_size)
            # Of equal epochs the later one is kept, whose learning rate was lower.
            if validation_accuracy >= best_accuracy:
                best_accuracy = validation_accuracy
                best_weights = copy.deepcopy(network.state_dict())
        network.load_state_dict(best_weights)
        return network.eval()

    def _step(
        self, network: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor, labels: Tensor
    ) -> None:
        """Take one step of the optimiser on a batch of images, in bfloat16 on a GPU."""
        on_gpu = images.device.type == "cuda"
        if on_gpu:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=on_gpu):
            loss = F.cross_entropy(network(images).float(), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def one_cycle(share: float) -> float:
    """Return the factor of the learning rate at a share of the training: up to 1 in the first quarter, then down to 0.

    >>> [one_cycle(share) for share in (0, 0.25, 1)]
    [0.04, 1.0, 0.0]
    """
    return max(0.04, share / 0.25) if share < 0.25 else (1 - share) / 0.75


def drawn_moves(n: int, draw: torch.Generator) -> Tensor:
    """Draw how n images are shifted and whether they are mirrored: down and right, 0 … 8 each, and 0 or 1; (3, n).

    >>> drawn_moves(5, torch.Generator().manual_seed(0)).amax(1) <= torch.tensor([8, 8, 1])
    tensor([True, True, True])
    """
    shifts = torch.randint(0, 9, (2, n), generator=draw)
    mirrored = torch.randint(0, 2, (1, n), generator=draw)
    return torch.cat([shifts, mirrored])


def shifted(images: Tensor, moves: Tensor) -> Tensor:
    """Return images (n, C, H, W) moved by up to four pixels over a border of zeros, some mirrored, as `moves` (3, n) says.

    >>> image = torch.arange(4.0).reshape(1, 1, 1, 4)
    >>> shifted(image, torch.tensor([[4], [5], [0]])).flatten().tolist()
    [1.0, 2.0, 3.0, 0.0]
    >>> shifted(image, torch.tensor([[4], [4], [1]])).flatten().tolist()
    [3.0, 2.0, 1.0, 0.0]
    """
    n, _, height, width = images.shape
    padded = F.pad(images, (4, 4, 4, 4))
    down, right, mirror = moves
    # Which row and column of the padded image each pixel is read from, (n, H) and (n, W); backwards if mirrored.
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = right[:, None] + torch.where(mirror[:, None] > 0, columns.flip(0), columns)
    image = torch.arange(n, device=images.device)[:, None, None]
    # Index tensors on both sides of a slice put the sliced axis, the channels, last.
    channels_last = padded[image, :, rows[:, :, None], columns[:, None]]
    return channels_last.permute(0, 3, 1, 2)


def accuracy(net: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> float:
    """Return the share of images that a network gets right; scores that are not finite are wrong."""
    logits = scores(net, x, batch_size)
    is_right = (logits.argmax(1) == y) & torch.isfinite(logits).all(1)
    return float(is_right.float().mean())


def scores(net: nn.Module, x: Tensor, batch_size: int = 256) -> Tensor:
    """Return class scores (N, classes) in float32 on the network's device; the network is left in eval mode."""
    net.eval()
    device = next((p.device for p in net.parameters()), x.device)
    with (
        torch.no_grad(),
        torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"),
    ):
        return torch.cat([net(batch.to(device)).float() for batch in torch.split(x, batch_size)])


def small_net(channels: int, classes: int, width: int = 32) -> nn.Module:
    """Return three convolutions, two of them strided, a mean over positions and a linear layer; a probe for leaks.

    >>> small_net(1, 10)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 10])
    """
    layers: list[Any] = []
    for into, out, stride in (
        (channels, width, 1),
        (width, 2 * width, 2),
        (2 * width, 4 * width, 2),
    ):
        layers += [nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes)
    )
