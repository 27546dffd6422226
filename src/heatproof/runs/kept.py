"""Maps that a run keeps: stored without loss, read again as arrays, and judged without the model that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatproof.batching import BatchRunner
from heatproof.errors import UserError
from heatproof.evaluation import Evaluation, Scores
from heatproof.runs import digests, tables
from heatproof.runs.directory import Job, PartKey, RunDirectory
from heatproof.runs.study import registry
from heatproof.subject import Subject
from heatproof.types import Batch, CallableExplainer

MAPS = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "sample")]
    + [("target", pa.int64()), ("shape", pa.list_(pa.int32())), ("map", pa.binary())]
)
"""A row per sample: the class that is explained, and the bytes of the map's float32 values, all first ones first."""
ADVICE = "keep_maps: true in the study, or evaluate(…, keep_maps=True), keeps them; heatproof.explain computes them"
Maps = dict[str, NDArray[np.float32]]


def map_rows(
    dataset: str, model: str, explainer: str, ids: Sequence[str], target: Tensor, maps: Tensor
) -> pa.Table:
    """Return the rows of one part: maps (B, …) of samples for the classes `target` (B,)."""
    values, n = maps.detach().float().cpu().numpy(), len(ids)
    shuffled = [_shuffled(values_of_map) for values_of_map in values]
    columns: list[list[Any]] = [[dataset] * n, [model] * n, [explainer] * n, list(ids)]
    columns += [target.tolist(), [list(values.shape[1:])] * n, shuffled]
    return pa.table(columns, schema=MAPS)


def _shuffled(values: NDArray[np.float32]) -> bytes:
    """Return the bytes of a map, all first ones of its float32 values first, which compresses better."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 4).T.tobytes()


def _unshuffled(content: bytes, shape: Sequence[int]) -> NDArray[np.float32]:
    """Return the map of which these are the bytes."""
    by_value = np.ascontiguousarray(np.frombuffer(content, np.uint8).reshape(4, -1).T)
    return by_value.view(np.float32).reshape(shape)


def read_maps(run_directory: RunDirectory, dataset: str, model: str, explainer: str) -> Maps:
    """Return the kept maps of one explainer by sample id; parts are checked as they are read."""
    folder = PartKey.maps(Job(dataset, model, 0), explainer).folder
    paths = digests.parts(run_directory.root / folder)
    maps: Maps = {}
    for part in run_directory.read_files(paths, MAPS):
        for row in part.to_pylist():
            maps[row["sample"]] = _unshuffled(row["map"], row["shape"])
    return maps


class NoModel:
    """Stands for the model where only maps were kept: asking it for anything is an error."""

    name = "the model"
    is_absent = False  # the maps and predictions are those of a model

    def __init__(self, embedding: str | None) -> None:
        self.embedding = embedding

    def __getattr__(self, name: str) -> Any:
        raise UserError(
            f"this evaluation asks the model ({name}), and only maps were kept; run it with the model"
        )


def evaluate_maps(run_directory: RunDirectory, evaluations: Any, data: Any) -> pd.DataFrame:
    """Return the scores of the kept maps of every data set and model, with the columns of `Run.table`."""
    study = run_directory.manifest.study
    parts = [tables.SCORES.empty_table()]
    for dataset in study.datasets:
        for model in study.tasks[dataset]:
            configured: dict[str, Evaluation] = {}
            for subject in _kept_subjects(run_directory, dataset, model, data):
                if not configured:
                    for name, evaluation in registry.evaluations(evaluations).items():
                        sample = subject.batch[:1]
                        configured[name] = evaluation.configured_for(subject.model, sample)
                for name, evaluation in configured.items():
                    for scores in evaluation(subject):
                        if not isinstance(scores, Scores):
                            continue
                        role, ids = study.explainer(scores.explainer).role, subject.batch.ids
                        parts.append(tables.score_rows(dataset, model, name, role, ids, [scores]))
    rows: pd.DataFrame = pa.concat_tables(parts).select(tables.SCORES.names).to_pandas()
    return rows.sort_values(tables.KEY, ignore_index=True)


def _kept_subjects(
    run_directory: RunDirectory, dataset: str, model: str, data: Any
) -> Iterator[Subject]:
    """Yield the samples of which every explainer's map is kept, a shard at a time, as evaluations see them."""
    manifest = run_directory.manifest
    modality = manifest.task(dataset, model).modality
    maps = {}
    for explainer in manifest.study.explainers:
        kept_maps = read_maps(run_directory, dataset, model, explainer)
        if kept_maps:
            maps[explainer] = kept_maps
    kept_samples = _in_all(maps)
    if not kept_samples:
        raise UserError(f"{run_directory} holds no maps of {model} on {dataset}; {ADVICE}")

    reference_ids = manifest.references(dataset)
    if not reference_ids or not set(reference_ids) <= set(kept_samples):
        reference_ids = kept_samples
    samples = tables.read_samples(run_directory.root)
    samples = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
    predicted = dict(zip(samples["sample"], samples["predicted"], strict=True))
    no_model: Any = NoModel(embedding="kept" if modality == "text" else None)

    def subject_of(ids: Sequence[str], references: Subject | None = None) -> Subject:
        """Return these samples with their maps; whoever asks for a pass of the model gets an error."""
        stored_maps = {}
        for explainer, map_of in maps.items():
            stored_maps[explainer] = torch.from_numpy(np.stack([map_of[i] for i in ids]))
        return Subject(
            BatchRunner(no_model, len(ids)),
            _batch(ids, modality, maps, data),
            explainers={explainer: CallableExplainer(_no_explainer) for explainer in maps},
            seed=manifest.study.seed,
            target=torch.tensor([predicted[sample] for sample in ids]),
            _references=references,
            _maps=stored_maps,
        )

    references = subject_of(reference_ids)
    for start in range(0, len(kept_samples), manifest.shard_size):
        yield subject_of(kept_samples[start : start + manifest.shard_size], references)


def _no_explainer(model: Any, batch: Batch, target: Tensor, seed: int) -> Tensor:
    raise UserError(
        "this evaluation explains inputs anew, and only maps were kept; run it with the model"
    )


def _in_all(maps: Mapping[str, Maps]) -> list[str]:
    """Return the samples of which there is a map of every explainer, in the order of the first."""
    in_all = None
    for of_explainer in maps.values():
        if in_all is None:
            in_all = list(of_explainer)
        in_all = [sample for sample in in_all if sample in of_explainer]
    return in_all or []


def _batch(ids: Sequence[str], kind: str, maps: Mapping[str, Maps], data: Any) -> Batch:
    """Samples of `data`, or of nothing but the shape of their maps and the kind of data."""
    if data is not None:
        source = registry.as_data(data)
        return source.load([source.ids.index(sample) for sample in ids]).batch
    maps_of_first_explainer = next(iter(maps.values()))
    x = torch.zeros(len(ids), *maps_of_first_explainer[ids[0]].shape)
    if kind in ("text", "token ids"):
        x = x.long()
    # The kind of graphs and sets is told by the auxiliary tensor that they come with; its values are not used.
    aux_name = {"graph": "adjacency", "set": "mask"}.get(kind)
    aux = {} if aux_name is None else {aux_name: torch.ones(len(ids), 1)}
    return Batch(tuple(ids), x, aux)
