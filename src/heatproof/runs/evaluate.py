"""`evaluate` and `explain`: a run started or resumed, in this process or in others."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heatproof import axes
from heatproof.errors import UserError, no_exit
from heatproof.models.precision import Precision, arithmetic
from heatproof.runs import manifest
from heatproof.runs.atomic import scratch, sweep
from heatproof.runs.differences import differences
from heatproof.runs.directory import RunDirectory
from heatproof.runs.engine import run_jobs
from heatproof.runs.plan import Plan, check_whole, describe, make_plan
from heatproof.runs.progress import progress
from heatproof.runs.run import Run
from heatproof.runs.storage import Place, place
from heatproof.runs.verify import (
    changed_samples,
    deduplicate_parts,
    drop_failed_shards,
    remove_damaged_parts,
)
from heatproof.types import targets_of

if TYPE_CHECKING:
    from heatproof.runs.executors import Executor

COMMAND = "heatproof.evaluate(...)"


def evaluate(
    model: Any,
    data: Any,
    explainers: Any,
    evaluations: Any = axes.DEFAULT_EVALUATION,
    out: str | Place | None = None,
    *,
    seed: int = 0,
    limit: int | None = None,
    shard_size: int = 32,
    batch_size: int | None = None,
    references: int | None = None,
    device: str | None = None,
    precision: Precision | None = None,
    compile: bool = False,
    workers: int = 1,
    retry_errors: bool = False,
    show_progress: bool | None = None,
    keep_maps: bool | Sequence[str] = False,
    ignore: Sequence[str] = (),
) -> Run:
    """Put explainers to the test on a model and data; the same call again finishes what is missing.

    `model` is a `Model`, a torch module, a name such as "bundled:efficientnet-lite0", or a mapping of names to these;
    `data` is a tensor in [0, 1], a path, a torch Dataset, a `Batch`, or a mapping of names to these; `explainers` and
    `evaluations` are names or objects. Without `out` the run lives in a new temporary directory. `references` is how
    many other samples the chance level of a score is taken from, by default 8 to 32. `precision` and `compile` are
    those of `Model.use`; without them a model computes as it was made.
    `workers` above 1 do the shards in as many new processes, one per GPU where there are any; models, data and
    explainers are sent to them by pickle. `retry_errors` reads samples again that the storage, not their content, kept
    from being read. `keep_maps` keeps the maps of all samples, or of those named, in the run, for `Run.maps`; then
    `evaluations` may be empty. `ignore` names rules of which the report shows no findings, see `heatproof rule`.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(net, images, ["saliency", "random"], {"stability": {"stability": {"perturbations": "jpeg"}}})
    >>> sorted(run.table().measure.unique())
    ['fass', 'jaccard', 'noise_floor', 'noise_floor_jaccard', 'noise_floor_spearman', 'noise_floor_ssim', 'spearman', 'ssim']
    """
    given: dict[str, Any] = {
        "seed": seed,
        "limit": limit,
        "shard_size": shard_size,
        "batch_size": batch_size,
    }
    given |= {
        "references": references,
        "device": device,
        "precision": precision,
        "compile": compile,
    }
    given |= {"keep_maps": keep_maps, "ignore": ignore}
    plan = make_plan(model, data, explainers, evaluations, **given)
    if workers == 1:
        return execute(plan, out, COMMAND, show_progress, retry_errors=retry_errors)
    from heatproof.runs.executors import Processes, pickled

    check_whole("workers", workers, 1)
    with pickled(plan) as recipe:
        executor = Processes(recipe, workers)
        return execute(plan, out, COMMAND, show_progress, executor, retry_errors=retry_errors)


def explain(
    model: Any,
    data: Any,
    explainer: Any,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    *,
    target: int | Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Return the maps (n, …) of one explainer, in the order of the data.

    They are of the classes that the model predicts, or of a `target` class for all samples or one for each. Everything
    else is as `evaluate` takes it, and the maps are those that it judges: float32, in the shape of the samples.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    >>> maps = explain(net, torch.rand(5, 3, 8, 8), "saliency")
    >>> maps.shape, maps.dtype
    ((5, 3, 8, 8), dtype('float32'))
    """
    plan = make_plan(
        model, data, [explainer], [], seed=seed, limit=limit, batch_size=batch_size, keep_maps=True
    )
    if target is not None:
        return _maps_of_targets(plan, target)
    with scratch() as folder:
        run = execute(plan, folder, "heatproof.explain(...)")
        for row in run.samples().query("error != ''").itertuples():
            raise UserError(f"{row.sample!r} of {row.dataset} has no map: {row.error}")
        return np.stack(list(run.maps(*plan.explainers).values()))


