"""Other people's explainers: their random states, errors, maps, fingerprints, and maps that were computed elsewhere."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Faithfulness, Model, Stability, UserError, adapters
from heatproof.explainers.adapters.foreign import Foreign, library
from heatproof.explainers.adapters.isolation import seeded
from heatproof.features import Patches
from heatproof.models.smoothed import Smoothed
from heatproof.runs.study.file import read_study
from heatproof.types import label_of, parameters

IDS = ("ant", "bee", "cat")


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * 16, 3),
        )


@pytest.fixture
def model() -> Model:
    return Model(network(), mean=(0.5,) * 3, std=(0.25,) * 3)


@pytest.fixture
def batch() -> Batch:
    return Batch(IDS, torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)))


@pytest.fixture
def target(model, batch) -> torch.Tensor:
    return model.logits(model.inputs(batch)).argmax(1)


def noisy(model, inputs, targets):
    """An explain_func that draws from all three global generators."""
    drawn = (
        np.random.rand(*inputs.shape[1:]) + random.random() + torch.rand(inputs.shape[1:]).numpy()  # noqa: NPY002
    )
    return np.stack([drawn * (1 + t) for t in targets]).astype(np.float32)


def states() -> tuple[bytes, bytes, object]:
    legacy = np.random.get_state()  # noqa: NPY002
    return (
        torch.get_rng_state().numpy().tobytes(),
        legacy[1].tobytes() + bytes([legacy[2] % 256]),
        random.getstate(),
    )


def test_what_draws_depends_on_seed_and_sample_only_and_leaves_global_states_alone(
    model, batch, target
):
    explain = adapters.quantus(noisy)
    before = states()
    maps = explain(model, batch, target, seed=0)
    assert states() == before
    order = torch.tensor([2, 0])
    assert torch.equal(explain(model, batch[order], target[order], seed=0), maps[order])
    assert not torch.equal(explain(model, batch, target, seed=1), maps)
    with seeded(adapters.library_seed(0, "bee"), model.device):
        direct = noisy(model.module, model.inputs(batch[1:2]).numpy(), target[1:2].tolist())
    assert np.array_equal(direct, maps[1:2].numpy())


def test_one_that_says_it_draws_nothing_and_does_is_refused(model, batch, target):
    before = states()
    with pytest.raises(UserError, match=r"noisy.*draws=True"):
        adapters.quantus(noisy, draws=False)(model, batch, target, seed=0)
    assert states() == before


def test_an_error_names_the_adapter_and_the_sample_and_leaves_no_hooks(model, batch, target):
    def failing(model, inputs, targets):
        model[0].register_forward_hook(lambda *_: None)
        model[0].leftover = True
        model[0] = nn.Identity()
        raise KeyError("no such method")

    with pytest.raises(UserError, match=r"failing.*ant.*KeyError.*no such method") as error:
        adapters.quantus(failing)(model, batch, target, seed=0)
    assert isinstance(error.value.__cause__, KeyError)
    first = model.module[0]
    assert (
        isinstance(first, nn.Conv2d) and not first._forward_hooks and not hasattr(first, "leftover")
    )


def test_lack_of_memory_reaches_the_engine_which_halves_the_batch(batch):
    def greedy(model, inputs, targets):
        if len(inputs) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return inputs

    run = heatproof.evaluate(
        network(), batch, {"greedy": adapters.quantus(greedy, draws=False)}, Stability(perturbations="jpeg", k=10),
        batch_size=2,
    )  # fmt: skip
    assert set(run.table().status) <= {"ok", "flipped"}


def test_maps_of_layers_are_summed_and_enlarged_and_other_shapes_refused(model, batch, target):
    def layer(model, inputs, targets):
        return torch.arange(len(inputs) * 5.0 * 4).reshape(len(inputs), 5, 2, 2)

    maps = adapters.quantus(layer, draws=False)(model, batch, target, seed=0)
    values = layer(None, batch.x, target).sum(1, keepdim=True)
    expected = nn.functional.interpolate(values, size=(8, 8), mode="bilinear", align_corners=False)
    assert torch.equal(maps, expected.expand(3, 3, 8, 8))
    with pytest.raises(UserError, match=r"\(2, 8\)"):
        adapters.quantus(lambda model, inputs, targets: torch.zeros(2, 8), draws=False)(
            model, batch, target, 0
        )


def test_passes_are_counted_and_a_single_output_becomes_two_classes(batch):
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), task="binary")

    def gradient(model, inputs, targets):
        given = torch.tensor(inputs, requires_grad=True)
        (found,) = torch.autograd.grad(
            model(given).gather(1, torch.tensor(targets)[:, None]).sum(), given
        )
        return found

    maps = adapters.quantus(gradient, draws=False)(model, batch, torch.tensor([1, 0, 1]), seed=0)
    half = model.module[1].weight.reshape(3, 8, 8) / 2
    assert torch.equal(maps, torch.stack([half, -half, half]))
    assert (model.passes, model.gradient_passes) == (3, 3)


def test_auxiliary_tensors_go_to_every_version_of_their_sample():
    class Masked(nn.Module):
        def forward(self, x, mask):
            total = (x.squeeze(-1) * mask).sum(1)
            return torch.stack([total, -total], 1)

    def doubled(model, inputs, targets):
        return inputs * model(torch.tensor(np.repeat(inputs, 4, 0))).detach().numpy()[3, 0]

    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    batch = Batch(("a", "b"), torch.tensor([[[1.0], [2.0], [4.0]]] * 2), {"mask": mask})
    maps = adapters.quantus(doubled, draws=False)(
        Model(Masked()), batch, torch.tensor([0, 0]), seed=0
    )
    assert torch.equal(maps[:, 0, 0], torch.tensor([3.0, 1.0]))


def test_models_that_are_no_plain_network_are_refused_at_plan_time(model, batch):
    smoothed = Smoothed(model, keep=0.5, samples=4, features=Patches(4))
    with pytest.raises(UserError, match="Smoothed"):
        heatproof.evaluate(
            smoothed, batch, [adapters.quantus(noisy)], Stability(perturbations="jpeg", k=10)
        )
    half = Model(network()).use("bfloat16")
    with pytest.raises(UserError, match=r"float32.*bfloat16"):
        adapters.quantus(noisy).check(half, (3, 8, 8))


def test_labels_and_manifests_name_code_by_content_not_by_address():
    def make(steps):
        return lambda module: (module, steps)

    first, again, other = (adapters.captum(make(n)) for n in (1, 1, 2))
    assert parameters(first) == parameters(again) != parameters(other)
    assert "0x" not in str(parameters(first))
    assert label_of(adapters.quantus(noisy)) == "quantus(explain_func=noisy)"
    assert pickle.loads(pickle.dumps(adapters.quantus(noisy))) == adapters.quantus(noisy)
    assert Foreign.of(torch.zeros(2)) != Foreign.of(torch.ones(2))


def test_unknown_names_and_missing_libraries_say_what_to_do(model):
    pytest.importorskip("captum", reason="it is the library that is asked")
    with pytest.raises(UserError, match=r"'Salience'.*'Saliency'"):
        adapters.captum("Salience").check(model, (3, 8, 8))
    with pytest.raises(UserError, match=r"Sequential.*'7'"):
        adapters.captum("LayerGradCam", layer="7").check(model, (3, 8, 8))
    with pytest.raises(UserError, match=r"surely_not_there.*surely-not-there"):
        library("surely_not_there.attr", "surely-not-there")


# Maps that were computed elsewhere


def saved(path, ids=IDS, shape=(1, 8, 8), **others):
    maps = np.random.default_rng(0).random((len(ids), *shape), dtype=np.float32)
    np.savez(path, ids=np.array(ids), maps=maps, **others)
    return maps


def test_precomputed_maps_by_id_in_both_layouts(tmp_path, model, batch, target):
    maps = saved(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **dict(zip(IDS, maps, strict=True)))
    order = torch.tensor([2, 0])
    for source in (tmp_path / "a.npz", tmp_path / "b.npz", dict(zip(IDS, maps, strict=True))):
        found = adapters.precomputed(source)(model, batch[order], target[order], seed=0)
        assert np.array_equal(found.numpy(), maps[[2, 0]])


def test_a_manifest_knows_the_content_of_the_maps_and_not_their_folder(tmp_path):
    saved(tmp_path / "maps.npz")
    first = adapters.precomputed(tmp_path / "maps.npz")
    assert label_of(first) == "precomputed(path=maps.npz)"
    assert str(tmp_path) not in str(parameters(first))
    saved(tmp_path / "maps.npz", ids=(*IDS, "dog"))
    assert parameters(adapters.precomputed(tmp_path / "maps.npz")) != parameters(first)


def test_stability_leaves_precomputed_maps_out_and_says_why_while_faithfulness_judges_them(
    tmp_path, model, batch
):
    saved(tmp_path / "maps.npz")
    quick = Faithfulness(imputers="zero", fractions=(0.5,), metrics=("road",))
    methods = {"given": adapters.precomputed(tmp_path / "maps.npz"), "saliency": "saliency"}
    axes = [Stability(perturbations="jpeg", k=10), quick]
    run = heatproof.evaluate(model, batch, methods, axes, tmp_path / "run")
    judged = run.table().groupby("evaluation")["explainer"].unique().map(set).to_dict()
    assert judged == {"stability": {"saliency"}, "faithfulness": {"given", "saliency"}}
    why = run.manifest.study.evaluation("stability").left_out
    assert list(why) == ["given"]
    assert run.manifest.study.evaluation("faithfulness").left_out == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"shape": (1, 4, 4)},
            r"'ant'.*\(1, 4, 4\).*\(3, 8, 8\)",
        ),
        ({"ids": ("ant", "bee", "cow")}, r"1 sample.*'cat'"),
    ],
)
def test_wrong_maps_are_found_before_any_pass(tmp_path, model, batch, change, message):
    saved(tmp_path / "maps.npz", **change)
    with pytest.raises(UserError, match=message):
        heatproof.evaluate(
            model,
            batch,
            [adapters.precomputed(tmp_path / "maps.npz")],
            Faithfulness(imputers="zero"),
        )
    assert model.passes == 0


def test_a_study_of_precomputed_maps_alone_has_nothing_to_perturb(tmp_path, model, batch):
    saved(tmp_path / "maps.npz")
    with pytest.raises(UserError, match="stability"):
        heatproof.evaluate(
            model,
            batch,
            [adapters.precomputed(tmp_path / "maps.npz")],
            Stability(perturbations="jpeg"),
        )
    with pytest.raises(UserError, match="moved"):
        heatproof.Symmetrised(of=adapters.precomputed(tmp_path / "maps.npz"))
    assert model.passes == 0


def test_maps_of_another_class_than_the_predicted_are_refused(tmp_path, model, batch, target):
    saved(tmp_path / "maps.npz", targets=target.numpy())
    adapters.precomputed(tmp_path / "maps.npz")(model, batch, target, seed=0)
    with pytest.raises(
        UserError,
        match=r"'ant'.*maps\.npz.*Sequential",
    ):
        adapters.precomputed(tmp_path / "maps.npz")(model, batch, (target + 1) % 3, seed=0)


def test_files_that_are_no_maps_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "objects.npz", ant=np.array([{"pickled": True}], dtype=object))
    saved(tmp_path / "twice.npz", ids=("ant", "ant"))
    for name, message in (
        ("text.npz", r"text\.npz"),
        ("objects.npz", r"objects\.npz"),
        ("twice.npz", "twice"),
        ("texts.npz", r"'text\.npz'"),
    ):
        with pytest.raises(UserError, match=message):
            adapters.precomputed(tmp_path / name)


STUDY = """
model: "python:nets.py:network"
data: images.npz
explainers:
  - precomputed: {path: maps.npz}
  - "python:nets.py:noisy"
  - "python:nets.py:explainer"
evaluations:
  faithfulness: {faithfulness: {imputers: zero, fractions: [0.5], metrics: [road]}}
"""
CODE = """
import torch
from heatproof import adapters

def network():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))

def noisy(model, batch, target, seed):
    return batch.x

def explainer():
    return adapters.quantus(lambda model, inputs, targets: inputs, draws=False)
"""


def test_a_study_names_precomputed_maps_and_code_only_with_leave(tmp_path):
    (tmp_path / "nets.py").write_text(CODE)
    np.savez(
        tmp_path / "images.npz", x=np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    )
    saved(tmp_path / "maps.npz", ids=("0000", "0001"))
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(UserError, match=r"line 6.*'python:nets\.py:noisy'.*--allow-code"):
        read_study(tmp_path / "study.yaml")
    study = read_study(tmp_path / "study.yaml", allow_code=True)
    assert list(study.explainers) == [
        "precomputed(path=maps.npz)",
        "noisy",
        "quantus(explain_func=<lambda>, draws=False)",
    ]
