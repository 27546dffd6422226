"""Symmetrising: exact by construction over the whole group, the right average for each kind, and its cost."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from heatproof.axes.symmetry.groups import (
    cyclic,
    dihedral,
    node_permutation,
    own,
    permutation,
    product,
    torus,
)
from heatproof.axes.symmetry.symmetrised import (
    CurvePoint,
    Symmetrised,
    _fresh_elements,
    chosen_elements,
    majority,
    symmetrise,
    symmetrise_curve,
)
from heatproof.errors import UserError
from heatproof.explainers import GradientShap, Occlusion, Saliency
from heatproof.maps.similarity import cosine
from heatproof.models import Model
from heatproof.types import Batch, label_of


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Lopsided:
    """A feature explainer that treats every place differently and is far from equivariant."""

    kind: ClassVar[str] = "feature"
    stochastic: ClassVar[bool] = False

    def __init__(self, *shape: int) -> None:
        self.weight, self.offset = noise(*shape, seed=1), noise(*shape, seed=2)

    def __call__(self, model, batch, target, seed):
        model.passes += len(batch)
        return torch.tanh(3 * self.weight * batch.x) + self.offset * batch.x.flatten(1).sum(
            1
        ).reshape(-1, *[1] * (batch.x.ndim - 1))


class Examples:
    """Importances of five training examples that depend on where things are."""

    kind: ClassVar[str] = "example"
    stochastic: ClassVar[bool] = False

    def __init__(self, n: int) -> None:
        self.weight = noise(n, 5, seed=3)

    def __call__(self, model, batch, target, seed):
        model.passes += len(batch)
        return torch.tanh(batch.x.flatten(1) @ self.weight)


class Concepts(Examples):
    """Whether each of five concepts is present, as a category 0, 1 or 2."""

    kind: ClassVar[str] = "concept"

    def __call__(self, model, batch, target, seed):
        return (super().__call__(model, batch, target, seed) * 2).round().long().clamp(-1, 1) + 1


class Decisions(Concepts):
    """The same categories written as floats, as an explainer that calls itself categorical gives them."""

    categorical: ClassVar[bool] = True

    def __call__(self, model, batch, target, seed):
        return super().__call__(model, batch, target, seed).double()


def model(rows: int = 7) -> Model:
    return Model(nn.Flatten(), rows=rows)


def batch_of(*shape: int, samples: int = 3, **aux: torch.Tensor) -> Batch:
    return Batch(tuple("abcdefgh"[:samples]), noise(samples, *shape, seed=9), aux)


TARGET = torch.zeros(3, dtype=torch.int64)
ROLL = own(lambda g, b: b.x.roll(g, -1), lambda g, maps: maps.roll(g, -1), range(6))
WHOLE = [
    (cyclic(), batch_of(2, 6)),
    (torus(), batch_of(1, 3, 4)),
    (dihedral(4), batch_of(2, 4, 4)),
    (dihedral(2), batch_of(2, 3, 4)),
    (permutation(), batch_of(4, 2)),
    (node_permutation(), batch_of(4, 2, adjacency=noise(3, 4, 4))),
    (product(cyclic(-2), cyclic(-1)), batch_of(1, 3, 4)),
    (ROLL, batch_of(2, 6)),
]
whole = pytest.mark.parametrize(("group", "batch"), WHOLE, ids=[group.name for group, _ in WHOLE])


def equivariance(explainer, group, batch, g) -> torch.Tensor:
    moved = explainer(model(), group.act(g, batch), TARGET, seed=0)
    return cosine(moved, group.move(g, explainer(model(), batch, TARGET, seed=0)))


@whole
def test_the_whole_group_makes_any_feature_explainer_equivariant(group, batch):
    inner = Lopsided(*batch.x.shape[1:])
    repaired = symmetrise(inner, group)
    elements = group.sample(batch, 5, seed=1)
    before = torch.stack([equivariance(inner, group, batch, g) for g in elements])
    after = torch.stack([equivariance(repaired, group, batch, g) for g in elements])
    assert before.mean() < 0.9
    assert after.min() > 1 - 1e-5


@whole
def test_feature_maps_are_the_reynolds_average(group, batch):
    inner = Lopsided(*batch.x.shape[1:])
    maps = [
        group.move(group.inverse(g), inner(model(), group.act(g, batch), TARGET, 0))
        for g in group.elements(batch)
    ]
    torch.testing.assert_close(
        symmetrise(inner, group)(model(), batch, TARGET, 0), torch.stack(maps).mean(0)
    )


def test_the_papers_average_without_moving_back_is_not_ours():
    group, batch, inner = cyclic(), batch_of(1, 8), Lopsided(1, 8)
    plain = torch.stack(
        [inner(model(), group.act(g, batch), TARGET, 0) for g in group.elements(batch)]
    ).mean(0)
    ours = symmetrise(inner, group)(model(), batch, TARGET, 0)
    assert (cosine(plain, ours) < 0.9).any()
    # the plain average does not change when the input moves, so it cannot follow the features
    moved = group.act(torch.tensor(3), batch)
    again = torch.stack(
        [inner(model(), group.act(g, moved), TARGET, 0) for g in group.elements(batch)]
    ).mean(0)
    torch.testing.assert_close(again, plain)
    assert (cosine(again, group.move(torch.tensor(3), plain)) < 0.9).all()


@whole
def test_examples_and_concepts_become_invariant(group, batch):
    size = batch.x[0].numel()
    for inner in (Examples(size), Concepts(size), Decisions(size)):
        repaired = symmetrise(inner, group)
        assert repaired.kind == inner.kind and repaired.categorical == isinstance(inner, Decisions)
        clean = repaired(model(), batch, TARGET, 0)
        assert clean.dtype == inner(model(), batch, TARGET, 0).dtype
        changed = 0
        for g in group.sample(batch, 4, seed=2):
            moved = group.act(g, batch)
            torch.testing.assert_close(
                repaired(model(), moved, TARGET, 0), clean, atol=1e-6, rtol=1e-5
            )
            changed += int(
                (inner(model(), moved, TARGET, 0) != inner(model(), batch, TARGET, 0)).sum()
            )
        assert changed


def test_examples_are_averaged_and_concepts_vote():
    group, batch = cyclic(), batch_of(1, 6)
    for inner in (Examples(6), Concepts(6), Decisions(6)):
        each = torch.stack(
            [inner(model(), group.act(g, batch), TARGET, 0) for g in group.elements(batch)]
        )
        found = symmetrise(inner, group)(model(), batch, TARGET, 0)
        if inner.kind == "example":
            torch.testing.assert_close(found, each.mean(0))
        else:
            assert np.array_equal(found.numpy(), stats.mode(each.numpy(), axis=0).mode)


def test_the_majority_is_the_most_frequent_and_the_smallest_of_equals():
    votes = torch.randint(-2, 3, (9, 40, 3), generator=torch.Generator().manual_seed(0))
    counts = [Counter(cast).items() for cast in votes.flatten(1).T.tolist()]
    expected = [min(each, key=lambda pair: (-pair[1], pair[0]))[0] for each in counts]
    yes = torch.tensor([[True], [False], [True]])
    for kind in (votes, votes.double()):
        assert majority(kind).flatten().tolist() == expected and majority(kind).dtype == kind.dtype
    assert majority(yes).tolist() == [True] and majority(yes).dtype == torch.bool


def test_an_equivariant_explainer_is_left_as_it_is():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv1d(1, 4, 3, padding=1, padding_mode="circular"),
            nn.Tanh(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
    batch = batch_of(1, 10)
    for inner in (Saliency(), GradientShap(samples=4)):
        maps = inner(Model(net), batch, TARGET, seed=3)
        torch.testing.assert_close(symmetrise(inner, cyclic())(Model(net), batch, TARGET, 3), maps)


@pytest.mark.parametrize("n", [None, 1, 3, 50])
def test_results_do_not_depend_on_batches(n):
    group, batch, inner = torus(), batch_of(1, 3, 4, samples=5), Lopsided(1, 3, 4)
    explainer, target = symmetrise(inner, group, n=n), torch.zeros(5, dtype=torch.int64)
    maps = explainer(model(rows=1000), batch, target, 0)
    for rows in (1, 4, 7):
        torch.testing.assert_close(explainer(model(rows), batch, target, 0), maps)
    torch.testing.assert_close(explainer(model(), batch[[3, 1]], target[:2], 0), maps[[3, 1]])


def test_no_pass_is_larger_than_the_model_allows_and_all_are_counted():
    seen = []

    def inner(model, batch, target, seed):
        seen.append(len(batch))
        assert len(target) == len(batch)
        return Saliency(absolute=False)(model, batch, target, seed)

    wrapped = Model(nn.Linear(6, 2), rows=4)
    symmetrise(inner, cyclic())(wrapped, batch_of(6), TARGET, 0)
    assert max(seen) == 4 and sum(seen) == wrapped.passes == 3 * 6


def test_elements_begin_with_the_identity_and_grow():
    for group, batch in [
        (cyclic(), batch_of(1, 30)),
        (permutation(), batch_of(20, 2)),
        (torus(), batch_of(1, 9, 9)),
    ]:
        many = chosen_elements(group, batch, 12, seed=4)[0]
        assert many.shape[:2] == (12, 3)
        assert torch.equal(many[0, 1], group.identity(batch))
        assert torch.equal(chosen_elements(group, batch, 5, seed=4)[0], many[:5])
        assert torch.equal(chosen_elements(group, batch[[2]], 12, seed=4)[0], many[:, [2]])
        assert not torch.equal(chosen_elements(group, batch, 12, seed=5)[0], many)
        assert len({tuple(g.reshape(-1).tolist()) for g in many[:, 0]}) == 12


def test_one_element_is_the_explainer_itself_and_too_many_are_the_whole_group():
    batch, inner = batch_of(1, 6), Lopsided(1, 6)
    assert torch.equal(
        symmetrise(inner, cyclic(), n=1)(model(), batch, TARGET, 0),
        inner(model(), batch, TARGET, 0),
    )
    every = symmetrise(inner, cyclic())(model(), batch, TARGET, 0)
    torch.testing.assert_close(symmetrise(inner, cyclic(), n=100)(model(), batch, TARGET, 1), every)


def test_the_seed_of_the_call_or_a_fixed_one_chooses_the_elements():
    batch, inner = batch_of(20), Lopsided(20)
    drawn, fixed = (
        symmetrise(inner, permutation(), n=3),
        symmetrise(inner, permutation(), n=3, seed=5),
    )
    assert drawn.stochastic and not fixed.stochastic and not symmetrise(inner, cyclic()).stochastic
    assert symmetrise(GradientShap(), cyclic()).stochastic
    first = drawn(model(), batch, TARGET, 0)
    assert not torch.equal(first, drawn(model(), batch, TARGET, 1))
    assert torch.equal(fixed(model(), batch, TARGET, 0), fixed(model(), batch, TARGET, 1))
    assert torch.equal(fixed(model(), batch, TARGET, 0), drawn(model(), batch, TARGET, 5))


def test_every_element_meets_the_same_random_numbers():
    heard = set()

    def inner(model, batch, target, seed):
        heard.update((name, seed) for name in batch.ids)
        return batch.x

    symmetrise(inner, cyclic())(model(), batch_of(1, 6), TARGET, seed=8)
    assert heard == {("a", 8), ("b", 8), ("c", 8)}


def test_masks_labels_and_targets_go_along():
    mask = torch.tensor([[True, True, False, False], [True] * 4, [True, False, False, False]])
    batch = Batch(
        ("a", "b", "c"), noise(3, 4, 2) * mask[..., None], {"mask": mask}, torch.tensor([5, 6, 7])
    )

    def inner(model, moved, target, seed):
        assert torch.equal(moved.aux["mask"], moved.x.abs().sum(-1) > 0)
        assert torch.equal(target, moved.label)
        return moved.x * moved.aux["mask"][..., None]

    maps = symmetrise(inner, permutation(), n=9)(model(), batch, batch.label, 0)
    torch.testing.assert_close(maps, batch.x)


def test_maps_without_channels_are_symmetrised_too():
    def inner(model, batch, target, seed):
        return Lopsided(2, 4, 4)(model, batch, target, seed).sum(1)

    batch = batch_of(2, 4, 4)
    repaired = symmetrise(inner, dihedral(4))
    assert repaired(model(), batch, TARGET, 0).shape == (3, 4, 4)
    assert equivariance(repaired, dihedral(4), batch, torch.tensor([1, 5, 7])).min() > 1 - 1e-5


def curve(group, batch, inner, **options) -> list[CurvePoint]:
    return symmetrise_curve(model(), batch, TARGET, inner, group, **options)


def test_the_curve_rises_to_one_and_counts_its_cost():
    batch = batch_of(1, 16)
    points = curve(cyclic(), batch, Lopsided(1, 16))
    assert [point.n for point in points] == [1, 2, 4, 8, 16]
    scores = [point.score for point in points]
    assert scores == sorted(scores) and scores[0] < 0.8 and scores[-1] > 1 - 1e-5
    assert [point.whole for point in points] == [False] * 4 + [True]
    assert [point.passes for point in points] == [3 * n for n in (1, 2, 4, 8, 16)]
    assert [point.spent for point in points] == [3 * n * (1 + 4) for n in (1, 2, 4, 8, 16)]
    assert points[0].scores.shape == (3,)
    assert points[0].score == pytest.approx(float(points[0].scores.mean()))


def test_the_curve_stops_where_it_is_told_to():
    batch, inner = batch_of(1, 16), Lopsided(1, 16)
    everything = curve(cyclic(), batch, inner)
    goal = everything[2].score - 1e-6
    assert [point.n for point in curve(cyclic(), batch, inner, reach=goal)] == [1, 2, 4]
    assert len(curve(cyclic(), batch, inner, reach=1.1)) == len(everything)


@pytest.mark.parametrize("inner", [Lopsided(12, 2), Examples(24), Concepts(24), Decisions(24)])
def test_the_curve_of_a_large_group_is_what_the_explainers_score(inner):
    group, batch = permutation(), batch_of(12, 2)
    points = curve(group, batch, inner, ns=(1, 6, 40), seed=3, fresh=2)
    assert points[0].score < points[-1].score < 1 and not points[-1].whole
    for point in points:
        repaired = symmetrise(inner, group, n=point.n)
        clean = repaired(model(), batch, TARGET, 3)
        scores = []
        for g in _fresh_elements(group, batch, 2, seed=3):
            moved = repaired(model(), group.act(g, batch), TARGET, 3)
            if inner.kind == "feature":
                scores.append(cosine(moved, group.move(g, clean)))
            elif inner.kind == "example":
                scores.append(cosine(moved, clean))
            else:
                scores.append((moved == clean).float().mean(1))
        torch.testing.assert_close(point.scores, torch.stack(scores).mean(0), check_dtype=False)


@pytest.mark.parametrize(
    ("group", "batch", "n", "fresh"),
    [
        (cyclic(), batch_of(1, 8), 5, 3),
        (dihedral(4), batch_of(1, 4, 4), 1, 7),
        (permutation(), batch_of(20, 1), 30, 9),
    ],
    ids=["cyclic", "dihedral", "permutation"],
)
def test_the_curve_measures_on_elements_that_the_average_does_not_use(group, batch, n, fresh):
    used, others = (
        chosen_elements(group, batch, n, seed=6)[0],
        _fresh_elements(group, batch, fresh, seed=6),
    )
    assert others.shape[:2] == (fresh, 3)
    for i in range(3):
        sets = [{tuple(g.reshape(-1).tolist()) for g in part[:, i]} for part in (used, others)]
        assert len(sets[0]) == n and len(sets[1]) == fresh and not sets[0] & sets[1]


def test_undefined_samples_do_not_spoil_the_curve():
    def inner(model, batch, target, seed):
        return torch.stack(
            [
                x * 0 if name == "b" else x * noise(6)
                for name, x in zip(batch.ids, batch.x, strict=True)
            ]
        )

    points = curve(cyclic(), batch_of(6), inner, ns=(6,))
    assert torch.isnan(points[0].scores).tolist() == [False, True, False]
    assert points[0].score > 1 - 1e-5


def test_what_cannot_be_symmetrised_is_refused():
    batch, inner = batch_of(20), Lopsided(20)
    huge = r"permutation.*10\^18.*1024.* n"
    with pytest.raises(UserError, match=huge):
        symmetrise(inner, permutation())(model(), batch, TARGET, 0)
    with pytest.raises(UserError, match=huge):
        symmetrise(inner, permutation()).check(model(), (20,))
    symmetrise(inner, permutation(), n=4).check(model(), (20,))
    with pytest.raises(UserError, match="3×4"):
        symmetrise(inner, dihedral(4)).check(model(), (1, 3, 4))
    with pytest.raises(UserError, match=r"window 16"):
        symmetrise(Occlusion(), cyclic()).check(model(), (1, 8))
    with pytest.raises(UserError, match=r"symmetrised\.n.* 0"):
        symmetrise(inner, cyclic(), n=0)
    with pytest.raises(UserError, match=r"Saliency\(\)"):
        symmetrise(Saliency, cyclic())
    with pytest.raises(UserError, match=r"'cyclc'.*'cyclic'"):
        symmetrise(Saliency(), "cyclc")
    for ns in ((), (0, 1), (2, 2), (4, 1)):
        with pytest.raises(UserError, match=re.escape(str(ns))):
            curve(cyclic(), batch, inner, ns=ns)
    with pytest.raises(UserError, match="cyclic"):
        curve(cyclic(), batch_of(1), Lopsided(1))
    with pytest.raises(UserError, match=r"fresh.*0"):
        curve(cyclic(), batch, inner, fresh=0)


def test_it_is_a_parameter_object_like_any_explainer():
    repaired = symmetrise(Saliency(), "cyclic", n=4)
    assert repaired == Symmetrised(of=Saliency(), group=cyclic(), n=4)
    assert label_of(repaired) == "symmetrised(of=saliency, group=cyclic, n=4)"
