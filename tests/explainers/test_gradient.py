"""Gradient methods, modified backward passes, smoothing and controls, against Captum and against their laws."""

from __future__ import annotations

import captum.attr
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from skimage.filters import sobel
from torch import Tensor, nn

from heatproof import Batch, Model, UserError
from heatproof.explainers.cam import GradCAM
from heatproof.explainers.controls import RandomMap, SobelEdges
from heatproof.explainers.gradient import (
    ExpectedGradients,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    Saliency,
)
from heatproof.explainers.rules import DeepLift, GuidedBackprop
from heatproof.explainers.smoothgrad import SmoothGrad, SmoothGradSquared, VarGrad
from heatproof.runs.plan import make_plan

captum_warns = pytest.mark.filterwarnings(
    "ignore:Setting:UserWarning", "ignore:Input Tensor:UserWarning"
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(net: nn.Module, seed: int = 1) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            scale = (2 / parameter[0].numel()) ** 0.5 if parameter.ndim > 1 else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return net.eval()


def cnn(act: type[nn.Module] = nn.ReLU) -> nn.Module:
    return seeded(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), act(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), act(),
            nn.Flatten(), nn.Linear(8 * 4 * 4, 10), act(), nn.Linear(10, 4),
        )
    )  # fmt: skip


class Net(nn.Module):
    """One network of which only the way to call the non-linear functions differs."""

    def __init__(self, act, pool=lambda x: F.max_pool2d(x, 3, 2, 1)) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3)
        self.head = nn.Linear(8, 4)
        self.act, self.pool = act, pool

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.first(x)))
        return self.head(self.act(self.second(x)).mean((2, 3)))


def in_place_ignoring_the_result(x: Tensor) -> Tensor:
    x.relu_()
    return x


ACTIVATIONS = {
    "module": nn.ReLU(),
    "in_place_module": nn.ReLU(inplace=True),
    "functional": F.relu,
    "functional_in_place": lambda x: F.relu(x, inplace=True),
    "keyword": lambda x: F.relu(input=x),
    "torch": torch.relu,
    "torch_in_place": torch.relu_,
    "method": Tensor.relu,
    "method_in_place": in_place_ignoring_the_result,
    "clamp": lambda x: x.clamp(min=0),
    "clamp_in_place": lambda x: x.clamp_(min=0),
    "clamp_min": lambda x: torch.clamp_min(x, 0),
    "threshold": lambda x: F.threshold(x, 0, 0),
    "relu6_module": nn.ReLU6(),
    "relu6_in_place": nn.ReLU6(inplace=True),
    "relu6": F.relu6,
    "relu6_as_clamp": lambda x: x.clamp(0, 6),
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 6.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2, inplace=True),
    "elu": nn.ELU(inplace=True),
    "selu": F.selu,
    "celu": nn.CELU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(inplace=True),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": F.hardsigmoid,
    "softplus": nn.Softplus(),
    "sigmoid": torch.sigmoid,
    "tanh": Tensor.tanh,
    "prelu": nn.PReLU(),
    "softmax": lambda x: 5 * x.softmax(1),
    "log_softmax": nn.LogSoftmax(1),
}
RELUS = ["module", "in_place_module", "functional", "functional_in_place", "keyword", "torch", "torch_in_place",
         "method", "method_in_place", "clamp", "clamp_in_place", "clamp_min", "threshold"]  # fmt: skip
RELU6S = ["relu6_module", "relu6_in_place", "relu6", "relu6_as_clamp", "hardtanh"]


def batch_of(n: int = 5, size: int = 12, seed: int = 0) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(n)), numbers(n, 3, size, size, seed=seed))


def net_with(name: str, **more) -> Model:
    # Inputs reach beyond 6 so that relu6 saturates.
    return Model(seeded(Net(ACTIVATIONS[name], **more)), mean=0.5, std=0.1)


