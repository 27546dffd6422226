"""Symmetrised explainers: an explanation averaged over a group, so that it respects the group's symmetries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import AfterValidator, BeforeValidator, Field
from scipy import stats
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.criterion import compare
from heatproof.axes.symmetry.groups import Group, build
from heatproof.axes.symmetry.groups.contract import (
    BySample,
    largest_weight,
    order_text,
    orders,
    probe,
    side_by_side,
)
from heatproof.errors import UserError, make
from heatproof.explainers.gradient import draws, per_row
from heatproof.models import Model
from heatproof.types import (
    Batch,
    Categorical,
    Explainer,
    ExplanationKind,
    Stored,
    name_of,
    parameter_class,
    wrap_explainer,
)

MOST_BY_DEFAULT = 1024
"""The largest group of which all elements are averaged over unless `n` says otherwise."""
MOST_LISTED = 65_536
"""The largest group from which elements are drawn without replacement."""


def _check_explainer(of: Any) -> Any:
    """Return the inner explainer; refuse what is none, and stored maps, which exist for unmoved inputs only."""
    if not callable(of) or isinstance(of, type):
        raise UserError(f"an explainer such as Saliency() is needed, got {of!r}")
    if isinstance(of, Stored):
        raise UserError(
            f"{name_of(of)} has maps of the data as they are, and none of moved inputs to average over"
        )
    return wrap_explainer(of)


@parameter_class
class Symmetrised(Explainer):
    """Another explainer averaged over elements g₁ = id, g₂, …, g_n of a group.

    Feature explanations are moved back before they are averaged (the Reynolds operator),
    1/n Σ ρ′[gᵢ]⁻¹ e(ρ[gᵢ]x), which is equivariant; example and concept explanations, which should be invariant, are
    averaged as they are, 1/n Σ e(ρ[gᵢ]x); of categories (integers, booleans, or those of an explainer that says
    `categorical`) the most frequent one is taken, the smallest of equals.

    `n=None` means the whole group, up to an order of 1024, and so does n ≥ |G|; then equivariance or invariance is
    exact by construction, which says nothing about faithfulness. Otherwise elements after the identity are drawn for
    each sample by (seed, sample id), without replacement up to an order of 65,536; a smaller n has the first of them.
    `seed=None` takes the seed of the call. The inner explainer sees the same ids and seed for every element.

    >>> from heatproof.explainers import Saliency
    >>> from heatproof.axes.symmetry.groups import Cyclic
    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> maps = Symmetrised(of=Saliency(absolute=False), group=Cyclic())(model, batch, torch.tensor([0]), seed=0)
    >>> torch.allclose(maps, model.module.weight[0].mean())
    True
    """

    name: ClassVar[str] = "symmetrised"
    of: Annotated[Any, AfterValidator(_check_explainer)]
    group: Annotated[Any, BeforeValidator(build)]
    n: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None

    @property
    def kind(self) -> ExplanationKind:  # type: ignore[override]
        """The kind of the inner explainer: feature, example or concept."""
        kind: ExplanationKind = self.of.kind
        return kind

    @property
    def categorical(self) -> bool:
        """Whether the inner explainer says that its numbers are categories."""
        return isinstance(self.of, Categorical) and self.of.categorical

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the call's seed matters: for the inner explainer or for drawing the elements."""
        drawn = self.n is not None and self.n > 1 and self.seed is None
        return drawn or bool(self.of.stochastic)

    @property
    def control(self) -> bool:  # type: ignore[override]
        """Whether the inner explainer is a control."""
        return bool(self.of.control)

    @property
    def hooks_into_network(self) -> bool:  # type: ignore[override]
        """Whether the inner explainer looks for layers that the network may lack."""
        return bool(self.of.hooks_into_network)

    def why_unmet(self, model: Model) -> str:
        """Return why the model lacks what the inner explainer requires; empty where it does not."""
        reason: str = self.of.why_unmet(model)
        return reason

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy whose inner explainer is configured; raise `UserError` where either is undefined."""
        configured = super().configured_for(model, sample)
        return replace(configured, of=self.of.configured_for(model, sample))

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` where the group or the inner explainer does not fit, or the group is too large."""
        self.group.check(shape)
        if largest_weight(self.group) > 1:
            raise UserError(
                f"symmetrised averages over elements as they are drawn; leave weighted: true out of {self.group.name}"
            )
        _count(self.group, probe(shape), self.n)
        self.of.check(model, shape)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the inner explainer's explanations, averaged."""
        n = _count(self.group, batch, self.n)
        seed_of_elements = seed if self.seed is None else self.seed
        elements, counts = chosen_elements(self.group, batch, n, seed_of_elements)
        if n > 1:
            # Draws that move along belong to one element; over several the average is of different draws.
            batch = replace(batch, moved=None)
        average = _Average(self, model, batch, target, seed)
        average.add(elements, counts)
        return average.value()


