"""Three networks on the heartbeats of ECG5000, for the relation between a model's invariance and its explanations'.

`circular` is exactly invariant to cyclic shifts in time; `standard` has zero padding and a flattened last map;
`augmented` is the same, trained on randomly shifted beats.
"""

from __future__ import annotations

import torch
from common import arguments, restored, save_concept, save_sets, train_network, whole
from nets import CircularCNN1d
from torch import nn

from heatproof import Model
from heatproof.data import open_data
from heatproof.types import Batch


class StandardCNN1d(nn.Module):
    """Zero padding, max-pooling and a flattened last map: invariant to nothing by construction."""

    def __init__(self, steps: int, channels: int = 1, classes: int = 2, width: int = 16) -> None:
        super().__init__()
        first = [nn.Conv1d(channels, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)]
        second = [nn.Conv1d(width, 2 * width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)]
        self.features = nn.Sequential(*first, *second)
        self.hidden = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * width * (steps // 4), 2 * width), nn.ReLU()
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores (B, classes) of series (B, channels, steps)."""
        scores: torch.Tensor = self.head(self.hidden(self.features(x)))
        return scores


def model() -> Model:
    """The invariant network, for a study file."""
    return restored("ecg", "circular", CircularCNN1d)


def standard() -> Model:
    """The usual network."""
    return restored("ecg", "standard", StandardCNN1d)


def augmented() -> Model:
    """The usual network, trained on shifted beats."""
    return restored("ecg", "augmented", StandardCNN1d)


def shifted(batch: Batch, generator: torch.Generator) -> Batch:
    """Every beat rolled by its own number of steps."""
    steps = batch.x.shape[-1]
    by = torch.arange(steps) - torch.randint(steps, (len(batch), 1), generator=generator)
    return batch.with_x(batch.x.gather(2, (by % steps)[:, None].expand_as(batch.x)))


def concepts(train: Batch) -> dict[str, torch.Tensor]:
    """Which beats are abnormal, which of the commonest abnormal class, and which dip deeper than the median one."""
    assert train.label is not None
    depth = train.x.flatten(1).amin(1)
    return {
        "abnormal": train.label != 0,
        "r_on_t": train.label == 1,
        "deep_dip": depth < depth.median(),
    }


def main() -> None:
    args = arguments("ecg", __doc__ or "")
    data = {
        part: open_data(args.data / "ecg" / f"ECG5000_{part.upper()}.tsv.gz")
        for part in ("train", "test")
    }
    classes = data["train"].class_names or ()
    train, test = whole(data["train"]), whole(data["test"])
    save_sets(args.out, train, test, classes)
    for name, present in concepts(train).items():
        save_concept(args.out, name, train, present, classes)
    options = {"channels": 1, "classes": len(classes)}
    both, seed = (train, test, classes), args.seed
    train_network(
        args.out / "circular", CircularCNN1d, options, *both, epochs=40, lr=3e-3, seed=seed
    )
    options |= {"steps": train.x.shape[-1]}
    train_network(
        args.out / "standard", StandardCNN1d, options, *both, epochs=20, lr=1e-3, seed=seed
    )
    train_network(
        args.out / "augmented",
        StandardCNN1d,
        options,
        *both,
        epochs=150,
        lr=1e-3,
        seed=seed,
        augment=shifted,
    )


if __name__ == "__main__":
    main()