def assert_close(ours: Tensor, theirs: Tensor, relative: float = 1e-4) -> None:
    assert ours.shape == theirs.shape
    assert not ours.requires_grad
    assert float(theirs.abs().max()) > 0
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < relative


TARGET = torch.tensor([0, 1, 2, 3, 1])
MODEL = Model(cnn(), mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.3))
SMALL = batch_of()


class TestCaptum:
    x = MODEL.inputs(SMALL)

    @captum_warns
    def test_saliency_and_input_x_gradient(self):
        net = MODEL.module
        assert_close(
            Saliency()(MODEL, SMALL, TARGET, 0), captum.attr.Saliency(net).attribute(self.x, TARGET)
        )
        signed = captum.attr.Saliency(net).attribute(self.x, TARGET, abs=False)
        assert_close(Saliency(absolute=False)(MODEL, SMALL, TARGET, 0), signed)
        theirs = captum.attr.InputXGradient(net).attribute(self.x, TARGET)
        assert_close(InputXGradient()(MODEL, SMALL, TARGET, 0), theirs.detach())

    @pytest.mark.parametrize(
        "method",
        ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"],
    )
    @pytest.mark.parametrize(("steps", "baseline"), [(50, 0.0), (7, -0.3)])
    def test_integrated_gradients(self, method, steps, baseline):
        theirs = captum.attr.IntegratedGradients(MODEL.module).attribute(
            self.x, torch.full_like(self.x, baseline), TARGET, n_steps=steps, method=method
        )
        ours = IntegratedGradients(steps=steps, baseline=baseline, method=method)(
            MODEL, SMALL, TARGET, 0
        )
        assert_close(ours, theirs.detach().float())

    @captum_warns
    @pytest.mark.parametrize("baseline", [0.0, 0.7])
    @pytest.mark.parametrize(
        "act", [nn.ReLU, nn.ELU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LeakyReLU]
    )
    def test_deep_lift(self, act, baseline):
        # The baseline's feature maps are constant before the pool: no padding there unless everything is 0.
        net = cnn(act)
        if baseline:
            net[0].padding, net[3].padding = (0, 0), (1, 1)
            net[5] = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
        model = Model(net, mean=0.5, std=0.2)
        ours = DeepLift(baseline=baseline)(model, SMALL, TARGET, 0)
        x, reference = model.inputs(SMALL), captum.attr.DeepLift(model.module)
        if act not in (nn.ReLU, nn.LeakyReLU):
            # Captum's quotients of smooth functions lose digits to cancellation in float32.
            x = x.double()
            model.module.double()
        theirs = reference.attribute(x, torch.full_like(x, baseline), TARGET).detach().float()
        assert_close(ours, theirs)

    @captum_warns
    @pytest.mark.parametrize("seed", range(3))
    def test_deep_lift_with_a_reference_that_varies_within_a_window(self, seed):
        """A linear layer parts the non-linear ones: where two adjoin, Captum passes the first one the plain gradient
        and the sum is lost. Captum also takes its fallback from the first sample of a batch, hence one by one."""

        class Place(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bias = nn.Parameter(numbers(1, 3, 12, 12, seed=9))

            def forward(self, x: Tensor) -> Tensor:
                return x + self.bias

        layers = [
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.Conv2d(6, 6, 1),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 3),
            nn.ReLU(),
        ]
        net = seeded(nn.Sequential(Place(), *layers, nn.Conv2d(4, 4, 3), nn.Flatten()), seed)
        model = Model(net, mean=0.5, std=0.2)
        model.module[0].bias.copy_(3 * numbers(1, 3, 12, 12, seed=9))
        for i in range(5):
            x = model.inputs(SMALL[[i]])
            theirs, gap = captum.attr.DeepLift(model.module).attribute(
                x, torch.zeros_like(x), TARGET[[i]], return_convergence_delta=True
            )
            assert float(gap.abs()) < 1e-4
            assert_close(DeepLift()(model, SMALL[[i]], TARGET[[i]], 0), theirs.detach())

    @captum_warns
    def test_guided_backprop(self):
        theirs = captum.attr.GuidedBackprop(MODEL.module).attribute(self.x, TARGET)
        assert_close(GuidedBackprop()(MODEL, SMALL, TARGET, 0), theirs)

    def test_gradient_shap_agrees_in_the_mean(self):
        torch.manual_seed(0)
        x = self.x[:1]
        theirs = captum.attr.GradientShap(MODEL.module).attribute(
            x, torch.zeros_like(x), n_samples=1000, stdevs=0.2, target=TARGET[:1]
        )
        ours = GradientShap(samples=1000, sigma=0.2)(MODEL, SMALL[:1], TARGET[:1], 0)
        assert_close(ours, theirs.detach(), 0.08)

    def test_smoothgrad_family_agrees_in_the_mean(self):
        torch.manual_seed(0)
        net = nn.Sequential(MODEL.module)
        model = Model(net)
        batch = Batch(("a",), self.x[:1])
        tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(net))
        for kind, ours in (
            ("smoothgrad", SmoothGrad),
            ("smoothgrad_sq", SmoothGradSquared),
            ("vargrad", VarGrad),
        ):
            theirs = tunnel.attribute(
                batch.x, nt_type=kind, nt_samples=1000, stdevs=0.3, target=1, abs=False
            )
            explainer = ours(samples=1000, sigma=0.3, relative=False)
            assert_close(explainer(model, batch, torch.tensor([1]), 0), theirs.detach(), 0.12)


