"""`evaluate` and `read`: start, resume or open a run, and look at its results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch

from holdfast import building, manifest, table
from holdfast.atomic import write_atomically
from holdfast.data import Data, open_data
from holdfast.engine import run_shards
from holdfast.errors import UserError
from holdfast.modalities import modality, why_not_explainable, why_undefined
from holdfast.models import Model
from holdfast.plan import FEATURE_MAPS, Plan, why_left_out
from holdfast.precision import Precision, arithmetic, check_precision
from holdfast.progress import progress
from holdfast.storage import Place, place
from holdfast.types import Batch, name_of, parameters
from holdfast.zoo import load_model

if TYPE_CHECKING:
    from holdfast.executors import Executor


COMMAND = "holdfast.evaluate(...)"


class Run:
    """The results in a run directory; `packed` is the zip that it was unpacked from, beside which its report goes."""

    def __init__(self, path: Place, packed: Path | None = None) -> None:
        self.path = path
        self.packed = packed
        self.manifest = table.read_manifest(path)

    def table(self) -> pd.DataFrame:
        """One row per attempted pair and measure: dataset, model, explainer, evaluation, sample, measure, condition,
        level, value, low, high, status (ok, flipped, undefined), reason."""
        return table.read_scores(self.path)

    def samples(self) -> pd.DataFrame:
        """One row per sample: label, prediction and probability, or why it could not be read."""
        return table.read_samples(self.path)

    def summary(self) -> pd.DataFrame:
        """Means with intervals, chance, calibrated and aligned scores, noise floor and retention; see `statistics`."""
        from holdfast import statistics

        return statistics.summary(self._compact())

    def ranking(self) -> pd.DataFrame:
        """Explainers in order of their overall score, with the uncertainty of their ranks."""
        from holdfast import statistics

        return statistics.ranking(self._compact())

    def tests(self) -> pd.DataFrame:
        """Paired tests between explainers, with Holm's correction."""
        from holdfast import statistics

        return statistics.paired_tests(self._compact())

    def report(self, path: str | Place | None = None) -> Place:
        """Write the report, one HTML file that works offline, and return where it is."""
        from holdfast.merging import missing
        from holdfast.report import build_report

        facts = {**self.manifest, "missing": missing(self.path)}
        beside = self.path / "report.html" if self.packed is None else self.packed.with_suffix(".html")
        target = beside if path is None else place(path)
        html = build_report(self.in_study_order(), self.samples(), table.read_exhibits(self.path), facts)
        write_atomically(target, html.encode())
        return target

    def text(self) -> str:
        """The verdict and the ranking for a terminal."""
        from holdfast.report import text_summary

        return text_summary(self.in_study_order(), self.samples(), self.manifest)

    def in_study_order(self) -> pd.DataFrame:
        """The table with its conditions in the order in which the study names them, which is how people read them."""
        axes = self.manifest["study"]["evaluations"].values()
        named = dict.fromkeys(condition for axis in axes for condition, _ in axis.get("conditions", []))
        number = {condition: i for i, condition in enumerate(named)}
        rows = self._compact()
        by_code = np.array([number.get(c, len(number)) for c in rows["condition"].cat.categories], dtype=np.int64)
        return rows.iloc[by_code[rows["condition"].cat.codes].argsort(kind="stable")]

    def _compact(self) -> pd.DataFrame:
        """The table with its columns of text as categories: what statistics and the report read, a quarter the size."""
        return table.read_scores(self.path, compact=True)

    def __repr__(self) -> str:
        study = self.manifest["study"]
        names = {key: ", ".join(study[key]) for key in ("models", "datasets", "explainers", "evaluations")}
        return f"Run({str(self.path)!r}: {names['explainers']} on {names['models']} and {names['datasets']})"


