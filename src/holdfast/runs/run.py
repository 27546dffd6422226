"""`evaluate` and `read`: start, resume or open a run, and look at its results."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from holdfast import axes, statistics
from holdfast.axes.contract import Better
from holdfast.errors import UserError, no_exit, unknown
from holdfast.models.precision import AUTO, Precision, arithmetic
from holdfast.runs import digests, kept, manifest, table
from holdfast.runs.atomic import scratch, sweep, write_atomically
from holdfast.runs.differences import differences
from holdfast.runs.engine import run_shards
from holdfast.runs.pictures import read_exhibits
from holdfast.runs.plan import Plan, check_whole, describe, make_plan
from holdfast.runs.precision_audit import compile_if_it_pays, lower, settle
from holdfast.runs.progress import progress
from holdfast.runs.storage import Place, place
from holdfast.runs.verify import changed_samples, forget_failures, keep_one, mend, missing
from holdfast.statistics.cubes import Cube

if TYPE_CHECKING:
    from holdfast.runs.executors import Executor


COMMAND = "holdfast.evaluate(...)"


class Run:
    """The results in a run directory; `packed` is the zip that it was unpacked from, beside which its report goes."""

    def __init__(self, path: Place, packed: Path | None = None) -> None:
        self.path = path
        self.packed = packed
        self.manifest = table.read_manifest(path)
        self._arranged: tuple[list[Place], list[Cube]] | None = None

    def table(self) -> pd.DataFrame:
        """One row per attempted pair and measure, with the columns of `holdfast.runs.table.SCORES`.

        `status` is ok, flipped or undefined, and `reason` says why a pair has no score.
        """
        return table.read_scores(self.path)

    def samples(self) -> pd.DataFrame:
        """One row per sample: label, prediction and probability, or why it could not be read."""
        return table.read_samples(self.path)

    def summary(self) -> pd.DataFrame:
        """Means with intervals, chance, calibrated and aligned scores, noise floor and retention; see `statistics`."""
        return statistics.summary(self._cubes())

    def ranking(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Explainers in order of their overall score, with the uncertainty of their ranks; see `statistics.ranking`.

        Every evaluation, or the one named, is ranked by its headlines, or by the measure named. There are no ranks
        where a measure has no better direction, and no rows for an evaluation without a headline. `mark` is "blind" for
        an explainer whose map does not change with the model, where that was measured, whatever is ranked.
        """
        measured = self._measured(evaluation, measure)
        blocks = [statistics.ranking([cube], name, better=better) for cube, name, better in measured]
        ranked = pd.concat(blocks, ignore_index=True) if blocks else statistics.ranking([], "")
        words = axes.marked(self._cubes(), self.manifest)
        places = zip(ranked["dataset"], ranked["model"], ranked["explainer"], strict=True)
        return ranked.assign(mark=[words[dataset, model].get(name, "") for dataset, model, name in places])

    def tests(self, evaluation: str | None = None, measure: str | None = None) -> pd.DataFrame:
        """Paired tests between explainers, with Holm's correction, by the same measures as `ranking`."""
        blocks = [statistics.paired_tests([cube], name) for cube, name, _ in self._measured(evaluation, measure)]
        return pd.concat(blocks, ignore_index=True) if blocks else statistics.paired_tests([], "")

    def _measured(self, evaluation: str | None, measure: str | None) -> list[tuple[Cube, str, Better]]:
        """Each evaluation of each dataset and model with its headlines and which way is better, or what is named."""
        known = self.manifest["study"]["evaluations"]
        if evaluation is not None and evaluation not in known:
            raise unknown("evaluation", evaluation, known)
        cubes = [cube for cube in self._cubes() if evaluation in (None, cube.evaluation)]
        measures = {name for cube in cubes for name in cube.measures}
        if measure is not None and cubes and measure not in measures:
            raise unknown("measure", measure, measures)
        chosen: list[tuple[Cube, str, Better]] = []
        for cube in cubes:
            axis = axes.axis_of(cube.evaluation, self.manifest, cube.values)
            for name in axis.headlines(cube) if measure is None else {measure} & set(cube.measures):
                declared = axis.measure(name)
                chosen.append((cube, name, declared.better if declared else "neither"))
        return chosen

    def maps(
        self, explainer: str, sample: str | None = None, dataset: str | None = None, model: str | None = None
    ) -> Any:
        """The kept map of a sample, a float32 array in its shape; without one, {sample: map}.

        Data set and model are named where there are several. Maps are of the predicted class, as `samples` has it.

        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
        >>> images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> run = evaluate(net, images, ["saliency", "lrp"], [], keep_maps=True)
        >>> run.maps("saliency", "0002").shape, len(run.judge_maps({"agreement": {"agreement": {"k": 9}}}))
        ((3, 8, 8), 48)
        """
        study, place = self.manifest["study"], []
        for section, given in (("datasets", dataset), ("models", model), ("explainers", explainer)):
            if given is None and len(study[section]) > 1:
                raise UserError(f"the run has several {section}; name one of {', '.join(study[section])}")
            place.append(given or next(iter(study[section])))
            if place[-1] not in study[section]:
                raise unknown(section.removesuffix("s"), given, study[section])
        found = kept.read_maps(self.path, *place)
        if not found:
            raise UserError(f"{self.path} holds no maps of {explainer}; {kept.ADVICE}")
        if sample is not None and sample not in found:
            raise unknown("sample with a kept map", sample, found)
        return found if sample is None else found[sample]

    def judge_maps(self, evaluations: Any, data: Any = None) -> pd.DataFrame:
        """What evaluations that need maps alone say of the kept ones, in the form of `table`, without the model.

        That is agreement, and any of your own that asks its subject for `clean(explainer)` and `reference(explainer)`
        alone; one that asks the model is an error. Whoever needs inputs gets those of `data`. Chance comes from the
        references of the run, or from all kept samples where not all of these were kept.
        """
        return kept.judged(self.path, self.manifest, evaluations, data)

    def report(self, path: str | Place | None = None) -> Place:
        """Write the report, one HTML file that works offline, and return where it is."""
        facts = {**self.manifest, "missing": missing(self.path)}
        beside = self.path / "report.html" if self.packed is None else self.packed.with_suffix(".html")
        target = beside if path is None else place(path)
        html: str = _report().build_report(self.in_study_order(), self.samples(), read_exhibits(self.path), facts)
        write_atomically(target, html.encode())
        return target

    def text(self) -> str:
        """The verdict and the ranking for a terminal."""
        text: str = _report().text_summary(self.in_study_order(), self.samples(), self.manifest)
        return text

    def hold_sheet(self, sample: str | None = None, dataset: str | None = None, model: str | None = None) -> Any:
        """The hold sheet of a data set and model, the first where none is named, as a drawing that notebooks show.

        `sample` is one that was kept with its maps; without it, the one nearest to the median. `.svg(alone=True)` gives
        its text, `.encoded("pdf", "Hold sheet", inches)` a file.
        """
        shown = read_exhibits(self.path)
        return _report().hold_sheet(self.in_study_order(), self.samples(), shown, self.manifest, sample, dataset, model)

    def in_study_order(self) -> pd.DataFrame:
        """The table with its conditions in the order in which the study names them, which is how people read them."""
        evaluations = self.manifest["study"]["evaluations"].values()
        named = dict.fromkeys(condition for facts in evaluations for condition, _ in facts.get("conditions", []))
        number = {condition: i for i, condition in enumerate(named)}
        rows = self.compact()
        by_code = np.array([number.get(c, len(number)) for c in rows["condition"].cat.categories], dtype=np.int64)
        return rows.iloc[by_code[rows["condition"].cat.codes].argsort(kind="stable")]

    def _cubes(self) -> list[Cube]:
        parts = [path for kind in ("parts", "samples") for path in digests.parts(self.path / kind)]  # named by content
        if self._arranged is None or self._arranged[0] != parts:
            self._arranged = parts, axes.arrange(self.compact(), self.manifest, self.samples())
        return self._arranged[1]

    def compact(self) -> pd.DataFrame:
        """The table with its columns of text as categories: what statistics and the report read, a quarter the size."""
        return table.read_scores(self.path, compact=True)

    def _repr_html_(self) -> str:
        """How a notebook shows a run: what was run, whether all of it, and the ranking of every axis."""
        from holdfast.drawing import methods, prose, tables

        gaps, named = missing(self.path), methods.looks(self.manifest["study"]["explainers"])
        columns = ["explainer", "rank", "score", "dataset", "model", "evaluation", "measure"]
        rows = []
        for r in self.ranking().to_dict("records"):
            r |= {
                "explainer": named[r["explainer"]].name,
                "score": prose.with_interval(r["score"], r["low"], r["high"]),
            }
            r["rank"] = "–" if pd.isna(r["rank"]) else f"{r['rank']:.0f}"
            rows.append(tables.Row([str(r[column]) for column in columns]))
        state = f"So far: {len(gaps)} parts are not computed yet." if gaps else "Complete."
        return Markup("<p>{}<br>{}</p>{}").format(self, state, tables.grid(columns, rows, "Ranking"))

    def __repr__(self) -> str:
        study = self.manifest["study"]
        names = {key: ", ".join(study[key]) for key in ("models", "datasets", "explainers", "evaluations")}
        return f"Run({str(self.path)!r}: {names['explainers']} on {names['models']} and {names['datasets']})"


