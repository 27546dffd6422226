"""ROAR and KAR: remove what a map calls important, train a new network on what is left, and test it on the same.

Every (explainer, order, imputer, fraction, repeat) is one training, and one part of the table when it is done: what
exists is skipped, so a run that was stopped goes on where it was. The probes of `leakage` use the same images.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from holdfast.axes.faithfulness import LEAKAGE as LEAKAGE_AXIS
from holdfast.axes.faithfulness import RETRAINING as RETRAINING_AXIS
from holdfast.axes.faithfulness import sweeps
from holdfast.axes.faithfulness.retraining.leakage import Removed, probe_columns
from holdfast.axes.faithfulness.retraining.trainer import Trainer, scores
from holdfast.axes.faithfulness.sweeps import (
    Order,
    check_fractions,
    importance,
    removal_ranks,
    removal_sizes,
    resolve_imputers,
)
from holdfast.data import Data
from holdfast.errors import UserError
from holdfast.models import Model
from holdfast.models.batches import Workbench
from holdfast.models.precision import arithmetic
from holdfast.runs import manifest, table
from holdfast.runs.progress import progress
from holdfast.runs.run import Run
from holdfast.runs.storage import Place, place, present
from holdfast.runs.study import registry as building
from holdfast.runs.verify import mend
from holdfast.types import Batch, Explainer, Scores, label_of, name_of, parameters, role_of

RETRAINING, LEAKAGE = RETRAINING_AXIS.name, LEAKAGE_AXIS.name
NOT_FINITE = "the retrained network's scores are not finite"
COMMAND = "holdfast.retrain(...)"
VALUES = 2**23
"""How many values of images are explained or imputed at a time: enough to fill a GPU, and no memory to speak of."""


@dataclass(frozen=True)
class Cell:
    """One training: which map decides, which pixels go, what takes their place, how many, and which repeat."""

    explainer: str
    order: Order
    imputer: Any
    fraction: float
    repeat: int

    @property
    def condition(self) -> str:
        """As the evaluation `faithfulness` names it, so that the two can be compared."""
        return f"{label_of(self.imputer)} {self.order}"


def retrain(
    model: Model,
    train: Any,
    test: Any,
    explainers: Any,
    trainer: Trainer,
    out: str | Place,
    *,
    imputers: Any = ("noisy_linear",),
    orders: Sequence[Order] = ("morf", "lerf"),
    fractions: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    repeats: int = 1,
    target: Literal["prediction", "label"] = "prediction",
    leakage: bool | Sequence[float] = False,
    seed: int = 0,
    batch_size: int = 64,
    show_progress: bool | None = None,
) -> Run:
    """Train `trainer(dataset, seed)` on the training images less their most (`morf`, ROAR) or least (`lerf`, KAR)
    important pixels, and add one row per test image, `accuracy`, to the run in `out`.

    `train` and `test` are labelled images, in any form that `evaluate` takes. `out` may be the directory of a run on
    the same test data: ROAD and ROAR then share one table and one report. The column `repeat` says which of the
    `repeats` trainings a row is of. With `leakage` the probes of `leakage` are trained for every cell of the first
    repeat, or for those of the fractions that it names.
    `target` is the class that is explained; the true label would carry itself into the mask.

    >>> from tempfile import mkdtemp
    >>> x, y = torch.rand(8, 1, 4, 4), torch.arange(8) % 2
    >>> def train(dataset, seed):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    >>> run = retrain(Model(train(None, 0)), (x, y), (x, y), "saliency", train, mkdtemp(), fractions=[0.5])
    >>> run.table().groupby("condition").size().to_dict()
    {'noisy_linear lerf': 8, 'noisy_linear morf': 8}
    """
    methods = building.explainers(explainers)
    fills = resolve_imputers(imputers)
    check_fractions(tuple(fractions))
    for order in orders:
        if order not in sweeps.ORDERS:
            raise UserError(f"orders are {', '.join(sweeps.ORDERS)}, got {order!r}")
    probed = tuple(fractions) if leakage is True else tuple(leakage or ())
    if not set(probed) <= set(fractions):
        raise UserError(f"leakage names fractions {list(probed)}, which must be among {list(fractions)}")
    if repeats < 1:
        raise UserError(f"repeats must be at least 1, got {repeats}")
    if not callable(trainer):
        raise UserError(f"trainer must be a function train(dataset, seed) -> module, got {type(trainer).__name__}")
    sets = {"train": building.as_data(train), "test": building.as_data(test)}
    root, name = place(out), sets["test"].name
    cells = [
        Cell(e, order, imputer, float(f), repeat)
        for e in methods
        for order in orders
        for imputer in fills
        for f in fractions
        for repeat in range(repeats)
    ]
    settings = {
        "orders": list(orders),
        "imputers": [{"name": name_of(i), **parameters(i)} for i in fills],
        "fractions": list(fractions),
        "repeats": repeats,
        "target": target,
        "trainer": trainer_name(trainer),
        "train": {"fingerprint": sets["train"].fingerprint, "samples": len(sets["train"].ids)},
        "conditions": [[c, f] for c in dict.fromkeys(c.condition for c in cells) for f in fractions],
    }
    evaluations: dict[str, Any] = {RETRAINING: {"name": RETRAINING, **settings}}
    if probed:
        some = [[c, f] for c in dict.fromkeys(c.condition for c in cells) for f in probed]
        evaluations[LEAKAGE] = {"name": LEAKAGE, **settings, "conditions": some}
    first = {name: sets["test"].load([0]).batch}
    study = manifest.describe({model.name: model}, {name: sets["test"]}, methods, evaluations, seed, first)
    study["datasets"][name].pop("references")  # no chance level is taken here
    begun_there = manifest.begin(root, study, 32, COMMAND)
    session: dict[str, Any] = {"started": manifest.now(), "command": COMMAND, "versions": manifest.versions()}
    manifest.record(root, begun_there, session)
    begun = time.perf_counter()
    before = model.passes
    keys = table.study_keys(table.read_manifest(root))
    work = Work(model, sets, methods, trainer, root, name, cells, target, frozenset(probed), seed, batch_size, keys)
    mend(root, work.paths())
    try:
        with progress(len(cells), RETRAINING, show_progress) as tick:
            work.carry_out(tick)
    finally:  # what a run that was stopped has cost is part of what it cost
        session |= {"seconds": round(time.perf_counter() - begun, 2), "passes": {model.name: model.passes - before}}
        session["durations"] = {what: round(seconds, 2) for what, seconds in work.spent.items()}
        manifest.record(root, begun_there, session)
    return Run(root)


def trainer_name(trainer: Any) -> str:
    """What the manifest calls a trainer: its label, without the addresses of functions, which no two processes share.

    >>> from holdfast.axes.faithfulness.retraining.trainer import ImageTrainer, small_net
    >>> trainer_name(ImageTrainer(small_net, epochs=3))
    'ImageTrainer(build=<function small_net>, epochs=3)'
    """
    label = trainer.__name__ if isinstance(trainer, type) else label_of(trainer)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", label)


@dataclass(frozen=True)
class Work:
    """Everything that the cells share."""

    model: Model
    sets: Mapping[str, Data]
    methods: Mapping[str, Explainer]
    trainer: Trainer
    root: Place
    dataset: str
    cells: Sequence[Cell]
    target: Literal["prediction", "label"]
    probed: frozenset[float]
    seed: int
    batch_size: int
    keys: Mapping[str, str] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def carry_out(self, tick: Callable[[str, int], None]) -> None:
        """Train what is missing, explainer by explainer; `spent` grows by the seconds of maps and trainings."""
        batches: dict[str, Batch] = {}
        for name, explainer in self.methods.items():
            # Parts are numbered within an explainer, so that others may come before it in a later call.
            own = list(enumerate(cell for cell in self.cells if cell.explainer == name))
            missing = [(i, cell) for i, cell in own if not self._done(i, cell)]
            tick(name, len(own) - len(missing))
            if not missing:
                continue
            batches = batches or {which: self._load(which) for which in self.sets}
            with self._timed(RETRAINING):
                ranks = {which: self._ranks(name, explainer, batch) for which, batch in batches.items()}
            for number, cell in missing:
                with self._timed(RETRAINING):
                    train, test = (self._removed(batches[which], ranks[which], cell) for which in ("train", "test"))
                    self._train(number, cell, train, test, batches["test"].ids)
                if self._wants_probes(cell):
                    with self._timed(LEAKAGE):
                        self._probe(number, cell, train, test, batches["test"].ids)
                tick(name, 1)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - begun

    def _wants_probes(self, cell: Cell) -> bool:
        return cell.fraction in self.probed and cell.repeat == 0

    def paths(self) -> Iterator[Place]:
        """Every part that there may be."""
        for name in self.methods:
            for number, cell in enumerate(cell for cell in self.cells if cell.explainer == name):
                yield from (self._path(evaluation, number, cell) for evaluation in (RETRAINING, LEAKAGE))

    def _done(self, number: int, cell: Cell) -> bool:
        wanted = [RETRAINING, *([LEAKAGE] if self._wants_probes(cell) else [])]
        return all(present(self._path(evaluation, number, cell)) for evaluation in wanted)

    def _path(self, evaluation: str, number: int, cell: Cell) -> Place:
        return table.part_path(self.root, self.dataset, self.model.name, evaluation, cell.explainer, number)

    def _load(self, which: str) -> Batch:
        data = self.sets[which]
        loaded = data.load(range(len(data.ids)))
        if loaded.errors:
            first = next(iter(loaded.errors.items()))
            raise UserError(f"{len(loaded.errors)} images of {data.name} cannot be read, the first is {first}")
        if loaded.batch.label is None or bool((loaded.batch.label < 0).any()):
            raise UserError(f"retraining needs a label for every image of {data.name}")
        return loaded.batch

    def _ranks(self, name: str, explainer: Explainer, batch: Batch) -> Tensor:
        """When each pixel goes from the most important on, (N, H, W) int32 on the CPU."""
        bench = Workbench(self.model, self.batch_size)
        ranks = []
        for piece in pieces(batch):
            part = batch[piece]
            # As in an evaluation, and unlike PyTorch's default: rounded products only where they were asked for.
            with arithmetic("tf32" if self.model.precision == "tf32" else "float32"):
                classes = part.label if self.target == "label" else bench.predict(part).argmax(1)
                assert classes is not None
                values = importance(bench.explain(explainer, name, part, classes, self.seed))
            bad = ~torch.isfinite(values).flatten(1).all(1)
            if bool(bad.any()):
                sample = part.ids[int(bad.nonzero()[0])]
                raise UserError(f"{name} gives a map of {sample!r} that is not finite, so its pixels have no order")
            flat = values.flatten(1)
            counts = torch.full((len(flat),), flat.shape[1], device=flat.device)
            found = removal_ranks(flat, counts, part.ids, "morf", self.seed)
            ranks.append(found.reshape(values.shape).int().cpu())
        return torch.cat(ranks)

    def _removed(self, batch: Batch, ranks: Tensor, cell: Cell) -> Removed:
        """The images of a cell on the model's device."""
        total = ranks[0].numel()
        gone = int(removal_sizes((cell.fraction,), torch.tensor([total]))[0, 0])
        images, masks = [], []
        for piece in pieces(batch):
            part = batch[piece].to(self.model.device)
            place = ranks[piece].to(self.model.device).long()
            if cell.order == "random":
                flat = torch.zeros(len(part), total, device=place.device)
                place = removal_ranks(flat, torch.full((len(part),), total), part.ids, "random", self.seed)
                place = place.reshape(len(part), *ranks.shape[1:])
            keep = place >= gone if cell.order != "lerf" else place < total - gone
            images.append(cell.imputer(part.x, keep, part.ids, self.seed + cell.repeat))
            masks.append(keep)
        assert batch.label is not None
        return Removed(torch.cat(images), torch.cat(masks), batch.label.to(self.model.device))

    def _train(self, number: int, cell: Cell, train: Removed, test: Removed, ids: Sequence[str]) -> None:
        path = self._path(RETRAINING, number, cell)
        if present(path):
            return
        where = f"{cell.explainer}, {cell.condition}, fraction {cell.fraction:g}, repeat {cell.repeat}"
        # Each repeat has its own seed, so that no two share their luck.
        own = self.seed + 1000 * cell.repeat
        try:
            net = self.trainer(TensorDataset(train.x, train.label), own)
        except UserError:
            raise
        except Exception as error:  # whatever a user's own code raises: the cell that it failed at is worth knowing
            raise UserError(f"the trainer failed at {where}: {type(error).__name__}: {error}") from error
        logits = self._outputs(net, test.x, where)
        hit = (logits.argmax(1) == test.label.cpu()).double()
        self._write(path, RETRAINING, cell, ids, {"accuracy": hit})

    def _probe(self, number: int, cell: Cell, train: Removed, test: Removed, ids: Sequence[str]) -> None:
        path = self._path(LEAKAGE, number, cell)
        if present(path):
            return
        self._write(path, LEAKAGE, cell, ids, probe_columns(train, test, self.seed))

    def _outputs(self, net: Any, x: Tensor, where: str) -> Tensor:
        if isinstance(net, Model):
            batch = Batch(tuple(map(str, range(len(x)))), x)
            return Workbench(net, self.batch_size).predict(batch)
        if not isinstance(net, nn.Module):
            raise UserError(f"the trainer returned {type(net).__name__} at {where}; a torch.nn.Module was expected")
        return scores(net, x).cpu()

    def _write(
        self, path: Place, evaluation: str, cell: Cell, ids: Sequence[str], columns: Mapping[str, Tensor]
    ) -> None:
        rows = []
        for measure, value in columns.items():
            where = (cell.condition, cell.fraction)
            column = Scores.column(cell.explainer, measure, where, value, [""] * len(value), missing=NOT_FINITE)
            rows.append(replace(column, imputer=label_of(cell.imputer), order=cell.order, repeat=cell.repeat))
        role = role_of(self.methods[cell.explainer])
        scores = table.score_rows(self.dataset, self.model.name, evaluation, role, ids, rows)
        table.write_part(path, scores, table.key_of(self.keys, self.root, path))


def pieces(batch: Batch) -> Iterator[slice]:
    """Slices of a batch that together hold all its samples, each of a moderate number of values.

    >>> [(piece.start, piece.stop) for piece in pieces(Batch(("a", "b"), torch.zeros(2, 1, 2**11, 2**12)))]
    [(0, 1), (1, 2)]
    """
    step = max(1, VALUES // max(1, math.prod(batch.x.shape[1:])))
    for start in range(0, len(batch), step):
        yield slice(start, min(start + step, len(batch)))
