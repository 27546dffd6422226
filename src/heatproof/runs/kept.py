"""Maps that a run keeps: stored without loss, read again as arrays, and judged without the model that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatproof.errors import UserError
from heatproof.evaluation import Scores
from heatproof.runs import digests, directory, tables
from heatproof.runs.storage import Place
from heatproof.runs.study import registry
from heatproof.types import Batch

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
    """The rows of one part: maps (B, …) of samples for the classes `target` (B,)."""
    values, n = maps.detach().float().cpu().numpy(), len(ids)
    shuffled = [
        np.ascontiguousarray(one).view(np.uint8).reshape(-1, 4).T.tobytes() for one in values
    ]
    place = [[dataset] * n, [model] * n, [explainer] * n, list(ids)]
    return pa.table([*place, target.tolist(), [list(values.shape[1:])] * n, shuffled], schema=MAPS)


def read_maps(root: Place, dataset: str, model: str, explainer: str) -> Maps:
    """The kept maps of one explainer by sample id; parts are checked as they are read."""
    paths = digests.parts(directory.maps_path(root, dataset, model, explainer, 0).parent)
    found: Maps = {}
    for row in (
        row for rows in directory.read_parts(root, paths, MAPS) for row in rows.to_pylist()
    ):
        values = np.ascontiguousarray(np.frombuffer(row["map"], np.uint8).reshape(4, -1).T)
        found[row["sample"]] = values.view(np.float32).reshape(row["shape"])
    return found


@dataclass
class Kept:
    """The `Subject` that evaluations see where there are maps alone; it is its own model, of which nothing is known."""

    batch: Batch
    target: Tensor
    references: Batch
    explainers: Mapping[str, Any]
    maps: Mapping[str, Maps]
    seed: int
    embedding: str | None
    showcase: frozenset[str] = frozenset()

    def clean(self, explainer: str) -> Tensor:
        """The kept maps (B, …) of the samples."""
        return torch.from_numpy(
            np.stack([self.maps[explainer][sample] for sample in self.batch.ids])
        )

    def reference(self, explainer: str) -> Tensor:
        """The kept maps (R, …) of the references."""
        return torch.from_numpy(
            np.stack([self.maps[explainer][sample] for sample in self.references.ids])
        )

    @property
    def model(self) -> Any:
        """What stands for the model."""
        return self

    def __getattr__(self, name: str) -> Any:
        raise UserError(
            f"this evaluation asks the model ({name}), and only maps were kept; run it with the model"
        )


def judged(root: Place, manifest: Mapping[str, Any], evaluations: Any, data: Any) -> pd.DataFrame:
    """The rows that evaluations give for the kept maps of every data set and model, in the form of `Run.table`."""
    asked, study, parts = (
        registry.evaluations(evaluations),
        manifest["study"],
        [tables.PARTS.empty_table()],
    )
    predicted = tables.read_samples(root).set_index(["dataset", "model", "sample"])["predicted"]
    for dataset, facts in study["datasets"].items():
        for model, task in study["tasks"][dataset].items():
            every = {name: read_maps(root, dataset, model, name) for name in study["explainers"]}
            maps = {name: found for name, found in every.items() if found}
            known = [
                sample
                for sample in next(iter(maps.values()), ())
                if all(sample in own for own in maps.values())
            ]
            if not known:
                raise UserError(f"{root} holds no maps of {model} on {dataset}; {ADVICE}")
            named = facts["references"] if set(facts["references"]) <= set(known) else known
            references = _batch(named, task["modality"], maps, data)
            embedding = "kept" if task["modality"] == "text" else None
            for start in range(0, len(known), manifest["shard_size"]):
                batch = _batch(
                    known[start : start + manifest["shard_size"]], task["modality"], maps, data
                )
                target = torch.tensor([predicted[dataset, model, sample] for sample in batch.ids])
                subject: Any = Kept(
                    batch, target, references, dict.fromkeys(maps), maps, study["seed"], embedding
                )
                for label, evaluation in asked.items():
                    for scores in evaluation.suited(subject, batch)(subject):
                        if isinstance(scores, Scores):
                            role = study["explainers"][scores.explainer]["role"]
                            parts.append(
                                tables.score_rows(dataset, model, label, role, batch.ids, [scores])
                            )
    rows: pd.DataFrame = pa.concat_tables(parts).select(tables.SCORES.names).to_pandas()
    return rows.sort_values(tables.KEY, ignore_index=True)


def _batch(ids: Sequence[str], kind: str, maps: Mapping[str, Maps], data: Any) -> Batch:
    """Samples of `data`, or of nothing but the shape of their maps and the kind of data."""
    if data is not None:
        source = registry.as_data(data)
        return source.load([source.ids.index(sample) for sample in ids]).batch
    x = torch.zeros(len(ids), *next(iter(maps.values()))[ids[0]].shape)
    beside = {"graph": "adjacency", "set": "mask"}.get(kind)
    x = x.long() if kind in ("text", "token ids") else x
    return Batch(tuple(ids), x, {beside: torch.ones(len(ids), 1)} if beside else {})
