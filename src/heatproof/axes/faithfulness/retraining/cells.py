"""The trainings of ROAR, KAR and F-Fidelity: what is removed, which network learns from the rest, and how it does.

A cell is one training: which map decides, which pixels go, what takes their place, how many, and which repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from heatproof import rand
from heatproof.axes.faithfulness import sweeps
from heatproof.axes.faithfulness.retraining.leakage import Removed, probe_columns
from heatproof.axes.faithfulness.retraining.trainer import Trainer, scores
from heatproof.batching import BatchRunner
from heatproof.errors import UserError
from heatproof.evaluation import Scores
from heatproof.models import Model
from heatproof.models.precision import arithmetic
from heatproof.types import Batch, Explainer, label_of

NOT_FINITE = "the retrained network's scores are not finite"
MAX_VALUES = 2**23
"""How many values of images are explained or imputed at a time: enough to fill a GPU, and little memory."""
SEEDS_PER_REPEAT = 1000
"""How far the seeds of two repeats of a training are apart, so that no two share their luck."""


@dataclass(frozen=True)
class Cell:
    """One training."""

    explainer: str
    order: sweeps.Order
    imputer: Any
    fraction: float
    repeat: int

    @property
    def condition(self) -> str:
        """The name that the evaluation `faithfulness` gives to it, so that the two can be compared."""
        return f"{label_of(self.imputer)} {self.order}"

    @property
    def number(self) -> int:
        """A number of what is removed and of the repeat, so that later calls may add fractions or repeats."""
        text = f"{self.condition}|{self.fraction:g}|{self.repeat}"
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")

    def __str__(self) -> str:
        fraction = f"fraction {self.fraction:g}"
        return f"{self.explainer}, {self.condition}, {fraction}, repeat {self.repeat}"


def all_cells(
    explainers: Sequence[str],
    orders: Sequence[sweeps.Order],
    imputers: Sequence[Any],
    fractions: Sequence[float],
    repeats: int,
) -> list[Cell]:
    """Return every cell, explainer by explainer, so that only the maps of one are in memory."""
    cells = []
    for explainer in explainers:
        for order in orders:
            for imputer in imputers:
                for fraction in fractions:
                    for repeat in range(repeats):
                        cells.append(Cell(explainer, order, imputer, float(fraction), repeat))
    return cells


@dataclass
class Retraining:
    """Trains and tests the networks of cells; what cells share is computed once.

    `trainer` and `tuner` make networks from images and classes. `target` is the class that is explained, and `against`
    the class that counts as right.
    """

    model: Model
    train: Batch
    test: Batch
    explainers: Mapping[str, Explainer]
    trainer: Trainer | None
    tuner: Trainer | None
    target: Literal["prediction", "label"]
    against: Literal["prediction", "label"]
    seed: int
    batch_size: int
    _tuned_networks: dict[tuple[str, int], Any] = field(default_factory=dict)
    _ranks: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    # ---- the evaluations of a cell ---------------------------------------------------------------

    def retrained_accuracy(self, cell: Cell) -> list[Scores]:
        """Return the accuracy, on what is left of each test image, of a network trained on what is left (ROAR, KAR)."""
        train = self._removed_by_map("train", cell)
        network = self._train_network(self.trainer, cell, train)
        return self._accuracy(network, cell)

    def tuned_accuracy(self, cell: Cell) -> list[Scores]:
        """Return the accuracy, on what is left of each test image, of a network tuned to random removals (F-Fidelity)."""
        key = (label_of(cell.imputer), cell.repeat)
        if key not in self._tuned_networks:
            train = self._removed_at_random(cell)
            self._tuned_networks[key] = self._train_network(self.tuner, cell, train)
        return self._accuracy(self._tuned_networks[key], cell)

    def leakage(self, cell: Cell) -> list[Scores]:
        """Return what probes learn from the shape of the removed part alone."""
        test = self._removed_by_map("test", cell)
        train = self._removed_by_map("train", cell)
        return self._scores(cell, probe_columns(train, test, self.seed))

    def _accuracy(self, network: Any, cell: Cell) -> list[Scores]:
        """Return whether a network is right about each test image; undefined where its scores are not finite."""
        test = self._removed_by_map("test", cell)
        logits = self._outputs(network, test.x, cell)
        truth = test.label.cpu()
        if self.against == "prediction":
            truth = BatchRunner(self.model, self.batch_size).predict(self.test).argmax(1)
        is_right = (logits.argmax(1) == truth).double()
        is_finite = torch.isfinite(logits).all(1)
        return self._scores(cell, {"accuracy": is_right.masked_fill(~is_finite, torch.nan)})

    def _scores(self, cell: Cell, columns: Mapping[str, Tensor]) -> list[Scores]:
        """Return columns of values (N,) by measure as the scores of a cell."""
        results = []
        for measure, value in columns.items():
            condition = (cell.condition, cell.fraction)
            no_reason = [""] * len(value)
            column = Scores.column(
                cell.explainer, measure, condition, value, no_reason, missing=NOT_FINITE
            )
            imputer = label_of(cell.imputer)
            results.append(replace(column, imputer=imputer, order=cell.order, repeat=cell.repeat))
        return results

    # ---- networks --------------------------------------------------------------------------------

    def _train_network(self, trainer: Trainer | None, cell: Cell, train: Removed) -> Any:
        """Return what the trainer makes of the images of a cell; its errors say at which cell they occurred."""
        assert trainer is not None  # a cell is only asked about what there is a trainer for
        try:
            seed = self.seed + SEEDS_PER_REPEAT * cell.repeat
            return trainer(TensorDataset(train.x, train.label), seed)
        except UserError:
            raise
        except Exception as error:  # a user's code may raise anything
            raise UserError(
                f"the trainer failed at {cell}: {type(error).__name__}: {error}"
            ) from error

    def _outputs(self, network: Any, x: Tensor, cell: Cell) -> Tensor:
        """Return the outputs (N, K) of a trained network."""
        if isinstance(network, Model):
            batch = Batch(tuple(map(str, range(len(x)))), x)
            return BatchRunner(network, self.batch_size).predict(batch)
        if not isinstance(network, nn.Module):
            raise UserError(
                f"the trainer returned {type(network).__name__} at {cell}; a torch.nn.Module was expected"
            )
        return scores(network, x).cpu()

    # ---- images ----------------------------------------------------------------------------------

    def _removed_by_map(self, which: Literal["train", "test"], cell: Cell) -> Removed:
        """Return the training or test images without the fraction of pixels that the map of the cell ranks first."""
        batch = self.train if which == "train" else self.test
        pixels = math.prod(batch.x.shape[2:])
        sizes = sweeps.removal_sizes((cell.fraction,), torch.tensor([pixels]))
        ranks = None if cell.order == "random" else self._map_ranks(which, cell.explainer)
        return self._removed(batch, cell, sizes.expand(len(batch), 1), ranks)

    def _removed_at_random(self, cell: Cell) -> Removed:
        """Return the training images without a random share of their pixels, uniform on [0, 1) for each image."""
        pixels = math.prod(self.train.x.shape[2:])
        keys = rand.keys(self.seed + cell.repeat, self.train.ids, "share to tune by")
        share = rand.uniform(keys, (1,))
        sizes = (share.double() * pixels).floor().long()
        return self._removed(self.train, replace(cell, order="random"), sizes, None)

    def _removed(self, batch: Batch, cell: Cell, sizes: Tensor, ranks: Tensor | None) -> Removed:
        """Return images on the model's device, without the first `sizes` (N, 1) pixels of each.

        `ranks` (N, H, W) say when each pixel is removed, the most important first; without them the order is random.
        """
        shape = batch.x.shape[2:]
        pixels, device = math.prod(shape), self.model.device
        images, masks = [], []
        for piece in pieces(batch):
            part = batch[piece].to(device)
            size = sizes[piece].to(device).reshape(-1, *[1] * len(shape))
            if ranks is None:
                values = torch.zeros(len(part), pixels, device=device)
                counts = torch.full((len(part),), pixels)
                order = sweeps.removal_ranks(values, counts, part.ids, "random", self.seed)
                order = order.reshape(len(part), *shape)
            else:
                order = ranks[piece].to(device).long()
            keep = order < pixels - size if cell.order == "lerf" else order >= size
            images.append(cell.imputer(part.x, keep, part.ids, self.seed + cell.repeat))
            masks.append(keep)
        assert batch.label is not None
        return Removed(torch.cat(images), torch.cat(masks), batch.label.to(device))

    def _map_ranks(self, which: Literal["train", "test"], explainer: str) -> Tensor:
        """Return when each pixel goes from the most important on, (N, H, W) int32 on the CPU."""
        if (which, explainer) not in self._ranks:
            of_this_explainer = {key: r for key, r in self._ranks.items() if key[1] == explainer}
            self._ranks = of_this_explainer  # frees those of the last explainer
            batch = self.train if which == "train" else self.test
            self._ranks[which, explainer] = self._rank_pixels(explainer, batch)
        return self._ranks[which, explainer]

    def _rank_pixels(self, name: str, batch: Batch) -> Tensor:
        """Explain images and return when each of their pixels is removed, (N, H, W) int32 on the CPU."""
        runner = BatchRunner(self.model, self.batch_size)
        all_ranks = []
        for piece in pieces(batch):
            part = batch[piece]
            # As in an evaluation, and unlike PyTorch's default: rounded products only where they were asked for.
            with arithmetic("tf32" if self.model.precision == "tf32" else "float32"):
                target = part.label if self.target == "label" else runner.predict(part).argmax(1)
                assert target is not None
                maps = runner.explain(self.explainers[name], name, part, target, self.seed)
                values = sweeps.importance(maps)
            not_finite = ~torch.isfinite(values).flatten(1).all(1)
            if bool(not_finite.any()):
                sample = part.ids[int(not_finite.nonzero()[0])]
                raise UserError(
                    f"{name} gives a map of {sample!r} that is not finite, so its pixels have no order"
                )
            flat = values.flatten(1)
            counts = torch.full((len(flat),), flat.shape[1], device=flat.device)
            ranks = sweeps.removal_ranks(flat, counts, part.ids, "morf", self.seed)
            all_ranks.append(ranks.reshape(values.shape).int().cpu())
        return torch.cat(all_ranks)


def pieces(batch: Batch) -> Iterator[slice]:
    """Yield slices of a batch that together hold all its samples, each of a moderate number of values.

    >>> [(piece.start, piece.stop) for piece in pieces(Batch(("a", "b"), torch.zeros(2, 1, 2**11, 2**12)))]
    [(0, 1), (1, 2)]
    """
    step = max(1, MAX_VALUES // max(1, math.prod(batch.x.shape[1:])))
    for start in range(0, len(batch), step):
        yield slice(start, min(start + step, len(batch)))
