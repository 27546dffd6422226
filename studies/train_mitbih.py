"""Heartbeats of MIT-BIH, normal or abnormal, as in the paper on explanation invariance: networks, concepts, resampling.

    python studies/train_mitbih.py --data FOLDER        # with mitbih_train.csv and mitbih_test.csv of Kaggle
    python studies/train_mitbih.py                      # with the beats of one record, of which 34 are abnormal
    heatproof run studies/mitbih.yaml --allow-code --out runs/mitbih

`circular` is Table 5 of the paper, exactly invariant to cyclic shifts; `standard` and `augmented` are Table 6, the latter
trained on shifted beats. SMOTE brings each class of abnormal beats to the number of the normal ones, or to `--per-class`. The
concepts are the classes of abnormal beats, as far as the data have them: supraventricular, ventricular, fusion and unknown.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from common import (
    FEWEST_EXAMPLES,
    default_data,
    place,
    restored,
    save_concept,
    save_sets,
    split,
    train_network,
    whole,
)
from paper_nets import AllCNN1d, FlatCNN1d
from smote import balanced
from train_ecg import shifted

from heatproof import Model
from heatproof.data import open_data
from heatproof.data.heartbeats import BEATS, LABELS, is_mitbih
from heatproof.types import Batch

ONE_RECORD = "mitbih_rec100_beats187.npz"


def model() -> Model:
    """The invariant network, for a study file."""
    return restored("mitbih", "circular", AllCNN1d)


def standard() -> Model:
    """The usual network."""
    return restored("mitbih", "standard", FlatCNN1d)


def augmented() -> Model:
    """The usual network, trained on shifted beats."""
    return restored("mitbih", "augmented", FlatCNN1d)


def beats(folder: Path) -> tuple[Batch, Batch]:
    """Training and test beats (B, 1, 187) with their classes: Kaggle's files, or one record divided at random."""
    if is_mitbih(folder):
        train, test = (whole(open_data(folder, split=part)) for part in ("train", "test"))
        return train, test
    record = whole(open_data(folder / "ecg" / ONE_RECORD, shape=[1, 187]))
    return split(record, 0.3, seed=0)


def resampled(train: Batch, per_class: int | None) -> Batch:
    """The training beats, with new ones of each abnormal class by SMOTE; a class of a single beat stays as it is."""
    assert train.label is not None
    classes, counts = train.label.unique(return_counts=True)
    is_alone = torch.isin(train.label, classes[counts == 1])
    more = balanced(train[~is_alone], per_class)
    alone = train[is_alone]
    assert more.label is not None and alone.label is not None
    both = Batch.joined([more, alone])
    return binary(replace(both, label=torch.cat([more.label, alone.label])))


def binary(batch: Batch) -> Batch:
    """The same beats with the label 1 where one is abnormal."""
    assert batch.label is not None
    return replace(batch, label=(batch.label > 0).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--out", type=Path, default=place("mitbih"))
    parser.add_argument("--per-class", type=int, help="beats of each class after SMOTE")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--limit", type=int, help="training beats at most, for a quick look")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    train, test = beats(args.data)
    train = train[: args.limit]
    assert train.label is not None
    classes = LABELS["abnormal"]
    before_smote = binary(train)
    trained_on = resampled(train, args.per_class)
    print(f"{len(train)} beats to train, {len(trained_on)} after SMOTE, {len(test)} to test")
    save_sets(args.out, before_smote, binary(test), classes)
    for number, name in enumerate(BEATS[1:], 1):
        present = train.label == number
        if int(present.sum()) < FEWEST_EXAMPLES:
            print(f"concept {name}: only {int(present.sum())} beats, left out")
            continue
        save_concept(args.out, name, before_smote, present, classes)
    sets = (trained_on, binary(test), classes)
    how = {"epochs": args.epochs, "lr": 1e-3, "seed": args.seed}
    two = {"classes": 2}
    train_network(args.out / "circular", AllCNN1d, two, *sets, **how)
    train_network(args.out / "standard", FlatCNN1d, two, *sets, **how)
    train_network(args.out / "augmented", FlatCNN1d, two, *sets, augment=shifted, **how)


if __name__ == "__main__":
    main()