def completeness_error(
    maps: Tensor, model: Model, batch: Batch, target: Tensor, baseline: float
) -> float:
    x = model.inputs(batch)
    difference = model.logits(x) - model.logits(torch.full_like(x, baseline))
    wanted = difference.gather(1, target[:, None]).squeeze(1)
    assert float(wanted.abs().min()) > 1e-3
    return float(((maps.flatten(1).sum(1) - wanted).abs() / wanted.abs()).max())


class TestCompleteness:
    @pytest.mark.parametrize("name", ACTIVATIONS)
    def test_deep_lift_however_the_function_is_called(self, name):
        model = net_with(name)
        maps = DeepLift(baseline=0.2)(model, SMALL, TARGET, 0)
        assert completeness_error(maps, model, SMALL, TARGET, 0.2) < 1e-3

    @pytest.mark.parametrize(
        "pool",
        [
            nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), lambda x: torch.max_pool2d(x, 3, 2), nn.AdaptiveMaxPool2d(5),
            lambda x: F.max_pool2d(x, 3, stride=2, padding=1, dilation=1, ceil_mode=True),
        ],
    )  # fmt: skip
    def test_deep_lift_through_overlapping_pools(self, pool):
        model = net_with("functional", pool=pool)
        maps = DeepLift()(model, SMALL, TARGET, 0)
        assert completeness_error(maps, model, SMALL, TARGET, 0.0) < 1e-3

    def test_deep_lift_of_probabilities(self):
        as_they_are = {"classification": {"outputs": "logits"}}
        model = Model(nn.Sequential(cnn(), nn.Softmax(1)), mean=0.5, std=0.2, task=as_they_are)
        maps = DeepLift()(model, SMALL, TARGET, 0)
        x = model.inputs(SMALL)
        wanted = (model.logits(x) - model.logits(0 * x)).gather(1, TARGET[:, None]).squeeze(1)
        assert torch.allclose(maps.flatten(1).sum(1), wanted, atol=1e-4)

    def test_deep_lift_passes_one_baseline_for_all_samples(self):
        met = []
        model = net_with("module")
        model.module.register_forward_pre_hook(lambda module, inputs: met.append(len(inputs[0])))
        DeepLift(baseline=0.2)(model, SMALL, TARGET, 0)
        assert met == [1, len(SMALL)]

    def test_deep_lift_needs_no_samples_first(self):
        class SequenceFirst(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.head = nn.Linear(4, 6), nn.Linear(6, 4)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(F.relu(self.inner(x.transpose(0, 1))).sum(0))

        model = Model(seeded(SequenceFirst()))
        batch = Batch(("a", "b", "c"), numbers(3, 6, 4) - 0.5)
        maps = DeepLift(baseline=0.3)(model, batch, TARGET[:3], 0)
        assert completeness_error(maps, model, batch, TARGET[:3], 0.3) < 1e-3

    def test_integrated_gradients(self):
        model = net_with("gelu", pool=nn.AvgPool2d(2))
        maps = IntegratedGradients(steps=100, baseline=0.1)(model, SMALL, TARGET, 0)
        assert completeness_error(maps, model, SMALL, TARGET, 0.1) < 1e-3


class TestRules:
    @pytest.mark.parametrize("explainer", [DeepLift(), GuidedBackprop()])
    @pytest.mark.parametrize("names", [RELUS, RELU6S], ids=["relu", "relu6"])
    def test_the_way_of_calling_makes_no_difference(self, explainer, names):
        first, *others = (explainer(net_with(name), SMALL, TARGET, 0) for name in names)
        for maps in others:
            assert_close(maps, first, 1e-6)

    def test_guided_backprop_of_relu6_by_hand(self):
        class Two(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.stack([F.relu6(x).sum(1), F.relu6(x)[:, 0] - F.relu6(x)[:, 1]], 1)

        maps = GuidedBackprop()(
            Model(Two()), Batch(("a",), torch.tensor([[3.0, 2.0]])), torch.tensor([1]), 0
        )
        assert maps.tolist() == [[1.0, 0.0]]
        maps = GuidedBackprop()(
            Model(Two()), Batch(("a",), torch.tensor([[7.0, -2.0]])), torch.tensor([0]), 0
        )
        assert maps.tolist() == [[0.0, 0.0]]

    def test_guided_backprop_refuses_a_model_without_relu(self):
        with pytest.raises(UserError, match=r"Named.*saliency"):
            GuidedBackprop()(Model(cnn(nn.GELU), name="Named"), SMALL, TARGET, 0)

    def test_deep_lift_of_a_linear_model_is_the_product(self):
        layer = nn.Linear(SMALL.x[0].numel(), 4)
        maps = DeepLift(baseline=0.2)(Model(nn.Sequential(nn.Flatten(), layer)), SMALL, TARGET, 0)
        assert_close(maps, (layer.weight[TARGET].view_as(SMALL.x) * (SMALL.x - 0.2)).detach())

    def test_deep_lift_refuses_hidden_non_linearities(self):
        class Square(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return (x * x).flatten(1)[:, :4] * 5

        with pytest.raises(UserError, match="Square"):
            DeepLift()(Model(Square()), SMALL, TARGET, 0)

    def test_deep_lift_refuses_another_path_for_the_baseline(self):
        class Branching(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                x = x.flatten(1)[:, :4]
                return F.relu(x) if bool((x > 0).any()) else x

        with pytest.raises(UserError, match="Branching"):
            DeepLift()(Model(Branching()), SMALL, TARGET, 0)


class TestSmoothing:
    @pytest.mark.parametrize(
        "of", [Saliency(), InputXGradient(), GradientShap(), GuidedBackprop(), GradCAM()]
    )
    def test_without_noise_it_is_the_inner_explainer(self, of):
        inner = of(MODEL, SMALL, TARGET, 3)
        assert_close(SmoothGrad(of=of, samples=4, sigma=0.0)(MODEL, SMALL, TARGET, 3), inner, 1e-5)
        assert_close(
            SmoothGradSquared(of=of, samples=4, sigma=0.0)(MODEL, SMALL, TARGET, 3), inner**2, 1e-5
        )
        varying = VarGrad(of=of, samples=4, sigma=0.0)(MODEL, SMALL, TARGET, 3)
        assert float(varying.max()) < 1e-9 * float(inner.square().max())

    def test_moments_are_those_of_the_draws(self):
        seen: list[Tensor] = []

        class Keeping:
            kind, stochastic = "feature", False

            def __call__(self, model, batch, target, seed):
                seen.append(Saliency(absolute=False)(model, batch, target, seed))
                return seen[-1]

        batch, target = SMALL[:2], TARGET[:2]
        mean = SmoothGrad(of=Keeping(), samples=6)(MODEL, batch, target, 0)
        singles = torch.cat(seen).double().reshape(2, 6, *batch.x.shape[1:])
        assert_close(mean, singles.mean(1).float(), 1e-5)
        assert_close(
            VarGrad(samples=6)(MODEL, batch, target, 0), singles.var(1, correction=0).float(), 1e-5
        )
        assert_close(
            SmoothGradSquared(samples=6)(MODEL, batch, target, 0),
            singles.square().mean(1).float(),
            1e-5,
        )

    def test_noise_is_a_share_of_the_samples_own_range(self):
        seen: list[Tensor] = []

        class Keeping:
            kind, stochastic = "feature", False

            def __call__(self, model, batch, target, seed):
                seen.append(batch.x)
                return batch.x

        x = torch.stack([torch.linspace(0, 1, 4000), torch.linspace(-5, 5, 4000)])
        SmoothGrad(of=Keeping(), samples=5, sigma=0.2)(
            Model(nn.Identity()), Batch(("a", "b"), x), TARGET[:2], 0
        )
        noise = torch.cat(seen).reshape(2, 5, 4000) - x[:, None]
        assert torch.allclose(noise.std((1, 2)), torch.tensor([0.2, 2.0]), rtol=0.03)
        SmoothGrad(of=Keeping(), samples=1, sigma=0.2, relative=False)(
            Model(nn.Identity()), Batch(("a", "b"), x), TARGET[:2], 0
        )
        assert torch.allclose((seen[-1] - x).std(1), torch.tensor([0.2, 0.2]), rtol=0.05)

    def test_vargrad_of_a_linear_model_is_zero(self):
        model = Model(seeded(nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 4))))
        assert not VarGrad()(model, SMALL, TARGET, 0).any()

    def test_the_inner_explainer_is_checked(self):
        with pytest.raises(ValueError, match="feature explainer"):
            SmoothGrad(of="saliency")
        with pytest.raises(UserError, match="nearest"):
            SmoothGrad(of=GradCAM(layer="9")).check(MODEL, (3, 12, 12))


def test_gradient_shap_of_a_linear_model_is_input_x_gradient():
    model = Model(seeded(nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 4))), mean=0.5)
    assert_close(
        GradientShap()(model, SMALL, TARGET, 0), InputXGradient()(model, SMALL, TARGET, 0), 1e-5
    )