def symmetrise(
    explainer: Any, group: Any, n: int | None = None, seed: int | None = None
) -> Symmetrised:
    """Return an explainer of the same kind whose output is averaged over `n` elements of a group; see `Symmetrised`.

    Over the whole group it respects the symmetry by construction, which says nothing about faithfulness.

    >>> from heatproof.explainers import Saliency
    >>> from heatproof.axes.symmetry.groups import dihedral
    >>> symmetrise(Saliency(), dihedral(4)).kind
    'feature'
    """
    parameters = {"of": explainer, "group": group, "n": n, "seed": seed}
    symmetrised: Symmetrised = make(Symmetrised, "symmetrised", parameters)
    return symmetrised


@plain_dataclass(frozen=True)
class CurvePoint:
    """Score and cost of symmetrising with n elements.

    `score` is the mean of `scores` (B,), those of the samples, without undefined ones (NaN). `passes` counts the
    inputs through the network that the batch's explanations with n elements take, `spent` all that the curve has taken
    up to this point. `whole` says that n is the order of the group, so that a score of 1 is true by construction.
    """

    n: int
    score: float
    scores: Tensor
    passes: int
    spent: int
    whole: bool


def symmetrise_curve(
    model: Model,
    batch: Batch,
    target: Tensor,
    explainer: Any,
    group: Any,
    ns: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
    seed: int = 0,
    reach: float | None = None,
    fresh: int = 4,
) -> list[CurvePoint]:
    """Return how equivariant (invariant) an explainer becomes with the number n of elements averaged over, and its cost.

    The score is the mean over `fresh` elements g of the cosine between ē(ρ[g]x) and ρ′[g]ē(x) for feature
    explanations, ē(x) for others; for categories it is the share of equal ones. The elements g are not among those of
    the average as long as the group has enough others. Stops at the first n whose score is at least `reach`.

    >>> from heatproof.explainers import Saliency
    >>> from heatproof.axes.symmetry.groups import Cyclic
    >>> model, batch = Model(torch.nn.Linear(6, 2)), Batch(("a",), torch.rand(1, 6))
    >>> signed = Saliency(absolute=False)
    >>> curve = symmetrise_curve(model, batch, torch.tensor([0]), signed, Cyclic(), ns=(1, 6), reach=0.999)
    >>> [(point.n, point.passes, point.score > 0.999) for point in curve]
    [(1, 1, False), (6, 6, True)]
    """
    group = build(group)
    steps = _steps(ns, group, batch)
    if fresh < 1:
        raise UserError(f"fresh must be at least 1, got {fresh}")
    order = group.order(batch)
    test = _EquivarianceTest(
        model, batch, target, symmetrise(explainer, group, seed=seed), fresh, seed
    )

    elements, counts = chosen_elements(group, batch, steps[-1], seed)
    points: list[CurvePoint] = []
    passes_before, passes, averaged = model.passes, 0, 0
    for n in steps:
        # The averages grow: only the elements that are new at this step are explained.
        passes += test.add(elements[averaged:n], counts - averaged)
        averaged = n
        scores = test.scores()
        point = CurvePoint(
            n=n,
            score=float(scores.nanmean()),
            scores=scores,
            passes=passes,
            spent=model.passes - passes_before,
            whole=n == order <= MOST_LISTED,
        )
        points.append(point)
        if reach is not None and point.score >= reach:
            break
    return points


