"""Parts of the adapters: shapes of maps, random states, what code is known by, and SHAP through a stand-in."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.errors import UserError
from heatproof.explainers.adapters import foreign, isolation, maps, named, shapley
from heatproof.explainers.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
from heatproof.explainers.adapters.quantus_metrics import QuantusMetric, _flat, unnormalised
from support.fixed import normal, with_weights


def network() -> Model:
    layers = [nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)]
    return Model(with_weights(nn.Sequential(*layers)), rows=4)


SAMPLES, TARGET = Batch(("a", "b"), normal(2, 3, seed=41)), torch.tensor([2, 0])


def test_named_methods_of_captum_are_those_of_captum() -> None:
    attr = pytest.importorskip("captum.attr")
    model = network()
    for name, given in (
        ("Saliency", {}),
        ("IntegratedGradients", {"n_steps": 7}),
        ("InputXGradient", {}),
    ):
        ours = named.by_library("captum", {name: given})(model, SAMPLES, TARGET, 0)
        x = SAMPLES.x.clone().requires_grad_()
        theirs = getattr(attr, name)(model.module).attribute(x, target=TARGET, **given)
        torch.testing.assert_close(ours, theirs.detach().float(), rtol=1e-4, atol=1e-5)


def test_a_library_that_draws_repeats_itself_with_the_same_seed() -> None:
    pytest.importorskip("captum.attr")
    pool = Captum("GradientShap", {"n_samples": 3}, baseline=normal(4, 3))
    one, again, other = (pool(network(), SAMPLES, TARGET, seed) for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_baselines_of_captum_that_do_not_fit_are_refused() -> None:
    pytest.importorskip("captum.attr")
    with pytest.raises(UserError, match="prepare"):
        Captum("DeepLiftShap", baseline=normal(4, 2))(network(), SAMPLES, TARGET, 0)
    with pytest.raises(UserError, match="samples"):
        Captum("Saliency", baseline="references").check(network(), (3,))


def test_it_is_known_which_adapters_draw() -> None:
    drawing = [
        Captum("Lime"),
        Captum("Saliency", draws=True),
        Captum(len),
        PytorchGradCam("RandomCAM"),
    ]
    drawing += [
        Quantus(len),
        Zennit("epsilon_plus", "smoothgrad"),
        Zennit("epsilon_plus", draws=True),
    ]
    fixed = [
        Captum("Saliency"),
        PytorchGradCam("GradCAM"),
        Zennit("epsilon_plus"),
        Quantus(len, draws=False),
    ]
    assert all(each.stochastic for each in drawing)
    assert not any(each.stochastic for each in fixed)


@pytest.mark.parametrize(
    "wrong", [5, Captum("Saliency"), {"Saliency": {"abs": True}, "LRP": {}}], ids=str
)
def test_what_names_no_single_method_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError):
        named.by_library("captum", wrong)


INPUTS = torch.zeros(2, 3, 4, 4)


def test_a_map_for_all_channels_counts_for_every_channel() -> None:
    whole = normal(2, 3, 4, 4)
    assert torch.equal(isolation.as_maps([whole], INPUTS, "x"), whole)
    for shape in ((2, 4, 4), (2, 1, 4, 4)):
        given = normal(*shape)
        assert torch.equal(
            isolation.as_maps(given, INPUTS, "x"), given.reshape(2, 1, 4, 4).expand_as(INPUTS)
        )


@pytest.mark.parametrize("shape", [(2, 5, 4, 4), (2, 3, 2, 2), (2, 1, 2, 2), (2, 2, 2)])
def test_the_map_of_a_layer_is_summed_over_its_channels_and_enlarged(
    shape: tuple[int, ...],
) -> None:
    given = normal(*shape)
    summed = given.reshape(2, -1, *shape[-2:]).sum(1, keepdim=True)
    wanted = F.interpolate(summed, size=(4, 4), mode="bilinear").expand_as(INPUTS)
    torch.testing.assert_close(isolation.as_maps(given.numpy(), INPUTS, "x"), wanted)


def test_the_map_of_a_layer_over_a_series_is_enlarged_linearly() -> None:
    given = normal(2, 4, 3)
    wanted = F.interpolate(given.sum(1, keepdim=True), size=6, mode="linear").expand(2, 2, 6)
    torch.testing.assert_close(isolation.as_maps(given, torch.zeros(2, 2, 6), "x"), wanted)


def test_maps_of_other_shapes_are_refused() -> None:
    wrong = [normal(3, 4, 4), normal(2, 3), [normal(2, 3, 4, 4), 1], normal(2, 3, 4, 4, 1)]
    for given in wrong:
        with pytest.raises(UserError):
            isolation.as_maps(given, INPUTS, "x")


def test_the_seed_of_a_library_follows_the_sample_and_the_seed() -> None:
    seeds = [isolation.library_seed(seed, name) for seed in (3, 4) for name in ("cat", "dog")]
    assert len(set(seeds)) == 4 and seeds[0] == isolation.library_seed(3, "cat")


def test_whoever_draws_is_noticed_and_put_back() -> None:
    for draw in (random.random, np.random.random, lambda: torch.rand(1)):
        before = (
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.get_rng_state().tolist(),
        )
        with isolation.seeded(5, torch.device("cpu")) as drew:
            assert not drew()
            first = float(draw())
            assert drew()
        with isolation.seeded(5, torch.device("cpu")):
            assert float(draw()) == first
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        assert before == after


def test_objects_are_known_by_their_content(tmp_path: Path) -> None:
    def maker(steps: int, scale: float = 1.0) -> Any:
        return lambda x: x * steps * scale

    def things(n: int) -> list[Any]:
        held = {"a": [1, (n,)], "b": {3}}
        kinds = [
            maker(n),
            held,
            normal(3, seed=n),
            Path(f"x{n}"),
            functools.partial(maker, n),
            (print, len)[n - 2],
        ]
        return [*kinds, {1, n}, np.arange(n), str, [None, n], n * 1.5]

    prints, again, other = ([foreign.fingerprint(each) for each in things(n)] for n in (2, 2, 3))
    assert prints == again and len(set(prints)) == len(prints)
    assert set(prints) & set(other) == {foreign.fingerprint(str)}
    assert (
        foreign.fingerprint(nn.Linear(2, 2))
        == foreign.fingerprint(nn.Linear(3, 3))
        != foreign.fingerprint(nn.ReLU())
    )
    ring: list[Any] = [1]
    ring.append(ring)
    assert foreign.fingerprint(ring) != foreign.fingerprint([1, [1]])
    assert [foreign.short_name(each) for each in (functools.partial(len), "x", 3.0)] == [
        "len",
        "x",
        "float",
    ]
    assert foreign.call_arguments(None) is None and foreign.unwrapped(None) == {}
    one, two = maps.MapSource({"a": [1.0]}), maps.MapSource({"a": [1.0], "b": [2.0]})
    assert (
        (str(one), str(two)) == ("1 map", "2 maps")
        and one != two
        and one == maps.MapSource({"a": [1.0]})
    )
    np.savez(
        tmp_path / "m.npz",
        ids=np.array(["a", "b"]),
        maps=np.ones((2, 1, 2, 2)),
        targets=np.array([0, 1]),
    )
    found = ex.Precomputed(tmp_path / "m.npz")
    found.check(network(), (3, 2, 2))
    found.check_ids(["a"], "data")
    with pytest.raises(UserError, match="1 sample"):
        found.check_ids(["a", "c"], "data")
    for shape in ((3,), (3, 2, 3)):
        with pytest.raises(UserError, match="shape"):
            found.check(network(), shape)


def test_shap_without_its_library() -> None:
    score = shapley.ClassScore(nn.Linear(3, 4), 2)
    assert torch.equal(score(SAMPLES.x), score.network(SAMPLES.x)[:, 2:3])
    explainer = shapley.Shap("gradient", background=normal(5, 3))
    assert torch.equal(explainer._background_samples((3,)), normal(5, 3)) and explainer.stochastic
    assert shapley.Shap("deep", background=0.5)._background_samples((2, 2)).tolist() == [
        [[0.5, 0.5]] * 2
    ]
    assert [
        shapley.Shap(name).stochastic for name in ("gradient", "deep", "partition", "tree")
    ] == [
        True,
        False,
        True,
        False,
    ]
    assert shapley.Shap("partition", background="blur(4,4)").background == "blur(4,4)"
    assert shapley._number_text_or_samples(3) == 3 and isinstance(
        shapley._number_text_or_samples([1]), foreign.Foreign
    )
    for wrong in (normal(5, 4), normal(0, 3), [object()]):
        with pytest.raises(UserError, match="background"):
            shapley.Shap("gradient", background=wrong)._background_samples((3,))


def test_what_shap_is_asked_for() -> None:
    """A stand-in where SHAP is not installed: values of single positions, by taking each of them away."""

    def occluded(predict: Any, masker: Any) -> Any:
        def explain(rows: Any, **options: Any) -> Any:
            values = np.zeros((*rows.shape, 1))
            for place in np.ndindex(*rows.shape[1:]):
                without = rows.copy()
                without[(0, *place)] = (
                    masker[place] if masker.ndim == rows.ndim - 1 else masker[(0, *place)]
                )
                values[(0, *place)] = predict(rows) - predict(without)
            return SimpleNamespace(values=values)

        return explain

    maskers = SimpleNamespace(Image=np.broadcast_to, Partition=lambda rows: rows)
    trees = SimpleNamespace(shap_values=lambda rows: normal(1, 3, 2).numpy())
    shap = SimpleNamespace(
        PartitionExplainer=occluded, maskers=maskers, TreeExplainer=lambda estimator: trees
    )
    picture, weights = normal(1, 2, 3, 4), normal(2, 3, 4, seed=1)
    background = normal(2, 2, 3, 4, seed=2)

    def score(x: Tensor) -> Tensor:
        return (x * weights).flatten(1).sum(1, keepdim=True)

    found = shapley._partition(shap, score, background, picture, {})
    assert np.allclose(found, (picture - background[:1]) * weights, atol=1e-5)
    rows = shapley._partition(
        shap, lambda x: x @ weights[0, 0][:, None], background[:, 0, 0], picture[:, 0, 0], {}
    )
    assert np.allclose(rows, (picture[:, 0, 0] - background[:1, 0, 0]) * weights[0, 0], atol=1e-5)
    estimator = SimpleNamespace(classes_=[0, 1])
    assert np.array_equal(
        shapley._tree(shap, SimpleNamespace(estimator=estimator), SAMPLES.x[:1], 1),
        normal(1, 3, 2)[..., 1],
    )
    trees.shap_values = lambda rows: normal(1, 3).numpy()
    for target, classes, sign in ((0, [0, 1], -1), (1, [0, 1], 1), (0, [], 1), (0, [0, 1, 2], 1)):
        estimator.classes_ = classes
        values = shapley._tree(shap, SimpleNamespace(estimator=estimator), SAMPLES.x[:1], target)
        assert np.array_equal(values, sign * normal(1, 3).numpy())


def test_numbers_that_a_metric_gives() -> None:
    assert _flat({"a": [1, (2.5, np.array([[3]]))], "b": 4}) == [1.0, 2.5, 3.0, 4.0]
    metric = QuantusMetric(len, reduce="mean")
    assert (
        metric._number([1.0, 4.0], "x") == 2.5
        and np.isnan(metric._number([], "x"))
        and metric.reexplains
    )
    with pytest.raises(UserError, match="2 numbers"):
        QuantusMetric(len)._number([1.0, 4.0], "x")
    model = Model(nn.Flatten(), mean=(0.5, 0.2), std=(0.25, 0.5))
    batch = Batch(("a",), normal(1, 2, 3, 3))
    assert torch.allclose(unnormalised(model, model.inputs(batch)), batch.x, atol=1e-6)
    assert torch.equal(unnormalised(network(), SAMPLES.x), SAMPLES.x)


def test_maps_without_ids_go_by_position_whatever_they_come_in(tmp_path: Path) -> None:
    """An array, a tensor, a list, .npy, .npz and a folder give the same maps as a mapping of ids."""
    rng = np.random.default_rng(0)
    images, values = torch.rand(4, 3, 8, 8), rng.integers(0, 256, (4, 8, 8)).astype(np.float32)
    data = heatproof.open_data(images)
    net = heatproof.Model(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)))
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", values)
    np.savez(tmp_path / "b.npz", maps=values, targets=net.logits(images).argmax(1).numpy())
    (tmp_path / "folder").mkdir()
    for sample, value in zip(data.ids, values, strict=True):
        Image.fromarray(value.astype(np.uint8)).save(tmp_path / "folder" / f"{sample}.png")
    by_id = dict(zip(data.ids, values, strict=True))
    expected = heatproof.explain(net, data, ex.Precomputed(by_id))
    for source in (
        values,
        torch.from_numpy(values),
        list(values),
        tmp_path / "a.npy",
        tmp_path / "a.npz",
        tmp_path / "b.npz",
        tmp_path / "folder",
    ):
        found = heatproof.explain(net, data, ex.Precomputed(source))
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(UserError, match=r"4 maps.*3 samples"):
        heatproof.explain(net, images[:3], ex.Precomputed(values))


def test_maps_of_every_class_give_that_of_the_predicted_one() -> None:
    """SHAP's `Explanation` has values (n, F, classes), of images (n, H, W, C, classes)."""
    rng = np.random.default_rng(0)
    for shape in ((5,), (3, 4, 4)):
        x = torch.rand(6, *shape)
        net = heatproof.Model(nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 2)))
        last = (*shape[1:], shape[0]) if len(shape) == 3 else shape
        explanation = type("Explanation", (), {})()
        explanation.values = rng.normal(size=(6, *last, 2)).astype(np.float32)
        maps = heatproof.explain(net, x, ex.Precomputed(explanation))
        for i, label in enumerate(net.logits(x).argmax(1).tolist()):
            expected = explanation.values[i, ..., label]
            expected = np.moveaxis(expected, -1, 0) if len(shape) == 3 else expected
            np.testing.assert_array_equal(maps[i], expected)


class InItsOwnSet:
    """An object that a set of its own contains, as those of compiled functions do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.users = {self}


def test_objects_that_contain_each_other_through_a_set_have_a_fingerprint():
    first, again, other = (foreign.fingerprint(InItsOwnSet(n)) for n in (1, 1, 2))
    assert first == again != other
