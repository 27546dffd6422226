"""`evaluate` and `explain`: a run started or resumed, in this process or in others."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from heatproof import axes
from heatproof.data import Data
from heatproof.errors import UserError, no_exit
from heatproof.models.precision import Precision, arithmetic
from heatproof.runs import manifest, storage
from heatproof.runs.atomic import scratch, sweep
from heatproof.runs.differences import differences
from heatproof.runs.directory import Job, PartKey, RunDirectory
from heatproof.runs.engine import run_jobs
from heatproof.runs.looks import has_finished_stage, look_at
from heatproof.runs.manifest import Manifest, OpenSession
from heatproof.runs.plan import Plan, check_whole, describe, make_plan
from heatproof.runs.progress import progress, shows_a_bar
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
    from heatproof.runs.cost import Estimate
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
    background: Any = None,
    half_width: float | None = None,
    until: Literal["decided"] | None = None,
    margin: float | None = None,
    at_most: int | None = None,
) -> Run:
    """Test explainers on a model and data, and return the run; the same call again computes only what is missing.

    model        a `Model`, a torch module, a name such as "bundled:efficientnet-lite0", a mapping of names to these, or
                 None for maps from elsewhere and tests that ask no model
    data         a tensor in [0, 1], a path, a torch Dataset, a `Batch`, or a mapping of names to these
    explainers   names or objects, maps (n, …) in the order of the data, functions from a batch to its maps
    evaluations  names or objects
    out          the run directory; by default a new temporary one
    references   how many other samples the chance level of a score is taken from, by default 8 to 32
    precision, compile  those of `Model.use`; by default a model computes as it was made
    workers      how many new processes share the work, one per GPU where there are any; models, data and explainers are
                 sent to them by pickle
    retry_errors whether to retry samples that the storage did not deliver
    show_progress  True for a bar with the time left, False for none; by default a bar on a terminal and in a notebook,
                 and elsewhere a line a minute. With a bar, the time of 24 samples and more is estimated beforehand
    keep_maps    whose maps the run keeps for `Run.maps`: all samples', or those named; then `evaluations` may be empty
    ignore       rules of which the report shows no findings, see `heatproof rule`
    background   what takes the place of removed features, for everything that removes or samples them: rows of data (a
                 frame, an array, a path), a number of rows of these data, or {"kmeans": 10}. By default the references
                 of a table, and zero elsewhere
    half_width   test as many samples as intervals of ± this half-width take, such as 0.02, in place of all
    until        "decided": test samples until every pair of methods is told apart, or differs by less than `margin`
    at_most      the most samples that `half_width` and `until` may take

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(net, images, ["saliency", "random"], {"stability": {"stability": {"perturbations": "jpeg"}}})
    >>> sorted(run.table().measure.unique())
    ['fass', 'jaccard', 'noise_floor', 'noise_floor_jaccard', 'noise_floor_spearman', 'noise_floor_ssim', 'spearman', 'ssim']
    """
    plan = make_plan(
        model,
        data,
        explainers,
        evaluations,
        seed=seed,
        limit=limit,
        shard_size=shard_size,
        batch_size=batch_size,
        references=references,
        device=device,
        precision=precision,
        compile=compile,
        keep_maps=keep_maps,
        ignore=ignore,
        background=background,
        half_width=half_width,
        until=until,
        margin=margin,
        at_most=at_most,
    )
    if workers == 1:
        opened = open_run(plan, out, COMMAND)
        estimate = None
        if shows_a_bar(show_progress):
            from heatproof.runs.cost import estimate_if_worth_it

            estimate = estimate_if_worth_it(opened.plan, opened.unfinished_jobs())
        return finish_run(opened, show_progress, retry_errors=retry_errors, estimate=estimate)
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
    background: Any = None,
) -> NDArray[np.float32]:
    """Return the maps (n, …) of one explainer, in the order of the data.

    They are of the classes that the model predicts, or of a `target` class for all samples or one for each. Everything
    else is as `evaluate` takes it, and the maps are those that it judges: float32, in the shape of the samples. Those of
    a DataFrame have one value for each of its columns, also for a category.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    >>> maps = explain(net, torch.rand(5, 3, 8, 8), "saliency")
    >>> maps.shape, maps.dtype
    ((5, 3, 8, 8), dtype('float32'))
    """
    plan = make_plan(
        model,
        data,
        [explainer],
        [],
        seed=seed,
        limit=limit,
        batch_size=batch_size,
        keep_maps=True,
        background=background,
    )
    (source,) = plan.data.values()
    if target is not None:
        return _of_columns(_maps_of_targets(plan, target), source, plan)
    with scratch() as folder:
        run = execute(plan, folder, "heatproof.explain(...)")
        for row in run.samples().query("error != ''").itertuples():
            raise UserError(f"{row.sample!r} of {row.dataset} has no map: {row.error}")
        return _of_columns(np.stack(list(run.maps(*plan.explainers).values())), source, plan)


def _of_columns(maps: NDArray[np.float32], source: Data, plan: Plan) -> NDArray[np.float32]:
    """Return the maps (n, columns of the frame) where a category is several columns of a sample; others as they are.

    Methods that remove features give all columns of a category the value of the category; those of others add up.
    """
    if source.frame is None or not source.frame.has_categories:
        return maps
    owners = np.array(source.frame.owners)
    (explainer,) = plan.explainers.values()
    of_columns = np.zeros((len(maps), owners.max() + 1), np.float32)
    for column in range(owners.max() + 1):
        values = maps[:, owners == column]
        of_columns[:, column] = values[:, 0] if explainer.whole_features else values.sum(1)
    return of_columns


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
    """Run or resume a plan in a directory; see `open_run` and `finish_run`."""
    opened = open_run(plan, out, command)
    return finish_run(opened, show_progress, executor, share, retry_errors)


@dataclass(frozen=True)
class OpenedRun:
    """A run directory that holds this study, and the session of this process in it."""

    plan: Plan
    directory: RunDirectory
    session: OpenSession
    command: str

    def unfinished_jobs(self, share: tuple[int, int] = (1, 1)) -> list[Job]:
        """Return the jobs of a share (i, n) of the run, every n-th from the i-th on, that lack a part."""
        first, step = share
        jobs = self.plan.jobs()[first - 1 :: step]
        return [job for job in jobs if self.plan.missing_parts(self.directory, job)]


def open_run(plan: Plan, out: str | Place | None, command: str) -> OpenedRun:
    """Begin a run in a new directory or resume the one that is there; raise if it holds another study.

    Without `out` the run gets a temporary directory.
    """
    root = Path(tempfile.mkdtemp(prefix="heatproof-")) if out is None else place(out)
    try:
        session = manifest.begin(root, describe(plan), plan.shard_size, command)
    except manifest.AnotherStudy as error:
        before = manifest.read_manifest(root).prepared
        options = "".join(f"\n  {line}" for line in differences(before, _prepared(plan), "data"))
        raise UserError(f"{error}{options}{changed_samples(plan, root)}") from None
    # A run keeps the size of its shards, since its parts are named by their numbers.
    plan = replace(plan, shard_size=session.manifest.shard_size)
    plan = with_decided_stages(plan, session.manifest)
    return OpenedRun(plan, RunDirectory(root), session, command)


def with_decided_stages(plan: Plan, known: Manifest) -> Plan:
    """Return a plan with the stages that are decided in its run."""
    if plan.sampling is None:
        return plan
    return replace(plan, stage_ends={name: known.stage_ends(name) for name in plan.data})


def _prepared(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return how each data set was prepared, such as the size to which its images were resized."""
    return {name: dict(data.prepared) for name, data in plan.data.items()}


