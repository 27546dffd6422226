"""Concepts: classifiers against scikit-learn, gradients by hand, and honest tests on examples not seen."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof.errors import BadParameter, UserError, make
from heatproof.explainers.concepts.classifiers import (
    logistic_regression,
    principal_axes,
    support_vectors,
)
from heatproof.explainers.concepts.concepts import Concept, Concepts, concepts, row_digests
from heatproof.explainers.concepts.explain import Car, Cav, layer_gradient
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.models.smoothed import Smoothed
from heatproof.statistics.intervals import rate_interval
from heatproof.types import Batch, label_of, parameters
from support.fixed import normal
from support.small import model as shapes_model
from support.small import pictures


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def seeded(build: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def blobs(n: int, p: int, shift: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Overlapping classes of unequal scale, (n, p) float64 and centred, and which rows are positive."""
    x = (
        torch.randn(n, p, generator=generator(seed), dtype=torch.float64)
        * torch.linspace(0.2, 3, p).double()
    )
    present = torch.arange(n) % 3 == 0
    x[present, : p // 2 + 1] += shift
    return x - x.mean(0), present


def disc_concepts() -> Concepts:
    images, labels = pictures(120, seed=5)
    return concepts(
        {
            "disc": {"positive": images[labels == 0], "negative": images[labels != 0]},
            "hollow": {"positive": images[labels >= 2], "negative": images[labels < 2]},
        }
    )


def samples(n: int = 5) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(n)), pictures(n, seed=9)[0])


@pytest.mark.parametrize(("n", "p"), [(60, 5), (40, 300), (30, 1)])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 100.0])
def test_the_gradient_of_logistic_regression_vanishes(n: int, p: int, penalty: float) -> None:
    x, present = blobs(n, p)
    w, b = logistic_regression(x, present, penalty)
    y = torch.where(present, 1.0, -1.0).double()
    wrong = torch.sigmoid(-y * (x @ w + b))
    assert (w - penalty * (y * wrong) @ x).abs().max() < 1e-6 * max(1.0, penalty)
    assert abs(float((y * wrong).sum())) < 1e-6


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("penalty", [0.1, 1.0, 50.0])
def test_support_vectors_meet_the_conditions_of_optimality(kernel: str, penalty: float) -> None:
    """y·s ≥ 1 where α = 0, y·s ≤ 1 where α = penalty, and y·s = 1 between."""
    x, present = blobs(90, 4)
    gram = x @ x.T if kernel == "linear" else (-0.3 * torch.cdist(x, x).square()).exp()
    a, b = support_vectors(gram, present, penalty)
    y = torch.where(present, 1.0, -1.0).double()
    alpha, margin = y * a, y * (gram @ a + b)
    assert abs(float(a.sum())) < 1e-9 and float(alpha.min()) >= 0
    assert float(alpha.max()) <= penalty
    rounding = 1e-6 * max(1.0, penalty)
    assert float(margin[alpha < penalty].min()) > 1 - rounding
    assert float(margin[alpha > 0].max()) < 1 + rounding


def test_fitting_leaves_the_random_state_of_numpy_alone() -> None:
    x, present = blobs(30, 4)
    before = np.random.get_state()  # noqa: NPY002
    logistic_regression(x, present, 1.0)
    support_vectors(x @ x.T, present, 1.0)
    after = np.random.get_state()  # noqa: NPY002
    assert before[2] == after[2] and (before[1] == after[1]).all()


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    explainer = Cav(disc_concepts(), layer="11")
    with pytest.raises(UserError, match=r"sklearn.*heatproof\[sklearn\]"):
        explainer.check(shapes_model(), (3, 32, 32))