class TestControls:
    def test_random_is_the_same_for_the_same_input_and_unrelated_for_another(self):
        batch = batch_of(4, 32)
        first = RandomMap()(MODEL, batch, TARGET[:4], 0)
        assert torch.equal(
            first, RandomMap()(MODEL, batch.with_x(batch.x.clone()), TARGET[:4] * 0, 0)
        )
        one_pixel = batch.x.clone()
        one_pixel[:, 1, 3, 4] += 1 / 255
        for changed in (
            one_pixel,
            1.5 * batch.x,
            batch.x.flip(3),
            batch.x.roll(1, 2),
            batch.x + 0.01,
        ):
            other = RandomMap()(MODEL, batch.with_x(changed), TARGET[:4], 0)
            cosine = F.cosine_similarity(first.flatten(1), other.flatten(1))
            assert float(cosine.abs().max()) < 0.1
        assert not torch.equal(first, RandomMap()(MODEL, batch, TARGET[:4], 1))
        assert abs(float(first.mean())) < 0.05 and abs(float(first.std()) - 1) < 0.05

    def test_random_hardly_ever_sees_the_last_bit(self):
        batch = Batch(tuple(str(i) for i in range(200)), numbers(200, 3, 16, 16))
        rounded = batch.with_x((batch.x + 0.1) - 0.1)
        assert bool((batch.x != rounded.x).any(1).any())
        target = torch.zeros(200, dtype=torch.int64)
        same = (
            (RandomMap()(MODEL, batch, target, 0) == RandomMap()(MODEL, rounded, target, 0))
            .flatten(1)
            .all(1)
        )
        assert float(same.float().mean()) > 0.95

    def test_random_works_at_any_scale(self):
        for scale in (1e-6, 1e6):
            x = numbers(1, 50) * scale
            a, b = (RandomMap()(MODEL, Batch(("a",), v), TARGET[:1], 0) for v in (x, x * 1.05))
            assert not bool((a == b).any())
        assert torch.isfinite(
            RandomMap()(MODEL, Batch(("a",), torch.zeros(1, 50)), TARGET[:1], 0)
        ).all()

    def test_sobel_is_scikit_images_up_to_its_scale(self):
        batch = batch_of(2, 16)
        ours = SobelEdges()(MODEL, batch, TARGET[:2], 0)
        grey = torch.einsum("bchw,c->bhw", batch.x, torch.tensor([0.299, 0.587, 0.114]))
        theirs = torch.stack([torch.from_numpy(sobel(image.numpy())) for image in grey])
        assert_close(ours, theirs[:, None].expand_as(ours) / 2**0.5, 1e-5)
        with pytest.raises(UserError, match="images"):
            SobelEdges().check(MODEL, (3, 100))


