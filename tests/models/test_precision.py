"""Lower precision: weights converted, interfaces in float32, gradients that do not vanish, compiled networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import heatproof
from heatproof.batching import BatchRunner
from heatproof.errors import UserError
from heatproof.explainers import GradCAM, GuidedBackprop, IntegratedGradients, Saliency
from heatproof.explainers.concepts.explain import layer_gradient
from heatproof.models import Model
from heatproof.models.precision import arithmetic
from heatproof.types import Batch
from support import small
from support.laws import ALL


def tiny_gradients(scale: float) -> nn.Module:
    """A network whose input gradient is far below the smallest float16, but whose scaled gradient is not."""
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    for part in net:
        nn.init.eye_(part.weight)
    net[0].weight.data *= scale
    net[1].weight.data *= scale
    return net


def test_small_gradients_survive_float16() -> None:
    net = tiny_gradients(1e-4)
    batch = Batch(("a",), torch.ones(1, 4))
    exact = Saliency()(Model(net), batch, torch.tensor([0]), 0)
    half = Saliency()(Model(net).use("float16"), batch, torch.tensor([0]), 0)
    assert exact[0, 0] < 6e-8, "plain float16 would give zero"
    torch.testing.assert_close(half, exact, rtol=2e-3, atol=0)


@pytest.mark.parametrize("slope", [300.0, 60_000.0])
def test_gradients_that_outgrow_float16_are_computed_again_with_a_smaller_scale(
    slope: float,
) -> None:
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    net[0].weight.data = 4 * torch.eye(4)
    net[1].weight.data = torch.cat([torch.eye(2) * slope, torch.zeros(2, 2)], 1)
    batch, target = Batch(("a", "b"), torch.full((2, 4), 1e-3)), torch.tensor([0, 1])
    exact = Saliency()(Model(net), batch, target, 0)
    model = Model(net).use("float16")
    assert not torch.isfinite(Saliency()(model, batch, target, 0)).all(), "as it is, it overflows"
    bench = BatchRunner(model, 1)
    torch.testing.assert_close(
        bench.explain(Saliency(), "saliency", batch, target, 0), exact, rtol=2e-3, atol=0
    )
    assert model.gradient_passes == 2 + (4 if slope < 10_000 else 6)


def test_gradients_of_layers_inside_have_their_true_size_and_maps_all_their_digits() -> None:
    torch.manual_seed(0)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    net = nn.Sequential(nn.Conv2d(3, 64, 5, stride=4), nn.ReLU(), *pooled)
    batch, target = Batch(("a", "b"), torch.rand(2, 3, 64, 64)), torch.tensor([0, 1])
    exact = GradCAM(relu=False)(Model(net), batch, target, 0)
    half = GradCAM(relu=False)(Model(net).use("float16"), batch, target, 0)
    torch.testing.assert_close(half, exact, rtol=0, atol=float(exact.abs().max()) * 2e-3)
    assert half[0, 0].unique().numel() > 0.9 * exact[0, 0].unique().numel()
    around = layer_gradient(Model(net).use("float16"), batch, target, "1")[1]
    torch.testing.assert_close(
        around, layer_gradient(Model(net), batch, target, "1")[1], rtol=2e-2, atol=1e-6
    )


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sixteen_bits_stay_inside_the_network(precision: str) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = Model(net, name="tiny")
    before = model.fingerprint
    batch = Batch(("a", "b"), torch.rand(2, 4, generator=torch.Generator().manual_seed(0)))
    exact = model.logits(batch.x)
    model.use(precision)  # type: ignore[arg-type]
    assert model.logits(batch.x).dtype == torch.float32 and model.fingerprint == before
    assert net[0].weight.dtype == torch.float32, "the user's own network is untouched"
    torch.testing.assert_close(model.logits(batch.x), exact, atol=0.05, rtol=0.05)
    maps = IntegratedGradients(steps=4)(model, batch, torch.tensor([0, 1]), 0)
    assert maps.dtype == torch.float32
    with pytest.raises(UserError, match="float32"):
        model.use("float32")


def test_a_run_records_its_precision_and_refuses_to_mix(tmp_path: object) -> None:
    model, data = small.model(), small.dataset(4)
    run = heatproof.evaluate(
        model, data, "saliency", out=f"{tmp_path}/run", limit=2, precision="bfloat16"
    )
    assert run.manifest.study.model(model.name).precision == "bfloat16"
    again = small.model()
    with pytest.raises(UserError, match="precision"):
        heatproof.evaluate(
            again, data, "saliency", out=f"{tmp_path}/run", limit=2, precision="tf32"
        )


def test_tf32_is_allowed_only_inside_its_context() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with arithmetic("tf32"):
        assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        with arithmetic("float32"):
            assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
    with pytest.raises(UserError, match="'float16'"), arithmetic("float-16"):
        pass


def test_methods_that_watch_the_network_do_not_use_its_compiled_form() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    batch = Batch(("a",), torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    target = torch.tensor([1])
    plain = Model(net)
    compiled = Model(net)
    used: list[int] = []

    def noticed(x: torch.Tensor) -> torch.Tensor:
        used.append(len(x))
        out: torch.Tensor = compiled.module(x)
        return out

    compiled._compiled = noticed
    for explainer in (GuidedBackprop(), GradCAM(layer="1")):
        torch.testing.assert_close(
            explainer(compiled, batch, target, 0), explainer(plain, batch, target, 0)
        )
    assert not used
    torch.testing.assert_close(
        Saliency()(compiled, batch, target, 0), Saliency()(plain, batch, target, 0)
    )
    assert not used  # one input is not worth a pass of the size that is compiled
    compiled.rows = 2
    several = Batch(("a", "b"), batch.x.expand(2, -1, -1, -1))
    Saliency()(compiled, several, target.expand(2), 0)
    assert used == [2]


@pytest.mark.parametrize(
    "name", [n for n in ALL if n not in ("expected_gradients", "weight_noise")]
)
def test_maps_in_sixteen_bits_are_those_of_thirty_two(name: str) -> None:
    images, _ = small.pictures(3)
    batch, target = Batch(("a", "b", "c"), images), torch.tensor([0, 1, 2])
    benches = [BatchRunner(small.model().use(precision), 8) for precision in ("float32", "float16")]  # type: ignore[arg-type]
    exact, half = (bench.explain(ALL[name], name, batch, target, 0) for bench in benches)
    assert torch.isfinite(half).all()
    alike = torch.cosine_similarity(exact.flatten(1).double(), half.flatten(1).double())
    assert float(alike.min()) > 0.95, alike