def _maps_of_targets(plan: Plan, target: int | Sequence[int]) -> NDArray[np.float32]:
    """Return the maps (n, …) of the only model, data set and explainer of a plan for given classes."""
    ((dataset, model_name), study), *_ = plan.configured.items()
    (explainer,) = study.explainers.values()
    data, model = plan.data[dataset], plan.models[model_name]
    targets = np.asarray(target)
    if targets.ndim and len(targets) != len(data.ids):
        raise UserError(f"target has {len(targets)} classes for {len(data.ids)} samples")
    maps = []
    for start in range(0, len(data.ids), plan.shard_size):
        positions = list(range(start, min(start + plan.shard_size, len(data.ids))))
        loaded = data.load(positions)
        for sample, error in loaded.errors.items():
            raise UserError(f"{sample!r} of {dataset} has no map: {error}")
        batch = loaded.batch.to(model.device)
        classes = targets_of(model, batch, targets[positions] if targets.ndim else target)
        maps.append(explainer(model, batch, classes, plan.seed).float().cpu().numpy())
    return np.concatenate(maps)


def execute(
    plan: Plan,
    out: str | Place | None,
    command: str,
    show_progress: bool | None = None,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    retry_errors: bool = False,
) -> Run:
    """Run or resume a plan in a directory; a directory that holds another study is refused.

    Parts that are damaged are said and computed anew. With `retry_errors`, so are the shards with samples that the
    storage kept from being read.

    `executor` does the shards elsewhere than in this process; `share` (i, n) is only every n-th shard from the i-th on.
    """
    root = Path(tempfile.mkdtemp(prefix="heatproof-")) if out is None else place(out)
    study = describe(plan)
    prepared = {name: dict(data.prepared) for name, data in plan.data.items()}
    try:
        open_session = manifest.begin(root, study, plan.shard_size, command)
    except manifest.AnotherStudy as error:
        prepared_before = manifest.read_manifest(root).prepared
        options = "".join(f"\n  {line}" for line in differences(prepared_before, prepared, "data"))
        raise UserError(f"{error}{options}{changed_samples(plan, root)}") from error
    plan = replace(plan, shard_size=open_session.manifest.shard_size)
    run_directory = RunDirectory(root)
    session: dict[str, Any] = {
        "started": manifest.now(),
        "command": command,
        "versions": manifest.versions(),
    }
    session["devices"] = sorted({str(model.device) for model in plan.models.values()})
    session |= {"prepared": prepared} | ({"study_file": plan.study_file} if plan.study_file else {})
    session["ignore"] = list(plan.ignore)
    open_session.record(session)
    begun = time.perf_counter()
    first, step = share
    share_of = plan.jobs()[first - 1 :: step]
    possible_parts = [key for job in share_of for key in plan.possible_parts(job)]
    remove_damaged_parts(run_directory, possible_parts)
    if retry_errors:
        drop_failed_shards(plan, run_directory, share_of)
    jobs = [job for job in share_of if plan.missing_parts(run_directory, job)]
    with (
        precisely(plan),
        no_exit(),
        progress(plan.work(run_directory, jobs), "explaining", show_progress) as advance,
    ):
        if executor is not None and jobs:
            session |= executor(plan, root, jobs, advance)
            sweep(root)  # a worker that was lost may have been writing
        else:
            before = {name: model.passes for name, model in plan.models.items()}
            session |= run_jobs(plan, run_directory, jobs, advance)
            session["passes"] = {
                name: model.passes - before[name] for name, model in plan.models.items()
            }
    session["seconds"] = round(time.perf_counter() - begun, 2)
    open_session.record(session)
    deduplicate_parts(run_directory, possible_parts)
    return Run(root)


def precisely(plan: Plan) -> AbstractContextManager[None]:
    """Forbid the ten-bit products that PyTorch allows in convolutions by default, unless the study asks for them.

    They would make the device show in the table.
    """
    return arithmetic(
        "tf32" if any(model.precision == "tf32" for model in plan.models.values()) else "float32"
    )
