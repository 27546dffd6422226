"""Example-based explainers against retraining, captum, a quadratic programme and plain formulas."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.influence import TracInCP, TracInCPFast
from scipy import optimize, stats
from torch import nn
from torch.nn import functional as F

from heatproof import Batch, Model
from heatproof.errors import BadParameter, UserError, make
from heatproof.explainers.examples import loss_gradients
from heatproof.explainers.examples.curvature import curvature_products, dense_curvature
from heatproof.explainers.examples.influence import Influence, TracIn
from heatproof.explainers.examples.loss_gradients import sample_gradients
from heatproof.explainers.examples.simplex import RepresentationSimilarity, SimplEx, simplex_weights
from heatproof.explainers.examples.training_set import Examples, open_examples
from heatproof.models.checkpoints import Checkpoint
from heatproof.models.smoothed import Smoothed
from heatproof.types import label_of, parameters

ALL = (Influence, TracIn, SimplEx, RepresentationSimilarity)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    g = generator(seed)
    for p in module.parameters():
        p.data.copy_(torch.randn(p.shape, generator=g) * p[0].numel() ** -0.5)
    return module


def batch_of(
    x: torch.Tensor, label: torch.Tensor | None = None, prefix: str = "s", **aux: torch.Tensor
) -> Batch:
    return Batch(tuple(f"{prefix}{i}" for i in range(len(x))), x, aux, label)


def table(n: int, seed: int, features: int = 4, classes: int = 3, prefix: str = "s") -> Batch:
    g = generator(seed)
    x = torch.randn(n, features, generator=g)
    return batch_of(x, torch.randint(classes, (n,), generator=g), prefix)


def mlp() -> nn.Module:
    return seeded(
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    )


def explain(explainer, model, batch, target=None):
    return explainer(model, batch, batch.label if target is None else target, 0)


# --- influence ---------------------------------------------------------------------------------------------------


def fit_head(
    h: np.ndarray, y: np.ndarray, weight: np.ndarray, l2: float, classes: int
) -> np.ndarray:
    """Newton's method for Σ weightₙ·cross-entropy + l2/2·‖θ‖², θ (classes, d + 1)."""
    h1 = np.concatenate([h, np.ones((len(h), 1))], 1)
    theta = np.zeros((classes, h1.shape[1]))
    for _ in range(30):
        p = np.exp(h1 @ theta.T)
        p /= p.sum(1, keepdims=True)
        gradient = ((p - np.eye(classes)[y]) * weight[:, None]).T @ h1 + l2 * theta
        bend = np.einsum("n,ni,ij->nij", weight, p, np.eye(classes)) - np.einsum(
            "n,ni,nj->nij", weight, p, p
        )
        hessian = np.einsum("nij,na,nb->iajb", bend, h1, h1).reshape(theta.size, -1) + l2 * np.eye(
            theta.size
        )
        theta = theta - np.linalg.solve(hessian, gradient.reshape(-1)).reshape(theta.shape)
    assert np.abs(gradient).max() < 1e-12
    return theta


def loss_of(theta: np.ndarray, h: np.ndarray, y: np.ndarray) -> np.ndarray:
    z = np.concatenate([h, np.ones((len(h), 1))], 1) @ theta.T
    return np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), y]


