"""The adapters give the same maps as calling the library directly, for each library that is installed."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model, Stability, UserError, adapters
from heatproof.explainers.adapters import QuantusMetric
from heatproof.explainers.adapters.isolation import seeded
from heatproof.runs.study.file import read_study
from support.paths import ROOT
from support.small import pictures

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways
LAST = "4"
MEAN, STD = (0.5, 0.4, 0.45), (0.25, 0.3, 0.2)
NEEDS_TORCHVISION = "is not installed, or its torchvision does not fit this torch"


def imported(module: str):
    """A library, or a skip: some need a torchvision that is built for the installed torch."""
    try:
        return pytest.importorskip(module, reason=f"{module} {NEEDS_TORCHVISION}")
    except (RuntimeError, OSError) as error:
        pytest.skip(f"{module} {NEEDS_TORCHVISION}: {error}")


@pytest.fixture(scope="module")
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        head = (
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), *head,
            nn.Linear(192, 4),
        )  # fmt: skip
        net(torch.randn(16, 3, 32, 32))  # so that there are running means to merge
        return net


@pytest.fixture
def model(net) -> Model:
    return Model(net, MEAN, STD)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch(("a", "b", "c"), pictures(3, seed=5)[0])


@pytest.fixture
def target(model, batch) -> torch.Tensor:
    return model.logits(model.inputs(batch)).argmax(1)


def close(found, direct) -> bool:
    direct = torch.as_tensor(direct).detach().float()
    assert bool(direct.any())
    return torch.allclose(
        found, direct.expand_as(found), rtol=1e-4, atol=1e-5 * float(direct.abs().max())
    )


def hooks(module: nn.Module) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in module.modules()
    )


def one_by_one(model, batch, target, direct):
    """A direct call per sample under the generators that the adapter documents."""
    found = []
    for i, sample in enumerate(batch.ids):
        with seeded(adapters.library_seed(0, sample), model.device):
            found.append(torch.as_tensor(direct(model.inputs(batch[[i]]), target[[i]])).detach())
    return torch.cat(found)


class TestCaptum:
    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("IntegratedGradients", {"n_steps": 8}),
            ("DeepLift", None),
            ("Occlusion", {"sliding_window_shapes": (3, 8, 8), "strides": (3, 8, 8)}),
        ],
    )
    def test_classes_names_factories_and_bound_objects(
        self, name, arguments, net, model, batch, target
    ):
        kind = getattr(imported("captum.attr"), name)
        direct = kind(model.module).attribute(model.inputs(batch), target=target, **arguments or {})
        for given in (name, kind, kind(net), kind(model.module)):
            adapter = adapters.captum(given, arguments)
            assert not adapter.stochastic
            assert close(adapter(model, batch, target, seed=0), direct), given
        made = adapters.captum(
            lambda module: kind(forward_func=module) if name == "Occlusion" else kind(module),
            arguments,
        )
        assert made.stochastic and close(made(model, batch, target, seed=0), direct)
        assert hooks(model.module) == hooks(net) == 0

    def test_a_layer_by_its_path_or_in_a_bound_object(self, net, model, batch, target):
        captum = imported("captum.attr")
        direct = captum.LayerGradCam(model.module, model.module[4]).attribute(
            model.inputs(batch), target=target
        )
        direct = nn.functional.interpolate(
            direct, size=(32, 32), mode="bilinear", align_corners=False
        )
        for adapter in (
            adapters.captum("LayerGradCam", layer=LAST),
            adapters.captum(captum.LayerGradCam(net, net[4])),
            adapters.captum(lambda module: captum.LayerGradCam(module, module[4]), draws=False),
        ):
            assert close(adapter(model, batch, target, seed=0), direct)

    def test_what_draws_equals_a_seeded_call(self, net, model, batch, target):
        captum = imported("captum.attr")
        for given, arguments in (
            (captum.GradientShap, {"baselines": torch.zeros(1, 3, 32, 32), "n_samples": 3}),
            (captum.NoiseTunnel(captum.Saliency(net)), {"nt_samples": 3, "stdevs": 0.1}),
        ):
            bound = (
                given(model.module)
                if isinstance(given, type)
                else captum.NoiseTunnel(captum.Saliency(model.module))
            )

            def direct(inputs, classes, bound=bound, arguments=arguments):
                return bound.attribute(inputs.requires_grad_(), target=classes, **arguments)

            adapter = adapters.captum(given, arguments)
            assert adapter.stochastic
            assert close(
                adapter(model, batch, target, seed=0), one_by_one(model, batch, target, direct)
            )

    def test_objects_of_another_network_are_refused(self, model, batch, target):
        captum = imported("captum.attr")
        other = captum.Saliency(nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)))
        with pytest.raises(UserError, match="another network"):
            adapters.captum(other)(model, batch, target, seed=0)
        with pytest.raises(UserError, match="give the class"):
            adapters.captum(captum.Saliency(lambda x: x.sum((1, 2, 3))[:, None]))(
                model, batch, target, seed=0
            )
        with pytest.raises(
            UserError,
            match=r"Occlusion.*a, b, c.*sliding_window",
        ):
            adapters.captum("Occlusion")(model, batch, target, seed=0)

    def test_on_the_engine_the_table_does_not_depend_on_the_batch_size(self, model, batch):
        captum = imported("captum.attr")
        methods = {"ig": adapters.captum("IntegratedGradients", {"n_steps": 4})}
        methods["shap"] = adapters.captum(
            captum.GradientShap, {"baselines": torch.zeros(1, 3, 32, 32)}
        )
        tables = [
            heatproof.evaluate(
                model, batch, methods, Stability(perturbations="jpeg"), batch_size=size
            ).table()
            for size in (1, 3)
        ]
        assert np.allclose(tables[0].value, tables[1].value, atol=1e-4, equal_nan=True)
        assert set(tables[0].explainer[tables[0].condition == "redraw"]) == {"shap"}


class TestGradCam:
    @pytest.mark.parametrize("name", ["GradCAM", "GradCAMPlusPlus", "EigenCAM"])
    def test_maps(self, name, model, batch, target):
        cams = imported("pytorch_grad_cam")
        wanted = imported("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
        with getattr(cams, name)(model=model.module, target_layers=[model.module[4]]) as cam:
            inputs = model.inputs(batch).requires_grad_()
            direct = cam(input_tensor=inputs, targets=[wanted(int(t)) for t in target])
        adapter = adapters.grad_cam(getattr(cams, name), LAST)
        assert close(adapter(model, batch, target, seed=0), direct[:, None])
        assert hooks(model.module) == 0

    def test_random_cam_is_seeded_and_an_ablated_layer_is_back(self, model, batch, target):
        imported("pytorch_grad_cam")
        drawn = adapters.grad_cam("RandomCAM", LAST)
        assert torch.equal(
            drawn(model, batch[[2]], target[[2]], seed=0), drawn(model, batch, target, seed=0)[[2]]
        )
        adapters.grad_cam("AblationCAM", LAST)(model, batch, target, seed=0)
        assert isinstance(model.module[4], nn.Conv2d)


class TestZennit:
    @pytest.mark.parametrize("attributor", ["gradient", "integrated_gradients"])
    def test_maps_with_a_canonizer(self, attributor, model, batch, target):
        zennit = imported("zennit")
        canonizer = zennit.canonizers.SequentialMergeBatchNorm()
        composite = zennit.composites.EpsilonGammaBox(low=-3.0, high=3.0, canonizers=[canonizer])
        kind = {
            "gradient": zennit.attribution.Gradient,
            "integrated_gradients": zennit.attribution.IntegratedGradients,
        }
        with kind[attributor](model.module, composite) as attribute:
            direct = attribute(model.inputs(batch), torch.eye(4)[target])[1]
        before = model.logits(model.inputs(batch))
        adapter = adapters.zennit(composite, attributor)
        assert close(adapter(model, batch, target, seed=0), direct)
        assert torch.equal(model.logits(model.inputs(batch)), before)
        assert hooks(model.module) == 0

    def test_names_and_smoothing(self, model, batch, target):
        zennit = imported("zennit")
        composite = zennit.composites.EpsilonPlusFlat()
        with zennit.attribution.Gradient(model.module, composite) as attribute:
            direct = attribute(model.inputs(batch), torch.eye(4)[target])[1]
        assert close(adapters.zennit("epsilon_plus_flat")(model, batch, target, seed=0), direct)

        def smoothed(inputs, classes):
            with zennit.attribution.SmoothGrad(model.module, composite, n_iter=3) as attribute:
                return attribute(inputs, torch.eye(4)[classes])[1]

        adapter = adapters.zennit("epsilon_plus_flat", "smoothgrad", {"n_iter": 3})
        assert close(
            adapter(model, batch, target, seed=0), one_by_one(model, batch, target, smoothed)
        )
        with pytest.raises(UserError, match=r"'epsilon_pluss'.*'epsilon_plus'"):
            adapters.zennit("epsilon_pluss").check(model, (3, 32, 32))


class TestShap:
    def test_gradient_and_deep(self, model, batch, target):
        shap = imported("shap")
        background = pictures(4, seed=9)[0]
        normal = model.inputs(Batch(tuple("abcd"), background))

        def gradient(inputs, classes):
            return shap.GradientExplainer(model.module, normal).shap_values(inputs, nsamples=10)[
                ..., int(classes[0])
            ]

        def deep(inputs, classes):
            return shap.DeepExplainer(model.module, normal).shap_values(inputs)[
                ..., int(classes[0])
            ]

        drawn = adapters.shap("gradient", background, {"nsamples": 10})(
            model, batch, target, seed=0
        )
        assert close(drawn, one_by_one(model, batch, target, gradient))
        found = adapters.shap("deep", background)(model, batch, target, seed=0)
        assert close(found, one_by_one(model, batch, target, deep))
        assert hooks(model.module) == 0

    @pytest.mark.slow  # SHAP compiles its partition anew in every process
    def test_partition(self, model, batch, target):
        shap = imported("shap")
        grey = (
            model.inputs(Batch(("grey",), torch.full((1, 3, 32, 32), 0.5)))[0]
            .permute(1, 2, 0)
            .numpy()
        )

        def scores(rows, target):
            with torch.no_grad():
                return model.module(
                    torch.tensor(rows, dtype=torch.float32).permute(0, 3, 1, 2)
                ).numpy()[:, [target]]

        def direct(inputs, classes):
            of_class = partial(scores, target=int(classes[0]))
            explain = shap.PartitionExplainer(of_class, shap.maskers.Image(grey, grey.shape))
            values = explain(inputs.permute(0, 2, 3, 1).numpy(), max_evals=64).values[..., 0]
            return values.transpose(0, 3, 1, 2)

        found = adapters.shap("partition", 0.5, {"max_evals": 64})(model, batch, target, seed=0)
        assert close(found, one_by_one(model, batch, target, direct))

    def test_a_background_of_another_shape_is_refused(self, model):
        imported("shap")
        with pytest.raises(UserError, match=r"2, 3, 8, 8.*3, 32, 32"):
            adapters.shap("deep", torch.zeros(2, 3, 8, 8)).check(model, (3, 32, 32))


class TestQuantus:
    def test_explain_func(self, model, batch, target):
        quantus = imported("quantus")
        arguments = {"method": "IntegratedGradients", "reduce_axes": ()}
        direct = quantus.explain(
            model.module, model.inputs(batch).numpy(), target.numpy(), **arguments
        )
        assert close(
            adapters.quantus(quantus.explain, arguments)(model, batch, target, seed=0), direct
        )

    def test_a_metric_as_an_evaluation(self, model, batch, target, tmp_path):
        quantus = imported("quantus")

        def metric():
            return quantus.FaithfulnessCorrelation(nr_runs=5, subset_size=50, disable_warnings=True)

        evaluation = QuantusMetric(metric())
        assert not evaluation.reexplains
        run = heatproof.evaluate(
            model, batch, ["saliency", "random"], {"quantus": evaluation}, tmp_path / "run"
        )
        rows = run.table().set_index(["explainer", "sample"]).sort_index()
        assert set(rows.measure) == {"quantus_faithfulness_correlation"} and set(rows.status) == {
            "ok"
        }
        maps = dict(zip(batch.ids, heatproof.Saliency()(model, batch, target, 0), strict=True))
        for i, sample in enumerate(batch.ids):
            with seeded(adapters.library_seed(0, sample), model.device):
                given = (
                    model.inputs(batch[[i]]).numpy(),
                    target[[i]].numpy(),
                    maps[sample][None].numpy(),
                )
                direct = metric()(model.module, *given)
            assert np.isclose(rows.value["saliency", sample], direct[0], atol=1e-4)
        assert np.isfinite(run.summary()["mean"]).all()

    def test_a_metric_that_explains_again(self, model, batch):
        quantus = imported("quantus")
        metric = quantus.MaxSensitivity(nr_samples=2, lower_bound=0.05, disable_warnings=True)
        evaluation = QuantusMetric(metric)
        assert evaluation.reexplains
        tables = [
            heatproof.evaluate(model, batch, ["saliency"], evaluation, batch_size=size).table()
            for size in (1, 3)
        ]
        assert np.allclose(tables[0].value, tables[1].value, rtol=1e-3)
        assert (tables[0].value > 0).all()

    def test_several_numbers_for_a_sample_are_refused_or_averaged(self, model, batch):
        quantus = imported("quantus")
        curve = quantus.PixelFlipping(features_in_step=512, disable_warnings=True)
        with pytest.raises(UserError, match="6 numbers"):
            heatproof.evaluate(model, batch, ["saliency"], QuantusMetric(curve))
        assert (
            len(
                heatproof.evaluate(
                    model, batch, ["saliency"], QuantusMetric(curve, reduce="mean")
                ).table()
            )
            == 3
        )


PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["quantus", "pytorch_grad_cam", "zennit", "shap"])
def test_the_examples_on_the_page_run(name, tmp_path, monkeypatch):
    imported(name)
    monkeypatch.chdir(tmp_path)
    setup = re.search(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    names: dict[str, object] = {}
    blocks = re.findall(rf'^```python title="needs {name}"\n(.*?)^```', PAGE, re.S | re.M)
    assert blocks
    for block in (setup[1], *blocks):
        exec(compile(block, "docs/adapters.md", "exec"), names)
    assert len(names["run"].table())


def test_the_study_file_on_the_page_is_read(tmp_path):
    for name in ("mine.py", "study.yaml"):
        text = re.search(rf'^```\w+ title="{name}"\n(.*?)^```', PAGE, re.S | re.M)[1]
        (tmp_path / name).write_text(text, encoding="utf-8")
    np.savez(tmp_path / "maps.npz", astronaut=np.zeros((1, 224, 224)))
    found = read_study(tmp_path / "study.yaml", allow_code=True).explainers
    assert list(found) == [
        "precomputed(path=maps.npz)", "captum(attribution=IntegratedGradients, arguments={'n_steps': 20})", "saliency",
    ]  # fmt: skip