def test_the_offset_of_a_classifier_without_an_example_on_the_margin_is_the_middle_of_what_is_optimal() -> (
    None
):
    """All but the far one, which has no say, are at the penalty: the slope is 0.01 · (1 + 2 + 1 − 0).

    1 − 0.04 · 30 = −0.2 is the least offset that the far one leaves, 1 − 0.04 · 2 = 0.92 the most of those beside it.
    """
    x = torch.tensor([[1.0], [2.0], [30.0], [-1.0], [0.0]]).double()
    for turned in (1, -1):
        present = torch.tensor([True, True, True, False, False]) == (turned > 0)
        a, b = support_vectors(x @ x.T, present, 0.01)
        assert (turned * a).tolist() == [0.01, 0.01, 0.0, -0.01, -0.01]
        assert turned * float(b) == pytest.approx((-0.2 + 0.92) / 2)


def test_principal_axes_agree_with_the_singular_value_decomposition() -> None:
    for n, p in ((20, 6), (8, 50)):
        x, _ = blobs(n, p)
        coordinates, axes = principal_axes(x, 4)
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        torch.testing.assert_close(axes.T @ axes, torch.eye(4).double(), atol=1e-8, rtol=0)
        torch.testing.assert_close(
            coordinates @ axes.T, u[:, :4] * s[:4] @ v[:4], atol=1e-8, rtol=0
        )


@pytest.mark.parametrize("kind", [Cav, Car])
@pytest.mark.parametrize("layer", ["11", "7"])
def test_decisions_agree_with_scikit_learn_on_the_same_fitting_examples(
    kind: type[Any], layer: str
) -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    model, given, batch = shapes_model(), disc_concepts(), samples()
    ours = kind(given, layer=layer, output="decision")
    found = ours(model, batch, torch.zeros(5, dtype=torch.int64), seed=0)
    presence = kind(given, layer=layer, output="presence")(
        model, batch, torch.zeros(5, dtype=torch.int64), seed=0
    )
    assert torch.equal(presence, (found > 0).float()) and found.shape == (5, 2)
    for column, concept in enumerate(given):
        fit, test = concept.split(0.25)
        seen = (
            torch.cat([activations(model, side, layer).flatten(1) for side in fit]).double().numpy()
        )
        present = [True] * len(fit[0]) + [False] * len(fit[1])
        linear = [LogisticRegression(tol=1e-10, max_iter=10_000)]
        last = linear if kind is Cav else [PCA(10, svd_solver="full"), SVC(tol=1e-8)]
        theirs = pipeline.make_pipeline(StandardScaler(), *last).fit(seen, present)
        expected = theirs.decision_function(
            activations(model, batch, layer).flatten(1).double().numpy()
        )
        torch.testing.assert_close(
            found[:, column].double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5
        )
        new = (
            torch.cat([activations(model, side, layer).flatten(1) for side in test])
            .double()
            .numpy()
        )
        truth = torch.arange(len(new)) < len(test[0])
        right = (torch.from_numpy(theirs.predict(new)) == truth).double().mean()
        assert ours.accuracy(model)[concept.name] == pytest.approx(float(right))


def test_accuracy_is_high_for_what_the_model_knows_and_chance_for_noise() -> None:
    model = shapes_model()
    known = Cav(disc_concepts(), layer="11").tested(model)
    for tested in known.values():
        assert (
            tested.accuracy > 0.8 > tested.chance
            and tested.low < tested.accuracy <= tested.high <= 1
        )
    tested = known["disc"]
    assert (tested.low, tested.high) == rate_interval(round(tested.accuracy * tested.n), tested.n)
    images, _ = pictures(120, seed=6)
    coin = torch.rand(120, generator=generator()) < 0.5
    noise = Concept("noise", images[coin], images[~coin])
    for explainer in (Cav(noise, layer="7"), Car(noise, layer="7")):
        assert explainer.tested(model)["noise"].low < 0.5 < explainer.tested(model)["noise"].high