class _EquivarianceTest:
    """The averages of a symmetrised explainer on samples and on the same samples moved by fresh elements g."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        target: Tensor,
        symmetrised: Symmetrised,
        fresh: int,
        seed: int,
    ) -> None:
        group = symmetrised.group
        tested = _fresh_elements(group, batch, fresh, seed)
        # One row for each fresh element and sample.
        self.sample = torch.arange(len(batch)).repeat(len(tested))
        self.g = tested.flatten(0, 1)
        self.model, self.symmetrised, self.size = model, symmetrised, len(batch)
        moved = group.act(self.g, batch[self.sample])
        moved_target = target[self.sample.to(target.device)]
        self.of_clean = _Average(symmetrised, model, batch, target, seed)
        self.of_moved = _Average(symmetrised, model, moved, moved_target, seed)

    def add(self, elements: Tensor, counts: Tensor) -> int:
        """Add elements (m, B, …) to all averages, and return the passes for those of the unmoved samples."""
        passes_before = self.model.passes
        self.of_clean.add(elements, counts)
        passes = self.model.passes - passes_before
        self.of_moved.add(elements[:, self.sample], counts[self.sample])
        return passes

    def scores(self) -> Tensor:
        """Return how well the averaged explanations keep the symmetry so far: the mean score of each sample, (B,).

        The averaged explanation of a moved input is compared with that of the unmoved one, which is moved alike if it is a
        map. The score is the cosine, or the share of equal entries for categories.
        """
        expected = self.of_clean.value()[self.sample]
        if self.symmetrised.kind == "feature":
            expected = self.symmetrised.group.move(self.g, expected)
        explained = self.of_moved.value()
        is_categorical = self.symmetrised.categorical or not explained.is_floating_point()
        similarity = compare("agreement" if is_categorical else "cosine", explained, expected)
        by_element_and_sample = similarity.reshape(-1, self.size)
        return by_element_and_sample.nanmean(0)


def chosen_elements(group: Group, batch: Batch, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the group elements to average an explanation over: (n, B, *e), identity first, and their number (B,).

    Each sample has its own elements, and fewer where its group has fewer. They are drawn without replacement from groups
    of at most 65,536 elements, and with replacement from larger ones. A smaller n gives the first elements of a larger n.

    >>> from heatproof.axes.symmetry.groups import Cyclic
    >>> sorted(chosen_elements(Cyclic(), Batch(("a",), torch.rand(1, 5)), 5, seed=0)[0].flatten().tolist())
    [0, 1, 2, 3, 4]
    """
    orders_of_samples = orders(group, batch)
    if not isinstance(group, BySample):
        elements = _chosen(group, batch, n, seed, orders_of_samples[0])
        return elements, torch.full((len(batch),), len(elements))
    of_samples = []
    for i, order in enumerate(orders_of_samples):
        of_samples.append(_chosen(group, batch[i : i + 1], n, seed, order)[:, 0])
    return side_by_side(of_samples)


def _chosen(group: Group, batch: Batch, n: int, seed: int, order: float) -> Tensor:
    """Return n elements (n, B, *e) for samples with groups of one order, the identity first."""
    if order <= MOST_LISTED:
        in_random_order = _random_order(int(order), batch, seed)
        return group.elements(batch)[in_random_order[: min(n, int(order))]]
    identity = group.identity(batch)
    first = identity.expand(1, len(batch), *identity.shape)
    if n == 1:
        return first
    return torch.cat([first, group.sample(batch, n - 1, _seed(seed, "average"))])


def _fresh_elements(group: Group, batch: Batch, n: int, seed: int) -> Tensor:
    """Return n group elements per sample on which an averaged explanation is tested, (n, B, *e), without the identity.

    If possible they are not among the elements that are averaged over: those are the first in each sample's random order
    of all elements, and these are the last. For a very large group, or one whose size differs between samples, they
    are drawn separately.
    """
    order = group.order(batch)
    if order == 1:
        raise UserError(f"{group.name} has a single element here; there is nothing to measure")
    if order > MOST_LISTED or len(set(orders(group, batch))) > 1:
        return group.sample(batch, n, _seed(seed, "measure"))
    order = int(order)
    last = _random_order(order, batch, seed)[max(1, order - n) :]
    return group.elements(batch)[last]


def _random_order(order: int, batch: Batch, seed: int) -> Tensor:
    """Return the numbers 0 … order − 1 in each sample's own random order with 0 first, (order, B)."""
    key = rand.keys(seed, batch.ids, "symmetrise").to(batch.x.device)
    rest = rand.permutation(key, order - 1) + 1
    return torch.cat([rest.new_zeros(len(batch), 1), rest], 1).T


def _seed(seed: int, purpose: str) -> int:
    """Return a seed of its own for one purpose."""
    return int(rand.keys(seed, ("elements",), f"symmetrise {purpose}"))


def _count(group: Group, batch: Batch, n: int | None) -> int:
    """Return how many elements of a group to average an explanation over: n, or all if the group has no more.

    Without n it is all elements, and a group of more than 1024 is refused.
    """
    order = group.order(batch)
    if n is None and order > MOST_BY_DEFAULT:
        raise UserError(
            f"{group.name} has {order_text(order)} elements here, too many to average over (at most {MOST_BY_DEFAULT}); give n, "
            "for instance n=32, or find it by symmetrise_curve"
        )
    if n is None:
        return int(order)
    if order <= MOST_LISTED:
        return min(n, int(order))
    return n  # elements of a larger group are drawn with replacement, so there is no limit


