"""Reference networks: exact invariance, what each named layer is, and training without side effects."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from nets import GNN, BagOfWords, CircularCNN1d, CircularCNN2d, DeepSet, StandardCNN, accuracy, fit
from torch import Tensor, nn

from heatproof import Model
from heatproof.data import open_data
from heatproof.errors import UserError
from heatproof.models.layers import activations
from heatproof.models.loaders import load_model
from heatproof.models.randomised import seeded
from heatproof.types import Batch
from support.fixed import with_weights
from support.paths import ROOT

STUDIES = ROOT / "studies"
Move = Callable[[Tensor], Tensor]
N = 6
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(x: Tensor, **aux: Tensor) -> Batch:
    return Batch(tuple(str(i) for i in range(len(x))), x, aux)


def nodes(x: Tensor) -> Tensor:
    return x[:, ORDER]


def mask() -> Tensor:
    return torch.arange(N) < torch.tensor([[6], [4], [1]])


def adjacency() -> Tensor:
    edges = (torch.rand(3, N, N, generator=generator(1)) < 0.4).float()
    return edges * (mask()[:, :, None] & mask()[:, None])


def both_axes(x: Tensor) -> Tensor:
    return x[:, ORDER][:, :, ORDER]


def roll(x: Tensor) -> Tensor:
    return x.roll(5, -1)


def torus(x: Tensor) -> Tensor:
    return x.roll((3, 7), (-2, -1))


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator())


TOKENS = torch.randint(1, 20, (3, N), generator=generator()) * mask()
SYMMETRIC = {
    "CircularCNN1d": (lambda: CircularCNN1d(2, 4), batch(floats(3, 2, 17)), roll, {}, "features"),
    "CircularCNN2d": (
        lambda: CircularCNN2d(1, 4),
        batch(floats(3, 1, 12, 9)),
        torus,
        {},
        "features",
    ),
    "DeepSet": (
        lambda: DeepSet(2, 4),
        batch(floats(3, N, 2), mask=mask()),
        nodes,
        {"mask": nodes},
        "elements",
    ),
    "GNN": (
        lambda: GNN(2, 4),
        batch(floats(3, N, 2), mask=mask(), adjacency=adjacency()),
        nodes,
        {"mask": nodes, "adjacency": both_axes},
        "layers.1",
    ),
    "BagOfWords": (
        lambda: BagOfWords(20, 4),
        batch(TOKENS, attention_mask=mask().long()),
        nodes,
        {"attention_mask": nodes},
        "embedding",
    ),
}


def moved(given: Batch, move: Move, others: dict[str, Move]) -> Batch:
    return Batch(
        given.ids, move(given.x), {key: others[key](value) for key, value in given.aux.items()}
    )


def close(a: Tensor, b: Tensor) -> bool:
    return bool(torch.allclose(a, b, atol=1e-5))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_networks_are_exactly_invariant_and_layers_are_what_they_are_called(name: str) -> None:
    build, given, move, others, equivariant = SYMMETRIC[name]
    model = Model(seeded(build, 0), embedding="embedding" if name == "BagOfWords" else None)
    after = moved(given, move, others)
    scores = model.logits(model.inputs(given), given.aux)
    assert (
        close(scores, model.logits(model.inputs(after), after.aux)) and scores.std(0).min() > 1e-4
    )
    for layer in ("pool", "hidden", "head"):
        assert close(activations(model, given, layer), activations(model, after, layer))
    before, later = (activations(model, b, equivariant) for b in (given, after))
    assert close(move(before), later) and not close(before, later)


def test_a_standard_network_is_not_invariant() -> None:
    net, x = seeded(lambda: StandardCNN((12, 9), classes=4), 0), floats(3, 1, 12, 9)
    assert (net(x) - net(torus(x))).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["DeepSet", "GNN", "BagOfWords"])
def test_padding_says_nothing(name: str) -> None:
    build, given, *_ = SYMMETRIC[name]
    net = seeded(build, 0)
    x = given.x.clone()
    x[~mask()] = 7
    assert torch.allclose(net(x, **given.aux), net(given.x, **given.aux), atol=1e-6)
    short = {k: v[1:2, :4, :4] if k == "adjacency" else v[1:2, :4] for k, v in given.aux.items()}
    assert torch.allclose(net(given.x[1:2, :4], **short), net(given.x, **given.aux)[1:2], atol=1e-5)
    without = {k: v[:1] for k, v in given.aux.items() if k == "adjacency"}
    assert torch.allclose(net(given.x[:1], **without), net(given.x, **given.aux)[:1], atol=1e-6)


def test_a_graph_network_sees_its_edges() -> None:
    _, given, *_ = SYMMETRIC["GNN"]
    net = seeded(lambda: GNN(2, 4), 0)
    other = given.aux | {"adjacency": torch.zeros(3, N, N)}
    assert (net(given.x, **given.aux) - net(given.x, **other)).abs().max() > 1e-4


def test_even_kernels_are_refused() -> None:
    with pytest.raises(UserError, match="kernel"):
        CircularCNN1d(kernel=4)


def pulses(n: int, seed: int) -> Batch:
    """Series with one wide or one narrow pulse at a random place."""
    g = generator(seed)
    label = torch.randint(2, (n,), generator=g)
    place = torch.randint(24, (n, 1), generator=g)
    near = ((torch.arange(24) - place) % 24) < torch.where(label == 1, 6, 3)[:, None]
    x = near.float()[:, None] + 0.1 * torch.randn(n, 1, 24, generator=g)
    return Batch(tuple(f"{seed}-{i}" for i in range(n)), x, label=label)


def test_training_learns_and_can_be_repeated() -> None:
    train, test = pulses(128, 0), pulses(64, 1)

    def once(seed: int, epochs: int) -> tuple[nn.Module, list[dict[str, Tensor]]]:
        net = seeded(lambda: CircularCNN1d(1, 2, width=8), 0)
        return net, fit(net, train, epochs=epochs, lr=1e-2, seed=seed, batch_size=16)

    net, checkpoints = once(0, 12)
    assert accuracy(net, test) > 0.9 and not net.training and len(checkpoints) == 12
    for key, value in net.state_dict().items():
        assert torch.equal(value, checkpoints[-1][key])
    assert not torch.equal(checkpoints[0]["head.weight"], checkpoints[-1]["head.weight"])
    _, again = once(0, 2)
    _, other = once(1, 1)
    assert all(
        torch.equal(a[k], b[k]) for a, b in zip(checkpoints[:2], again, strict=True) for k in a
    )
    assert not torch.equal(other[0]["head.weight"], again[0]["head.weight"])


def test_training_leaves_every_global_generator_alone() -> None:
    torch_before, numpy_before, python_before = (
        torch.get_rng_state(),
        np.random.get_state(),  # noqa: NPY002
        random.getstate(),
    )
    net = seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.Dropout(0.5), nn.Linear(8, 2)), 3
    )
    first = fit(net, pulses(32, 0), epochs=2, seed=5)
    assert torch.equal(torch_before, torch.get_rng_state()) and python_before == random.getstate()
    assert all(
        np.array_equal(a, b)
        for a, b in zip(numpy_before, np.random.get_state(), strict=True)  # noqa: NPY002
    )
    torch.rand(7)
    net = seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.Dropout(0.5), nn.Linear(8, 2)), 3
    )
    assert torch.equal(
        fit(net, pulses(32, 0), epochs=2, seed=5)[-1]["3.weight"], first[-1]["3.weight"]
    )


def test_augmentation_is_given_the_batch_and_a_generator() -> None:
    seen = []

    def shift(part: Batch, g: torch.Generator) -> Batch:
        by = int(torch.randint(24, (1,), generator=g))
        seen.append(by)
        return part.with_x(part.x.roll(by, -1))

    net = seeded(lambda: CircularCNN1d(1, 2, width=4), 0)
    fit(net, pulses(32, 0), epochs=3, batch_size=16, augment=shift)
    assert len(seen) == 6 and len(set(seen)) > 1


def test_mistakes_in_training_are_explained() -> None:
    net, train = CircularCNN1d(1, 2, width=4), pulses(8, 0)
    with pytest.raises(UserError, match="labels"):
        fit(net, batch(train.x), epochs=1)
    with pytest.raises(UserError, match=r"epochs.*0"):
        fit(net, train, epochs=0)
    with pytest.raises(UserError, match="labels"):
        accuracy(net, batch(train.x))


def line(n: int = 12) -> Batch:
    x = torch.linspace(-1, 1, n)[:, None, None].expand(n, 3, 1) + 0.1
    return Batch(tuple(map(str, range(n))), x, label=(x[:, 0, 0] > 0).long())


def test_training_steps_are_those_of_adam() -> None:
    """One batch for each epoch, so that no order of samples has a say: the same as torch's own optimiser by hand."""
    net, twin = with_weights(DeepSet(1, width=4)), with_weights(DeepSet(1, width=4))
    steps = fit(net, line(), epochs=3, lr=0.02, weight_decay=0.1, anneal=True)
    optimiser = torch.optim.AdamW(twin.parameters(), lr=0.02, weight_decay=0.1)
    twin.train()
    for step, rate in zip(steps, (0.02, 0.015, 0.005), strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin(line().x), line().label).backward()
        optimiser.step()
        for key, value in twin.state_dict().items():
            torch.testing.assert_close(step[key], value, rtol=1e-3, atol=1e-4)
    assert not net.training and accuracy(net, line(), rows=5) == accuracy(net, line())
    right = net(line().x).argmax(1) == line().label
    assert accuracy(net, line()) == pytest.approx(float(right.float().mean()))


