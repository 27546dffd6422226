"""The studies of explanation invariance: equivariant Wide ResNets, the paper's networks, SMOTE, scores during training."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.symmetry.scores import layer_symmetry, model_invariance
from heatproof.models.randomised import seeded
from support.paths import ROOT

STUDIES = ROOT / "studies"


@pytest.fixture(autouse=True)
def _the_same_networks_every_time() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A function that imports a module of `studies/`."""
    monkeypatch.syspath_prepend(str(STUDIES))
    threads, before = torch.get_num_threads(), set(sys.modules)
    yield importlib.import_module
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if (STUDIES / f"{name}.py").is_file():
            sys.modules.pop(name)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def named(x: Tensor, label: Tensor | None = None) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x, label=label)


# Wide ResNets


def in_use(net: nn.Module) -> nn.Module:
    """A network in double precision with running statistics that are not those of a new one."""
    net = net.double().train()
    with torch.no_grad():
        net(values(8, 3, 8, 8, seed=5).double())
    return net.eval()


@pytest.mark.parametrize("group", ["D4", "C4", "D1", "1"])
def test_every_layer_of_a_wide_resnet_is_exactly_equivariant(study, group: str) -> None:
    wide = study("wide_resnet")
    net = in_use(seeded(lambda: wide.WideResNet(4, 10, 1, (group,) * 3), 0))
    x = values(2, 3, 8, 8).double()
    for g in wide.SUBGROUPS[group]:
        moved = wide.D4.move(torch.tensor(g), x)
        before, after = net.stem(x), net.stem(moved)
        for layer in (None, *net.stages):
            if layer is not None:
                before, after = layer(before), layer(after)
            expected = wide.move_features(g, before, group)
            torch.testing.assert_close(after, expected, atol=1e-10, rtol=0)
        torch.testing.assert_close(net(moved), net(x), atol=1e-10, rtol=0)
    other = [g for g in range(8) if g not in wide.SUBGROUPS[group]]
    for g in other:  # and to nothing else
        assert (net(wide.D4.move(torch.tensor(g), x)) - net(x)).abs().max() > 1e-6


def test_the_regular_representation_is_one_and_restriction_keeps_it(study) -> None:
    wide = study("wide_resnet")
    maps = values(1, 16, 4, 4).double()
    for g in range(8):
        for h in range(8):
            both = wide.move_features(wide.product(g, h), maps, "D4")
            after = wide.move_features(g, wide.move_features(h, maps, "D4"), "D4")
            assert torch.equal(both, after)
    for smaller in ("C4", "D1", "1"):
        restrict = wide.Restriction("D4", smaller)
        for g in wide.SUBGROUPS[smaller]:
            moved = restrict(wide.move_features(g, maps, "D4"))
            assert torch.equal(moved, wide.move_features(g, restrict(maps), smaller))


def test_restricted_stages_are_invariant_to_the_smallest_group_alone(study) -> None:
    wide = study("wide_resnet")
    net = in_use(seeded(lambda: wide.WideResNet(4, 10, 1, ("D4", "C4", "1")), 0))
    assert max(wide.largest_error(net, values(2, 3, 8, 8).double()).values()) > 1e-6
    net = in_use(seeded(lambda: wide.WideResNet(4, 10, 1, ("D4", "D4", "D1")), 0))
    errors = list(wide.largest_error(net, values(2, 3, 8, 8).double()).values())
    assert max(errors[0], errors[4]) < 1e-10 and min(errors[1:4] + errors[5:]) > 1e-3


def test_the_bench_finds_the_layers_of_a_wide_resnet(study) -> None:
    wide = study("wide_resnet")
    model = Model(seeded(lambda: wide.WideResNet(4, 10, 1), 0).eval())
    batch, group = named(values(2, 3, 8, 8)), heatproof.groups.dihedral(4)
    assert layer_symmetry(model, batch, "pool", group, n=8).verdict == "invariant"
    assert layer_symmetry(model, batch, "stages", group, n=8).verdict == "neither"
    assert float(model_invariance(model, batch, group, n=8).change.value.max()) < 1e-3


def test_depths_of_wide_resnets_are_checked(study) -> None:
    wide = study("wide_resnet")
    with pytest.raises(ValueError, match="17"):
        wide.WideResNet(depth=17)


# The networks of Tables 5 to 10


def test_networks_of_the_paper_have_its_widths(study) -> None:
    nets = study("paper_nets")
    beats, pictures = values(2, 1, 187), values(2, 1, 48, 48)
    assert nets.AllCNN1d()(beats).shape == nets.FlatCNN1d()(beats).shape == (2, 2)
    assert nets.AllCNN2d()(pictures).shape == nets.FlatCNN2d()(pictures).shape == (2, 10)
    assert nets.FlatCNN1d().hidden[0].in_features == 2944  # as Table 6 says
    molecule = values(2, 9, 14), (values(2, 9, 9) < 0.3).float()
    assert nets.MutagenicityGNN()(*molecule).shape == (2, 2)
    scores = nets.MaxDeepSet()(values(2, 30, 3))
    assert scores.shape == (2, 40) and float(scores.detach().abs().max()) <= 1