def finish_run(
    opened: OpenedRun,
    show_progress: bool | None = None,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    retry_errors: bool = False,
    estimate: Estimate | None = None,
) -> Run:
    """Compute what is missing of a run.

    Damaged parts are reported and computed again. With `retry_errors`, so are the shards with samples that the storage
    did not deliver. `executor` runs the shards elsewhere than in this process; `share` (i, n) is every n-th shard from
    the i-th on. The progress bar starts with the `estimate`. A study that decides on its number of samples is run in
    stages, see `runs.sampling`.
    """
    plan, run_directory, session = opened.plan, opened.directory, opened.session
    facts: dict[str, Any] = {
        "started": manifest.now(),
        "command": opened.command,
        "versions": manifest.versions(),
        "devices": sorted({str(model.device) for model in plan.models.values()}),
        "prepared": _prepared(plan),
        "ignore": list(plan.ignore),
    }
    if plan.study_file:
        facts["study_file"] = plan.study_file
    session.record(facts)
    started = time.perf_counter()
    finished_jobs: set[Job] = set()
    while True:
        _run_stage(
            plan,
            run_directory,
            facts,
            finished_jobs,
            show_progress,
            executor,
            share,
            retry_errors,
            estimate,
        )
        facts["seconds"] = round(time.perf_counter() - started, 2)
        session.record(facts)
        grown = _next_stage(plan, run_directory, session, facts)
        if grown is None:
            return Run(run_directory.root)
        plan, estimate = grown, None