def test_batches_of_training_cover_every_sample_once_in_an_order_of_the_seed() -> None:
    seen: list[list[str]] = []

    def look(batch: Batch, generator: torch.Generator) -> Batch:
        seen.append(list(batch.ids))
        return batch

    for seed in (0, 0, 1):
        fit(
            with_weights(DeepSet(1, width=4)),
            line(),
            epochs=2,
            seed=seed,
            batch_size=5,
            augment=look,
        )
    assert [len(part) for part in seen] == [5, 5, 2] * 6
    epochs = [[*seen[i], *seen[i + 1], *seen[i + 2]] for i in range(0, 18, 3)]
    assert all(sorted(epoch) == sorted(line().ids) for epoch in epochs)
    assert epochs[:2] == epochs[2:4] and epochs[0] != epochs[1] and epochs[0] != epochs[4]


# The training scripts and study files


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.setenv("HEATPROOF_STUDIES", str(tmp_path))
    threads = torch.get_num_threads()
    yield importlib.import_module("train_points")
    torch.set_num_threads(threads)
    for name in ("train_points", "common"):
        sys.modules.pop(name, None)


def test_a_script_writes_what_a_study_reads(points: ModuleType, tmp_path: Path) -> None:
    common = importlib.import_module("common")
    train, test = (
        common.whole(open_data(points.solids(n, seed=n), length=points.MOST)) for n in (40, 20)
    )
    out = tmp_path / "points"
    common.save_batch(out / "test.npz", test, points.CLASSES)
    options = {"features": 3, "classes": 5}
    summary = common.train_network(
        out / "deepset", DeepSet, options, train, test, points.CLASSES, epochs=7, lr=1e-3, seed=0
    )
    assert summary["test"]["n"] == 20 and summary["test"]["low"] <= summary["test"]["accuracy"]
    assert len(summary["rates"]) == len(summary["checkpoints"]) == 3
    model = load_model(f"python:{STUDIES / 'train_points.py'}:model", allow_code=True)
    opened = open_data(out / "test.npz")
    back = opened.load(range(20)).batch
    assert opened.class_names == model.classes == points.CLASSES and torch.equal(
        back.aux["mask"], test.aux["mask"]
    )
    right = model.logits(model.inputs(back), back.aux).argmax(1) == test.label
    assert float(right.float().mean()) == pytest.approx(summary["test"]["accuracy"])
    last = torch.load(out / "deepset" / summary["checkpoints"][-1], weights_only=True)
    assert torch.equal(last["head.weight"], model.module.state_dict()["head.weight"])