EVERY = [
    Saliency(), InputXGradient(), IntegratedGradients(steps=6), GradientShap(sigma=0.1), DeepLift(), GuidedBackprop(),
    GradCAM(), SmoothGrad(samples=4), SmoothGrad(of=IntegratedGradients(steps=3), samples=3),
    SmoothGrad(of=GradientShap(samples=2), samples=3), SmoothGradSquared(samples=4), VarGrad(samples=4), RandomMap(),
    SobelEdges(),
]  # fmt: skip


@pytest.mark.parametrize("explainer", EVERY, ids=lambda e: e.name)
class TestEvery:
    def test_batch_size_and_rows_make_no_difference(self, explainer):
        model = Model(cnn(), mean=0.5, std=0.2)
        wanted = explainer(model, SMALL, TARGET, 7)
        assert wanted.shape == SMALL.x.shape and wanted.device == model.device
        for rows in (1, 3, 64):
            model.rows = rows
            single = torch.cat([explainer(model, SMALL[[i]], TARGET[[i]], 7) for i in range(5)])
            assert_close(single, wanted, 1e-5)
            assert_close(
                explainer(model, SMALL[[4, 2, 0, 3, 1]], TARGET[[4, 2, 0, 3, 1]], 7)[
                    [2, 4, 1, 3, 0]
                ],
                wanted,
                1e-5,
            )

    def test_it_works_without_gradients_and_leaves_nothing_behind(self, explainer):
        model, state = Model(cnn(), mean=0.5), torch.get_rng_state()
        before = SMALL.x.clone()
        wanted = explainer(model, SMALL, TARGET, 0)
        with torch.no_grad():
            assert torch.equal(explainer(model, SMALL, TARGET, 0), wanted)
        assert torch.equal(torch.get_rng_state(), state) and torch.equal(SMALL.x, before)
        for part in model.module.modules():
            assert (
                not part._forward_hooks and not part._forward_pre_hooks and not part._backward_hooks
            )

    def test_no_pass_is_larger_than_rows(self, explainer):
        sizes = []

        class Counting(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = cnn()

            def forward(self, x: Tensor) -> Tensor:
                sizes.append(len(x))
                return self.inner(x)

        explainer(Model(Counting(), rows=2), SMALL, TARGET, 0)
        assert max(sizes, default=0) <= 2


GRADIENT_METHODS = [e for e in EVERY if e.name not in ("grad_cam", "sobel")]


@pytest.mark.parametrize("explainer", GRADIENT_METHODS, ids=lambda e: e.name)
def test_other_shapes_and_auxiliary_tensors(explainer):
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv1d(2, 5, 3, padding=1), nn.Linear(5, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.head((F.relu(self.conv(x)) * mask[:, None]).sum(2))

    mask = (numbers(5, 9, seed=3) > 0.4).float()
    model = Model(seeded(Masked()))
    series = Batch(tuple("abcde"), numbers(5, 2, 9), {"mask": mask})
    wanted = explainer(model, series, TARGET, 0)
    assert wanted.shape == (5, 2, 9)
    model.rows = 2
    assert_close(explainer(model, series, TARGET, 0), wanted, 1e-5)
    table = Batch(tuple("abcde"), numbers(5, 6))
    tabular = Model(seeded(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))))
    assert explainer(tabular, table, TARGET, 0).shape == (5, 6)


