"""Heartbeats of MIT-BIH as Kaggle distributes them: `mitbih_train.csv`, 187 steps and the class of a beat in each row."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from heatproof.data.arrays import open_items
from heatproof.data.choices import NO_LABEL, Choice, one_split
from heatproof.data.dataset import Data, Sample
from heatproof.errors import UserError, unknown

STEPS = 187
BEATS = ("normal", "supraventricular", "ventricular", "fusion", "unknown")
"""The classes N, S, V, F and Q of the standard of the AAMI, by their numbers in the file."""
LABELS = {"beat": BEATS, "abnormal": ("normal", "abnormal")}
"""What `label` may name: the class of a beat, or whether it is abnormal, which the invariance paper predicts."""
_SPLITS = {"mitbih_train.csv": "train", "mitbih_test.csv": "test"}


def is_mitbih(path: Path) -> bool:
    """Whether a file, or a folder with one, is called as Kaggle calls those of MIT-BIH."""
    if path.is_dir():
        return any((path / name).is_file() for name in _SPLITS)
    return path.name in _SPLITS


def open_mitbih(path: Path, choice: Choice, shape: tuple[int, ...] | None = None) -> Data:
    """Open beats (1, 187), values in [0, 1], labelled by their class, or with `label="abnormal"` by whether it is not 0.

    `path` is the folder, of which `split` says which file, or one of the files. A row with a gap is recorded as an
    error. The classes but the normal one are the four concepts of the invariance paper.
    """
    label = "beat" if choice.label in (None, NO_LABEL) else choice.label
    if label not in LABELS:
        raise unknown("label of MIT-BIH", label, LABELS)
    if path.is_dir():
        by_split = {
            split: path / name for name, split in _SPLITS.items() if (path / name).is_file()
        }
        file = one_split(str(path), choice.split, by_split)
    else:
        file = path
    rows = _rows(file)
    beats = rows[:, STEPS]
    is_class = np.isin(beats, range(len(BEATS)))
    if not is_class.all():
        raise UserError(
            f"{str(file)!r}, row {int(np.argmin(is_class)) + 1}: the class is {beats[~is_class][0]:g}; "
            f"0 to {len(BEATS) - 1} were expected in the last column"
        )
    numbers = beats.astype(int) if label == "beat" else (beats > 0).astype(int)
    steps = torch.from_numpy(rows[:, :STEPS].copy())
    if shape not in (None, (1, STEPS), (STEPS,)):
        raise UserError(
            f"shape={list(shape or ())} does not fit beats of {STEPS} steps; give [{STEPS}]"
        )
    beat_shape = (1, STEPS) if shape is None else shape
    return open_items(
        file.stem,
        [_beat(series) for series in steps],
        partial(_sample, shape=beat_shape),
        prepared=f"MIT-BIH {beat_shape}",
        shape=beat_shape,
        labels=numbers.tolist(),
        class_names=LABELS[label],
    )


def _rows(file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return the rows (N, 188) of a file; gaps are NaN."""
    import pandas as pd

    try:
        rows = pd.read_csv(file, header=None, dtype=np.float32).to_numpy()
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise UserError(f"cannot read {str(file)!r} as rows of numbers: {error}") from error
    if rows.shape[1] != STEPS + 1:
        raise UserError(
            f"{str(file)!r} has rows of {rows.shape[1]} numbers; {STEPS} steps and a class were expected"
        )
    return rows


def _beat(series: torch.Tensor) -> tuple[torch.Tensor] | ValueError:
    if bool(series.isfinite().all()):
        return (series,)
    return ValueError("steps that are not finite (NaN or infinite)")


def _sample(beat: tuple[torch.Tensor], shape: tuple[int, ...]) -> Sample:
    return Sample(beat[0].reshape(shape))
