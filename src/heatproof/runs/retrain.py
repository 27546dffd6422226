"""ROAR and KAR: remove what a map calls important, train a new network on what is left, and test it on the same.

Every (explainer, order, imputer, fraction, repeat) is a cell: one training, and one part of the run when it is done. As in
the engine, the parts that are missing are the work, so a run that was stopped is resumed by the same call. The
engine's jobs are shards of one data set with references, predictions and a gallery; a cell takes two whole data sets and
has none of these, so cells have a loop of their own here.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal

from heatproof.axes import faithfulness as removal
from heatproof.axes.faithfulness import sweeps
from heatproof.axes.faithfulness.retraining.cells import Cell, Retraining, all_cells
from heatproof.axes.faithfulness.retraining.trainer import Trainer, described
from heatproof.data import Data
from heatproof.errors import UserError, counted
from heatproof.evaluation import Scores
from heatproof.models import Model
from heatproof.runs import manifest, tables
from heatproof.runs.directory import Job, PartKey, RunDirectory
from heatproof.runs.manifest import OpenSession, Study
from heatproof.runs.progress import Advance, progress
from heatproof.runs.run import Run
from heatproof.runs.storage import Place
from heatproof.runs.study import registry
from heatproof.runs.verify import remove_damaged_parts
from heatproof.types import Batch, Explainer, label_of, name_of, parameters, role_of

RETRAINING = removal.RETRAINING.name
LEAKAGE = removal.LEAKAGE.name
FIDELITY = removal.FIDELITY.name
SHARD_SIZE = 32
"""What the manifest says if the run is begun here; `evaluate` may later add shards of this size."""
COMMAND = "heatproof.retrain(...)"


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

    >>> import torch
    >>> from tempfile import mkdtemp
    >>> from torch import nn
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
            f"retrain counts right classes, and {model.task.name}, the task of {model.name}, has no classes"
        )
    _check_trainers(trainer, tuner)
    probed_fractions = _check_cells(orders, fractions, repeats, leakage)
    methods = registry.explainers(explainers)
    fills = sweeps.resolve_imputers(imputers)
    train_data, test_data = registry.as_data(train), registry.as_data(test)
    train_batch, test_batch = _load_labelled(train_data), _load_labelled(test_data)
    _check_disjoint(train_batch, test_batch)
    # Draws are keyed by id: with those of the test set, training would tell of its noise and its random masks.
    train_batch = replace(train_batch, ids=tuple(f"train: {sample}" for sample in train_batch.ids))
    networks = Retraining(
        model,
        train_batch,
        test_batch,
        methods,
        trainer,
        tuner,
        target,
        against,
        seed,
        batch_size,
    )

    trainers: dict[str, Trainer] = {}
    if trainer is not None:
        trainers[RETRAINING] = trainer
        if probed_fractions:
            trainers[LEAKAGE] = trainer
    if tuner is not None:
        trainers[FIDELITY] = tuner
    settings = {  # names of what may be added to are keys, as a manifest takes more of those
        "orders": dict.fromkeys(orders, True),
        "imputers": {label_of(fill): {"name": name_of(fill), **parameters(fill)} for fill in fills},
        "fractions": {f"{fraction:g}": True for fraction in fractions},
        "repeats": {str(repeat): True for repeat in range(repeats)},
        "target": target,
        "against": against,
        "train": {"fingerprint": train_data.fingerprint, "samples": len(train_data.ids)},
    }
    study = _describe(model, test_data, methods, trainers, settings, seed)
    run_directory = RunDirectory(out)
    session = manifest.begin(run_directory.root, study, SHARD_SIZE, COMMAND)

    cells: dict[PartKey, Cell] = {}
    for cell in all_cells(list(methods), orders, fills, fractions, repeats):
        job = Job(test_data.name, model.name, cell.number)
        for evaluation in trainers:
            # Probes are trained in the first repeat only.
            is_probed = cell.fraction in probed_fractions and cell.repeat == 0
            if evaluation != LEAKAGE or is_probed:
                cells[PartKey.scores(job, evaluation, cell.explainer)] = cell
    remove_damaged_parts(run_directory, cells)
    missing = {key: cell for key, cell in cells.items() if not run_directory.has(key)}
    _run_session(session, networks, missing, run_directory, show_progress)
    return Run(run_directory.root)


def _describe(
    model: Model,
    test_data: Data,
    explainers: Mapping[str, Explainer],
    trainers: Mapping[str, Trainer],
    settings: Mapping[str, Any],
    seed: int,
) -> Study:
    """Return what the manifest says of these trainings; each evaluation has the settings and its own trainer."""
    evaluations = {}
    for name, trainer in trainers.items():
        evaluations[name] = {"name": name, **settings, "trainer": described(trainer)}
    data_and_model = (test_data.name, model.name)
    return manifest.describe(
        {model.name: model},
        {test_data.name: test_data},
        {data_and_model: explainers},
        {data_and_model: evaluations},
        seed,
        samples={test_data.name: test_data.load([0]).batch},
    )


def _run_session(
    session: OpenSession,
    networks: Retraining,
    missing: Mapping[PartKey, Cell],
    run_directory: RunDirectory,
    show_progress: bool | None,
) -> None:
    """Run the missing cells, and record what they cost, even if they are interrupted."""
    facts: dict[str, Any] = {
        "started": manifest.now(),
        "command": COMMAND,
        "versions": manifest.versions(),
    }
    session.record(facts)
    model = networks.model
    started, passes_before = time.perf_counter(), model.passes
    seconds: dict[str, float] = defaultdict(float)
    try:
        work = Counter(key.step for key in missing)
        with progress(work, RETRAINING, show_progress) as advance:
            _run_cells(networks, missing, run_directory, advance, seconds)
    finally:
        facts["seconds"] = round(time.perf_counter() - started, 2)
        facts["passes"] = {model.name: model.passes - passes_before}
        facts["durations"] = {name: round(spent, 2) for name, spent in seconds.items()}
        session.record(facts)


def _run_cells(
    networks: Retraining,
    missing: Mapping[PartKey, Cell],
    run_directory: RunDirectory,
    advance: Advance,
    seconds: dict[str, float],
) -> None:
    """Compute and write the missing parts; the time of shared maps counts for the first part that needs them."""
    evaluate: dict[str, Callable[[Cell], list[Scores]]] = {
        RETRAINING: networks.retrained_accuracy,
        LEAKAGE: networks.leakage,
        FIDELITY: networks.tuned_accuracy,
    }
    for key, cell in missing.items():
        advance(key.step, 0)
        started = time.perf_counter()
        try:
            scores = evaluate[key.evaluation](cell)
        finally:
            seconds[key.evaluation] += time.perf_counter() - started
        role = role_of(networks.explainers[key.explainer])
        rows = tables.score_rows(
            key.dataset, key.model, key.evaluation, role, networks.test.ids, scores
        )
        run_directory.write(key, rows)
        advance(key.step, 1)


# ---- checks ------------------------------------------------------------------------------------------


def _check_cells(
    orders: Sequence[str],
    fractions: Sequence[float],
    repeats: int,
    leakage: bool | Sequence[float],
) -> tuple[float, ...]:
    """Raise for cells that cannot be, and return the fractions at which leakage is measured."""
    sweeps.check_fractions(tuple(fractions))
    for order in orders:
        if order not in sweeps.ORDERS:
            raise UserError(f"orders are {', '.join(sweeps.ORDERS)}, got {order!r}")
    if repeats < 1:
        raise UserError(f"repeats must be at least 1, got {repeats}")
    probed = tuple(fractions) if leakage is True else tuple(leakage or ())
    if not set(probed) <= set(fractions):
        raise UserError(
            f"leakage names fractions {list(probed)}, which must be among {list(fractions)}"
        )
    return probed


def _check_trainers(trainer: Any, tuner: Any) -> None:
    """Raise unless there is a trainer or a tuner, and each of them is a function."""
    for argument, value in (("trainer", trainer), ("tuner", tuner)):
        if value is not None and not callable(value):
            raise UserError(
                f"{argument} must be a function train(dataset, seed) -> module, got {type(value).__name__}"
            )
    if trainer is None and tuner is None:
        raise UserError(
            "without a trainer there must be a tuner, a function train(dataset, seed) -> module"
        )


def _load_labelled(data: Data) -> Batch:
    """Load all images of a data set; raise if one cannot be read or has no label."""
    loaded = data.load(range(len(data.ids)))
    if loaded.errors:
        first = next(iter(loaded.errors.items()))
        raise UserError(
            f"{counted(len(loaded.errors), 'image')} of {data.name} cannot be read, the first is {first}"
        )
    if loaded.batch.label is None or bool((loaded.batch.label < 0).any()):
        raise UserError(f"retraining needs a label for every image of {data.name}")
    return loaded.batch


def _check_disjoint(train: Batch, test: Batch) -> None:
    """Raise if a test image is a training image too, whatever it is called."""
    train_ids = _ids_by_content(train)
    shared = []
    for content, test_id in _ids_by_content(test).items():
        if content in train_ids:
            shared.append((test_id, train_ids[content]))
    if shared:
        test_id, train_id = shared[0]
        raise UserError(
            f"{counted(len(shared), 'image')} of the {len(test)} for testing found in the training set, the first is "
            f"{test_id!r} (in training {train_id!r}); a network is tested on images that it has not seen"
        )


def _ids_by_content(batch: Batch) -> dict[bytes, str]:
    """Return digest of an image -> its id."""
    ids = {}
    for sample, x in zip(batch.ids, batch.x, strict=True):
        content = x.cpu().contiguous().numpy().tobytes()
        ids[blake2b(content, digest_size=16).digest()] = sample
    return ids