@pytest.mark.parametrize("explainer", [Saliency(), IntegratedGradients(), DeepLift(), SmoothGrad()])
def test_integer_inputs_are_refused(explainer):
    with pytest.raises(UserError, match="floating-point"):
        explainer(
            Model(nn.Flatten()), Batch(("a",), torch.zeros(1, 3, dtype=torch.int64)), TARGET[:1], 0
        )


def test_riemann_rules_need_two_steps():
    with pytest.raises(UserError, match="2 steps"):
        IntegratedGradients(steps=1, method="riemann_left")(MODEL, SMALL, TARGET, 0)


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


class TestExpectedGradients:
    """On f(x) = Σ aᵢxᵢ² the maps are aᵢ(xᵢ² − E bᵢ²), in closed form."""

    net = seeded(nn.Sequential(Square(), nn.Linear(4, 2, bias=False)))
    batch = Batch(("a", "b"), torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 1.0, -1.0]]))
    pool = torch.tensor([[0.0, 1.0, -1.0, 2.0], [2.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.5, -3.0]])
    target = torch.tensor([1, 0])

    def error(self, explainer, seed=0) -> float:
        weight = self.net[1].weight[self.target].detach()
        exact = weight * (self.batch.x**2 - (self.pool**2).mean(0))
        return float(
            (explainer(Model(self.net), self.batch, self.target, seed) - exact).norm()
            / exact.norm()
        )

    def test_strata_come_nearer_than_independent_draws(self):
        baseline = Batch(("p", "q", "r"), self.pool)
        ours, theirs = (
            np.mean([self.error(kind(samples=30, baseline=baseline), seed) for seed in range(20)])
            for kind in (ExpectedGradients, GradientShap)
        )
        assert ours < 0.5 * theirs
        assert self.error(ExpectedGradients(samples=3000, baseline=baseline)) < 0.01

    def test_in_a_study_baselines_are_its_references_and_elsewhere_an_error_says_so(self):
        kinds = ["expected_gradients", {"gradient_shap": {"baseline": "references"}}]
        plan = make_plan(Model(self.net), self.batch, kinds, "stability")
        (configured,) = plan.configured.values()
        for explainer in configured.explainers.values():
            assert sorted(explainer.baseline.batch.ids) == ["a", "b"]
        with pytest.raises(UserError, match=r"expected_gradients.*references"):
            ExpectedGradients()(Model(self.net), self.batch, self.target, 0)

    def test_each_data_set_brings_its_own_references(self):
        other = Batch(("p", "q"), self.batch.x + 1)
        data = {"one": self.batch, "two": other}
        plan = make_plan(Model(self.net), data, ["expected_gradients"], "stability")
        for (dataset, _), study in plan.configured.items():
            (explainer,) = study.explainers.values()
            assert set(explainer.baseline.batch.ids) <= set(data[dataset].ids)