def _steps(ns: Sequence[int], group: Group, batch: Batch) -> list[int]:
    """Return the numbers of group elements to average over, in ascending order, none larger than the group.

    `ns` are those that the user asks for; they must be ascending and from 1 on.
    """
    values = list(ns)
    is_rising = all(a < b for a, b in pairwise(values))
    if not values or values[0] < 1 or not is_rising:
        raise UserError(
            f"ns must be rising whole numbers from 1 on, such as (1, 2, 4, 8), got {tuple(ns)}"
        )
    return sorted({_count(group, batch, n) for n in values})


class _Average:
    """The running average of one batch's explanations over group elements that come a few at a time."""

    def __init__(
        self, plan: Symmetrised, model: Model, batch: Batch, target: Tensor, seed: int
    ) -> None:
        self.plan, self.model, self.seed = plan, model, seed
        self.batch = batch.to(model.device)
        self.target = target.to(model.device)
        self.count = torch.zeros(len(batch), dtype=torch.int64)
        self.total = torch.empty(0)
        self.votes: list[Tensor] = []

    def add(self, elements: Tensor, counts: Tensor) -> None:
        """Explain the samples moved by further group elements, and add the explanations to the running average.

        `elements` (m, B, *e) has m elements for each of B samples, of which sample b uses the first counts[b]. Explanations
        that are maps are moved back before they are added. Of categories there is no mean: they are stored as votes.
        """
        m = len(elements)
        votes = torch.empty(0)
        # All pairs of a sample and an element, in batches of the model.
        for samples, draws_of_samples in draws(len(self.batch), m, self.model.rows):
            has_element = draws_of_samples < counts[samples]
            sample, draw = samples[has_element], draws_of_samples[has_element]
            if not len(sample):
                continue
            g = elements[draw.to(elements.device), sample.to(elements.device)]
            g = g.to(self.model.device)
            maps = self._explain(g, sample)
            if self._is_vote(maps):
                if not len(votes):
                    votes = maps.new_zeros(m, len(self.batch), *maps.shape[1:])
                votes[draw.to(maps.device), sample.to(maps.device)] = maps
                continue
            if self.plan.kind == "feature":
                maps = self._move_back(g, maps)
            if not len(self.total):
                self.total = maps.new_zeros(len(self.batch), *maps.shape[1:])
            # Add each explanation to the total of its sample.
            self.total.index_add_(0, sample.to(maps.device), maps)
        if len(votes):
            self.votes.append(votes)
        self.count += counts.clamp(0, m)

    def _explain(self, g: Tensor, sample: Tensor) -> Tensor:
        """Return the explanations of samples moved by group elements, (R, …).

        Row i is the sample numbered `sample[i]`, moved by the element `g[i]`. Whole numbers become floats, to be averaged,
        unless they are categories.
        """
        moved = self.plan.group.act(g, self.batch[sample])
        target = self.target[sample.to(self.model.device)]
        maps: Tensor = self.plan.of(self.model, moved, target, self.seed).detach()
        if maps.is_floating_point() or self._is_vote(maps):
            return maps
        return maps.float()

    def _is_vote(self, maps: Tensor) -> bool:
        """Whether explanations are categories, of which the most frequent is taken."""
        is_categorical = self.plan.categorical or not maps.is_floating_point()
        return self.plan.kind != "feature" and is_categorical

    def _move_back(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps of samples moved by g, moved by g⁻¹."""
        has_tokens = not self.batch.x.is_floating_point()
        if has_tokens and maps.shape[1:-1] == self.batch.x.shape[1:]:
            maps = maps.sum(-1)  # the group moves tokens, so a token gets the sum over its vector
        group: Group = self.plan.group
        return group.move(group.inverse(g), maps)

    def value(self) -> Tensor:
        """Return the mean of the explanations added so far, or for categories the most frequent one, (B, …)."""
        if not self.votes:
            return self.total / per_row(self.count.to(self.total.device), self.total)
        votes = torch.cat(self.votes)
        # Samples may have different numbers n of votes.
        majorities = torch.empty_like(votes[0])
        for n in set(self.count.tolist()):
            has_n = (self.count == n).to(votes.device)
            majorities[has_n] = majority(votes[:n, has_n])
        return majorities


def majority(votes: Tensor) -> Tensor:
    """Return the most frequent category along the first dimension of (n, …), the smallest of equally frequent ones.

    >>> majority(torch.tensor([[2, 1], [0, 1], [2, 0], [0, 3]])).tolist()
    [0, 1]
    """
    mode = stats.mode(votes.double().cpu().numpy(), axis=0).mode
    return torch.from_numpy(np.asarray(mode)).to(votes)
