"""Where scores of symmetry could mislead: models that only look invariant, single numbers, wrong calls, no groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nets import BagOfWords, CircularCNN1d
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Concept, Model, Symmetry, UserError
from heatproof.axes.symmetry.criterion import compare
from heatproof.axes.symmetry.groups import build, cyclic, own, permutation, product
from heatproof.axes.symmetry.orbit import VALUES_AT_ONCE, orbit_of
from heatproof.axes.symmetry.scores import (
    NO_BALL,
    equivariance,
    invariance,
    max_sensitivity,
    model_invariance,
)
from heatproof.axes.symmetry.symmetrised import symmetrise
from heatproof.errors import make
from heatproof.explainers import (
    Cav,
    Influence,
    InputXGradient,
    RepresentationSimilarity,
    Saliency,
    SimplEx,
    TracIn,
)
from heatproof.models.randomised import seeded


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def named(x: Tensor, **aux: Tensor) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x, aux)


def linear(scale: float, offset: float = 0.0) -> Model:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    weight = values(3, 12, seed=4) - 0.5
    net[1].weight.data.copy_(scale * weight)
    net[1].bias.data.copy_(torch.tensor([offset, 0.0, 0.0]))
    return Model(net)


@pytest.mark.parametrize(
    ("scale", "offset"), [(1e-3, 0.0), (1.0, 40.0)], ids=["small weights", "saturated"]
)
def test_models_that_only_look_invariant_are_seen_through(scale, offset):
    """The cosine of probabilities is above .999 for both; the explained logit moves like between any two samples."""
    model, batch = linear(scale, offset), named(values(6, 1, 12))
    found = model_invariance(model, batch, cyclic(), n=12)
    assert found.cosine.value.min() > 0.999
    assert found.change.value.mean() > 0.5
    assert found.cosine.chance.level.min() > 0.99, "unrelated samples score as much"
    assert (found.agreement.chance.level <= 1).all()


def test_the_change_is_that_of_the_explained_logit_by_hand():
    model, batch = linear(1.0), named(values(4, 1, 12))
    target = torch.tensor([2, 0, 1, 2])
    rows = heatproof.evaluate(
        model, batch, {"s": Saliency()}, Symmetry(group="cyclic", elements=12), limit=4
    ).table()
    table = rows[rows.measure == "model_change"].set_index("sample").value
    logits = model.logits(batch.x).detach().double()
    target = logits.argmax(1)
    for i, sample in enumerate(batch.ids):
        moved = (
            torch.stack([model.logits(batch.x[i : i + 1].roll(g, -1))[0] for g in range(12)])
            .detach()
            .double()
        )
        gap = (moved[:, target[i]] - logits[i, target[i]]).abs().mean()
        unit = torch.stack(
            [(logits[j] - logits[i])[target[i]].abs() for j in range(4) if j != i]
        ).mean()
        assert table[sample] == pytest.approx(float(gap / unit), rel=1e-4)


def test_text_is_symmetrised_along_its_tokens():
    """Vectors as long as the text: along them every token would get the same value, and equivariance would be 1."""
    net = seeded(lambda: BagOfWords(size=20, classes=2, width=6), 0)
    model = Model(net, embedding="embedding")
    batch = named(torch.randint(2, 20, (2, 6), generator=torch.Generator().manual_seed(0)))
    target = torch.tensor([0, 1])
    plain = InputXGradient()(model, batch, target, 0).sum(-1)
    for group in ("cyclic", permutation()):
        maps = symmetrise(InputXGradient(), group, n=6)(model, batch, target, 0)
        assert torch.allclose(maps, plain, atol=1e-6), (
            "a bag of words has equivariant maps, which averaging leaves"
        )
        assert maps.std(1).min() > 1e-4


def test_one_number_has_no_direction_and_constant_maps_no_score():
    model, batch = (
        Model(seeded(lambda: CircularCNN1d(1, 2, width=4, depth=1), 0)),
        named(values(3, 1, 8)),
    )
    x = values(30, 1, 8, seed=2)
    one = Concept("high", positive=x[x.mean((1, 2)) > 0.5], negative=x[x.mean((1, 2)) <= 0.5])
    target = torch.zeros(3).long()
    found = invariance(
        model, batch, target, Cav(one, layer="features", output="decision"), cyclic(), n=8
    )
    assert found.value.isnan().all() and all("constant" in reason for reason in found.reason)

    def constant(model: Any, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return torch.full_like(batch.x, 0.7)

    found = equivariance(model, batch, target, constant, cyclic(), n=8)
    assert found.value.isnan().all() and all("constant" in reason for reason in found.reason)


def train() -> Batch:
    x = values(24, 4, seed=1)
    return Batch(tuple(f"t{i}" for i in range(24)), x, label=(x[:, 0] > 0.5).long())


@pytest.mark.parametrize(
    "explainer",
    [
        Influence(train()),
        TracIn(train()),
        SimplEx(train(), layer="0"),
        RepresentationSimilarity(train(), layer="0"),
        Cav(Concept("c", train().x[train().label == 1], train().x[train().label == 0]), layer="0"),
    ],
    ids=lambda e: e.name,
)
def test_what_is_kept_follows_the_weights(explainer):
    """p.data.copy_(w) leaves no trace in a tensor's version; neither does a swap of two equal sums."""
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    model, batch, target = Model(net), named(values(3, 4)), torch.zeros(3).long()
    explainer(model, batch, target, 0)
    generator = torch.Generator().manual_seed(7)
    for p in net.parameters():
        p.data.copy_(torch.randn(p.shape, generator=generator))
    fresh = Model(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
    fresh.module.load_state_dict(net.state_dict())
    changed = explainer(model, batch, target, 0)
    assert torch.allclose(changed, explainer(fresh, batch, target, 0), atol=1e-5)
    net[0].weight.data.copy_(net[0].weight.data.flip(0))
    fresh.module.load_state_dict(net.state_dict())
    assert torch.allclose(
        explainer(model, batch, target, 0), explainer(fresh, batch, target, 0), atol=1e-5
    )


def test_wrong_calls_are_refused_before_a_pass():
    model, batch, target = linear(1.0), named(values(3, 1, 12)), torch.zeros(3).long()
    wrong: list[tuple[Any, str]] = [
        (
            lambda: equivariance(model, batch, target, TracIn(train()), cyclic()),
            r"tracin.*symmetry\.invariance",
        ),
        (
            lambda: invariance(model, batch, target, Saliency(), cyclic()),
            r"saliency.*symmetry\.equivariance",
        ),
        (
            lambda: equivariance(model.module, batch, target, Saliency(), cyclic()),
            r"Model\(net\)",
        ),
        (
            lambda: equivariance(model, batch, target[:2], Saliency(), cyclic()),
            r"3 samples.*\(2,\)",
        ),
        (lambda: equivariance(model, batch, 1, Saliency(), cyclic()), r"\(3,\).*1"),
        (
            lambda: equivariance(model, batch, target, Saliency(), cyclic(), n=2.5),
            r"elements.*2\.5",
        ),
        (lambda: equivariance(model, batch, target, Saliency(), "cyclik"), r"'cyclik'.*'cyclic'"),
        (
            lambda: max_sensitivity(model, named(torch.ones(3, 4).long()), target, Saliency()),
            f"max_sens.*: {NO_BALL}",
        ),
        (
            lambda: compare("cosin", batch.x, batch.x),
            r"'cosin'.*'cosine'",
        ),
        (
            lambda: symmetrise(Saliency, "cyclic"),
            r"Saliency\(\).*<class",
        ),
        (lambda: symmetrise("saliency", "cyclic"), r"Saliency\(\).*'saliency'"),
        (
            lambda: make(Symmetry, "symmetry", {}),
            r"group.*cyclic",
        ),
        (
            lambda: make(Symmetry, "symmetry", {"group": "cyclic", "repair": [2, 2]}),
            r"repair.*2, 2",
        ),
        (
            lambda: Symmetry(group="cyclic", similarity="ssim").configured_for(model, batch[:1]),
            r"ssim.*1, 12.*cosine",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(UserError, match=message):
            call()
    assert model.passes == 0
    assert equivariance(model, batch, target, Saliency(), "cyclic", n=12).exact


def test_token_ids_have_no_ball_around_them_for_max_sensitivity():
    net = seeded(lambda: BagOfWords(size=20, classes=2, width=6), 0)
    ids = torch.randint(2, 20, (2, 6), generator=torch.Generator().manual_seed(0))
    batch = named(ids, attention_mask=torch.ones_like(ids))
    axis = Symmetry(group="permutation", elements=2, sensitivity=0.1)
    rows = heatproof.evaluate(
        Model(net, embedding="embedding"), batch, {"s": InputXGradient()}, axis
    ).table()
    rows = rows[rows.measure == "max_sensitivity"]
    assert len(rows) == 2 and set(rows.status) == {"undefined"} and set(rows.reason) == {NO_BALL}


def test_the_memory_of_an_orbit_counts_edges_too():
    nodes = 400
    graph = named(torch.zeros(1, nodes, 2), adjacency=torch.zeros(1, nodes, nodes))
    first = next(orbit_of("node_permutation", graph, 1000).pieces())
    assert len(first.batch) == VALUES_AT_ONCE // (nodes * nodes + 2 * nodes) < 1000


def test_the_errors_of_a_layer_are_the_largest_of_each_sample():
    """As many samples as elements, so that the largest along the wrong dimension would fit as well."""
    model, batch = linear(1.0), named(values(12, 1, 12))
    axis = Symmetry(group="cyclic", elements=12, layers=("1",))
    rows = heatproof.evaluate(model, batch, {"s": Saliency()}, axis).table()
    found = rows[rows.measure == "layer_invariance_error"].set_index("sample").value
    out = model.logits(batch.x).detach().double()
    every = [
        (model.logits(batch.x.roll(g, -1)).detach().double() - out).norm(dim=1) / out.norm(dim=1)
        for g in range(12)
    ]
    expected = torch.stack(every).amax(0)
    assert [found[s] for s in batch.ids] == pytest.approx(expected.tolist(), rel=1e-4)


def test_convergence_is_the_mean_over_the_first_elements():
    model, batch = linear(1.0), named(values(4, 1, 12))
    axis = Symmetry(group="cyclic", elements=6, convergence=(1, 3, 6))
    frame = heatproof.evaluate(model, batch, {"s": InputXGradient()}, axis).table()
    target = model.logits(batch.x).argmax(1)
    each = equivariance(model, batch, target, InputXGradient(), cyclic(), n=6).each
    for n in (1, 3, 6):
        rows = frame[(frame.measure == "convergence") & (frame.level == n)]
        rows = rows.set_index("sample").value
        assert [rows[s] for s in batch.ids] == pytest.approx(each[:, :n].mean(1).tolist(), abs=1e-6)


def rolled(g: int, x: Tensor) -> Tensor:
    return x.roll(g, -1)


def scored(maps: Tensor) -> Tensor:
    return maps.sort(-1).values


NO_GROUPS = {
    "a part of the shifts": (rolled, rolled, [0, 1, 2], r"3 elements"),
    "an element twice": (rolled, rolled, [0, 4, 8, 12], r"0 and 12"),
    "act does nothing": (lambda g, x: x, rolled, range(12), r"act.*input"),
    "act forgets where it is": (
        lambda g, x: x.roll(min(g, 5), -1),
        rolled,
        range(12),
        r"act.*after",
    ),
    "move is not linear": (rolled, lambda g, m: scored(m) if g else m, range(2), r"move.*linear"),
    "move mixes samples": (rolled, lambda g, m: m.flip(0) if g else m, range(2), r"move.*samples"),
    "act mixes samples": (
        lambda g, x: x.flip(0) if g == 6 and len(x) > 1 else x.roll(g, -1),
        rolled,
        [0, 6],
        r"act.*6",
    ),
    "no identity": (rolled, rolled, [1, 0], r"1, .*identity"),
    "zoom": (lambda g, x: x * g, lambda g, m: m * g, [1, 2, 4], r"3 elements"),
    "one pair of many": (
        rolled,
        lambda g, m: m.roll(g if g < 11 else 10, -1),
        range(12),
        r"12 elements",
    ),
}


@pytest.mark.parametrize("name", NO_GROUPS)
def test_what_is_no_group_is_refused_before_a_pass(name):
    act, move, members, message = NO_GROUPS[name]
    model, batch = linear(1.0), named(values(4, 1, 12))
    group = own(lambda g, batch: act(g, batch.x), move, list(members))
    with pytest.raises(UserError, match=message):
        heatproof.evaluate(model, batch, {"s": Saliency()}, Symmetry(group=group, elements=4))
    assert model.passes == 0


def test_the_factors_of_a_product_are_tried_on_inputs_too():
    """Their maps commute, their actions on the input do not."""
    flip = own(lambda g, b: b.x.flip(-1) if g else b.x, lambda g, m: m, [0, 1])
    both = product(flip, own(lambda g, b: b.x.roll(4 * g, -1), lambda g, m: m, [0, 1, 2]))
    model, batch = linear(1.0), named(values(2, 1, 12))
    both.check((1, 12))
    with pytest.raises(UserError, match="commute"):
        heatproof.evaluate(model, batch, {"s": Saliency()}, Symmetry(group=both))
    with pytest.raises(UserError, match="commute"):
        model_invariance(model, batch, both)
    with pytest.raises(UserError, match="commute"):
        equivariance(model, batch, torch.zeros(2).long(), Saliency(), both)
    assert model.passes == 0
    assert build({"product": {"factors": ["cyclic"]}}).check_inputs(batch) is None