@pytest.mark.parametrize("solver", ["closed", "cg"])
def test_influence_predicts_leave_one_out_retraining_of_a_convex_head(solver):
    train, test, l2 = table(50, 1), table(6, 2), 0.02
    body, head = seeded(nn.Sequential(nn.Linear(4, 5), nn.Tanh())), nn.Linear(5, 3)
    train = batch_of(
        train.x, (train.x[:, :3] + 0.7 * torch.randn(50, 3, generator=generator(3))).argmax(1)
    )
    h, h_test = (body(b.x).detach().double().numpy() for b in (train, test))
    y, y_test = train.label.numpy(), test.label.numpy()
    theta = fit_head(h, y, np.full(50, 1 / 50), l2, 3)
    head.weight.data, head.bias.data = (
        torch.tensor(theta[:, :-1]).float(),
        torch.tensor(theta[:, -1]).float(),
    )
    before = loss_of(theta, h_test, y_test)
    changes = []
    for left_out in range(50):
        weight = np.full(50, 1 / 50)
        weight[left_out] = 0
        changes.append(loss_of(fit_head(h, y, weight, l2, 3), h_test, y_test) - before)
    truth = np.stack(changes, 1)
    model = Model(nn.Sequential(body, head))
    predicted = (
        explain(Influence(train, damping=l2, solver=solver, tolerance=1e-6), model, test).numpy()
        / 50
    )
    for own, real in zip(predicted, truth, strict=True):
        assert stats.spearmanr(own, real).statistic > 0.95
    # Not only the order: also the size and the sign are those of leaving the example out.
    assert np.polyfit(predicted.ravel(), truth.ravel(), 1)[0] == pytest.approx(1, abs=0.25)


def test_conjugate_gradients_agree_with_the_closed_form():
    train, test, model = table(15, 1), table(4, 2), Model(mlp(), rows=7)
    closed = explain(Influence(train, solver="closed"), model, test)
    assert torch.equal(explain(Influence(train), model, test), closed)
    iterative = explain(Influence(train, solver="cg", tolerance=1e-7), model, test)
    torch.testing.assert_close(iterative, closed, rtol=1e-3, atol=1e-3 * float(closed.abs().max()))


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian"])
def test_curvature_of_several_layers_is_that_of_brute_force(curvature):
    net, train = mlp(), table(9, 1)
    model, names = Model(net, rows=4), ["2.weight", "2.bias", "4.weight", "4.bias"]
    own = dict(net.named_parameters())
    sizes, shapes = [own[n].numel() for n in names], [own[n].shape for n in names]

    def scores(theta):
        pieces = theta.split(sizes)
        changed = {n: p.reshape(s) for n, p, s in zip(names, pieces, shapes, strict=True)}
        return torch.func.functional_call(net, changed, train.x)

    at = torch.cat([own[n].detach().flatten() for n in names])
    if curvature == "hessian":
        expected = torch.autograd.functional.hessian(
            lambda t: F.cross_entropy(scores(t), train.label), at
        )
    else:
        jacobian = torch.autograd.functional.jacobian(scores, at)
        p = scores(at).detach().softmax(1)
        bend = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        expected = torch.einsum("nip,nij,njq->pq", jacobian, bend, jacobian) / 9
    vectors = torch.eye(len(at), dtype=torch.float64)
    found = curvature_products(model, Examples(train), ["2", "4"], vectors, curvature)
    torch.testing.assert_close(found, expected.double(), rtol=1e-4, atol=1e-6)
    one = curvature_products(
        model, Examples(train), ["2"], torch.eye(35, dtype=torch.float64), curvature
    )
    torch.testing.assert_close(
        dense_curvature(model, Examples(train), ["2"], curvature), one, rtol=1e-4, atol=1e-6
    )


def test_influence_over_several_layers_is_the_solved_system():
    train, test, model = table(12, 1), table(3, 2), Model(mlp())
    layers = ("2", "4")
    own = sample_gradients(model, Examples(train), test, test.label, layers).double()
    others = sample_gradients(model, Examples(train), train, train.label, layers).double()
    size = own.shape[1]
    curvature = curvature_products(
        model, Examples(train), layers, torch.eye(size).double(), "gauss_newton"
    )
    expected = own @ torch.linalg.solve(curvature + 0.01 * torch.eye(size), others.T)
    found = explain(Influence(train, layers=layers, damping=0.01, tolerance=1e-6), model, test)
    torch.testing.assert_close(
        found.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())
    )


def test_influence_says_when_it_did_not_converge_or_has_no_minimum():
    train, model = table(12, 1), Model(mlp())
    with pytest.raises(UserError, match=r"residual.*1 iteration"):
        explain(Influence(train, solver="cg", iterations=1), model, train)
    with pytest.raises(UserError, match=r"positive definite.*damping"):
        explain(Influence(train, layers="all", curvature="hessian", damping=1e-6), model, train)