def _run_stage(
    plan: Plan,
    run_directory: RunDirectory,
    facts: dict[str, Any],
    finished_jobs: set[Job],
    show_progress: bool | None,
    executor: Executor | None,
    share: tuple[int, int],
    retry_errors: bool,
    estimate: Estimate | None,
) -> None:
    """Compute what is missing of a plan, and add what it cost to the facts of the session.

    `finished_jobs` are those of earlier stages, to which those of this stage are added.
    """
    first, step = share
    jobs_of_share = [job for job in plan.jobs()[first - 1 :: step] if job not in finished_jobs]
    finished_jobs.update(jobs_of_share)
    possible_parts: list[PartKey] = []
    for job in jobs_of_share:
        possible_parts += plan.possible_parts(job)
    remove_damaged_parts(run_directory, possible_parts)
    if retry_errors:
        drop_failed_shards(plan, run_directory, jobs_of_share)
    jobs = [job for job in jobs_of_share if plan.missing_parts(run_directory, job)]

    work = plan.work(run_directory, jobs)
    finished = plan.total_work(jobs_of_share) - work
    seconds_per_amount = {} if estimate is None else estimate.seconds_per_amount
    bar = progress(work, "explaining", show_progress, finished, seconds_per_amount)
    with precisely(plan), no_exit(), bar as advance:
        if executor is not None and jobs:
            cost = executor(plan, run_directory.root, jobs, advance)
            sweep(run_directory.root)  # a worker that was lost may have been writing
        else:
            passes_before = {name: model.passes for name, model in plan.models.items()}
            cost = run_jobs(plan, run_directory, jobs, advance)
            cost["passes"] = {
                name: model.passes - passes_before[name] for name, model in plan.models.items()
            }
    _add_cost(facts, cost)
    deduplicate_parts(run_directory, possible_parts)


def _add_cost(facts: dict[str, Any], cost: Mapping[str, Any]) -> None:
    """Add what a stage cost to the facts of a session: durations and passes are sums over the stages."""
    for name in ("durations", "passes"):
        total = Counter(facts.get(name, {}))
        total.update(cost[name])
        facts[name] = {key: round(value, 2) for key, value in total.items()}
    lost_before = facts.get("workers", {}).get("lost", [])
    for name in cost.keys() - {"durations", "passes"}:
        facts[name] = cost[name]
    if lost_before:
        facts["workers"] = {**facts["workers"], "lost": [*lost_before, *facts["workers"]["lost"]]}


def _next_stage(
    plan: Plan, run_directory: RunDirectory, session: OpenSession, facts: dict[str, Any]
) -> Plan | None:
    """Return the plan with the stages that follow from looks at the scores; None if there is nothing more to do here.

    That is so where the study tests all samples, where it is decided that those so far are enough, and where other
    processes have not finished their shares yet.
    """
    if plan.sampling is None:
        return None
    storage.forget_listings()
    undecided = run_directory.reread().undecided_samples()
    looks = []
    for dataset in undecided:
        ends = run_directory.manifest.stage_ends(dataset)
        is_known = ends != plan.stage_ends[dataset]  # another process has made this look
        if not is_known and has_finished_stage(plan, run_directory, dataset):
            looks.append(look_at(plan, run_directory, dataset).as_mapping())
    if looks:
        facts["looks"] = [*facts.get("looks", []), *looks]
        session.record(facts)
    grown = with_decided_stages(plan, run_directory.reread())
    return None if grown.stage_ends == plan.stage_ends else grown


def precisely(plan: Plan) -> AbstractContextManager[None]:
    """Forbid the ten-bit products that PyTorch allows in convolutions by default, unless the study asks for them.

    They would make the device show in the table.
    """
    return arithmetic(
        "tf32" if any(model.precision == "tf32" for model in plan.models.values()) else "float32"
    )