def read(path: str | Place) -> Run:
    """Open a run directory, one packed by `holdfast export --to zip`, or a run at an address of an object store.

    >>> read("no-such-run")
    Traceback (most recent call last):
    holdfast.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    where = place(path)
    if isinstance(where, Path) and where.is_file() and where.suffix.lower() == ".zip":
        from holdfast.exporting import unpacked

        return Run(unpacked(where), packed=where)
    return Run(where)


def evaluate(
    model: Any,
    data: Any,
    explainers: Any,
    evaluations: Any = "stability",
    out: str | Place | None = None,
    *,
    seed: int = 0,
    limit: int | None = None,
    shard_size: int = 32,
    batch_size: int | None = None,
    device: str | None = None,
    precision: Precision | Literal["auto"] | None = None,
    compile: bool = False,
    workers: int = 1,
    show_progress: bool | None = None,
) -> Run:
    """Put explainers to the test on a model and data; the same call again finishes what is missing.

    `model` is a `Model`, a torch module, a name such as "bundled:efficientnet-lite0", or a mapping of names to these;
    `data` is a tensor in [0, 1], a path, a torch Dataset, a `Batch`, or a mapping of names to these; `explainers` and
    `evaluations` are names or objects. Without `out` the run lives in a new temporary directory. `precision` and
    `compile` are those of `Model.use`; without them a model computes as it was made, and "auto" is the fastest
    precision that does not change the answer on a few samples, see `holdfast.audit`. `workers` above 1 do the shards in
    as many new processes, one per GPU where there are any; models, data and explainers are sent to them by pickle.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(net, images, ["saliency", "random"], {"stability": {"stability": {"perturbations": "jpeg"}}})
    >>> sorted(run.table().measure.unique())[:2]
    ['fass', 'fass_chance']
    """
    methods = building.explainers(explainers)
    axes = building.evaluations(evaluations)
    sets = datasets_of(data, limit)
    models = models_of(model, device)
    if precision is not None or compile:
        for wrapped in models.values():
            wrapped.use(wrapped.precision if precision in (None, "auto") else check_precision(precision), compile)
    plan = make_plan(models, sets, methods, axes, seed, shard_size, batch_size)
    audit = None
    if precision == "auto":
        from holdfast.audit import lower, settle

        chosen, audit = settle(plan, None if out is None else place(out))
        plan = replace(plan, models={name: lower(model, chosen) for name, model in plan.models.items()})
    if workers == 1:
        return execute(plan, out, COMMAND, show_progress, audit=audit)
    from holdfast.executors import Processes, pickled

    _check_whole("workers", workers, 1)
    with pickled(plan) as recipe:
        return execute(plan, out, COMMAND, show_progress, Processes(recipe, workers), audit=audit)


def make_plan(
    models: Mapping[str, Model],
    data: Mapping[str, Data],
    explainers: Mapping[str, Any],
    evaluations: Mapping[str, Any],
    seed: int = 0,
    shard_size: int = 32,
    batch_size: int | None = None,
) -> Plan:
    """Check everything that can be checked without a model pass."""
    for what, given in (("model", models), ("data", data)):
        if not given:
            raise UserError(f"no {what} is given")
    _check_whole("seed", seed)
    _check_whole("shard_size", shard_size, 1)
    if batch_size is not None:
        _check_whole("batch_size", batch_size, 1)
    for source in data.values():
        first = first_sample(source)
        shape = tuple(first.x.shape[1:])
        evaluations = _suited(evaluations, models, first)
        for item in evaluations.values():
            if hasattr(item, "check"):
                item.check(shape)
        for item in explainers.values():
            if hasattr(item, "check_ids"):
                item.check_ids(source.ids, source.name)
        for model in models.values():
            _check_channels(model, source.name, shape)
            _check_defined(explainers, model, source.name, first)
            for item in explainers.values():
                if hasattr(item, "check"):
                    item.check(model, shape)
    _check_something_to_judge(evaluations, explainers)
    return Plan(models, data, explainers, evaluations, seed, shard_size, batch_size)


def _suited(evaluations: Mapping[str, Any], models: Mapping[str, Model], first: Batch) -> dict[str, Any]:
    """The axes with what they leave open chosen for data such as this sample."""
    found = dict(evaluations)
    for model in models.values():
        for name, item in found.items():
            if hasattr(item, "suited"):
                found[name] = item.suited(model, first)
    return found


def _check_something_to_judge(evaluations: Mapping[str, Any], explainers: Mapping[str, Any]) -> None:
    for name, item in evaluations.items():
        kinds = getattr(item, "kinds", FEATURE_MAPS)
        if not any(getattr(explainer, "kind", "feature") in kinds for explainer in explainers.values()):
            raise UserError(f"{name} judges {' and '.join(sorted(kinds))} explanations, and no explainer gives them")
        refusals = [why_left_out(name, item, label, explainer) for label, explainer in explainers.items()]
        if all(refusals):
            raise UserError(f"{name} has nothing to judge: {refusals[0]}")


def _check_whole(what: str, value: Any, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{what} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise UserError(f"{what} must be at least {least}, got {value}")


def _check_channels(model: Model, source: str, shape: tuple[int, ...]) -> None:
    for what, values in (("mean", model.mean), ("std", model.std)):
        if values is not None and len(values) > 1 and len(values) != shape[0]:
            channels = f"{len(values)} channels, but samples of {source} have shape {shape}"
            raise UserError(f"the {what} of model {model.name} has {channels}")


def _check_defined(explainers: Mapping[str, Any], model: Model, source: str, first: Batch) -> None:
    kind = modality(model, first)
    lost = {name: why_undefined(name_of(item), kind) for name, item in explainers.items()}
    lines = [f"{name}: {why}" for name, why in lost.items() if why]
    if lines:
        raise UserError(f"not defined on {kind} data such as {source}:\n  " + "\n  ".join(lines))
    blind = {name: why_not_explainable(item, model) for name, item in explainers.items()}
    lines = [f"{name}: {why}" for name, why in blind.items() if why]
    if lines:
        raise UserError(f"not possible with the model {model.name}:\n  " + "\n  ".join(lines))


def first_sample(source: Data) -> Batch:
    """The first sample that can be read, as a batch of one."""
    for position in range(len(source.ids)):
        loaded = source.load([position]).batch
        if len(loaded):
            return loaded
    raise UserError(f"no sample of {source.name} could be read")


def execute(
    plan: Plan,
    out: str | Place | None,
    command: str,
    show_progress: bool | None = None,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    audit: Mapping[str, Any] | None = None,
) -> Run:
    """Run or resume a plan in a directory; a directory that holds another study is refused.

    `executor` does the shards elsewhere than in this process; `share` (i, n) is only every n-th shard from the i-th on;
    `audit` is why the models compute in the precision that they have.
    """
    root = Path(tempfile.mkdtemp(prefix="holdfast-")) if out is None else place(out)
    found = manifest.begin(root, describe(plan), plan.shard_size, command)
    plan = replace(plan, shard_size=found["shard_size"])
    session: dict[str, Any] = {"started": manifest.now(), "command": command, "versions": manifest.versions()}
    session["devices"] = sorted({str(model.device) for model in plan.models.values()})
    if audit is not None:
        session["audit"] = dict(audit)
    manifest.record(root, found, session)
    begun = time.perf_counter()
    first, step = share
    jobs = [job for job in plan.jobs()[first - 1 :: step] if plan.is_pending(root, job)]
    with precisely(plan), progress(plan.work(root, jobs), "explaining", show_progress) as tick:
        if executor is not None and jobs:
            session |= executor(plan, root, jobs, tick)
        else:
            before = {name: model.passes for name, model in plan.models.items()}
            session |= run_shards(plan, root, tick, jobs)
            session["passes"] = {name: model.passes - before[name] for name, model in plan.models.items()}
    session["seconds"] = round(time.perf_counter() - begun, 2)
    manifest.record(root, found, session)
    return Run(root)


def precisely(plan: Plan) -> AbstractContextManager[None]:
    """Forbid the ten-bit products that PyTorch allows in convolutions by default, unless the study asks for them.

    They would make the device show in the table.
    """
    return arithmetic("tf32" if any(model.precision == "tf32" for model in plan.models.values()) else "float32")


def describe(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, for its manifest."""
    evaluations = {}
    for name, item in plan.evaluations.items():
        conditions = [list(c) for c in item.conditions()]
        left_out = plan.left_out(name)
        evaluations[name] = {"name": name_of(item), **parameters(item), "conditions": conditions, "left_out": left_out}
    return manifest.describe(plan.models, plan.data, plan.explainers, evaluations, plan.seed)


def models_of(model: Any, device: str | None) -> dict[str, Model]:
    """Models by name, from what `evaluate` takes."""
    given = model if isinstance(model, Mapping) else {None: model}
    found: dict[str, Model] = {}
    for name, item in given.items():
        wrapped = item if isinstance(item, Model) else load_model(item)
        if device is not None:
            wrapped.to(check_device(device))
        found[str(name or wrapped.name)] = wrapped
    return found


def datasets_of(data: Any, limit: int | None) -> dict[str, Data]:
    """Data by name, from what `evaluate` takes; of each the first `limit` samples."""
    given = data if isinstance(data, Mapping) else {None: data}
    found: dict[str, Data] = {}
    for name, item in given.items():
        source = as_data(item)
        found[str(name or source.name)] = source if limit is None else source.limit(limit)
    return found


def as_data(item: Any) -> Data:
    """Data from a name, a path, tensors, a Dataset or a Batch; a `Data` stays itself."""
    return item if isinstance(item, Data) else open_data(item)


def check_device(device: str) -> str:
    """A device that exists here, or an error that names those that do."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; use cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no GPU here; use cpu")
    return device