def test_a_network_with_one_output_is_a_classifier_of_two_classes():
    train, test = table(20, 1, classes=2), table(3, 2, classes=2)
    one = nn.Linear(4, 1)
    two = nn.Linear(4, 2)
    with torch.no_grad():
        two.weight.copy_(torch.cat([torch.zeros(1, 4), one.weight]))
        two.bias.copy_(torch.cat([torch.zeros(1), one.bias]))
    found = explain(TracIn(train), Model(one, task="binary"), test)
    h = torch.cat([train.x, torch.ones(20, 1)], 1), torch.cat([test.x, torch.ones(3, 1)], 1)
    error = [Model(two).logits(b.x).softmax(1)[:, 1] - b.label for b in (train, test)]
    expected = (error[1][:, None] * error[0]) * (h[1] @ h[0].T)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-6)
    yes_no = Model(one, task="binary")
    closed, cg = (
        explain(Influence(train, solver=s, tolerance=1e-7), yes_no, test) for s in ("closed", "cg")
    )
    torch.testing.assert_close(cg, closed, rtol=1e-3, atol=1e-3)


# --- TracIn ------------------------------------------------------------------------------------------------------


@pytest.fixture
def trajectory(tmp_path):
    """A small network, three of its checkpoints, and their learning rates."""
    net, train = mlp(), table(20, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    paths = []
    for step in range(3):
        F.cross_entropy(net(train.x), train.label).backward()
        optimiser.step()
        optimiser.zero_grad()
        paths.append(str(tmp_path / f"{step}.pt"))
        torch.save(net.state_dict(), paths[-1])
    return net, train, paths, (0.5, 0.25, 0.1)


def captums(kind, net, train, test, paths, rates, *layer, **options):
    def load(module, path):
        module.load_state_dict(torch.load(path, weights_only=True))
        return rates[paths.index(path)]

    data = torch.utils.data.TensorDataset(train.x, train.label)
    total = nn.CrossEntropyLoss(reduction="sum")
    options |= {"checkpoints_load_func": load, "loss_fn": total, "batch_size": 6}
    return kind(net, *layer, data, paths, **options).influence((test.x, test.label))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layers", ["all", "4", ("0", "2")])
def test_tracin_is_captums(trajectory, layers):
    net, train, paths, rates = trajectory
    test = table(5, 7)
    theirs = {"all": None, "4": ["4"]}.get(layers, list(layers))
    options = {"sample_wise_grads_per_batch": True, "layers": theirs}
    expected = captums(TracInCP, copy.deepcopy(net), train, test, paths, rates, **options)
    ours = TracIn(train, checkpoints=tuple(paths), learning_rates=rates, layers=layers)
    found = explain(ours, Model(net, rows=7), test)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_tracin_of_the_last_layer_is_captums_fast_one(tmp_path):
    # Captum's leaves the bias out, so the layer has none here.
    net = seeded(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3, bias=False)))
    train, test, path = table(20, 1), table(5, 7), str(tmp_path / "weights.pt")
    torch.save(net.state_dict(), path)
    theirs = copy.deepcopy(net)
    expected = captums(TracInCPFast, theirs, train, test, [path], [0.3], theirs[2])
    found = explain(TracIn(train, learning_rates=0.3), Model(net), test)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


def test_tracin_without_checkpoints_uses_the_weights_of_the_model(trajectory):
    net, train, paths, _ = trajectory
    last = explain(TracIn(train, checkpoints=paths[-1], learning_rates=3), Model(net), train)
    torch.testing.assert_close(explain(TracIn(train), Model(net), train), last / 3)
    assert not torch.allclose(
        explain(TracIn(train, checkpoints=paths[0]), Model(net), train), last / 3
    )


