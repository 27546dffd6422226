"""The laws of groups, on every group of the registry, and what each does against another way to do it."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from heatproof.axes.stability.perturbations import Rotation
from heatproof.axes.symmetry.groups import (
    GROUPS,
    Cyclic,
    Dihedral,
    Octahedral,
    PassagePermutation,
    Torus,
    build,
    cyclic,
    dihedral,
    node_permutation,
    own,
    permutation,
    plan_elements,
    product,
    so2,
    so3,
    torus,
)
from heatproof.axes.symmetry.groups.contract import ENUMERABLE
from heatproof.errors import BadParameter, UserError
from heatproof.types import Batch


def random_batch(*shape: int, samples: int = 3, **aux: Tensor) -> Batch:
    x = torch.rand(samples, *shape, generator=torch.Generator().manual_seed(0))
    return Batch(tuple("abcdefgh"[:samples]), x, aux)


def tokens() -> Batch:
    ids = torch.tensor([[5, 2, 7, 0], [1, 9, 0, 0], [3, 4, 6, 8]])
    return Batch(("a", "b", "c"), ids, {"attention_mask": (ids > 0).long()})


def passages() -> Batch:
    """Three passages of two tokens each, with one token between the first two, and a question."""
    ids = torch.arange(1, 28).reshape(3, 9)
    numbers = torch.tensor([1, 1, 0, 2, 2, 3, 3, 0, 0]).expand(3, -1)
    return Batch(
        ("a", "b", "c"), ids, {"attention_mask": torch.ones_like(ids), "_passages": numbers}
    )


def graphs() -> Batch:
    g = torch.Generator().manual_seed(1)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False], [True] * 4])
    edges = torch.rand(3, 4, 4, generator=g) * mask[:, None] * mask[:, :, None]
    return Batch(
        ("a", "b", "c"), torch.rand(3, 4, 2, generator=g), {"adjacency": edges, "mask": mask}
    )


def alike(batch: Batch) -> Batch:
    """Three samples with the padding of the first, which then have one group."""
    x = torch.stack([batch.x[0], batch.x[0].flip(-1), batch.x[0] * 2])
    return Batch(("a", "b", "c"), x, {key: value[[0, 0, 0]] for key, value in batch.aux.items()})


def roll(n: int) -> Any:
    return own(
        lambda g, batch: batch.x.roll(int(g), -1),
        lambda g, maps: maps.roll(int(g), -1),
        torch.arange(n),
        title="roll",
    )


@dataclass(frozen=True)
class Case:
    """A group with inputs for it; `lost` is the dimension that a map may lack (the channels or the features)."""

    group: Any
    batch: Batch
    lost: int | None

    def __post_init__(self) -> None:
        self.group.check(self.batch.x.shape[1:])


SET = random_batch(
    4, 2, mask=torch.tensor([[True, True, False, False], [True] * 4, [True, False, False, False]])
)
CASES = {
    "cyclic": Case(cyclic(), random_batch(2, 5), 1),
    "cyclic with a mask": Case(cyclic(1), SET, 2),
    "torus": Case(torus(), random_batch(2, 3, 4), 1),
    "dihedral(1)": Case(dihedral(1), random_batch(2, 3, 4), 1),
    "dihedral(2)": Case(dihedral(2), random_batch(2, 3, 4), 1),
    "dihedral(4)": Case(dihedral(4), random_batch(2, 4, 4), 1),
    "dihedral(4), odd": Case(dihedral(4), random_batch(1, 5, 5), 1),
    "dihedral(4) of volumes": Case(dihedral(4), random_batch(1, 2, 3, 3), 1),
    "octahedral": Case(Octahedral(), random_batch(2, 3, 3, 3), 1),
    "octahedral, even": Case(Octahedral(), random_batch(1, 2, 2, 2), 1),
    "octahedral, reflections": Case(Octahedral(turns=False), random_batch(1, 2, 3, 4), 1),
    "permutation": Case(permutation(), alike(SET), 2),
    "permutation of tokens": Case(permutation(1), alike(tokens()), None),
    "passage_permutation": Case(PassagePermutation(), passages(), None),
    "node_permutation": Case(node_permutation(), alike(graphs()), 2),
    "product": Case(product(cyclic(-2), cyclic(-1)), random_batch(2, 2, 3), 1),
    "product of permutations": Case(
        product(permutation(1), permutation(2)), random_batch(3, 2), None
    ),
    "product of three": Case(
        product("dihedral", permutation(1), roll(1)), random_batch(2, 3, 3), None
    ),
    "own": Case(roll(5), random_batch(2, 5), 1),
}
exact = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def same(a: Batch, b: Batch) -> bool:
    return (
        torch.equal(a.x, b.x)
        and a.ids == b.ids
        and all(torch.equal(a.aux[k], b.aux[k]) for k in (*a.aux, *b.aux))
    )


def some(group: Any, batch: Batch, n: int, seed: int) -> Tensor:
    """n elements for all samples, (n, *e)."""
    return group.sample(batch[:1], n, seed)[:, 0]


def test_every_group_is_under_law():
    elsewhere = {"so2", "scale", "so3"}  # in test_continuous
    elsewhere |= {"euclidean", "padded_shift", "time_warp"}  # in test_motions
    assert {case.group.name for case in CASES.values()} == set(GROUPS) - elsewhere
    assert all(kind.name == name for name, kind in GROUPS.items())


@exact
def test_elements_are_all_there_once_with_the_identity_first(case):
    elements = case.group.elements(case.batch)
    assert len(elements) == case.group.order(case.batch)
    assert torch.equal(elements[0], case.group.identity(case.batch))
    assert elements[0].ndim == case.group.rank
    assert same(case.group.act(elements[0], case.batch), case.batch)
    images = {case.group.act(g, case.batch).x.numpy().tobytes() for g in elements}
    assert len(images) == len(elements)


@exact
def test_products_stay_inside_and_act_one_after_the_other(case):
    group, batch = case.group, case.batch
    images = {group.act(g, batch).x.numpy().tobytes() for g in group.elements(batch)}
    for g, h in zip(some(group, batch, 25, 1), some(group, batch, 25, 2), strict=True):
        both = group.act(group.compose(g, h), batch)
        assert both.x.numpy().tobytes() in images
        assert same(both, group.act(g, group.act(h, batch)))
        maps = batch.x.float() + 0.5
        assert torch.equal(
            group.move(group.compose(g, h), maps), group.move(g, group.move(h, maps))
        )


@exact
def test_composition_is_associative(case):
    group, batch = case.group, case.batch
    for g, h, k in zip(*(some(group, batch, 15, seed) for seed in (1, 2, 3)), strict=True):
        left, right = group.compose(group.compose(g, h), k), group.compose(g, group.compose(h, k))
        assert torch.equal(left, right)


@exact
def test_inverses_bring_inputs_and_maps_back(case):
    group, batch = case.group, case.batch
    for g in some(group, batch, 25, 1):
        back = group.inverse(g)
        assert same(group.act(back, group.act(g, batch)), batch)
        assert same(group.act(g, group.act(back, batch)), batch)
        assert torch.equal(group.move(back, group.move(g, batch.x)), batch.x)


@exact
def test_maps_move_like_inputs_with_and_without_channels(case):
    group, batch = case.group, case.batch
    for g in some(group, batch, 10, 1):
        moved = group.act(g, batch).x
        assert torch.equal(group.move(g, batch.x), moved)
        if case.lost is not None:
            first = batch.x.select(case.lost, 0)
            assert torch.equal(group.move(g, first), moved.select(case.lost, 0))
        if not batch.x.is_floating_point():
            embedded = torch.stack([batch.x, -batch.x], -1)
            assert torch.equal(group.move(g, embedded), torch.stack([moved, -moved], -1))


@exact
def test_samples_may_have_an_element_each(case):
    group, batch = case.group, case.batch
    for each in group.sample(batch, 6, seed=4):
        together = group.act(each, batch)
        maps = group.move(each, batch.x)
        inverse = group.inverse(each)
        for i, g in enumerate(each):
            assert same(together[i : i + 1], group.act(g, batch[i : i + 1]))
            assert torch.equal(maps[i : i + 1], group.move(g, batch.x[i : i + 1]))
            assert torch.equal(inverse[i], group.inverse(g))
            assert torch.equal(group.compose(each, inverse)[i], group.compose(g, group.inverse(g)))


@exact
def test_draws_are_uniform(case):
    group, batch = case.group, case.batch
    elements = [tuple(g.reshape(-1).tolist()) for g in group.elements(batch)]
    drawn = group.sample(batch, 40 * len(elements), seed=0)
    for i in range(2):
        found = [tuple(g.reshape(-1).tolist()) for g in drawn[:, i]]
        counts = np.array([found.count(g) for g in elements])
        assert counts.sum() == len(found)
        if len(elements) > 1:
            assert stats.chisquare(counts).pvalue > 1e-3


@exact
def test_draws_belong_to_the_sample_not_to_the_batch(case):
    group, batch = case.group, case.batch
    drawn = group.sample(batch, 9, seed=3)
    assert torch.equal(group.sample(batch[[2, 0]], 9, seed=3), drawn[:, [2, 0]])
    assert torch.equal(group.sample(batch, 4, seed=3), drawn[:4])
    if group.order(batch) > 5:
        assert not torch.equal(group.sample(batch, 9, seed=4), drawn)
        assert not torch.equal(drawn[:, 0], drawn[:, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@exact
def test_nothing_depends_on_the_device(case):
    group, batch = case.group, case.batch
    there = batch.to("cuda")
    drawn = group.sample(there, 5, seed=0)
    assert drawn.device.type == "cuda"
    assert torch.equal(drawn.cpu(), group.sample(batch, 5, seed=0))
    for g in drawn:
        assert same(group.act(g, there).to("cpu"), group.act(g.cpu(), batch))
        assert same(group.act(g.cpu(), there).to("cpu"), group.act(g.cpu(), batch))


def test_the_factors_of_a_product_are_drawn_independently():
    batch = random_batch(1, 6, 6)
    parts = product(cyclic(-2), cyclic(-1)).sample(batch, 720, seed=0)[:, 0, 2:]
    table = torch.zeros(6, 6).index_put_(
        (parts[:, 0], parts[:, 1]), torch.ones(720), accumulate=True
    )
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3


def test_shifts_are_rolls():
    x = random_batch(2, 3, 4).x
    assert torch.equal(cyclic(-1).move(torch.tensor(3), x), x.roll(3, -1))
    assert torch.equal(cyclic(2).move(torch.tensor(-1), x), x.roll(-1, 2))
    assert torch.equal(torus().move(torch.tensor([2, 1]), x), x.roll((2, 1), (-2, -1)))
    assert torch.equal(torus((-1, 1)).move(torch.tensor([2, 1]), x), x.roll((2, 1), (-1, 1)))


def test_d4_is_what_numpy_says():
    x = random_batch(1, 5, 5)
    for k in range(8):
        image = np.fliplr(x.x[0, 0].numpy()) if k >= 4 else x.x[0, 0].numpy()
        assert np.array_equal(
            dihedral(4).act(torch.tensor(k), x).x[0, 0].numpy(), np.rot90(image, k % 4)
        )


def test_d1_and_d2_are_flips_of_any_image():
    x = random_batch(1, 3, 5).x
    assert torch.equal(dihedral(1).move(torch.tensor(1), x), x.flip(-1))
    assert torch.equal(dihedral(2).move(torch.tensor(1), x), x.flip(-1).flip(-2))
    assert torch.equal(dihedral(2).move(torch.tensor(3), x), x.flip(-2))


def test_d8_is_approximate_and_says_so():
    group = dihedral(8)
    assert not group.exact and "approximate" in group.title
    assert not product(group, permutation(1)).exact
    batch = random_batch(2, 9, 9)
    for k in range(4):  # its quarter turns and their mirror images are those of D4, to the last bit
        for mirrored in (0, 1):
            g, h = torch.tensor(2 * k + 8 * mirrored), torch.tensor(k + 4 * mirrored)
            assert torch.equal(group.act(g, batch).x, dihedral(4).act(h, batch).x)
    elements = group.elements(batch)
    assert len(elements) == group.order(batch) == 16
    table = torch.stack([group.compose(g, elements) for g in elements])
    assert all(sorted(row.tolist()) == list(range(16)) for row in (*table, *table.T))
    assert not group.compose(elements, group.inverse(elements)).any()
    there_and_back = group.act(torch.tensor(7), group.act(torch.tensor(1), batch)).x
    assert (there_and_back - batch.x).norm() / batch.x.norm() > 0.1
    each = group.sample(batch, 1, seed=0)[0]
    alone = torch.cat([group.act(g, batch[i : i + 1]).x for i, g in enumerate(each)])
    assert torch.equal(group.act(each, batch).x, alone)


def test_d8_composes_as_far_as_interpolation_lets_it():
    rows, columns = torch.meshgrid(
        torch.linspace(-1, 1, 41), torch.linspace(-1, 1, 41), indexing="ij"
    )
    smooth = torch.exp(-8 * ((rows - 0.2) ** 2 + (columns + 0.1) ** 2))[None, None]
    group = dihedral(8)
    for g, h in ((1, 1), (3, 9), (9, 3), (10, 13)):
        both = group.move(torch.tensor(g), group.move(torch.tensor(h), smooth))
        one = group.move(group.compose(torch.tensor(g), torch.tensor(h)), smooth)
        assert (both - one).norm() / one.norm() < 0.02


@pytest.mark.parametrize(
    ("group", "k", "degrees"), [(4, 1, 90), (4, 2, 180), (4, 3, 270), (8, 1, 45), (8, 5, 225)]
)
def test_geometric_perturbations_move_maps_like_the_group(group, k, degrees):
    batch = random_batch(2, 8, 8)
    moved, valid = Rotation(degrees=degrees).move(batch.x, batch.ids, seed=0)
    ours = dihedral(group).move(torch.tensor(k), batch.x)
    assert torch.equal(ours, moved)
    assert valid.all() == (group == 4)


def test_nodes_are_renamed_with_their_edges():
    batch = graphs()
    p = torch.tensor([2, 0, 3, 1])
    matrix = torch.eye(4)[p]
    moved = node_permutation().act(p, batch)
    torch.testing.assert_close(moved.x, matrix @ batch.x)
    torch.testing.assert_close(moved.aux["adjacency"], matrix @ batch.aux["adjacency"] @ matrix.T)
    assert torch.equal(moved.aux["mask"], batch.aux["mask"][:, p])


def test_labels_and_other_auxiliary_tensors_stay():
    batch = Batch(("a",), torch.rand(1, 3, 2), {"weight": torch.rand(1, 3)}, torch.tensor([4]))
    moved = permutation().act(torch.tensor([1, 2, 0]), batch)
    assert torch.equal(moved.aux["weight"], batch.aux["weight"]) and moved.label.tolist() == [4]
    named = build({"permutation": {"along": ["weight"]}}).act(torch.tensor([1, 2, 0]), batch)
    assert torch.equal(named.aux["weight"], batch.aux["weight"][:, [1, 2, 0]])


def test_large_orders_are_numbers_and_are_not_listed():
    batch = random_batch(60, 3)
    assert permutation().order(batch) == math.factorial(60) > ENUMERABLE
    assert permutation().sample(batch, 2, seed=0).shape == (2, 3, 60)
    with pytest.raises(UserError, match=r"permutation.*10\^81"):
        permutation().elements(batch)


def test_plan_elements_takes_all_or_draws():
    batch = random_batch(1, 6)
    elements, counts, whole = plan_elements(cyclic(), batch, 6, seed=0)
    assert (
        whole.all()
        and counts.tolist() == [6] * 3
        and elements.tolist() == [[i] * 3 for i in range(6)]
    )
    elements, counts, whole = plan_elements(cyclic(), batch, 5, seed=7)
    assert not whole.any() and torch.equal(elements, cyclic().sample(batch, 5, seed=7))
    assert plan_elements(torus(), random_batch(1, 2, 2), 4, seed=0)[0].shape == (4, 3, 2)
    for wrong in (0, 2.5, True):
        with pytest.raises(UserError, match=f"elements.*{wrong}"):
            plan_elements(cyclic(), batch, wrong, seed=0)


def test_padding_stays_at_places_of_its_own_where_as_many_are_free():
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    plan = plan_elements(
        permutation(), Batch(("a", "b"), torch.rand(2, 3, 2), {"mask": mask}), 4, seed=0
    )
    assert plan.exhaustive.all() and plan.counts.tolist() == [2, 2]
    assert plan.elements.tolist() == [[[0, 1, 2], [0, 1, 2]], [[1, 0, 2], [0, 2, 1]]]


def test_padding_and_special_tokens_stay_and_short_texts_are_enumerated():
    ids = torch.tensor([[101, 5, 6, 7, 102, 0], [101, 8, 9, 102, 0, 0], [101, 4, 102, 0, 0, 0]])
    batch = Batch(("a", "b", "c"), ids, {"attention_mask": (ids > 0).long()})
    group = permutation(special=(101, 102))
    assert group.orders(batch) == [6, 2, 1] and group.order(batch) == 6
    plan = plan_elements(group, batch, 4, seed=0)
    assert plan.counts.tolist() == [4, 2, 1] and plan.exhaustive.tolist() == [False, True, True]
    assert [
        plan_elements(group, batch[i : i + 1], 4, 0).elements[:, 0].tolist() for i in range(3)
    ] == [plan.elements[: plan.counts[i], i].tolist() for i in range(3)], (
        "a sample's elements do not depend on its company"
    )
    fixed = torch.isin(ids, torch.tensor([0, 101, 102]))
    for g in group.sample(batch, 50, seed=1):
        moved = group.act(g, batch)
        assert torch.equal(moved.x[fixed], ids[fixed]) and torch.equal(
            moved.aux["attention_mask"], (ids > 0).long()
        )
        assert torch.equal(moved.x.sort(1).values, ids.sort(1).values)
    listed = {tuple(group.act(g, batch[:1]).x[0].tolist()) for g in group.elements(batch[:1])}
    assert listed == {(101, *p, 102, 0) for p in itertools.permutations((5, 6, 7))}
    with pytest.raises(UserError, match="padding"):
        group.elements(batch)
    with pytest.raises(ValueError, match="-1"):
        permutation(-1)  # which dimension that is depends on whether a map has vectors


@pytest.mark.parametrize(
    ("group", "shape", "message"),
    [
        (
            cyclic(3),
            (2, 5),
            r"cyclic.*dim 3.*2, 5.*1 to 2",
        ),
        (cyclic(0), (2, 5), r"dim 0.*2, 5"),
        (cyclic(-3), (2, 5), r"dim -3.*2, 5"),
        (torus(), (7,), r"torus.*-2"),
        (torus((1, -2)), (4, 4), r"torus.*1, -2"),
        (
            dihedral(4),
            (3, 4, 5),
            r"dihedral.4.*4×5.*dihedral.2",
        ),
        (dihedral(8), (3, 4, 5), "4×5"),
        (dihedral(1), (3, 4), r"dihedral.1.*3, 4\)"),
        (dihedral(8), (1, 4, 4, 4), r"dihedral.8.*1, 4, 4, 4"),
        (Octahedral(), (3, 4, 4), r"octahedral.*3, 4, 4"),
        (Octahedral(), (1, 2, 3, 3), r"2×3×3.*turns: false"),
        (permutation(2), (4,), r"permutation.*dim 2"),
        (node_permutation(), (4,), r"node_permutation.*B, 4\)"),
        (product(cyclic(-1), dihedral(4)), (1, 6, 6), r"cyclic.*dihedral.*commute"),
        (product(cyclic(-1), cyclic(7)), (1, 6), r"cyclic.*7"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(group, shape, message):
    with pytest.raises(UserError, match=message):
        group.check(shape)
    if group.name not in ("permutation", "product"):  # which look at the element first
        with pytest.raises(UserError, match=message):
            group.act(torch.tensor(0), Batch(("a",), torch.zeros(1, *shape)))


def test_wrong_elements_maps_and_auxiliary_tensors_are_refused():
    batch = random_batch(4, 2)
    with pytest.raises(UserError, match=r"\(3,\).*\(2,\)"):
        cyclic().act(torch.tensor([1, 2]), batch)
    with pytest.raises(UserError, match=r"cyclic.*3"):
        cyclic().act(3, batch)
    with pytest.raises(UserError, match=r"torus.*2.*3"):
        torus((1, 2)).move(torch.tensor([1, 2, 3]), batch.x)
    with pytest.raises(UserError, match=r"0 to 7.*8"):
        dihedral(4).move(torch.tensor(8), torch.rand(1, 1, 3, 3))
    with pytest.raises(UserError, match="int64"):
        dihedral(8).move(torch.tensor(1), torch.ones(1, 1, 3, 3, dtype=torch.int64))
    with pytest.raises(UserError, match=r"permutation.*3.*dimension 1"):
        permutation().move(torch.tensor([2, 1, 0]), batch.x)
    with pytest.raises(UserError, match=r"product.*1, 2"):
        product(cyclic(1), cyclic(2)).move(torch.tensor([1, 2]), batch.x)
    with pytest.raises(UserError, match=r"'mask'.*9.*4"):
        permutation().act(torch.arange(4), random_batch(4, 2, mask=torch.ones(3, 9)))
    with pytest.raises(UserError, match="node_permutation"):
        permutation().act(torch.arange(4), graphs())
    with pytest.raises(UserError, match="adjacency"):
        node_permutation().act(torch.arange(4), batch)
    with pytest.raises(UserError, match=r"dihedral\(4\).*1, 3"):
        dihedral(4).move(torch.tensor(1), torch.rand(1, 3))
    for maps in (torch.rand(1, 3), torch.ones(1, 3, 3, dtype=torch.int64)):
        with pytest.raises(
            UserError,
            match=f"so2.*{re.escape(str(tuple(maps.shape)))}",
        ):
            so2().move(torch.tensor(1.0), maps)
    with pytest.raises(UserError, match=r"own.*0 to 1.*2"):
        own(lambda g, b: g * b.x, lambda g, m: g * m, [1, -1]).move(torch.tensor(2), batch.x)
    numbers = torch.tensor([[1, 1, 2, 2], [1, 2, 2, 2], [1, 1, 2, 2]])
    apart = Batch(("a", "b", "c"), tokens().x, {**tokens().aux, "_passages": numbers})
    with pytest.raises(UserError, match="passages"):
        PassagePermutation().elements(apart)
    with pytest.raises(UserError, match=r"4, 4\).*4, 5"):
        node_permutation().act(torch.arange(4), random_batch(4, 2, adjacency=torch.ones(3, 4, 5)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: build({"torus": {"dims": []}}),
            r"dimensions.*\(\)",
        ),
        (
            lambda: build({"torus": {"dims": [1, 1]}}),
            r"dimensions.*1, 1",
        ),
        (product, "factor"),
        (
            lambda: product(so3()),
            "so3",
        ),
    ],
)
def test_what_makes_no_group_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_groups_by_name():
    assert build("cyclic") == Cyclic()
    assert build({"torus": {"dims": [-1]}}) == Torus(dims=(-1,))
    assert build({"product": {"factors": ["cyclic", {"cyclic": {"dim": -2}}]}}) == product(
        cyclic(), cyclic(-2)
    )
    assert build(dihedral(2)) == Dihedral(2)
    for bad, message in [
        ("permutations", r"'permutations'.*'permutation'"),
        ({"cyclic": {"axis": 1}}, r"cyclic.*'axis'"),
        ({"dihedral": {"n": 3}}, r"dihedral\.n.*1, 2, 4.*8.*3"),
        ({"dihedral": 4}, r"dihedral.*4"),
        ({"cyclic": {}, "torus": {}}, r"cyclic.*torus"),
        (Cyclic, r"Cyclic\(\)"),
        ({"torus": {"dims": [1, 1]}}, r"1, 1"),
        ({"product": {"factors": []}}, "factor"),
        ({"product": {"factors": ["cyclik"]}}, r"'cyclik'.*'cyclic'"),
        ("own", "Python"),
        ({"own": None}, "Python"),
        ({"own": {"members": [1, -1]}}, "Python"),
    ]:
        with pytest.raises(BadParameter, match=message):
            build(bad)


def test_an_own_group_may_be_any_finite_group():
    signs = [torch.diag(torch.tensor([float(a), float(b)])) for a in (1, -1) for b in (1, -1)]
    group = own(
        lambda g, batch: batch.x @ g,
        lambda g, maps: maps @ g.abs(),
        signs,
        title="reflections of points",
    )
    batch = random_batch(5, 2)
    moved = group.act(torch.tensor([1, 2, 3]), batch)
    assert torch.equal(moved.x[0], batch.x[0] @ signs[1]) and torch.equal(
        moved.x[2], batch.x[2] @ signs[3]
    )
    assert torch.equal(group.move(torch.tensor([1, 2, 3]), batch.x), batch.x)
    assert group.title == "reflections of points"


def test_the_list_of_an_own_group_may_depend_on_the_input():
    group = own(
        lambda g, batch: batch.x.roll(int(g), -1),
        lambda g, maps: maps.roll(int(g), -1),
        lambda batch: range(batch.x.shape[-1]),
    )
    with pytest.raises(UserError, match="check"):
        group.inverse(torch.tensor(1))
    group.check((2, 5))
    assert group.inverse(torch.tensor([0, 1, 2])).tolist() == [0, 4, 3]
    assert torch.equal(
        group.move(torch.tensor(1), torch.arange(5)[None]), torch.tensor([[4, 0, 1, 2, 3]])
    )
    group.check((2, 7))
    with pytest.raises(UserError, match="inverse"):
        group.inverse(torch.tensor(1))


def identity(g: Any, maps: Tensor) -> Tensor:
    return maps


def shifted(g: Any, maps: Tensor) -> Tensor:
    return maps.roll(int(g), -1)


def by_x(function: Any) -> Any:
    return lambda g, batch: function(g, batch.x)


@pytest.mark.parametrize(
    ("act", "move", "elements", "message"),
    [
        (
            shifted,
            shifted,
            [0, 1, 2],
            r"move.*1 after 2.*3 elements",
        ),
        (shifted, shifted, [1, 0], r"1, .*identity.*maps"),
        (
            shifted,
            identity,
            [1, 0],
            r"1, .*identity.*input",
        ),
        (
            shifted,
            identity,
            [0, 1, 2],
            r"act.*1 after 2",
        ),
        (lambda g, x: x * 0.5 if g else x, identity, [0, 1], r"1 after 1.*0 or 1"),
        (
            lambda g, x: x.roll(-2 * g, -1),
            lambda g, m: m.roll(g * g, -1),
            range(5),
            r"1 after 1.* 5 ",
        ),
        (
            shifted,
            lambda g, m: m[..., :1],
            [0],
            r"move.*1, 5\).*1, 1\)",
        ),
        (lambda g, x: x[..., :1], identity, [0], r"act.*Batch"),
        (lambda g, x: None, identity, [0], r"act.*Batch.*NoneType"),
    ],
)
def test_functions_that_are_no_action_are_refused_before_a_run(act, move, elements, message):
    batch = random_batch(5)
    with pytest.raises(UserError, match=message):
        own(by_x(act), move, elements).act(torch.tensor(0), batch)


def test_an_own_group_that_leaves_the_input_alone_is_refused():
    flipped = own(lambda g, b: b.x, lambda g, m: m.flip(1) if g else m, [0, 1])
    with pytest.raises(UserError, match=r"act.*input"):
        flipped.act(torch.tensor(1), random_batch(4))


def test_scalar_maps_of_points_need_to_be_asked_for():
    with pytest.raises(UserError, match=r"so3.*2, 3.*maps: scalar"):
        build("so3").move(torch.eye(3), torch.rand(2, 3))


def test_an_element_without_an_inverse_is_refused():
    def project(g: int, maps: Tensor) -> Tensor:
        return maps * torch.tensor([1.0, 1.0 - g])

    with pytest.raises(UserError, match=r"element 1 .*inverse.* 2"):
        own(by_x(project), project, [0, 1]).check((2,))


def test_an_empty_or_unlisted_own_group_is_refused():
    for elements in ([], 7, range(5000)):
        with pytest.raises(UserError, match=r"1 to 4096"):
            own(by_x(shifted), shifted, elements)
    with pytest.raises(UserError, match=r"0 to 4.*5"):
        roll(5).move(torch.tensor(5), torch.rand(1, 5))


def test_a_made_up_text_may_have_as_many_passages_as_places():
    assert PassagePermutation().orders(random_batch(4, samples=1)) == [24]


def test_of_a_large_own_group_some_pairs_are_tried_and_that_is_enough_to_refuse_one():
    shifts = own(lambda g, b: b.x.roll(g, -1), lambda g, m: m.roll(g, -1), list(range(20)))
    shifts.check((20,))  # 400 pairs, of which 256 are tried
    with pytest.raises(UserError, match=r"20 elements"):
        shifts.check((40,))


def test_an_interpolating_own_group_finds_the_nearest_product():
    group = own(
        lambda g, batch: dihedral(8).move(torch.tensor(g), batch.x),
        lambda g, maps: dihedral(8).move(torch.tensor(g), maps),
        range(16),
        interpolating=True,
    )
    group.check((1, 15, 15))
    assert not group.exact
    every = torch.arange(16)
    assert torch.equal(group.inverse(every), dihedral(8).inverse(every))
    for g in every[::3]:
        assert torch.equal(group.compose(g, every), dihedral(8).compose(g, every))