def test_networks_of_the_paper_have_their_symmetries(study) -> None:
    nets = study("paper_nets")
    beats, pictures, points = values(2, 1, 187), values(2, 1, 48, 48), values(2, 30, 3)
    for net, x, moved, is_symmetric in (
        (nets.AllCNN1d(), beats, beats.roll(41, -1), True),
        (nets.FlatCNN1d(), beats, beats.roll(41, -1), False),
        (nets.AllCNN2d(), pictures, pictures.roll((7, 9), (-2, -1)), True),
        (nets.FlatCNN2d(), pictures, pictures.roll((7, 9), (-2, -1)), False),
        (nets.MaxDeepSet(), points, points.flip(1), True),
    ):
        net.eval()
        assert torch.allclose(net(x), net(moved), atol=1e-5) == is_symmetric
    net, order = nets.MutagenicityGNN().eval(), torch.randperm(9)
    x, edges = values(2, 9, 14), (values(2, 9, 9) < 0.3).float()
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    moved = x[:, order], edges[:, order][:, :, order], mask[:, order]
    torch.testing.assert_close(net(*moved), net(x, edges, mask), atol=1e-4, rtol=1e-4)


def test_graph_convolutions_are_those_of_pyg(study) -> None:
    nets = study("paper_nets")
    geometric = pytest.importorskip("torch_geometric.nn")
    ours, theirs = nets.GraphConv(3, 4), geometric.GraphConv(3, 4)
    theirs.lin_rel.load_state_dict(ours.neighbours.state_dict())
    theirs.lin_root.load_state_dict(ours.root.state_dict())
    x, edges = values(1, 6, 3), (values(1, 6, 6) < 0.4).float()
    edge_index = edges[0].T.nonzero().T
    torch.testing.assert_close(ours(x, edges)[0], theirs(x[0], edge_index))


# SMOTE


def rare() -> Batch:
    label = torch.tensor([0] * 20 + [1] * 6 + [2] * 3)
    return named(values(29, 1, 7) + label[:, None, None], label)


def test_new_samples_lie_between_near_neighbours_of_their_class(study) -> None:
    smote, train = study("smote"), rare()
    more = smote.balanced(train, k=2)
    assert more.label is not None and more.label.bincount().tolist() == [20, 20, 20]
    assert torch.equal(more.x[:29], train.x) and more.ids[:29] == train.ids
    assert train.label is not None
    shares = []
    for sample, x, label in zip(more.ids[29:], more.x[29:], more.label[29:].tolist(), strict=True):
        first, second = (train.ids.index(name) for name in sample.split("~")[:2])
        assert train.label[first] == train.label[second] == label and first != second
        members = (train.label == label).nonzero().flatten()
        distance = (train.x[members] - train.x[first]).flatten(1).norm(dim=1)
        two_nearest = members[distance.argsort()[1:3]].tolist()
        assert second in two_nearest
        step = (train.x[second] - train.x[first]).flatten()
        share = float((x - train.x[first]).flatten() @ step / (step @ step))
        torch.testing.assert_close(x, train.x[first] + share * (train.x[second] - train.x[first]))
        shares.append(share)
    assert 0 <= min(shares) < 0.2 and 0.8 < max(shares) <= 1
    again = smote.balanced(train, k=2)
    assert torch.equal(again.x, more.x)
    assert not torch.equal(smote.balanced(train, k=2, seed=1).x, more.x)


def test_smote_says_what_it_cannot_do(study) -> None:
    smote, train = study("smote"), rare()
    assert len(smote.balanced(train, per_class=8)) == 20 + 8 + 8
    assert train.label is not None
    alone = replace(train, label=train.label.clone().index_fill_(0, torch.tensor([0]), 7))
    for batch, message in ((replace(train, label=None), "labels"), (alone, "class 7")):
        with pytest.raises(UserError, match=message):
            smote.balanced(batch)


# Heartbeats, and scores during training


def test_beats_are_resampled_before_they_become_two_classes(study) -> None:
    heartbeats = study("train_mitbih")
    label = torch.tensor([0] * 9 + [1] * 4 + [3])
    train = named(values(14, 1, 187), label)
    both = heartbeats.resampled(train, None)
    assert both.label is not None and both.label.bincount().tolist() == [9, 9 + 1]


def test_scores_during_training_follow_the_weights_of_each_epoch(
    study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training: ModuleType = study("training_scores")
    nets = study("nets")
    label = torch.arange(24) % 2
    train = named(values(24, 1, 16) + label[:, None, None], label)

    def scores_of(build: object) -> dict[tuple[int, str], tuple[float, float, float]]:
        net = seeded(build, 0)  # type: ignore[arg-type]
        untrained = {name: value.clone() for name, value in net.state_dict().items()}
        checkpoints = [untrained, *nets.fit(net, train, epochs=2, lr=1e-2)]
        cyclic = heatproof.groups.cyclic()
        table = training.epoch_scores(net, checkpoints, train, cyclic, 4, 12)
        assert sorted(table["epoch"].unique()) == [0, 1, 2]
        pytest.importorskip("matplotlib")
        training.draw(table, tmp_path / "scores.png")
        gradient = table[table["explainer"] == "gradient"]
        return {
            (row.epoch, row.measure): (row.low, row.mean, row.high) for row in gradient.itertuples()
        }

    invariant = scores_of(lambda: nets.CircularCNN1d(1, 2, width=4))
    usual = scores_of(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 2))
    )
    assert capsys.readouterr().out.count("\n| ") >= 4
    for epoch in range(3):
        assert invariant[epoch, "equivariance"][1] > 0.999
        low, mean, high = usual[epoch, "equivariance"]
        assert low < mean < high < 0.9
    assert usual[0, "equivariance"] != usual[2, "equivariance"]
    assert (tmp_path / "scores.png").stat().st_size > 1000
