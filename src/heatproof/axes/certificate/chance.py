"""The chance level of a stability rate: the mean rate of random feature sets of the size of the explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.certificate.agreement import Agreement, MaskedInputs
from heatproof.axes.certificate.explanations import Explanations
from heatproof.axes.certificate.strata import Added, drawn_strata
from heatproof.features import Grouping, fixed
from heatproof.features.fill import Fill
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import Batch

MOST_FEATURES_WITH_REPEATS = 10
"""Up to so many features a set is drawn often enough more than once that repeats are looked for."""


class RandomSets:
    """Random feature sets S of some samples, one per draw, each with an order in which features are added to it.

    Every draw puts the features of a sample in a random order: the first `kept` of them are S, the next are added.
    `left_out` (B,) counts what can be added. Features that a grouping always keeps are in every set and not counted.
    """

    def __init__(self, masked: MaskedInputs, kept: Tensor, seed: int) -> None:
        device = masked.counts.device
        numbers = torch.arange(int(masked.counts.max()), device=device)
        self.selectable = numbers < masked.counts[:, None]
        self.always = torch.zeros_like(self.selectable)
        always_kept = fixed(masked.features, masked.batch)
        if always_kept is not None:
            self.always = always_kept.to(device) & self.selectable
            self.selectable = self.selectable & ~self.always
        self.kept = kept.to(device)
        self.left_out = self.selectable.sum(1) - self.kept
        self.key = rand.keys(seed, masked.batch.ids, "random sets").to(device)

    def masks(self, sample: Tensor, draw: Tensor, added: Tensor) -> Tensor:
        """Return random feature sets with further random features, (r, n) boolean.

        Row i is for the sample numbered `sample`[i] and its draw numbered `draw`[i], with `added`[i] more features than an
        explanation has. The same sample and draw always have the same random order of features, so a larger set
        contains the smaller ones.
        """
        selectable = self.selectable[sample]
        random_numbers = rand.bits(rand.fold(self.key[sample], draw), selectable.shape[1])
        # Features that are not in the sample, or always kept, come last in the order.
        random_numbers = random_numbers.masked_fill(~selectable, torch.iinfo(torch.int64).max)
        order = random_numbers.argsort(dim=1, stable=True)
        rank = order.argsort(dim=1)  # the position of each feature in the order
        size = self.kept[sample] + added
        is_in_set = (rank < size[:, None]) & selectable
        return is_in_set | self.always[sample]


def random_set_rates(
    model: Model,
    batch: Batch,
    kept: Tensor,
    features: Grouping,
    radii: Sequence[int],
    draws: int,
    *,
    added: Added = "at most",
    agreement: Agreement = "argmax",
    fill: Fill = "zero",
    target: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Return the mean stability rates of random sets of `kept` (B,) features, (B, R) float64, from `draws` draws.

    Each draw takes a random set S of its own and, at each radius, a uniform superset of S with at most (or `added`
    "exactly") r more features, and asks whether the model predicts the same on both. So the share of draws that agree is
    an unbiased estimate of the mean of τ_r over all sets of this size. All radii of a draw share S and its prediction, so
    a draw costs one pass and at most one more per radius. With `target` (B,), that class must be predicted instead. Rates
    are NaN for a sample with a masked input whose scores are not finite. The draws depend on the seed and the id of a
    sample alone.

    >>> from heatproof.features import Pixels
    >>> model, batch = Model(torch.nn.Linear(6, 2)), Batch(("a",), torch.rand(1, 6))
    >>> random_set_rates(model, batch, torch.tensor([2]), Pixels(), (1, 3), draws=8).shape
    torch.Size([1, 2])
    """
    masked = MaskedInputs(model, batch, features, fill, agreement)
    sets = RandomSets(masked, kept, seed)
    # How many features each draw adds at each radius, (B · draws, R). Radii that add as many share the pass.
    capped = torch.tensor(radii, device=sets.key.device).expand(len(batch), -1)
    capped = capped.minimum(sets.left_out[:, None])
    number_added = drawn_strata(sets.key, sets.left_out, capped, draws, added)
    number_added = number_added.transpose(1, 2).flatten(0, 1)
    agrees = _agreement_by_number_added(masked, sets, number_added, draws, target)
    agrees_at_radius = agrees.gather(1, number_added).view(len(batch), draws, -1)
    rates = agrees_at_radius.double().mean(1)
    rates[masked.not_finite > 0] = torch.nan
    return rates.cpu()


