"""The engine: run the jobs of a plan and write their results.

A job is one shard of one data set on one model. Within a job the predictions and each explainer's maps are computed once
and shared by all evaluations. Each (evaluation, explainer) of a job is one part on disk. Two lists decide what is done:
the parts that a job must have (`Plan.expected_parts`), and those that are on disk. So resuming a run is running it again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from heatproof import rand
from heatproof.batching import BatchRunner, default_batch_size, keep_freed_memory
from heatproof.data import Loaded
from heatproof.data.dataset import READING_AHEAD, decoding
from heatproof.errors import UserError
from heatproof.evaluation import GalleryImage, Scores
from heatproof.models import Model
from heatproof.runs import tables
from heatproof.runs.differences import listed
from heatproof.runs.directory import Job, PartKey, PartWriter, RunDirectory
from heatproof.runs.gallery import gallery_rows
from heatproof.runs.kept import MAPS, map_rows
from heatproof.runs.plan import Plan
from heatproof.runs.progress import Advance
from heatproof.runs.references import load_references
from heatproof.subject import Subject
from heatproof.types import role_of

GALLERY_SIZE = 12
"""Samples whose images and maps are stored for the report; drawn by a hash of their ids, before anything is computed."""
LARGE_GALLERY_SIZE = 6
"""Those of them whose images are stored in a larger size."""


def run_jobs(
    plan: Plan, directory: RunDirectory, jobs: Sequence[Job], advance: Advance
) -> dict[str, Any]:
    """Run the unfinished ones of these jobs, and return seconds per evaluation and the batch size of each model.

    The samples of the next job are read while the current one is computed. What evaluations share, such as maps, counts
    for the first that asks for it.
    """
    engine = Engine(plan, directory, advance)
    unfinished = [job for job in jobs if plan.missing_parts(directory, job)]

    with decoding(), ThreadPoolExecutor(1, READING_AHEAD) as reader:
        prefetched: Future[Loaded] | None = None
        for position, job in enumerate(unfinished):
            samples = engine.load_samples(job) if prefetched is None else prefetched.result()
            prefetched = None
            if position + 1 < len(unfinished):
                prefetched = engine.prefetch_samples(unfinished[position + 1], reader)
            engine.run_job(job, samples)

    durations = {name: round(seconds, 2) for name, seconds in engine.seconds.items()}
    return {"durations": durations, "batch_sizes": engine.batch_sizes}


class Engine:
    """Runs jobs one after another; the reference samples are kept while data set and model stay the same.

    `seconds` per evaluation and `batch_sizes` per model grow with every job.
    """

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        advance: Advance = lambda step, amount: None,
        runner_type: Callable[[Model, int], BatchRunner] = BatchRunner,
    ) -> None:
        keep_freed_memory()
        self.plan = plan
        self.directory = directory
        self.advance = advance
        self.runner_type = runner_type
        self.seconds: dict[str, float] = defaultdict(float)
        self.batch_sizes: dict[str, int] = {}
        self._references: tuple[str, str, Subject] | None = None

    # ---- samples ---------------------------------------------------------------------------------

    def load_samples(self, job: Job) -> Loaded:
        """Read the samples of a job; unreadable ones are listed with the error."""
        return self.plan.data[job.dataset].load(self.plan.positions(job))

    def prefetch_samples(self, job: Job, reader: ThreadPoolExecutor) -> Future[Loaded] | None:
        """Start to read the samples of a job, or return None if only the main thread may read its data."""
        if self.plan.data[job.dataset].threads <= 1:
            return None
        return reader.submit(self.load_samples, job)

    def reference_subject(self, job: Job) -> Subject:
        """Return the reference samples of a data set on a model, kept until others are asked for."""
        dataset, model_name = job.dataset, job.model
        if self._references is None or self._references[:2] != (dataset, model_name):
            self._references = (
                None  # frees the maps of the last references before new ones are made
            )
            model, data, seed = (
                self.plan.models[model_name],
                self.plan.data[dataset],
                self.plan.seed,
            )
            # Whoever began the run chose the references; every process reads their ids from the manifest.
            ids = self.directory.manifest.references(dataset)
            # Without a model, the labels say which class maps explain.
            batch = load_references(data, seed, ids=ids, with_labels=model.is_absent)
            batch = batch.to(model.device)
            batch_size = self.plan.batch_size
            if batch_size is None:
                batch_size = default_batch_size(batch.x[:1].numel(), model.device.type)
            references = Subject.of_references(
                self.runner_type(model, batch_size),
                batch,
                self.plan.configured_for(job).explainers,
                seed,
                load_samples=partial(load_references, data, seed),
            )
            # A method that lacks a layer fails now, and not after others have worked for hours.
            references.explain_one_sample()
            self._references = (dataset, model_name, references)
        return self._references[2]

    # ---- one job ---------------------------------------------------------------------------------

    def run_job(self, job: Job, samples: Loaded | None = None) -> None:
        """Compute and write the missing parts of a job."""
        missing = self.plan.missing_parts(self.directory, job)
        if not missing:
            return
        if samples is None:
            samples = self.load_samples(job)
        self._check_unchanged(job, samples)
        references = self.reference_subject(job)

        with self.directory.writer() as writer:
            if len(samples.batch) == 0:
                self._write_empty_parts(job, samples, missing, writer)
                return
            candidates = self.plan.gallery_candidates(job.dataset)
            subject = references.for_batch(
                samples.batch, gallery_ids=gallery_ids(candidates, self.plan.seed)
            )
            _check_labels(job.dataset, subject)
            self._write_samples(job, samples, subject, writer)
            for evaluation in self.plan.configured_for(job).evaluations:
                explainers = [key.explainer for key in missing if key.evaluation == evaluation]
                if explainers:
                    self._run_evaluation(job, evaluation, explainers, subject, writer)
            for key in missing:
                if key.kind == "maps":
                    self._write_maps(job, key, subject, writer)
        self.batch_sizes[job.model] = subject.runner.batch_size

    def _run_evaluation(
        self,
        job: Job,
        name: str,
        explainers: Sequence[str],
        subject: Subject,
        writer: PartWriter,
    ) -> None:
        """Run one evaluation on one shard, and write the parts of each explainer as soon as it is finished."""
        evaluation = self.plan.configured_for(job).evaluations[name]
        if evaluation.pairwise:
            # Rows of one explainer are about the others too, so the parts of all are written anew.
            for make_key in (PartKey.scores, PartKey.references):
                self.directory.remove(make_key(job, name, explainer) for explainer in explainers)

        next_explainer = dict(pairwise(explainers))
        self.advance(f"{name} of {explainers[0]}", 0)
        started = time.perf_counter()
        results = self._report_progress(job, name, evaluation(subject.with_explainers(explainers)))
        # Evaluations finish one explainer before they begin the next.
        for explainer, group in groupby(results, key=attrgetter("explainer")):
            self._write_results(job, name, explainer, list(group), subject, writer)
            if explainer in next_explainer:
                self.advance(f"{name} of {next_explainer[explainer]}", 0)
        self.seconds[name] += time.perf_counter() - started

    def _report_progress(
        self, job: Job, name: str, results: Iterator[Scores | GalleryImage]
    ) -> Iterator[Scores | GalleryImage]:
        """Pass results through, and advance the progress bar once per explainer and condition.

        Noise floors and other checks have conditions that an evaluation does not announce; they do not count.
        """
        announced = self.plan.configured_for(job).evaluations[name].conditions()
        samples = len(self.plan.positions(job))
        reported = set()
        for result in results:
            condition = (result.condition, result.level)
            counts = isinstance(result, Scores) and (not announced or condition in announced)
            if counts and (result.explainer, condition) not in reported:
                reported.add((result.explainer, condition))
                self.advance(f"{name} of {result.explainer}", samples)
            yield result

    # ---- the parts of a job ----------------------------------------------------------------------

    def _write_samples(
        self, job: Job, samples: Loaded, subject: Subject | None, writer: PartWriter
    ) -> None:
        """Write the samples of a job with the model's predictions; without a subject none could be read."""
        data, positions = self.plan.data[job.dataset], self.plan.positions(job)
        rows = partial(tables.sample_rows, job, data, positions, samples, subject)
        writer.write(PartKey.samples(job), rows)

    def _write_results(
        self,
        job: Job,
        evaluation: str,
        explainer: str,
        results: Sequence[Scores | GalleryImage],
        subject: Subject,
        writer: PartWriter,
    ) -> None:
        """Write what an evaluation yielded for an explainer: the scores last, whose part says that all is written."""
        key_columns = (job.dataset, job.model, evaluation)
        images = [result for result in results if isinstance(result, GalleryImage)]
        scores = [result for result in results if isinstance(result, Scores)]
        if images:
            data = self.plan.data[job.dataset]
            candidates = self.plan.gallery_candidates(job.dataset)
            large = gallery_ids(candidates, self.plan.seed, LARGE_GALLERY_SIZE)
            writer.write(
                PartKey.gallery(job, evaluation, explainer),
                partial(gallery_rows, *key_columns, images, data, large),
            )
        if any(column.reference_sums is not None for column in scores):
            writer.write(
                PartKey.references(job, evaluation, explainer),
                partial(tables.reference_rows, *key_columns, subject.references.batch.ids, scores),
            )
        role = role_of(self.plan.explainers[explainer])
        writer.write(
            PartKey.scores(job, evaluation, explainer),
            partial(tables.score_rows, *key_columns, role, subject.batch.ids, scores),
        )

    def _write_maps(self, job: Job, key: PartKey, subject: Subject, writer: PartWriter) -> None:
        """Write the maps of an explainer that the run keeps."""
        self.advance(key.step, 0)
        rows = [row for row, sample in enumerate(subject.batch.ids) if self.plan.keeps(sample)]
        ids = [subject.batch.ids[row] for row in rows]
        maps = subject.maps(key.explainer)[rows]
        target = subject.target[rows]
        writer.write(
            key, partial(map_rows, job.dataset, job.model, key.explainer, ids, target, maps)
        )
        self.advance(key.step, len(self.plan.positions(job)))

    def _write_empty_parts(
        self, job: Job, samples: Loaded, missing: Sequence[PartKey], writer: PartWriter
    ) -> None:
        """Write parts without rows for a shard of which no sample could be read; that of the samples says why."""
        schemas = {"scores": tables.SCORES, "maps": MAPS}
        for key in missing:
            if key.kind != "samples":
                writer.write(key, schemas[key.kind].empty_table)
                self.advance(key.step, self.plan.amount_of_work(key))
        self._write_samples(job, samples, None, writer)

    # ---- checks ----------------------------------------------------------------------------------

    def _check_unchanged(self, job: Job, samples: Loaded) -> None:
        """Raise if a sample is not what it was when it was read before, in an earlier session or for another model."""
        models = self.directory.manifest.study.models
        keys = [PartKey.samples(job._replace(model=model)) for model in models]
        rows = tables.read_rows(self.directory.root, self.directory.existing_files(keys))
        recorded = {row["sample"]: row["digest"] for row in rows if row["digest"]}
        changed = []
        for sample, digest in samples.digests.items():
            if recorded.get(sample, digest) != digest:
                changed.append(sample)
        if changed:
            raise UserError(
                f"{job.dataset} has changed since {self.directory} was begun; choose another directory or restore "
                f"{listed(changed)}"
            )


def _check_labels(dataset: str, subject: Subject) -> None:
    """Raise if a label is none of the model's classes; −1 stands for an unknown label."""
    batch, classes = subject.batch, subject.logits.shape[1]
    if subject.model.task.name != "classification" or batch.label is None:
        return
    for sample, label in zip(batch.ids, batch.label.tolist(), strict=True):
        if not -1 <= label < classes:
            raise UserError(
                f"{sample!r} of {dataset} has the label {label}, and the model has the classes 0 to {classes - 1}; "
                "give labels that are its classes, or none"
            )


@lru_cache(maxsize=8)
def gallery_ids(ids: tuple[str, ...], seed: int, count: int = GALLERY_SIZE) -> frozenset[str]:
    """Return the samples that are stored for the report; neither their order nor the shards have a say.

    >>> gallery_ids(("a", "b"), 0) == {"a", "b"}, len(gallery_ids(tuple(map(str, range(99))), 0))
    (True, 12)
    """
    order = rand.keys(seed, ids, "showcase").argsort()[:count]
    return frozenset(ids[position] for position in order.tolist())
