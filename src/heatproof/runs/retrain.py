"""ROAR and KAR: remove what a map calls important, train a new network on what is left, and test it on the same.

Every (explainer, order, imputer, fraction, repeat) is one training, and one part of the table when it is done: what
exists is skipped, so a run that was stopped goes on where it was. The probes of `leakage` use the same images.
F-Fidelity takes one network, tuned to images with random parts removed, in place of one training per cell.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from heatproof import rand
from heatproof.axes import faithfulness as removal
from heatproof.axes.faithfulness import sweeps
from heatproof.axes.faithfulness.retraining.leakage import Removed, probe_columns
from heatproof.axes.faithfulness.retraining.trainer import Trainer, described, scores
from heatproof.batching import BatchRunner
from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.evaluation import Scores
from heatproof.models import Model
from heatproof.models.precision import arithmetic
from heatproof.runs import manifest, tables
from heatproof.runs.directory import Job, PartKey, RunDirectory
from heatproof.runs.progress import progress
from heatproof.runs.run import Run
from heatproof.runs.storage import Place, place
from heatproof.runs.study import registry as building
from heatproof.runs.verify import remove_damaged_parts
from heatproof.types import Batch, Explainer, label_of, name_of, parameters, role_of

RETRAINING, LEAKAGE, FIDELITY = removal.RETRAINING.name, removal.LEAKAGE.name, removal.FIDELITY.name
NOT_FINITE = "the retrained network's scores are not finite"
COMMAND = "heatproof.retrain(...)"
VALUES = 2**23
"""How many values of images are explained or imputed at a time: enough to fill a GPU, and no memory to speak of."""


@dataclass(frozen=True)
class Cell:
    """One training: which map decides, which pixels go, what takes their place, how many, and which repeat."""

    explainer: str
    order: sweeps.Order
    imputer: Any
    fraction: float
    repeat: int

    @property
    def condition(self) -> str:
        """As the evaluation `faithfulness` names it, so that the two can be compared."""
        return f"{label_of(self.imputer)} {self.order}"

    @property
    def number(self) -> int:
        """The number of its part: of what it is, so that more fractions or repeats may be asked for later."""
        what = f"{self.condition}|{self.fraction:g}|{self.repeat}"
        return int.from_bytes(blake2b(what.encode(), digest_size=6).digest(), "big")


def retrain(
    model: Model,
    train: Any,
    test: Any,
    explainers: Any,
    trainer: Trainer | None,
    out: str | Place,
    *,
    tuner: Trainer | None = None,
    imputers: Any = ("noisy_linear",),
    orders: Sequence[sweeps.Order] = ("morf", "lerf"),
    fractions: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    repeats: int = 1,
    target: Literal["prediction", "label"] = "prediction",
    against: Literal["prediction", "label"] = "label",
    leakage: bool | Sequence[float] = False,
    seed: int = 0,
    batch_size: int = 64,
    show_progress: bool | None = None,
) -> Run:
    """Train `trainer(dataset, seed)` on the training images less their most (`morf`, ROAR) or least (`lerf`, KAR)
    important pixels, and add one row per test image, `accuracy`, to the run in `out`.

    `train` and `test` are labelled images, in any form that `evaluate` takes; they must share none. `out` may be the
    directory of a run on the same test data: ROAD and ROAR then share one table and one report. The column `repeat`
    says which of the `repeats` trainings a row is of. A later call with more explainers, imputers, orders, fractions or
    repeats adds them. With `leakage` the probes of `leakage` are trained for every cell of the first repeat, or for
    those of the fractions that it names. `target` is the class that is explained; the true label would carry itself
    into the mask. `against` is the class that counts as right, as in `Faithfulness`.

    `tuner(dataset, seed)` is for F-Fidelity: per imputer and repeat it is called once, with training images of which a
    share, uniform on [0, 1), is removed at random; it should go on from the weights of the model, and is tested on the
    images of every cell. With trainer=None nothing else is trained.

    >>> from tempfile import mkdtemp
    >>> x, y = torch.rand(16, 1, 4, 4), torch.arange(16) % 2
    >>> def train(dataset, seed):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    >>> sets = (x[:8], y[:8]), (x[8:], y[8:])
    >>> run = retrain(Model(train(None, 0)), *sets, "saliency", train, mkdtemp(), fractions=[0.5])
    >>> run.table().groupby("condition").size().to_dict()
    {'noisy_linear lerf': 8, 'noisy_linear morf': 8}
    """
    if not model.task.exclusive:
        raise UserError(
            f"retrain counts right classes, and {model.task.name}, the task of {model.name}, has none"
        )
    methods = building.explainers(explainers)
    fills = sweeps.resolve_imputers(imputers)
    sweeps.check_fractions(tuple(fractions))
    for order in orders:
        if order not in sweeps.ORDERS:
            raise UserError(f"orders are {', '.join(sweeps.ORDERS)}, got {order!r}")
    probed = tuple(fractions) if leakage is True else tuple(leakage or ())
    if not set(probed) <= set(fractions):
        raise UserError(
            f"leakage names fractions {list(probed)}, which must be among {list(fractions)}"
        )
    if repeats < 1:
        raise UserError(f"repeats must be at least 1, got {repeats}")
    for what, given in (("trainer", trainer), ("tuner", tuner)):
        if given is not None and not callable(given):
            raise UserError(
                f"{what} must be a function train(dataset, seed) -> module, got {type(given).__name__}"
            )
    if trainer is None and tuner is None:
        raise UserError(
            "without a trainer there must be a tuner, a function train(dataset, seed) -> module"
        )
    sets = {"train": building.as_data(train), "test": building.as_data(test)}
    root, name = place(out), sets["test"].name
    batches = {which: _loaded(data) for which, data in sets.items()}
    _check_disjoint(batches["train"], batches["test"])
    # Draws are keyed by id: with those of the test set, training would tell of its noise and its random masks.
    batches["train"] = replace(
        batches["train"], ids=tuple(f"train: {sample}" for sample in batches["train"].ids)
    )
    cells = [
        Cell(e, order, imputer, float(f), repeat)
        for e in methods
        for order in orders
        for imputer in fills
        for f in fractions
        for repeat in range(repeats)
    ]
    settings = {  # names of what may be added to are keys, as a manifest takes more of those
        "orders": dict.fromkeys(orders, True),
        "imputers": {label_of(i): {"name": name_of(i), **parameters(i)} for i in fills},
        "fractions": {f"{f:g}": True for f in fractions},
        "repeats": {str(repeat): True for repeat in range(repeats)},
        "target": target,
        "against": against,
        "train": {"fingerprint": sets["train"].fingerprint, "samples": len(sets["train"].ids)},
    }
    trained = {RETRAINING: trainer, LEAKAGE: trainer if probed else None, FIDELITY: tuner}
    evaluations: dict[str, Any] = {
        e: {"name": e, **settings, "trainer": described(given)}
        for e, given in trained.items()
        if given is not None
    }
    first = {name: sets["test"].load([0]).batch}
    study = manifest.describe(
        {model.name: model}, {name: sets["test"]}, methods, evaluations, seed, samples=first
    )
    open_session = manifest.begin(root, study, 32, COMMAND)
    session: dict[str, Any] = {
        "started": manifest.now(),
        "command": COMMAND,
        "versions": manifest.versions(),
    }
    open_session.record(session)
    begun = time.perf_counter()
    before = model.passes
    run_directory = RunDirectory(root)
    work = Work(
        model,
        batches,
        methods,
        trained,
        run_directory,
        name,
        cells,
        target,
        against,
        probed,
        seed,
        batch_size,
    )
    remove_damaged_parts(
        run_directory, (work.key(evaluation, cell) for evaluation in trained for cell in cells)
    )
    try:
        with progress(Counter(cell.explainer for cell in cells), RETRAINING, show_progress) as tick:
            work.carry_out(tick)
    finally:  # what a run that was stopped has cost is part of what it cost
        session |= {
            "seconds": round(time.perf_counter() - begun, 2),
            "passes": {model.name: model.passes - before},
        }
        session["durations"] = {what: round(seconds, 2) for what, seconds in work.spent.items()}
        open_session.record(session)
    return Run(root)


def _loaded(data: Data) -> Batch:
    loaded = data.load(range(len(data.ids)))
    if loaded.errors:
        first = next(iter(loaded.errors.items()))
        raise UserError(
            f"{len(loaded.errors)} images of {data.name} cannot be read, the first is {first}"
        )
    if loaded.batch.label is None or bool((loaded.batch.label < 0).any()):
        raise UserError(f"retraining needs a label for every image of {data.name}")
    return loaded.batch


def _check_disjoint(train: Batch, test: Batch) -> None:
    """Refuse test images that are training images too, whatever they are called."""
    seen, again = (
        {
            blake2b(x.cpu().contiguous().numpy().tobytes(), digest_size=16).digest(): i
            for i, x in zip(b.ids, b.x, strict=True)
        }
        for b in (train, test)
    )
    shared = [(again[digest], seen[digest]) for digest in again if digest in seen]
    if shared:
        raise UserError(
            f"{len(shared)} of the {len(test)} test images are training images too, the first is {shared[0][0]!r} "
            f"(there {shared[0][1]!r}); a network is tested on images that it has not seen"
        )


@dataclass(frozen=True)
class Work:
    """Everything that the cells share."""

    model: Model
    batches: Mapping[str, Batch]
    methods: Mapping[str, Explainer]
    trained: Mapping[str, Trainer | None]
    directory: RunDirectory
    dataset: str
    cells: Sequence[Cell]
    target: Literal["prediction", "label"]
    against: Literal["prediction", "label"]
    probed: Collection[float]
    seed: int
    batch_size: int
    spent: dict[str, float] = field(default_factory=dict)
    tuned: dict[tuple[str, int], Any] = field(default_factory=dict)

    def carry_out(self, tick: Callable[[str, int], None]) -> None:
        """Train what is missing, explainer by explainer; `spent` grows by the seconds of maps and trainings."""
        for name, explainer in self.methods.items():
            own = [cell for cell in self.cells if cell.explainer == name]
            missing = {cell: todo for cell in own if (todo := self._missing(cell))}
            tick(name, len(own) - len(missing))
            # F-Fidelity alone needs no maps of the training images.
            sets = (
                ("train", "test")
                if any(todo != [FIDELITY] for todo in missing.values())
                else ("test",)
            )
            with self._timed(RETRAINING if len(sets) == 2 else FIDELITY):
                ranks = {
                    which: self._ranks(name, explainer, self.batches[which])
                    for which in sets
                    if missing
                }
            for cell, todo in missing.items():
                for evaluation in todo:
                    with self._timed(evaluation):
                        test = self._removed("test", ranks["test"], cell)
                        if evaluation == FIDELITY:
                            columns = self._tested(self._tuned(cell), cell, test)
                        else:
                            train = self._removed("train", ranks["train"], cell)
                            if evaluation == LEAKAGE:
                                columns = probe_columns(train, test, self.seed)
                            else:
                                columns = self._tested(
                                    self._trained(RETRAINING, cell, train), cell, test
                                )
                        self._write(evaluation, cell, columns)
                tick(name, 1)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - begun

    def _missing(self, cell: Cell) -> list[str]:
        """The evaluations whose part of a cell is wanted and not there; probes are trained in the first repeat only."""
        wanted = [evaluation for evaluation, trainer in self.trained.items() if trainer is not None]
        if cell.fraction not in self.probed or cell.repeat > 0:
            wanted = [evaluation for evaluation in wanted if evaluation != LEAKAGE]
        return [
            evaluation
            for evaluation in wanted
            if not self.directory.has(self.key(evaluation, cell))
        ]

    def key(self, evaluation: str, cell: Cell) -> PartKey:
        """Return the part that holds an evaluation's scores of a cell."""
        job = Job(self.dataset, self.model.name, cell.number)
        return PartKey.scores(job, evaluation, cell.explainer)

    def _ranks(self, name: str, explainer: Explainer, batch: Batch) -> Tensor:
        """When each pixel goes from the most important on, (N, H, W) int32 on the CPU."""
        bench = BatchRunner(self.model, self.batch_size)
        ranks = []
        for piece in pieces(batch):
            part = batch[piece]
            # As in an evaluation, and unlike PyTorch's default: rounded products only where they were asked for.
            with arithmetic("tf32" if self.model.precision == "tf32" else "float32"):
                classes = part.label if self.target == "label" else bench.predict(part).argmax(1)
                assert classes is not None
                values = sweeps.importance(bench.explain(explainer, name, part, classes, self.seed))
            bad = ~torch.isfinite(values).flatten(1).all(1)
            if bool(bad.any()):
                sample = part.ids[int(bad.nonzero()[0])]
                raise UserError(
                    f"{name} gives a map of {sample!r} that is not finite, so its pixels have no order"
                )
            flat = values.flatten(1)
            counts = torch.full((len(flat),), flat.shape[1], device=flat.device)
            found = sweeps.removal_ranks(flat, counts, part.ids, "morf", self.seed)
            ranks.append(found.reshape(values.shape).int().cpu())
        return torch.cat(ranks)

    def _removed(self, which: str, ranks: Tensor | None, cell: Cell) -> Removed:
        """The images of a cell on the model's device; without ranks, less a random share of each, uniform on [0, 1)."""
        batch = self.batches[which]
        shape = batch.x.shape[2:]
        total = math.prod(shape)
        counts = sweeps.removal_sizes((cell.fraction,), torch.tensor([total])).expand(len(batch), 1)
        if ranks is None:
            share = rand.uniform(
                rand.keys(self.seed + cell.repeat, batch.ids, "share to tune by"), (1,)
            )
            counts = (share.double() * total).floor().long()
        images, masks = [], []
        for piece in pieces(batch):
            part = batch[piece].to(self.model.device)
            gone = counts[piece].to(self.model.device).reshape(-1, *[1] * len(shape))
            if ranks is None or cell.order == "random":
                flat = torch.zeros(len(part), total, device=self.model.device)
                place = sweeps.removal_ranks(
                    flat, torch.full((len(part),), total), part.ids, "random", self.seed
                )
                place = place.reshape(len(part), *shape)
            else:
                place = ranks[piece].to(self.model.device).long()
            keep = (
                place < total - gone
                if ranks is not None and cell.order == "lerf"
                else place >= gone
            )
            images.append(cell.imputer(part.x, keep, part.ids, self.seed + cell.repeat))
            masks.append(keep)
        assert batch.label is not None
        return Removed(torch.cat(images), torch.cat(masks), batch.label.to(self.model.device))

    def _tuned(self, cell: Cell) -> Any:
        """The network of F-Fidelity for an imputer and a repeat, made when it is first asked for."""
        key = (label_of(cell.imputer), cell.repeat)
        if key not in self.tuned:
            self.tuned[key] = self._trained(FIDELITY, cell, self._removed("train", None, cell))
        return self.tuned[key]

    def _trained(self, evaluation: str, cell: Cell, train: Removed) -> Any:
        trainer = self.trained[evaluation]
        assert trainer is not None  # as its part is wanted
        try:
            # Each repeat has its own seed, so that no two share their luck.
            return trainer(TensorDataset(train.x, train.label), self.seed + 1000 * cell.repeat)
        except UserError:
            raise
        except Exception as error:  # whatever a user's own code raises: the cell that it failed at is worth knowing
            raise UserError(
                f"the trainer failed at {_where(cell)}: {type(error).__name__}: {error}"
            ) from error

    def _tested(self, net: Any, cell: Cell, test: Removed) -> dict[str, Tensor]:
        """Whether the network is right about each test image; no answer where its scores are not finite."""
        logits = self._outputs(net, test.x, _where(cell))
        truth = test.label.cpu()
        if self.against == "prediction":
            truth = BatchRunner(self.model, self.batch_size).predict(self.batches["test"]).argmax(1)
        hit = (logits.argmax(1) == truth).double()
        return {"accuracy": hit.masked_fill(~torch.isfinite(logits).all(1), torch.nan)}

    def _outputs(self, net: Any, x: Tensor, where: str) -> Tensor:
        if isinstance(net, Model):
            batch = Batch(tuple(map(str, range(len(x)))), x)
            return BatchRunner(net, self.batch_size).predict(batch)
        if not isinstance(net, nn.Module):
            raise UserError(
                f"the trainer returned {type(net).__name__} at {where}; a torch.nn.Module was expected"
            )
        return scores(net, x).cpu()

    def _write(self, evaluation: str, cell: Cell, columns: Mapping[str, Tensor]) -> None:
        rows, ids = [], self.batches["test"].ids
        for measure, value in columns.items():
            where = (cell.condition, cell.fraction)
            column = Scores.column(
                cell.explainer, measure, where, value, [""] * len(value), missing=NOT_FINITE
            )
            rows.append(
                replace(
                    column, imputer=label_of(cell.imputer), order=cell.order, repeat=cell.repeat
                )
            )
        role = role_of(self.methods[cell.explainer])
        part = tables.score_rows(self.dataset, self.model.name, evaluation, role, ids, rows)
        self.directory.write(self.key(evaluation, cell), part)


def _where(cell: Cell) -> str:
    return f"{cell.explainer}, {cell.condition}, fraction {cell.fraction:g}, repeat {cell.repeat}"


def pieces(batch: Batch) -> Iterator[slice]:
    """Slices of a batch that together hold all its samples, each of a moderate number of values.

    >>> [(piece.start, piece.stop) for piece in pieces(Batch(("a", "b"), torch.zeros(2, 1, 2**11, 2**12)))]
    [(0, 1), (1, 2)]
    """
    step = max(1, VALUES // max(1, math.prod(batch.x.shape[1:])))
    for start in range(0, len(batch), step):
        yield slice(start, min(start + step, len(batch)))