def _report() -> Any:
    """The report, by name: a run can show itself, and knows nothing of how that is done."""
    return importlib.import_module("holdfast.report")


def read(path: Run | str | Place) -> Run:
    """Open a run directory, one packed by `holdfast export --to zip`, or a run at an address of an object store.

    A `Run` stays itself.

    >>> read("no-such-run")
    Traceback (most recent call last):
    holdfast.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    if isinstance(path, Run):
        return path
    where = place(path)
    if isinstance(where, Path) and where.is_file() and where.suffix.lower() == ".zip":
        from holdfast.runs.export import unpacked

        return Run(unpacked(where), packed=where)
    return Run(where)


def evaluate(
    model: Any,
    data: Any,
    explainers: Any,
    evaluations: Any = axes.USUAL,
    out: str | Place | None = None,
    *,
    seed: int = 0,
    limit: int | None = None,
    shard_size: int = 32,
    batch_size: int | None = None,
    references: int | None = None,
    device: str | None = None,
    precision: Precision | Literal["auto"] | None = None,
    compile: bool | Literal["auto"] = False,
    workers: int = 1,
    retry_errors: bool = False,
    show_progress: bool | None = None,
    keep_maps: bool | Sequence[str] = False,
) -> Run:
    """Put explainers to the test on a model and data; the same call again finishes what is missing.

    `model` is a `Model`, a torch module, a name such as "bundled:efficientnet-lite0", or a mapping of names to these;
    `data` is a tensor in [0, 1], a path, a torch Dataset, a `Batch`, or a mapping of names to these; `explainers` and
    `evaluations` are names or objects. Without `out` the run lives in a new temporary directory. `references` is how
    many other samples the chance level of a score is taken from, by default 8 to 32. `precision` and `compile` are
    those of `Model.use`; without them a model computes as it was made. "auto" is the fastest precision that does not
    change the answer on a few samples, and compiles where one process then ends earlier, see `precision_audit`.
    `workers` above 1 do the shards in as many new processes, one per GPU where there are any; models, data and
    explainers are sent to them by pickle. `retry_errors` reads samples again that the storage, not their content, kept
    from being read. `keep_maps` keeps the maps of all samples, or of those named, in the run, for `Run.maps`; then
    `evaluations` may be empty.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(net, images, ["saliency", "random"], {"stability": {"stability": {"perturbations": "jpeg"}}})
    >>> sorted(run.table().measure.unique())[:2]
    ['fass', 'fass_chance']
    """
    given: dict[str, Any] = {"seed": seed, "limit": limit, "shard_size": shard_size, "batch_size": batch_size}
    given |= {"references": references, "device": device, "precision": precision, "compile": compile}
    plan = make_plan(model, data, explainers, evaluations, keep_maps=keep_maps, **given)
    audit = None
    if precision == AUTO:
        chosen, audit = settle(plan, None if out is None else place(out))
        plan = replace(plan, models={name: lower(model, chosen) for name, model in plan.models.items()})
    if workers == 1:
        return execute(plan, out, COMMAND, show_progress, audit=audit, retry_errors=retry_errors)
    from holdfast.runs.executors import Processes, pickled

    check_whole("workers", workers, 1)
    with pickled(plan) as recipe:
        executor = Processes(recipe, workers)
        return execute(plan, out, COMMAND, show_progress, executor, audit=audit, retry_errors=retry_errors)


def explain(
    model: Any, data: Any, explainer: Any, seed: int = 0, limit: int | None = None, batch_size: int | None = None
) -> NDArray[np.float32]:
    """The maps (n, …) of one explainer for the classes that the model predicts, in the order of the data.

    Everything is as `evaluate` takes it, and the maps are those that it judges: float32, in the shape of the samples.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    >>> maps = explain(net, torch.rand(5, 3, 8, 8), "saliency")
    >>> maps.shape, maps.dtype
    ((5, 3, 8, 8), dtype('float32'))
    """
    plan = make_plan(model, data, [explainer], [], seed=seed, limit=limit, batch_size=batch_size, keep_maps=True)
    with scratch() as folder:
        run = execute(plan, folder, "holdfast.explain(...)")
        for row in run.samples().query("error != ''").itertuples():
            raise UserError(f"{row.sample!r} of {row.dataset} has no map: {row.error}")
        return np.stack(list(run.maps(*plan.explainers).values()))


def execute(
    plan: Plan,
    out: str | Place | None,
    command: str,
    show_progress: bool | None = None,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    audit: Mapping[str, Any] | None = None,
    retry_errors: bool = False,
) -> Run:
    """Run or resume a plan in a directory; a directory that holds another study is refused.

    Parts that are damaged are said and computed anew. With `retry_errors`, so are the shards with samples that the
    storage kept from being read.

    `executor` does the shards elsewhere than in this process; `share` (i, n) is only every n-th shard from the i-th on;
    `audit` is why the models compute in the precision that they have.
    """
    root = Path(tempfile.mkdtemp(prefix="holdfast-")) if out is None else place(out)
    study = describe(plan)
    prepared = {name: dict(data.prepared) for name, data in plan.data.items()}
    try:
        found = manifest.begin(root, study, plan.shard_size, command)
    except manifest.AnotherStudy as error:
        before = table.read_manifest(root).get("prepared", {})
        options = "".join(f"\n  {line}" for line in differences(before, prepared, "data"))
        raise UserError(f"{error}{options}{changed_samples(plan, root)}") from error
    plan = replace(plan, shard_size=found["shard_size"])
    session: dict[str, Any] = {"started": manifest.now(), "command": command, "versions": manifest.versions()}
    session["devices"] = sorted({str(model.device) for model in plan.models.values()})
    session |= {"prepared": prepared} | ({"study_file": plan.study_file} if plan.study_file else {})
    if audit is not None:
        session["audit"] = dict(audit)
    manifest.record(root, found, session)
    begun = time.perf_counter()
    first, step = share
    share_of = plan.jobs()[first - 1 :: step]
    paths = [path for job in share_of for path in plan.paths(root, job)]
    mend(root, paths)
    if retry_errors:
        forget_failures(plan, root, share_of)
    jobs = [job for job in share_of if plan.is_pending(root, job)]
    if plan.may_compile and executor is None:
        session["compiled"] = compile_if_it_pays(plan, jobs)
    with precisely(plan), no_exit(), progress(plan.work(root, jobs), "explaining", show_progress) as tick:
        if executor is not None and jobs:
            session |= executor(plan, root, jobs, tick)
            sweep(root)  # a worker that was lost may have been writing
        else:
            before = {name: model.passes for name, model in plan.models.items()}
            session |= run_shards(plan, root, tick, jobs)
            session["passes"] = {name: model.passes - before[name] for name, model in plan.models.items()}
    session["seconds"] = round(time.perf_counter() - begun, 2)
    manifest.record(root, found, session)
    keep_one(paths)
    return Run(root)


def precisely(plan: Plan) -> AbstractContextManager[None]:
    """Forbid the ten-bit products that PyTorch allows in convolutions by default, unless the study asks for them.

    They would make the device show in the table.
    """
    return arithmetic("tf32" if any(model.precision == "tf32" for model in plan.models.values()) else "float32")
