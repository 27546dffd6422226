"""Soft stability: how often does the prediction survive when features are added to the explanation?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.certificates import certify
from holdfast.certificates.sequential import Method
from holdfast.evaluations.stability import NOT_FINITE, reasons
from holdfast.features import GroupingField, Patches
from holdfast.masks import select
from holdfast.types import OK, STRICT, UNDEFINED, Batch, Exhibit, Scores, Subject

Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, config=STRICT)
class Certificate:
    """Keep the `fraction` of features that a map calls most important, add up to r others, and see what is predicted.

    For every radius r, one row per sample of `rate`, the share τ_r of supersets on which the prediction stays, with
    bounds `low` and `high` that each fail with probability at most `delta`; of `certified`, the guaranteed lower bound
    itself; and of `passes`, what it cost. See `holdfast.certify`.

    >>> Certificate(radii=(1, 3)).conditions()
    [('radius', 1.0), ('radius', 3.0)]
    """

    name: ClassVar[str] = "certificate"

    radii: tuple[Annotated[int, Field(ge=1)], ...] = (1, 5, 10)
    features: GroupingField = Patches()
    fraction: Share = 0.25
    delta: Share = 0.1
    epsilon: Share = 0.1
    method: Method = "clopper-pearson"

    @field_validator("radii")
    @classmethod
    def _different(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError(f"radii must be different and at least one, got {value}")
        return value

    def conditions(self) -> list[tuple[str, float]]:
        """("radius", r) for every radius."""
        return [("radius", float(r)) for r in self.radii]

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the features do not fit; `shape` is that of a sample."""
        self.features.check((1, *shape))

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns of rates, guaranteed bounds and passes, explainer by explainer."""
        lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(subject.probability).tolist()]
        for explainer in subject.explainers:
            maps = subject.clean(explainer)
            why = [a or b for a, b in zip(lost, reasons(maps, "the map"), strict=True)]
            status = torch.tensor([UNDEFINED if reason else OK for reason in why], dtype=torch.int64)
            rows = (status == OK).nonzero().flatten()
            found = torch.full((len(why), len(self.radii), 4), torch.nan, dtype=torch.float64)
            if len(rows):
                found[rows] = self._certify(subject, maps[rows.to(maps.device)], subject.batch[rows])
            for column, radius in enumerate(self.radii):
                rate, low, high, passes = found[:, column].unbind(1)
                where = ("radius", float(radius))
                yield Scores(explainer, "rate", *where, rate, status, tuple(why), low, high)
                yield Scores(explainer, "certified", *where, low, status, tuple(why))
                yield Scores(explainer, "passes", *where, passes, status, tuple(why))

    def _certify(self, subject: Subject, maps: Tensor, batch: Batch) -> Tensor:
        """(B, R, 4): rate, low, high and passes."""
        mask = select(maps, batch, self.features, fraction=self.fraction, seed=subject.seed)

        def some(part: Batch, chosen: Tensor) -> Tensor:
            result = certify(
                subject.model,
                part,
                chosen,
                self.features,
                self.radii,
                self.delta,
                self.epsilon,
                self.method,
                seed=subject.seed,
            )
            return torch.stack([v.double() for v in (result.rate, result.low, result.high, result.passes)], 2)

        return subject.compute(some, batch, mask)
