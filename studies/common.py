"""What the training scripts share: where things are, splitting, training with a report, and loading again.

A script writes below its folder `--out` (by default runs/studies/NAME, or $HEATPROOF_STUDIES/NAME):

    train.npz, test.npz          samples that heatproof opens by path, with labels, ids, class names and masks; the test
                                 samples in the order of a hash, so that the first few are like the rest
    examples.npz                 100 of the training samples, for explanations by examples
    concept_NAME_with.npz        200 training samples that show a concept, as many in ..._without.npz that do not
    NETWORK/weights.pt           the trained weights, for torch.load(..., weights_only=True)
    NETWORK/checkpoints/N.pt     the weights after some epochs, for TracIn; the last are those of weights.pt
    NETWORK/summary.json         how to build it again, the accuracies, epoch and learning rate of each checkpoint
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nets import Augment, accuracy, fit, rates
from torch import nn

from heatproof import Model, rand
from heatproof.data import Data
from heatproof.models.randomised import seeded
from heatproof.statistics.intervals import rate_interval
from heatproof.types import Batch

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINTS = 3
EXAMPLES = 100
"""As many training examples as the paper takes for explanations by examples."""
CONCEPT_EXAMPLES = 200
FEWEST_EXAMPLES = 30
BINS = 15
"""Of the calibration error."""


def default_data() -> Path:
    """The folder with the real data: $HEATPROOF_DATA, else ../shared/data beside the checkout."""
    return Path(os.environ.get("HEATPROOF_DATA", ROOT.parent / "shared" / "data"))


def place(name: str) -> Path:
    """Where a study's networks and samples are."""
    return Path(os.environ.get("HEATPROOF_STUDIES", ROOT / "runs" / "studies")) / name


def arguments(name: str, what: str) -> argparse.Namespace:
    """`--data`, `--out` and `--seed` of a script."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument(
        "--data", type=Path, default=default_data(), help="folder with ecg, graphs, text, …"
    )
    parser.add_argument(
        "--out", type=Path, default=place(name), help="where to write weights and samples"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def whole(data: Data) -> Batch:
    """All samples that can be read; the others are counted aloud."""
    loaded = data.load(range(len(data)))
    if loaded.errors:
        sample, error = next(iter(loaded.errors.items()))
        print(
            f"{data.name}: {len(loaded.errors)} of {len(data)} samples left out, the first {sample!r}: {error}"
        )
    return loaded.batch


def split(
    batch: Batch, share: float, seed: int, alike: Sequence[Hashable] | None = None
) -> tuple[Batch, Batch]:
    """Train and test, about the share `share` for testing; samples with the same entry of `alike` stay together."""
    groups = [str(group) for group in (batch.ids if alike is None else alike)]
    draw = rand.uniform(rand.keys(seed, groups, "train or test"), ()).reshape(-1)
    return batch[draw >= share], batch[draw < share]


def save_batch(path: Path, batch: Batch, classes: Sequence[str]) -> None:
    """Samples as an .npz that `open_data` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert batch.label is not None
    arrays = {"x": batch.x, "label": batch.label, **batch.aux}
    np.savez_compressed(
        path,
        ids=np.array(batch.ids),
        classes=np.array(classes),
        **{key: value.numpy() for key, value in arrays.items()},
    )


def save_sets(out: Path, train: Batch, test: Batch, classes: Sequence[str]) -> None:
    """train.npz, test.npz and examples.npz; which examples, and the order of the test samples, follow from the ids."""
    save_batch(out / "train.npz", train, classes)
    save_batch(out / "test.npz", test[rand.keys(0, test.ids, "order").argsort()], classes)
    save_batch(out / "examples.npz", _some(train, "examples", EXAMPLES), classes)


def save_concept(
    out: Path, name: str, train: Batch, present: torch.Tensor, classes: Sequence[str]
) -> None:
    """A concept: training samples where `present` (n,) is true and others, 200 of each, or as many as there are."""
    for side, rows in (("with", present), ("without", ~present)):
        chosen = _some(train[rows], f"concept {name}", CONCEPT_EXAMPLES)
        if len(chosen) < FEWEST_EXAMPLES:
            raise ValueError(f"only {len(chosen)} training samples {side} the concept {name}")
        save_batch(out / f"concept_{name}_{side}.npz", chosen, classes)
    print(f"concept {name}: in {int(present.sum())} of {len(train)} training samples")


