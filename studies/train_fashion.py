"""Networks on FashionMNIST, for the relation between a model's invariance and that of its explanations.

`circular` is exactly invariant to cyclic shifts of rows and columns; `standard` has zero padding and a flattened map;
`augmented` is the same, trained on randomly shifted pictures. `padded` is the invariant network trained on pictures with
10 black pixels on every side, as in the paper; `fashion_padded.yaml` shifts them by up to 10. The 10,000 pictures of the
published test split are divided here, so the accuracies are not comparable with those of networks trained on the 60,000.
"""

from __future__ import annotations

import torch
from common import arguments, restored, save_concept, save_sets, split, train_network, whole
from nets import CircularCNN2d, StandardCNN

from heatproof import Model
from heatproof.data import open_data
from heatproof.types import Batch

CLASSES = (
    "T-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "trainer",
    "bag",
    "boot",
)
PAD = 10
"""Black pixels on every side, as in the paper."""
CONCEPTS = {
    "top": ("T-shirt", "pullover", "coat", "shirt"),
    "footwear": ("sandal", "trainer", "boot"),
}
CONCEPTS["long_sleeves"] = ("pullover", "coat", "shirt")


def circular() -> Model:
    """The invariant network, for a study file."""
    return restored("fashion", "circular", CircularCNN2d)


def standard() -> Model:
    """The usual network."""
    return restored("fashion", "standard", StandardCNN)


def augmented() -> Model:
    """The usual network, trained on shifted pictures."""
    return restored("fashion", "augmented", StandardCNN)


def padded() -> Model:
    """The invariant network, trained on padded pictures."""
    return restored("fashion", "padded", CircularCNN2d)


def framed(batch: Batch) -> Batch:
    """Every picture with 10 black pixels on every side."""
    return batch.with_x(torch.nn.functional.pad(batch.x, (PAD,) * 4))


def shifted(batch: Batch, generator: torch.Generator) -> Batch:
    """Every picture rolled by its own number of rows and columns."""
    height, width = batch.x.shape[-2:]
    rows = torch.arange(height) - torch.randint(height, (len(batch), 1), generator=generator)
    columns = torch.arange(width) - torch.randint(width, (len(batch), 1), generator=generator)
    sample, channel = (
        torch.arange(len(batch))[:, None, None, None],
        torch.arange(batch.x.shape[1])[:, None, None],
    )
    return batch.with_x(
        batch.x[
            sample, channel, (rows % height)[:, None, :, None], (columns % width)[:, None, None, :]
        ]
    )


def concepts(train: Batch) -> dict[str, torch.Tensor]:
    """Which pictures show a top, footwear, or long sleeves (some shirts and dresses are exceptions), by their class."""
    assert train.label is not None
    return {
        name: torch.isin(train.label, torch.tensor([CLASSES.index(c) for c in shown]))
        for name, shown in CONCEPTS.items()
    }


def main() -> None:
    args = arguments("fashion", __doc__ or "")
    pictures = whole(open_data(args.data / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"))
    train, test = split(pictures, 0.2, args.seed)
    save_sets(args.out, train, test, CLASSES)
    for name, present in concepts(train).items():
        save_concept(args.out, name, train, present, CLASSES)
    many = {"channels": 1, "classes": len(CLASSES)}
    usual = {"size": (28, 28), **many}
    both = (train, test, CLASSES)
    how = {"seed": args.seed, "anneal": True}
    train_network(args.out / "circular", CircularCNN2d, many, *both, epochs=6, lr=1e-2, **how)
    train_network(args.out / "standard", StandardCNN, usual, *both, epochs=6, lr=2e-3, **how)
    train_network(
        args.out / "augmented",
        StandardCNN,
        usual,
        *both,
        epochs=14,
        lr=3e-3,
        augment=shifted,
        **how,
    )
    frames = framed(train), framed(test), CLASSES
    train_network(args.out / "padded", CircularCNN2d, many, *frames, epochs=4, lr=1e-2, **how)


if __name__ == "__main__":
    main()