def held_out_solids_lie_on_their_surfaces(points: ModuleType) -> None:
    on = {name: points.surface(name, 400, generator()) for name in points.CLASSES}
    torch.testing.assert_close(on["sphere"].norm(dim=1), torch.ones(400))
    torch.testing.assert_close(on["cube"].abs().amax(1), torch.full((400,), 0.8))
    x, y, z = on["torus"].T
    torch.testing.assert_close(
        ((x**2 + y**2).sqrt() - 0.7) ** 2 + z**2, torch.full((400,), 0.09), atol=1e-5, rtol=0
    )
    for name, edge in (
        ("cylinder", torch.ones(400)),
        ("cone", 1 - (on["cone"][:, 2] / 0.9 + 1) / 2),
    ):
        x, y, z = on[name].T / 0.9
        radius = (x**2 + y**2).sqrt()
        on_side, on_disc = (radius - edge).abs() < 1e-4, (z + 1).abs() < 1e-4
        on_disc |= (z - 1).abs() < 1e-4 if name == "cylinder" else on_disc
        assert bool((on_side | on_disc).all()) and bool((radius <= 1 + 1e-4).all())
        share = float(
            (on_side & ~on_disc).float().mean()
        )  # the side has 2/3 and √5/(1 + √5) of the area
        assert abs(share - (2 / 3 if name == "cylinder" else 5**0.5 / (1 + 5**0.5))) < 0.08


def test_a_split_keeps_copies_together(points: ModuleType) -> None:
    common = importlib.import_module("common")
    given = Batch(tuple(map(str, range(200))), torch.arange(200.0)[:, None], label=torch.zeros(200))
    train, test = common.split(given, 0.25, seed=0, alike=[i // 4 for i in range(200)])
    assert len(train) + len(test) == 200 and 20 < len(test) < 80
    assert not {int(i) // 4 for i in train.ids} & {int(i) // 4 for i in test.ids}
