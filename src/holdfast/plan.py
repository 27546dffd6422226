"""A checked study: what is done, in which shards, and what of it is still to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.data import Data
from holdfast.models import Model
from holdfast.storage import Place, present
from holdfast.table import part_path, samples_path
from holdfast.types import Evaluation, Explainer

FEATURE_MAPS = frozenset({"feature"})
"""The kinds of explanations that an evaluation judges unless it says otherwise."""
Job = tuple[str, str, int]
"""What one process does at a time: a shard, by its data set, model and number."""


def why_left_out(evaluation: str, item: Evaluation, name: str, explainer: Explainer) -> str:
    """Why an evaluation does not judge an explainer; empty where it does.

    An evaluation that does not say `reexplains = False` may ask for maps of changed inputs, which an explainer that
    says `clean_only = True` does not have.
    """
    judged = getattr(item, "kinds", FEATURE_MAPS)
    kind = getattr(explainer, "kind", "feature")
    if kind not in judged:
        wanted = " and ".join(sorted(judged))
        return f"{evaluation} judges {wanted} explanations, and {name} gives {kind} explanations"
    if getattr(explainer, "clean_only", False) and getattr(item, "reexplains", True):
        return f"{evaluation} explains changed inputs anew, and {name} only has maps of the data as they are"
    return ""


@dataclass(frozen=True)
class Plan:
    """A checked study: every name resolved, every model loaded, every file found."""

    models: Mapping[str, Model]
    data: Mapping[str, Data]
    explainers: Mapping[str, Explainer]
    evaluations: Mapping[str, Evaluation]
    seed: int = 0
    shard_size: int = 32
    batch_size: int | None = None

    def left_out(self, evaluation: str) -> dict[str, str]:
        """explainer -> why this evaluation does not judge it."""
        item = self.evaluations[evaluation]
        found = {name: why_left_out(evaluation, item, name, explainer) for name, explainer in self.explainers.items()}
        return {name: why for name, why in found.items() if why}

    def shards(self, dataset: str) -> list[range]:
        """The positions of each shard of a data set."""
        n = len(self.data[dataset].ids)
        return [range(i, min(i + self.shard_size, n)) for i in range(0, n, self.shard_size)]

    def pending(self, root: Place, dataset: str, model: str, shard: int) -> dict[str, list[str]]:
        """evaluation -> explainers whose part is not there yet."""
        todo: dict[str, list[str]] = {}
        for evaluation in self.evaluations:
            skipped = self.left_out(evaluation)
            missing = [
                name
                for name in self.explainers
                if name not in skipped and not present(part_path(root, dataset, model, evaluation, name, shard))
            ]
            if missing:
                todo[evaluation] = missing
        return todo

    def jobs(self) -> list[Job]:
        """Every shard of the study, in the order in which they are done."""
        return [(d, m, number) for d in self.data for m in self.models for number in range(len(self.shards(d)))]

    def is_pending(self, root: Place, job: Job) -> bool:
        """Whether something of a shard is not there yet."""
        return bool(self.pending(root, *job)) or not present(samples_path(root, *job))

    def size(self) -> int:
        """How many explained conditions there are, done or not."""
        conditions = sum(
            len(evaluation.conditions()) * (len(self.explainers) - len(self.left_out(name)))
            for name, evaluation in self.evaluations.items()
        )
        return len(self.models) * sum(len(data.ids) for data in self.data.values()) * conditions

    def work(self, root: Place, jobs: Iterable[Job] | None = None) -> int:
        """How many explained conditions are left to do, the unit of the progress bar."""
        total = 0
        for dataset, model, number in self.jobs() if jobs is None else jobs:
            samples = len(self.shards(dataset)[number])
            for evaluation, missing in self.pending(root, dataset, model, number).items():
                total += samples * len(missing) * len(self.evaluations[evaluation].conditions())
        return total