def test_gradients_by_outer_products_are_those_of_one_pass_per_sample(monkeypatch):
    train, model = table(7, 1), Model(mlp(), rows=3)
    fast = sample_gradients(model, Examples(train), train, train.label, ["4", "0"])
    before = model.passes
    monkeypatch.setattr(loss_gradients, "_linear_gradients", lambda *_: None)
    torch.testing.assert_close(
        fast, sample_gradients(model, Examples(train), train, train.label, ["4", "0"])
    )
    assert model.passes == before + 7
    assert all(not p.requires_grad and p.grad is None for p in model.module.parameters())


def test_a_layer_that_does_not_run_has_no_gradient_beside_one_that_does(monkeypatch):
    net = seeded(Recurrent())
    net.spare = nn.Linear(2, 2)
    batch = batch_of(torch.randn(3, 5, 2, generator=generator()), torch.tensor([0, 1, 2]))
    monkeypatch.setattr(loss_gradients, "_linear_gradients", lambda *_: None)
    both, one = (
        sample_gradients(Model(net), Examples(batch), batch, batch.label, layers)
        for layers in (["head", "spare"], ["head"])
    )
    assert torch.equal(both[:, : one.shape[1]], one) and not both[:, one.shape[1] :].any()
    assert both.shape[1] == one.shape[1] + 6