def test_layer_gradient_by_finite_differences_and_by_hand() -> None:
    net = seeded(
        lambda: nn.Sequential(
            nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)
        ).double()
    )
    model = Model(net, rows=2)
    batch = Batch(tuple("abcde"), torch.randn(5, 4, generator=generator(), dtype=torch.float64))
    target = torch.tensor([0, 1, 2, 0, 1])
    h, gradient = layer_gradient(model, batch, target, "1")
    torch.testing.assert_close(h, activations(model, batch, "1"))
    for unit in range(6):
        step = torch.zeros(6, dtype=torch.float64)
        step[unit] = 1e-5
        start = net[1](net[0](batch.x))
        up, down = (
            net[4](net[3](net[2](start + s))).gather(1, target[:, None])[:, 0]
            for s in (step, -step)
        )
        torch.testing.assert_close(
            gradient[:, unit].double(), (up - down) / 2e-5, rtol=1e-4, atol=1e-6
        )
    assert not any(part._forward_hooks for part in model.module.modules())


class InPlace(nn.Module):
    """Works in place on what its layers put out, one of which is a pair."""

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return 3 * x, 7

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pair, self.unused, self.last = (
            nn.Linear(4, 6),
            self.Pair(),
            nn.Linear(6, 2),
            nn.Linear(6, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x += 1
        x.mul_(2)
        h, seven = self.pair(x)
        assert seven == 7
        self.unused(h.detach())
        h += 1
        return self.last(h)


def test_layer_gradient_survives_work_in_place_and_tuples() -> None:
    net = seeded(InPlace)
    model, batch = Model(net), Batch(("a", "b"), torch.randn(2, 4, generator=generator()))
    target = torch.tensor([2, 0])
    h, gradient = layer_gradient(model, batch, target, "pair")
    torch.testing.assert_close(gradient, net.last.weight.detach()[target])
    torch.testing.assert_close(h, 6 * (net.first(batch.x) + 1).detach())
    first, gradient = layer_gradient(model, batch, target, "first")
    torch.testing.assert_close(first, net.first(batch.x).detach())
    torch.testing.assert_close(gradient, 6 * net.last.weight.detach()[target])
    with pytest.raises(UserError, match="'unused'"):
        layer_gradient(model, batch, target, "unused")


def test_sensitivity_is_the_derivative_along_the_unit_vector_of_the_concept() -> None:
    model, given, batch = shapes_model(), disc_concepts(), samples()
    target = torch.tensor([0, 1, 2, 3, 0])
    head = model.module[12].weight.double()
    found = Cav(given, layer="11")(model, batch, target, seed=0)
    for column, concept in enumerate(given):
        seen = torch.cat(
            [activations(model, side, "11") for side in concept.split(0.25)[0]]
        ).double()
        scale = seen.std(0, correction=0)
        scale = torch.where(scale == 0, 1.0, scale)
        present = torch.arange(len(seen)) < len(concept.split(0.25)[0][0])
        w, _ = logistic_regression((seen - seen.mean(0)) / scale, present, 1.0)
        expected = (head[target] * scale * w / w.norm()).sum(1)
        torch.testing.assert_close(found[:, column].double(), expected, rtol=1e-4, atol=1e-5)


def test_the_sensitivity_of_a_region_follows_its_decision() -> None:
    model, given, batch = shapes_model(), disc_concepts(), samples()
    explainer = Car(given, layer="11", output="sensitivity")
    target = torch.tensor([0, 1, 2, 3, 0])
    found = explainer(model, batch, target, seed=0)
    h = activations(model, batch, "11").double()
    for column, concept in enumerate(given):
        classifier = explainer.classifier(model, concept)
        z = classifier.standardised(h).requires_grad_()
        (slope,) = torch.autograd.grad(classifier.decide(z).sum(), z)
        torch.testing.assert_close(classifier.slope(z.detach()), slope)
        direction = slope / slope.norm(dim=1, keepdim=True)
        expected = (model.module[12].weight.double()[target] * classifier.scale * direction).sum(1)
        torch.testing.assert_close(found[:, column].double(), expected, rtol=1e-4, atol=1e-5)
    linear = Car(given, layer="11", output="sensitivity", kernel="linear", components=None)
    classifier = linear.classifier(model, next(iter(given)))
    (slope,) = torch.autograd.grad(classifier.decide(z).sum(), z)
    torch.testing.assert_close(classifier.slope(z.detach()), slope)


EVERY = [
    (Cav, {"output": "sensitivity"}),
    (Cav, {"output": "decision"}),
    (Car, {"output": "sensitivity"}),
    (Car, {"output": "decision"}),
    (Car, {"output": "decision", "kernel": "linear", "components": None}),
]


@pytest.mark.parametrize(("kind", "options"), EVERY)
def test_an_explanation_depends_neither_on_its_neighbours_nor_on_the_rows_nor_on_the_seed(
    kind: type[Any], options: dict[str, Any]
) -> None:
    batch, target = samples(), torch.tensor([0, 1, 2, 3, 0])
    explainer = kind(disc_concepts(), layer="9", **options)
    together = explainer(shapes_model(), batch, target, seed=0)
    assert together.shape == (5, 2) and together.dtype == torch.float32
    for rows in (1, 3):
        model = shapes_model(rows)
        singles = torch.cat(
            [explainer(model, batch[i : i + 1], target[i : i + 1], seed=1) for i in range(5)]
        )
        shuffled = explainer(model, batch[[4, 2, 0, 1, 3]], target[[4, 2, 0, 1, 3]], seed=0)
        torch.testing.assert_close(singles, together, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(shuffled, together[[4, 2, 0, 1, 3]], rtol=1e-3, atol=1e-4)


class DeepSet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each, self.pool, self.head = nn.Linear(3, 6), nn.Identity(), nn.Linear(6, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        each = torch.tanh(self.each(x)) * mask[..., None]
        return self.head(self.pool(each.sum(1)))


def point_sets(n: int, length: int, seed: int, shift: float = 0.0) -> Batch:
    g = generator(seed)
    mask = torch.arange(length) < torch.randint(2, length + 1, (n, 1), generator=g)
    x = (torch.randn(n, length, 3, generator=g) + shift) * mask[..., None]
    return Batch(tuple(f"{seed}-{i}" for i in range(n)), x, {"mask": mask})


def test_sets_of_any_size_on_a_layer_behind_the_pooling_and_not_before_it() -> None:
    model = Model(seeded(DeepSet))
    high = Concept("high", positive=point_sets(30, 6, 1, 1.0), negative=point_sets(30, 5, 2))
    batch, target = point_sets(4, 8, 3), torch.tensor([0, 1, 0, 1])
    order = torch.randperm(8, generator=generator())
    moved = Batch(batch.ids, batch.x[:, order], {"mask": batch.aux["mask"][:, order]})
    for explainer in (
        Cav(high, layer="pool"),
        Cav(high, layer="pool", output="decision"),
        Car(high, layer="pool"),
    ):
        explainer.check(model, (8, 3))
        assert explainer.accuracy(model)["high"] > 0.7
        clean = explainer(model, batch, target, seed=0)
        torch.testing.assert_close(
            explainer(model, moved, target, seed=0), clean, rtol=1e-3, atol=1e-4
        )
    with pytest.raises(UserError, match=r"36.*30"):
        Cav(high, layer="each")(model, batch, target, seed=0)


def test_classifiers_are_fitted_once_per_model_and_again_when_the_weights_change() -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    x = torch.randn(60, 4, generator=generator())
    concept = Concept("c", x[x[:, 0] > 0], x[x[:, 0] <= 0])
    model, batch, target = Model(net), Batch(("a",), x[:1]), torch.tensor([0])
    explainer = Cav(concept, layer="1", output="decision")
    first = explainer(model, batch, target, seed=0)
    passes = model.passes
    assert passes == 61
    assert (
        torch.equal(explainer(model, batch, target, seed=0), first) and model.passes == passes + 1
    )
    with torch.no_grad():
        net[0].weight.mul_(-1.5)
    assert not torch.allclose(explainer(model, batch, target, seed=0), first)


def test_the_split_depends_on_content_alone_and_copies_count_once() -> None:
    x, y = torch.randn(30, 4, generator=generator()), torch.randn(20, 4, generator=generator(1))
    (fit, _), (test, _) = Concept("c", x, y).split(0.2)
    assert len(fit) == 24 and len(test) == 6
    order = torch.randperm(30, generator=generator(2))
    doubled = Batch(tuple(f"other {i}" for i in range(60)), torch.cat([x[order], x]))
    (again, _), (held, _) = Concept("d", doubled, y).split(0.2)
    assert torch.equal(again.x, fit.x) and torch.equal(held.x, test.x)


def test_equal_concepts_are_one_key() -> None:
    x = torch.rand(10, 3, generator=generator())
    assert len({concepts(Concept(name, x, x + 1)) for name in ("a", "a", "b")}) == 2


def test_equality_text_and_pickling() -> None:
    x, y = torch.randn(12, 4, generator=generator()), torch.randn(11, 4, generator=generator(1))
    one, same, other = Concept("c", x, y), Concept("c", x.clone(), y), Concept("c", x + 1e-3, y)
    assert one == same and hash(one) == hash(same) and one != other and one != Concept("d", x, y)
    assert pickle.loads(pickle.dumps(one)) == one
    assert (
        repr(one) == repr(same)
        and repr(one).startswith("Concept(c, 12+11, ")
        and len(repr(one)) < 40
    )
    explainer = Cav({"c": {"positive": x, "negative": y}}, layer="0")
    assert explainer == Cav(one, layer="0") and explainer != Cav(other, layer="0")
    assert label_of(explainer) == "cav(concepts=c, layer=0)"
    assert parameters(explainer)["concepts"] == f"Concepts({one!r})"


def test_concepts_from_files(tmp_path: Any) -> None:
    from PIL import Image

    images, labels = pictures(60, seed=3)
    for i, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        folder = tmp_path / ("disc" if label == 0 else "other")
        folder.mkdir(exist_ok=True)
        Image.fromarray((image * 255).byte().permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    given = {
        "concepts": {
            "disc": {s: {"source": str(tmp_path / f), "size": 32} for s, f in SIDES.items()}
        },
        "layer": "11",
    }
    explainer = make(Cav, "cav", given)
    assert explainer(shapes_model(), samples(2), torch.tensor([0, 1]), seed=0).shape == (2, 1)
    relative = {"disc": {side: {"source": folder, "size": 32} for side, folder in SIDES.items()}}
    assert concepts(relative, folder=tmp_path) == explainer.concepts
    explainer.check(shapes_model(), (3, 32, 32))
    with pytest.raises(UserError, match=r"\(3, 32, 32\).*\(3, 16, 16\)"):
        explainer.check(shapes_model(), (3, 16, 16))


SIDES = {"positive": "disc", "negative": "other"}


def test_clear_errors(tmp_path: Any) -> None:
    x, y = torch.randn(12, 4, generator=generator()), torch.randn(12, 4, generator=generator(1))
    with pytest.raises(UserError, match=r"'c'.*9 negative.*10"):
        Concept("c", x, y[:9])
    with pytest.raises(UserError, match=r"'c'.*9.*positive"):
        Concept("c", torch.cat([x[:9], x[:3]]), y).split(0.25)
    with pytest.raises(UserError, match=r"1 positive.*'c'.*'0003'"):
        Cav(Concept("c", x, torch.cat([y, x[3:4]])), layer="0").check(
            Model(nn.Sequential(nn.Linear(4, 2))), (4,)
        )
    with pytest.raises(UserError, match="no concept"):
        concepts([])
    with pytest.raises(UserError, match="twice"):
        concepts([Concept("c", x, y), Concept("c", y, x)])
    with pytest.raises(UserError, match="negatve"):
        concepts({"c": {"positive": x, "negatve": y}})
    with pytest.raises(BadParameter, match=r"cav.concepts.*'sze'"):
        make(
            Cav,
            "cav",
            {
                "concepts": {"c": {"positive": {"source": "a", "sze": 3}, "negative": y}},
                "layer": "0",
            },
        )
    with pytest.raises(BadParameter, match=r"cav.concepts.*there is no file or folder"):
        make(
            Cav,
            "cav",
            {"concepts": {"c": {"positive": str(tmp_path / "no"), "negative": y}}, "layer": "0"},
        )
    with pytest.raises(BadParameter, match=r"cav.concepts.*allow"):
        make(
            Cav,
            "cav",
            {"concepts": {"c": {"positive": "python:os:path", "negative": y}}, "layer": "0"},
        )
    with pytest.raises(UserError, match="output"):
        Cav(Concept("c", x, y), layer="0", output="sensitive")
    with pytest.raises(UserError, match=r"concepts.*3"):
        concepts(3)
    with pytest.raises(UserError, match=r"'c'.*3"):
        Concept("c", 3, y)
    endless = Model(nn.Sequential(nn.Threshold(1e9, torch.inf), nn.Linear(4, 2)))
    with pytest.raises(UserError, match=r"'0'.*finite.*'c'"):
        Cav(Concept("c", x, y), layer="0").accuracy(endless)
    model = Model(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), name="two layers")
    with pytest.raises(UserError, match=r"two layers.*'3'"):
        Cav(Concept("c", x, y), layer="3").check(model, (4,))
    with pytest.raises(UserError, match=r"\(4,\).*\(3, 4\)"):
        Cav(Concept("c", x, y), layer="0").check(model, (3, 4))
    with pytest.raises(UserError, match="masked"):
        Cav(Concept("c", x, y), layer="0").check(Smoothed(model, keep=0.5, samples=4), (4,))
    dead = Model(nn.Sequential(nn.Linear(4, 3), nn.Threshold(1e9, 0.0), nn.Linear(3, 2)))
    for kind in (Cav, Car):
        with pytest.raises(UserError, match=r"'1'.*'c'"):
            kind(Concept("c", x, y), layer="1").accuracy(dead)


def unequal_concepts() -> Any:
    x = normal(60, 3, seed=8)
    sides = {
        "large": {"positive": x[x.norm(dim=1) > 1.6], "negative": x[x.norm(dim=1) <= 1.6]},
        "right": {"positive": x[x[:, 0] > 0.1][:12], "negative": x[x[:, 0] < -0.1][:25]},
    }
    return concepts(sides)


def test_concepts_are_split_by_content() -> None:
    given = unequal_concepts()
    large = next(iter(given))
    (fit, _), (test, other) = large.split(0.25)
    n = len(large.positive)
    assert (
        len(test) == round(0.25 * n)
        and len(fit) == n - len(test)
        and len(other) == round(0.25 * len(large.negative))
    )
    assert not set(fit.ids) & set(test.ids)
    doubled = Concept("c", torch.cat([normal(10, 3)] * 2), normal(12, 3, seed=1))
    (fit, _), (test, _) = doubled.split(0.5)
    assert (len(fit), len(test)) == (5, 5)
    with pytest.raises(UserError, match=r"9.*positive"):
        Concept("c", torch.cat([normal(10, 3)[:9]] * 2), normal(12, 3, seed=1)).split(0.5)
    with pytest.raises(UserError, match="negative"):
        Concept("c", normal(10, 3), normal(10, 3)).split(0.5)
    with pytest.raises(UserError, match=r"9.*negative"):
        Concept("c", normal(10, 3), normal(9, 3))
    texts = [
        row_digests(Batch(("a",), normal(1, 3), aux))[0]
        for aux in ({}, {"m": torch.ones(1, 2)}, {"m": torch.zeros(1, 2)})
    ]
    assert len(set(texts)) == 3 and given.names == ("large", "right") and len(given) == 2


def test_presence_is_a_category_and_the_sign_of_the_decision() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    model, batch = Model(seeded(lambda: net)), Batch(("a", "b"), normal(2, 3, seed=41))
    target = torch.tensor([2, 0])
    for kind in (Cav, Car):
        decided, present = (
            kind(unequal_concepts(), layer="1", output=output)
            for output in ("decision", "presence")
        )
        assert present.categorical and not decided.categorical
        there = decided(model, batch, target, 0) > 0
        assert torch.equal(present(model, batch, target, 0) > 0, there)
