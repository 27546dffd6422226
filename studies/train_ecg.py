"""A circular 1-D network on the heartbeats of ECG5000: exactly invariant to cyclic shifts in time."""

from __future__ import annotations

import torch
from common import arguments, restored, save_concept, save_sets, train_network, whole

from holdfast import Model
from holdfast.data import open_data
from holdfast.models.nets import CircularCNN1d
from holdfast.types import Batch


def model() -> Model:
    """The trained network, for a study file."""
    return restored("ecg", "circular", CircularCNN1d)


def concepts(train: Batch) -> dict[str, torch.Tensor]:
    """Which beats are abnormal, which of the commonest abnormal class, and which dip deeper than the median one."""
    assert train.label is not None
    depth = train.x.flatten(1).amin(1)
    return {"abnormal": train.label != 0, "r_on_t": train.label == 1, "deep_dip": depth < depth.median()}


def main() -> None:
    args = arguments("ecg", __doc__ or "")
    data = {part: open_data(args.data / "ecg" / f"ECG5000_{part.upper()}.tsv.gz") for part in ("train", "test")}
    classes = data["train"].class_names or ()
    train, test = whole(data["train"]), whole(data["test"])
    save_sets(args.out, train, test, classes)
    for name, present in concepts(train).items():
        save_concept(args.out, name, train, present, classes)
    options = {"channels": 1, "classes": len(classes)}
    train_network(
        args.out / "circular", CircularCNN1d, options, train, test, classes, epochs=40, lr=3e-3, seed=args.seed
    )


if __name__ == "__main__":
    main()
