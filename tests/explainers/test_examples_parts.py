"""Parts of explanations by examples: curvature, conjugate gradients, mixtures, what is kept and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.errors import UserError
from heatproof.explainers.concepts.concepts import Concept, Concepts, concepts
from heatproof.explainers.examples import (
    curvature,
    influence,
    loss_gradients,
    simplex,
    training_set,
)
from heatproof.explainers.examples.training_set import Examples, open_examples
from support.fixed import normal


def network() -> Model:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    for i, weight in enumerate(net.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    return Model(net, rows=4)


def train(n: int = 7) -> Batch:
    return Batch(tuple(f"t{i}" for i in range(n)), normal(n, 3, seed=40), label=torch.arange(n) % 3)


SAMPLES, TARGET = Batch(("a", "b"), normal(2, 3, seed=41)), torch.tensor([2, 0])


def test_tracin_adds_up_its_checkpoints_times_their_rates() -> None:
    model = network()
    first = model.module.state_dict()
    second = {name: 1.5 * value for name, value in first.items()}
    both = ex.TracIn(train(), checkpoints=(first, second), learning_rates=(0.5, 0.1))
    alone = [
        ex.TracIn(train(), checkpoints=(each,))(model, SAMPLES, TARGET, 0)
        for each in (first, second)
    ]
    wanted = 0.5 * alone[0] + 0.1 * alone[1]
    torch.testing.assert_close(both(model, SAMPLES, TARGET, 0), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("solver", ["cg", "closed"])
def test_solvers_of_influence_agree(solver: Any) -> None:
    usual = ex.Influence(train(), damping=0.1)(network(), SAMPLES, TARGET, 0)
    other = ex.Influence(train(), damping=0.1, solver=solver)(network(), SAMPLES, TARGET, 0)
    torch.testing.assert_close(other, usual, rtol=1e-2, atol=1e-3 * float(usual.abs().max()))


@pytest.mark.parametrize("kind", ["gauss_newton", "hessian"])
@pytest.mark.parametrize("layer", ["0", "2", "4"])
def test_curvature_as_a_matrix_and_by_products(kind: Any, layer: str) -> None:
    model, data = network(), Examples(train())
    matrix = curvature.dense_curvature(model, data, [layer], kind)
    products = curvature.curvature_products(
        model, data, [layer], torch.eye(len(matrix)).double(), kind
    )
    close = 1e-4 * float(matrix.abs().max())
    assert torch.allclose(matrix, products, atol=close)
    assert torch.allclose(matrix, matrix.T, atol=close)
    assert curvature.dense_curvature(model, data, ["0", "2"], kind) is None


def test_what_is_too_large_for_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = network(), Examples(train())
    size = sum(p.numel() for p in loss_gradients.weights_of(model, ["4"]).values())
    for largest, made in ((size, True), (size - 1, False)):
        monkeypatch.setattr(curvature, "LARGEST_DENSE", largest)
        assert (curvature.dense_curvature(model, data, ["4"], "hessian") is not None) == made
    wanted = ex.Influence(train(), damping=0.1)(model, SAMPLES, TARGET, 0)
    monkeypatch.setattr(influence, "_BLOCK", 2 * size)
    assert torch.allclose(
        ex.Influence(train(), damping=0.1, solver="cg")(model, SAMPLES, TARGET, 0),
        wanted,
        rtol=1e-2,
        atol=1e-3 * float(wanted.abs().max()),
    )
    for largest, fits in ((7 * size, True), (7 * size - 1, False)):
        monkeypatch.setattr(influence, "LARGEST_SOLUTION", largest)
        if fits:
            ex.Influence(train(), layers="4").check(model, (3,))
        else:
            with pytest.raises(UserError, match="at most 6"):
                ex.Influence(train(), layers="4").check(model, (3,))


def test_conjugate_gradients_stop_where_they_say() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 5.0]).double()) + 0.1
    right = normal(2, 3).double()
    exact = torch.linalg.solve(matrix, right.T).T
    assert torch.allclose(
        curvature.conjugate_gradients(lambda v: v @ matrix, right, 1e-9, 3), exact
    )
    with pytest.raises(UserError, match="at most 2"):
        curvature.conjugate_gradients(lambda v: v @ matrix, right, 1e-9, 2)
    with pytest.raises(UserError, match="positive definite"):
        curvature.conjugate_gradients(lambda v: -v @ matrix, right, 1e-9, 3)
    with pytest.raises(UserError, match="positive definite"):
        curvature.solve_dense(-matrix, right, 0.1)
    assert torch.allclose(
        curvature.solve_dense(matrix, right, 0.5),
        torch.linalg.solve(matrix + 0.5 * torch.eye(3), right.T).T,
    )


def test_gradients_of_samples_by_both_ways() -> None:
    model, data = network(), Examples(train())
    for layers in (["4"], ["0", "2"], ["all"]):
        rows = loss_gradients.sample_gradients(model, data, SAMPLES, TARGET, layers)
        chosen = loss_gradients.weights_of(model, layers)
        single = loss_gradients._one_by_one(model, data, SAMPLES, TARGET, chosen, {})
        assert torch.allclose(rows, single, rtol=1e-4, atol=1e-4)
    assert loss_gradients.head(model, data) == "4"
    assert list(loss_gradients.weights_of(model, ["0", "all"])) == [
        name for name, _ in model.module.named_parameters()
    ]
    with pytest.raises(UserError, match=r"class 3.*3 outputs"):
        loss_gradients.losses(torch.zeros(1, 3), torch.tensor([3]), model, data)
    loss_gradients.losses(torch.zeros(1, 3), torch.tensor([2]), model, data)


def test_mixtures_of_examples() -> None:
    points, targets = normal(6, 4, seed=3).double(), normal(3, 4, seed=4).double()
    weights, gaps = simplex.simplex_weights(points, targets)
    assert float(gaps.max()) < 1e-9 and torch.allclose(weights.sum(1), torch.ones(3).double())
    even, _ = simplex.simplex_weights(points, targets, 1.0)
    assert float(weights.min()) > -1e-12 and float(gaps.min()) > -1e-12
    # A ridge draws the weights towards equal ones.
    assert bool(((even - 1 / 6).norm(dim=1) < (weights - 1 / 6).norm(dim=1)).all())
    with pytest.raises(UserError, match="gap"):
        ex.SimplEx(train(), tolerance=1e-300)(network(), SAMPLES, TARGET, 0)


def test_what_is_kept_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model, made = Examples(train()), network(), []

    def make(size: int) -> Tensor:
        made.append(size)
        return torch.zeros(size)

    monkeypatch.setattr(training_set, "KEPT_BYTES", 40)
    for key, size in (
        ("a", 4),
        ("b", 6),
        ("a", 4),
        ("c", 1),
        ("b", 6),
        ("a", 4),
        ("d", 11),
        ("d", 11),
    ):
        data.remember(model, key, lambda size=size: make(size))
    assert made == [
        4,
        6,
        1,
        6,
        4,
        11,
        11,
    ]  # the one used longest ago goes; what does not fit is never kept
    model.module[0].weight.data[0, 0] += 1
    data.remember(model, "a", lambda: make(3))
    data.remember(network(), "a", lambda: make(2))
    assert made[-2:] == [3, 2]
    assert training_set._byte_count((torch.zeros(3), [torch.zeros(2).double()], "x")) == 28


def test_examples_of_a_pool() -> None:
    chosen = open_examples((normal(12, 3), torch.arange(12)), limit=5)
    assert len(chosen) == 5 and len(set(chosen.batch.ids)) == 5
    for name, label in zip(chosen.batch.ids, chosen.batch.label, strict=True):
        assert name == str(int(label)).zfill(len(name))
    with pytest.raises(UserError, match="1"):
        open_examples(normal(3, 3), limit=0)
    assert len(open_examples(normal(3, 3), limit=1)) == 1 and len(open_examples(normal(3, 3))) == 3
    labelled = Examples(train())
    assert labelled.labels("x").dtype == torch.int64 and str(labelled) == "train"
    with pytest.raises(UserError, match="1 of the 7"):
        Examples(replace(train(), label=torch.arange(7) - 1)).labels("x")
    padded = Examples(Batch(("a",), normal(1, 4, 3), {"mask": torch.ones(1, 4)}))
    padded.check_shape((5, 3))
    for shape in ((5, 4), (5,), (5, 3, 1)):
        with pytest.raises(UserError, match="prepare"):
            padded.check_shape(shape)
    with pytest.raises(UserError, match="prepare"):
        labelled.check_shape((4,))
    names = {
        "": train(),
        "label": replace(train(), label=torch.arange(7) % 2),
        "ids": replace(train(), ids=tuple("abcdefg")),
    }
    assert len({Examples(each).fingerprint for each in names.values()}) == 3
    assert Examples(train()) == Examples(train(), "other") and Examples(train()) != Examples(
        names["ids"]
    )


def test_edges_of_examples_and_concepts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), classes=("x", "y"))
    data = Batch(("a", "b"), normal(2, 3), label=torch.tensor([0, 1]))
    for explainer in (
        ex.Influence(data),
        ex.TracIn(data),
        ex.SimplEx(data),
        ex.RepresentationSimilarity(data, "1"),
    ):
        explainer.check(model, (3,))
        with pytest.raises(UserError, match="prepare"):
            explainer.check(model, (4,))
    beyond = replace(data, label=torch.tensor([0, 2]))
    state = model.module.state_dict()
    for explainer in (
        ex.Influence(beyond), ex.Influence(data, layers="1"), ex.Influence(data, layers="nope"),
        ex.SimplEx(data, "nope"),
        ex.Influence(data, layers=("0", "2"), solver="closed"), ex.Influence(data, layers="all", solver="closed"),
        ex.Influence(replace(data, label=None)), ex.TracIn(data, checkpoints=({"0.weight": normal(9)},)),
    ):  # fmt: skip
        with pytest.raises(UserError):
            explainer.check(model, (3,))
    for rates in ((), 0.5, (0.1, 0.2)):
        ex.TracIn(data, checkpoints=(state, state), learning_rates=rates).check(model, (3,))
    with pytest.raises(ValueError, match=r"3.*2 checkpoints"):
        ex.TracIn(data, checkpoints=(state, state), learning_rates=(0.1, 0.2, 0.3))
    for kept, remembered in ((2 * 10 * 4, True), (2 * 10 * 4 - 1, False)):
        monkeypatch.setattr(influence, "KEPT_BYTES", kept)
        held = Examples(data)
        ex.TracIn(held)(model, data, data.label, 0)
        assert any(key[0][0] == "gradients" for key in held._cache) == remembered
    shaped = [
        Examples(Batch(("a",), x)).fingerprint
        for x in (normal(1, 6), normal(1, 3, 2), normal(1, 6).view(torch.int32))
    ]
    assert len(set(shaped)) == 3
    one = Concept("c", normal(10, 3), normal(10, 3, seed=1))
    assert (
        concepts(one)
        == concepts([one])
        == concepts((one,))
        == Concepts(one)
        != Concepts(one, Concept("d", *_sides()))
    )
    for wrong in ([], [one, 3], 5, {"c": {"positive": normal(10, 3)}}, {"c": 3}, [one, one]):
        with pytest.raises(UserError):
            concepts(wrong)
    cav = ex.Cav(one, layer="1")
    cav.check(model, (3,))
    for layer, shape in (("nope", (3,)), ("1", (3, 1)), ("1", (3, 4, 4))):
        with pytest.raises(UserError):
            replace(cav, layer=layer).check(model, shape)


def _sides() -> tuple[Tensor, Tensor]:
    return normal(10, 3), normal(10, 3, seed=1)