class Recurrent(nn.Module):
    """A linear layer that runs several times in a pass, on vectors, and one that runs on sequences, time first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.step = nn.Linear(4, 4)
        self.token = nn.Linear(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.token(x.transpose(0, 1))
        state = torch.zeros_like(tokens[0])
        for token in tokens:
            state = torch.tanh(self.step(state) + token)
        return self.head(state)


@pytest.mark.parametrize("layer", ["step", "token", "head"])
def test_gradients_of_layers_that_run_often_or_on_sequences(layer):
    net = seeded(Recurrent())
    x = torch.randn(
        5, 5, 2, generator=generator()
    )  # as many steps as samples: their places must not be confused
    batch = batch_of(x, torch.tensor([0, 1, 2, 1, 0]))
    found = sample_gradients(Model(net), Examples(batch), batch, batch.label, [layer])
    for i, row in enumerate(found):
        net.zero_grad()
        F.cross_entropy(net(x[i : i + 1]), batch.label[i : i + 1]).backward()
        expected = torch.cat([p.grad.flatten() for p in getattr(net, layer).parameters()])
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)


def test_the_default_layer_is_the_last_that_runs_not_the_last_that_is_defined():
    net = seeded(Recurrent())
    assert next(iter(net._modules)) == "head"
    batch = batch_of(torch.randn(3, 5, 2, generator=generator()), torch.tensor([0, 1, 2]))
    by_default, by_name = (
        explain(TracIn(batch, layers=layers), Model(net), batch) for layers in ((), "head")
    )
    assert torch.equal(by_default, by_name)


# --- SimplEx and similarity --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(12, 3), (8, 20), (20, 6)])
def test_simplex_reaches_the_optimum_of_a_general_solver(n, d):
    g = generator(n + d)
    points = torch.randn(n, d, generator=g, dtype=torch.float64)
    mixed = torch.rand(2, n, generator=g, dtype=torch.float64)
    targets = torch.cat(
        [torch.randn(3, d, generator=g).double(), mixed / mixed.sum(1, keepdim=True) @ points]
    )
    weights, gaps = simplex_weights(points, targets)
    assert (weights >= 0).all() and float(gaps.max()) < 1e-12
    torch.testing.assert_close(weights.sum(1), torch.ones(5, dtype=torch.float64))
    for target, own in zip(targets.numpy(), weights.numpy(), strict=True):

        def value(w, target=target):
            return 0.5 * np.square(target - w @ points.numpy()).sum()

        found = optimize.minimize(
            value,
            np.full(n, 1 / n),
            jac=lambda w, target=target: points.numpy() @ (w @ points.numpy() - target),
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert value(own) <= found.fun + 1e-6
        assert value(own) >= found.fun - 1e-6 or not found.success


def test_simplex_on_degenerate_points():
    g = generator()
    points = torch.randn(40, 4, generator=g, dtype=torch.float64)
    doubled = torch.cat([points, points])
    targets = torch.cat([torch.randn(10, 4, generator=g, dtype=torch.float64), points[:3]])
    weights, gaps = simplex_weights(doubled, targets)
    assert float(gaps.max()) < 1e-12
    torch.testing.assert_close(weights[:, :40], weights[:, 40:], rtol=0, atol=2e-6)  # the most even
    assert (weights[10:] @ doubled - points[:3]).abs().max() < 1e-5
    same, gap = simplex_weights(torch.ones(5, 2), torch.ones(1, 2))
    torch.testing.assert_close(same, torch.full((1, 5), 0.2, dtype=torch.float64))
    assert float(gap) < 1e-12


def test_simplex_reports_a_gap_above_its_tolerance():
    train = table(12, 1)
    with pytest.raises(UserError, match="gap"):
        explain(SimplEx(train, tolerance=1e-300), Model(mlp()), table(9, 5))


@pytest.mark.parametrize("layer", ["", "1", "2"])
def test_similarity_is_the_plain_formula(layer):
    net, train, test = mlp(), table(8, 1), table(3, 2)
    stop = {"": 4, "1": 2, "2": 3}[layer]
    own, others = (net[:stop](b.x).detach().numpy() for b in (test, train))
    dot = own @ others.T
    norms = np.linalg.norm(own, axis=1)[:, None] * np.linalg.norm(others, axis=1)
    model = Model(net, rows=3)
    found = explain(RepresentationSimilarity(train, layer=layer, metric="dot"), model, test)
    np.testing.assert_allclose(found, dot, rtol=1e-5, atol=1e-6)
    found = explain(RepresentationSimilarity(train, layer=layer), model, test)
    np.testing.assert_allclose(found, dot / norms, rtol=1e-5, atol=1e-6)


# --- laws: batches, modalities, symmetry -------------------------------------------------------------------------


class DeepSet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.element = nn.Linear(3, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head((self.element(x).tanh() * mask[:, :, None]).sum(1))


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.node = nn.Linear(3, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = (self.node(x) + adjacency @ self.node(x)).relu()
        return self.head(
            torch.stack([nodes[real].sum(0) for nodes, real in zip(h, mask, strict=True)])
        )


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.head((self.embed(x) * attention_mask[:, :, None]).sum(1).tanh())


class CircularNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 6, 3, padding=1, padding_mode="circular")
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).tanh().mean(2))


def modality(name: str, n: int, seed: int, elements: int = 7) -> tuple[nn.Module, Batch]:
    g = generator(seed)
    label = torch.arange(n) % 3
    mask = torch.arange(elements) < torch.randint(2, elements + 1, (n, 1), generator=g)
    x = torch.randn(n, elements, 3, generator=g) * mask[:, :, None]
    if name == "series":
        return seeded(CircularNet()), batch_of(
            torch.randn(n, 2, 12, generator=g), label, f"{seed}-"
        )
    if name == "set":
        return seeded(DeepSet()), batch_of(x, label, f"{seed}-", mask=mask)
    if name == "graph":
        links = (
            (torch.rand(n, elements, elements, generator=g) < 0.4).float()
            * mask[:, :, None]
            * mask[:, None]
        )
        return seeded(GraphNet()), batch_of(
            x, label, f"{seed}-", mask=mask, adjacency=links.maximum(links.mT)
        )
    ids = torch.randint(20, (n, elements), generator=g) * mask
    return seeded(BagOfWords()), batch_of(ids, label, f"{seed}-", attention_mask=mask.long())


def moved(name: str, batch: Batch) -> Batch:
    """The same samples, shifted or with their elements in another order."""
    if name == "series":
        return batch.with_x(batch.x.roll(5, -1))
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    aux = {k: v[:, order] for k, v in batch.aux.items()}
    if name == "graph":
        aux["adjacency"] = aux["adjacency"][:, :, order]
    return Batch(batch.ids, batch.x[:, order], aux, batch.label)


MODALITIES = ("series", "set", "graph", "text")
SMALL = {
    "influence": Influence,
    "influence of all layers": lambda train: Influence(train, layers="all", damping=0.1),
    "tracin": TracIn,
    "tracin of all layers": lambda train: TracIn(train, layers="all"),
    "simplex": SimplEx,
    "similarity": RepresentationSimilarity,
    "dot": lambda train: RepresentationSimilarity(train, metric="dot"),
}


@pytest.mark.parametrize("make_explainer", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("name", MODALITIES)
def test_invariant_on_invariant_networks_and_independent_of_the_batch(name, make_explainer):
    net, train = modality(name, 9, 1)
    _, test = modality(name, 5, 2)
    model = Model(net, rows=4, embedding="embed" if name == "text" else None)
    explainer = make_explainer(train)
    explainer.check(model, test.x.shape[1:])
    values = explain(explainer, model, test)
    assert values.shape == (5, 9) and values.dtype == torch.float32 and values.isfinite().all()
    scale = float(values.abs().max())
    torch.testing.assert_close(
        explain(explainer, model, moved(name, test)), values, rtol=0, atol=1e-5 * scale
    )
    assert torch.allclose(
        explain(make_explainer(train), Model(net, rows=1), test), values, rtol=0, atol=1e-4 * scale
    )
    with torch.no_grad():
        again = torch.cat([explain(make_explainer(train), model, test[[i]]) for i in (3, 0)])
    torch.testing.assert_close(again, values[[3, 0]], rtol=0, atol=1e-5 * scale)
    assert not torch.allclose(values[0], values[1], rtol=0, atol=1e-2 * scale)


@pytest.mark.parametrize("kind", [SimplEx, RepresentationSimilarity])
def test_not_invariant_on_an_equivariant_layer(kind):
    net, train = modality("series", 9, 1)
    _, test = modality("series", 5, 2)
    explainer, model = kind(train, layer="conv"), Model(net)
    values, other = (explain(explainer, model, b) for b in (test, moved("series", test)))
    assert float(F.cosine_similarity(values, other).mean()) < 0.99


def test_padded_examples_may_have_another_size_but_not_on_a_layer_that_keeps_the_elements():
    net, train = modality("set", 9, 1, elements=4)
    _, test = modality("set", 5, 2, elements=7)
    for kind in ALL:
        kind(train).check(Model(net), test.x.shape[1:])
        assert explain(kind(train), Model(net), test).shape == (5, 9)
    with pytest.raises(UserError, match="layer"):
        explain(SimplEx(train, layer="element"), Model(net), test)


def test_attention_can_be_differentiated_twice():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 3))
    batch = batch_of(torch.randn(4, 3, 4, generator=generator()), torch.tensor([0, 1, 2, 1]))
    assert (
        explain(Influence(batch, layers=("0", "2"), damping=0.5), Model(net), batch)
        .isfinite()
        .all()
    )


# --- the training set as a parameter -----------------------------------------------------------------------------


def test_examples_are_equal_by_content_short_as_text_and_survive_pickling():
    batch = table(5, 1)
    examples, other = Examples(batch, "heartbeats"), Examples(table(5, 2), "heartbeats")
    assert (
        examples == Examples(batch)
        and hash(examples) == hash(Examples(batch))
        and examples != other
    )
    changed = Batch(batch.ids, batch.x, batch.aux, batch.label.roll(1))
    assert Examples(changed) != examples
    text = repr(examples)
    assert text.startswith("Examples(5 of heartbeats, ") and len(text) < 40
    assert pickle.loads(pickle.dumps(examples)) == examples
    explainer = Influence(examples)
    assert parameters(explainer)["train"] == text
    assert label_of(explainer) == "influence(train=heartbeats)"
    batch.x.zero_()
    assert Examples(batch) != examples and repr(examples) == text


def test_examples_from_a_file_as_a_study_names_it(tmp_path):
    batch = table(30, 1)
    np.savez(tmp_path / "train.npz", x=batch.x.numpy(), y=batch.label.numpy())
    path = str(tmp_path / "train.npz")
    explainer = make(Influence, "influence", {"train": path})
    assert len(explainer.train) == 30 and torch.equal(explainer.train.batch.label, batch.label)
    few = make(TracIn, "tracin", {"train": {"source": path, "limit": 8}}).train
    assert len(few) == 8 and set(few.batch.ids) < set(explainer.train.batch.ids)
    assert (
        open_examples(path, limit=8) == few == open_examples("train.npz", folder=tmp_path, limit=8)
    )
    with pytest.raises(BadParameter, match=r"influence\.train: .*no file or folder"):
        make(Influence, "influence", {"train": str(tmp_path / "trian.npz")})
    with pytest.raises(BadParameter, match=r"train.*source"):
        make(Influence, "influence", {"train": {"limit": 8}})
    with pytest.raises(UserError, match=r"Batch.*Tensor"):
        Examples(batch.x)
    with pytest.raises(BadParameter, match=r"tracin\.checkpoints.*got 3"):
        make(TracIn, "tracin", {"train": path, "checkpoints": 3})
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(
        UserError,
        match=r"1 of .*a\.png",
    ):
        open_examples(str(tmp_path), size=8)
    with pytest.raises(BadParameter, match="'limit'"):
        make(Influence, "influence", {"train": {"source": path, "limt": 8}})


@pytest.mark.parametrize("kind", ALL)
def test_the_training_set_is_read_once_and_again_when_the_weights_change(kind):
    net, train, test = mlp(), table(12, 1), table(3, 2)
    model, explainer = Model(net), kind(train)
    first = explain(explainer, model, test)
    before = model.passes
    assert torch.equal(explain(explainer, model, test), first)
    assert model.passes - before == 3
    with torch.no_grad():
        net[0].weight.mul_(
            -2.0
        )  # training goes on in the network that the model shares its weights with
    changed = explain(explainer, model, test)
    assert not torch.allclose(changed, first)
    torch.testing.assert_close(changed, explain(kind(train), Model(copy.deepcopy(net)), test))


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("heatproof.explainers.examples.training_set.KEPT_BYTES", 100)
    examples, model = Examples(table(3, 1)), Model(mlp())
    for i in range(5):
        examples.remember(model, i, lambda: torch.zeros(12))
    assert len(examples._cache) == 2
    examples.remember(model, "large", lambda: torch.zeros(1000))
    assert len(examples._cache) == 2
    examples.remember(Model(mlp()), 0, lambda: torch.zeros(1))
    assert len(examples._cache) == 1


def test_tracin_without_room_to_keep_gradients_gives_the_same(monkeypatch):
    train, test, model = table(12, 1), table(3, 2), Model(mlp(), rows=5)
    kept = explain(TracIn(train), model, test)
    monkeypatch.setattr("heatproof.explainers.examples.influence.KEPT_BYTES", 10)
    assert torch.equal(explain(TracIn(train), model, test), kept)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Influence, TracIn])
def test_loss_based_methods_need_labels_that_are_outputs(kind):
    train, model = table(6, 1), Model(mlp())
    bare = Batch(train.ids, train.x)
    with pytest.raises(UserError, match=f"{kind.name}.*'train'.*label"):
        kind(bare).check(model, (4,))
    some = Batch(train.ids, train.x, {}, torch.tensor([0, -1, 2, -1, 0, 0]))
    with pytest.raises(UserError, match=r"2 of the 6.*'train'"):
        kind(some).check(model, (4,))
    high = Batch(train.ids, train.x, {}, torch.tensor([0, 1, 2, 3, 0, 0]))
    with pytest.raises(UserError, match=r"class 3.*Sequential.*0 to 2"):
        explain(kind(high), model, train)
    named = Model(mlp(), classes=("a", "b", "c"))
    with pytest.raises(UserError, match=r"class 3.*3 outputs"):
        kind(high).check(named, (4,))


@pytest.mark.parametrize("kind", ALL)
def test_layers_shapes_and_models_are_checked_before_any_pass(kind):
    train, model = table(6, 1), Model(mlp())
    missing = {"layers": "9"} if kind in (Influence, TracIn) else {"layer": "9"}
    with pytest.raises(UserError, match="'9'"):
        kind(train, **missing).check(model, (4,))
    with pytest.raises(UserError, match=r"'train'.*\(4,\).*\(5,\)"):
        kind(train).check(model, (5,))
    with pytest.raises(UserError, match="passes"):
        kind(train).check(Smoothed(model, keep=0.5, samples=2), (4,))
    with pytest.raises(UserError, match="linear layer"):
        kind(train).check(Model(nn.Flatten()), (4,))
    with pytest.raises(BadParameter, match=r"'train'.*empty"):
        make(kind, kind.name, {"train": train[:0]})
    assert model.passes == 0


def test_influence_refuses_what_its_solver_cannot_do():
    train, model = table(6, 1), Model(mlp())
    with pytest.raises(UserError, match=r"2, 4.*solver='cg'"):
        Influence(train, layers=("2", "4"), solver="closed").check(model, (4,))
    with pytest.raises(UserError, match=r"'1'.*Sequential"):
        Influence(train, layers="1").check(model, (4,))
    huge = Model(nn.Sequential(nn.Linear(4, 2**24, device="meta")))
    with pytest.raises(UserError, match="1 GiB"):
        Influence(train, layers="0").check(huge, (4,))
    with pytest.raises(UserError, match="bfloat16"):
        Influence(train).check(Model(mlp()).use("bfloat16"), (4,))
    net, sets = modality("set", 4, 1)
    with pytest.raises(UserError, match="vector"):
        explain(Influence(sets, layers="element", solver="closed"), Model(net), sets)


def test_checkpoints_are_weights_of_this_network(trajectory, tmp_path):
    net, train, paths, _ = trajectory
    assert Checkpoint(paths[0]) == Checkpoint(paths[0]) != Checkpoint(paths[1])
    assert repr(Checkpoint(paths[0])).startswith("Checkpoint(0.pt, ")
    assert parameters(TracIn(train, checkpoints=paths[0]))["checkpoints"] == [
        repr(Checkpoint(paths[0]))
    ]
    with pytest.raises(BadParameter, match=r"tracin\.learning_rates.*2.*3"):
        make(TracIn, "tracin", {"train": train, "checkpoints": paths, "learning_rates": [0.1, 0.2]})
    with pytest.raises(BadParameter, match=r"tracin\.checkpoints: .*no file or folder"):
        make(TracIn, "tracin", {"train": train, "checkpoints": str(tmp_path / "9.pt")})
    with pytest.raises(UserError, match=r"0\.pt.*'4\.weight'.*Sequential"):
        TracIn(train, checkpoints=paths[0]).check(Model(seeded(net[:4])), (4,))
    wider = nn.Sequential(nn.Linear(4, 7), *net[1:])
    with pytest.raises(UserError, match=r"'0\.weight'.*\(6, 4\).*\(7, 4\)"):
        TracIn(train, checkpoints=paths[0]).check(Model(wider), (4,))
    torch.save(
        {"epoch": 1, "state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}},
        tmp_path / "w.pt",
    )
    wrapped = TracIn(train, checkpoints=str(tmp_path / "w.pt"))
    torch.testing.assert_close(
        explain(wrapped, Model(net), train), explain(TracIn(train), Model(net), train)
    )
    torch.save(net, tmp_path / "code.pt")
    with pytest.raises(UserError, match=r"code\.pt|broken\.pt"):
        TracIn(train, checkpoints=str(tmp_path / "code.pt")).check(Model(net), (4,))
    (tmp_path / "broken.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"code\.pt|broken\.pt"):
        TracIn(train, checkpoints=str(tmp_path / "broken.pt")).check(Model(net), (4,))


def test_a_checkpoint_in_safetensors_is_the_same_as_one_in_pt(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file
    net = nn.Linear(3, 2)
    torch.save(net.state_dict(), tmp_path / "a.pt")
    save(net.state_dict(), tmp_path / "a.safetensors")
    one, other = (
        Checkpoint(tmp_path / name).weights(Model(net)) for name in ("a.pt", "a.safetensors")
    )
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