def _agreement_by_number_added(
    masked: MaskedInputs, sets: RandomSets, number_added: Tensor, draws: int, target: Tensor | None
) -> Tensor:
    """Return whether the prediction on a random feature set stays when k further random features are added.

    Every one of B samples has a random set per draw. The result (B · draws, 1 + the largest k) is boolean, with the draws of a
    sample one after another and k = 0, 1, … by column. Only the `number_added` (B · draws, R) that a draw needs are
    tried; the other entries stay False. With `target` (B,), that class must be predicted in place of the one on the set.
    """
    device = sets.key.device
    samples = len(sets.key)
    sample_of_row = torch.arange(samples, device=device).repeat_interleave(draws)
    draw_of_row = torch.arange(draws, device=device).repeat(samples)

    # The prediction on every random set itself.
    def random_sets(rows: Tensor) -> Tensor:
        return sets.masks(sample_of_row[rows], draw_of_row[rows], torch.zeros_like(rows))

    before = torch.cat(list(_outputs_of_sets(masked, sample_of_row, random_sets)))
    predicted = masked.task.target(before)
    expected = predicted if target is None else target.to(device)[sample_of_row]
    agrees = torch.zeros(
        len(sample_of_row), int(number_added.max()) + 1, dtype=torch.bool, device=device
    )
    agrees[:, 0] = predicted == expected

    # The pairs of a row and a number k ≥ 1 that some radius needs: several radii may need the same.
    is_needed = torch.zeros_like(agrees)
    is_needed.scatter_(1, number_added, True)
    is_needed[:, 0] = False
    row_of_pair, added_of_pair = is_needed.nonzero(as_tuple=True)
    sample_of_pair = sample_of_row[row_of_pair]

    # The predictions on these larger sets, in batches of the model.
    def larger_sets(pairs: Tensor) -> Tensor:
        return sets.masks(
            sample_of_pair[pairs], draw_of_row[row_of_pair[pairs]], added_of_pair[pairs]
        )

    start = 0
    for after in _outputs_of_sets(masked, sample_of_pair, larger_sets):
        stop = start + len(after)
        rows, added = row_of_pair[start:stop], added_of_pair[start:stop]
        agrees[rows, added] = masked.unchanged(before[rows], after, expected[rows])
        start = stop
    return agrees


def _outputs_of_sets(
    masked: MaskedInputs, owner: Tensor, build: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """Yield what `masked.outputs` yields, from one pass for all draws of the same set of the same sample."""
    features = int(masked.counts.max())
    if features > MOST_FEATURES_WITH_REPEATS or not len(owner):
        yield from masked.outputs(owner, build)
        return
    every_row = torch.arange(len(owner), device=owner.device)
    keyed = torch.cat([owner[:, None], build(every_row).long()], 1)  # (R, 1 + n): sample and set
    distinct, position = torch.unique(keyed, dim=0, return_inverse=True)

    def distinct_sets(some: Tensor) -> Tensor:
        sets: Tensor = distinct[some, 1:].bool()
        return sets

    outputs = torch.cat(list(masked.outputs(distinct[:, 0], distinct_sets)))
    for rows in torch.split(position, masked.model.rows):
        yield outputs[rows]


RatesOfBatch = Callable[[Batch, Tensor, Tensor], Tensor]
"""A function of a batch, how many features to keep (B,) and the prediction on the whole inputs (B,): rates (B, R)."""


@dataclass
class SharedChance:
    """The chance levels of one shard and model, measured when first needed.

    They depend on a sample and on how many of its features are kept, not on the explainer, so explainers share them:
    `measured` has the rates (R,) of each row of the shard and number of features. `predicted` (B,) is the prediction on
    the whole inputs of the shard, `radii` the number R of radii.
    """

    subject: Subject
    predicted: Tensor
    radii: int
    measure: RatesOfBatch
    measured: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def rates(self, chosen: Explanations) -> Tensor:
        """Return the chance level of each explanation's stability rate: the mean rate of random sets of its size, (S, R).

        Levels that another explainer with explanations of this size needed before are not measured again.
        """
        if not len(chosen.rows):
            return torch.zeros(0, self.radii, dtype=torch.float64)
        sizes = chosen.mask.sum(1).tolist()
        rows_and_sizes = list(zip(chosen.rows.tolist(), sizes, strict=True))
        self._measure([key for key in rows_and_sizes if key not in self.measured])
        return torch.stack([self.measured[key] for key in rows_and_sizes])

    def _measure(self, missing: Sequence[tuple[int, int]]) -> None:
        """Measure the mean stability rates of random feature sets, and store them by row of the shard and size.

        `missing` are the pairs of a row and a number of features whose rates are still to be measured.
        """
        if not missing:
            return
        rows = torch.tensor([row for row, _ in missing])
        kept = torch.tensor([size for _, size in missing])
        predicted = self.predicted.cpu()[rows].long()

        # `compute` passes on one tensor beside the samples, so it has two columns.
        def measure(batch: Batch, kept_and_class: Tensor) -> Tensor:
            return self.measure(batch, kept_and_class[:, 0], kept_and_class[:, 1])

        rates = self.subject.compute(
            measure, self.subject.batch[rows], torch.stack([kept, predicted], 1)
        )
        self.measured.update(zip(missing, rates, strict=True))