def _some(batch: Batch, purpose: str, n: int) -> Batch:
    return batch[rand.keys(0, batch.ids, purpose).argsort()[:n].sort().values]


def calibration(given: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width: Σ share of the bin · |accuracy − confidence|.

    >>> calibration(np.array([0.8, 0.8, 0.8, 0.8]), np.array([1, 1, 1, 0]))
    0.05...
    """
    bins = np.minimum((given * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, right - given, BINS)
    return float(np.abs(gaps).sum() / len(given))


def train_network(
    out: Path,
    kind: type[nn.Module],
    options: Mapping[str, Any],
    train: Batch,
    test: Batch,
    classes: Sequence[str],
    *,
    epochs: int,
    lr: float,
    seed: int,
    augment: Augment | None = None,
    validation: Batch | None = None,
    anneal: bool = False,
) -> dict[str, Any]:
    """Train, say how well it went, and write weights, checkpoints and a summary into `out`.

    With a validation set the epoch that does best on it is the last one that counts.
    """
    torch.set_num_threads(1)  # small networks gain nothing from more
    started = time.process_time()
    net = seeded(lambda: kind(**options), seed)
    checkpoints = fit(net, train, epochs=epochs, lr=lr, seed=seed, augment=augment, anneal=anneal)
    rate = rates(lr, epochs, anneal)
    if validation is not None:
        epochs = 1 + int(
            np.argmax([_accuracy_with(net, weights, validation) for weights in checkpoints])
        )
        net.load_state_dict(checkpoints[epochs - 1])
    seconds = time.process_time() - started
    summary: dict[str, Any] = {
        "network": dict(options),
        "classes": list(classes),
        "epochs": epochs,
        "lr": lr,
        "seed": seed,
        "seconds": round(seconds, 1),
    }
    for name, batch in (("train", train), ("test", test)):
        share = accuracy(net, batch)
        low, high = rate_interval(round(share * len(batch)), len(batch))
        summary[name] = {
            "n": len(batch),
            "accuracy": share,
            "low": low,
            "high": high,
            "ece": _calibration(net, batch),
        }
        print(
            f"{out.name}: {name} accuracy {share:.1%} (95 % Clopper–Pearson "
            f"interval {low:.1%} to {high:.1%}, n = {len(batch)})"
        )
    print(f"{out.name}: {epochs} epochs in {seconds:.1f} s of one core")
    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    kept = [max(1, round(i * epochs / CHECKPOINTS)) for i in range(1, CHECKPOINTS + 1)]
    summary["checkpoints"] = [f"checkpoints/{i}.pt" for i in range(1, CHECKPOINTS + 1)]
    summary["checkpoint_epochs"] = kept
    summary["rates"] = [rate[epoch - 1] for epoch in kept]
    for epoch, file in zip(kept, summary["checkpoints"], strict=True):
        torch.save(checkpoints[epoch - 1], out / file)
    torch.save(net.state_dict(), out / "weights.pt")
    (out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return summary


def _accuracy_with(net: nn.Module, weights: Mapping[str, torch.Tensor], batch: Batch) -> float:
    net.load_state_dict(weights)
    return accuracy(net, batch)


def _calibration(net: nn.Module, batch: Batch) -> float:
    assert batch.label is not None
    with torch.no_grad():
        scores = torch.cat([net(part.x, **part.aux) for part in _parts(batch)]).double().softmax(1)
    given, predicted = scores.max(1)
    return calibration(given.numpy(), (predicted == batch.label).double().numpy())


def _parts(batch: Batch, rows: int = 256) -> Iterator[Batch]:
    return (batch[start : start + rows] for start in range(0, len(batch), rows))


def restored(
    study: str, network: str, kind: Callable[..., nn.Module], *, embedding: str | None = None
) -> Model:
    """A network that a script trained, ready for a study."""
    folder = place(study) / network
    if not (folder / "summary.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no trained network; run python studies/train_{study}.py first"
        )
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    net = kind(**summary["network"])
    net.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    return Model(net, classes=summary["classes"], name=f"{study}-{network}", embedding=embedding)
