"""How near explainers come to the hardware's limit, and how they compare with Captum: as published, and at its best.

    python benchmarks/bench_speed.py [--architectures resnet50 densenet121 convnext_tiny vit_b_16] [--device cuda]

The ceiling is the bare network on inputs that lie ready in its own type and layout: passes, and passes differentiated
by the input, with one batch size. Each explainer's `of ceiling` is the time that its passes would take at the ceiling
over the time that it took, on the same network, in the same precision, compiled or not. The published way, in the same
process: Captum, batches of 16, IG with `internal_batch_size=8`, LIME with one perturbation per pass, PyTorch's default
flags. Captum at its best: the same network in the same precision and layout, compiled alike, and the fastest of several
batch sizes. Weights are random, which does not matter for speed. Needs torchvision, and Captum for the comparison.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import torch

from bench_study import ceiling, finish, seconds

try:
    import torchvision
except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises the second
    raise SystemExit(f"left out: torchvision cannot be imported here ({error})") from error

from heatproof import explainers as methods
from heatproof.explainers import IntegratedGradients, Lime
from heatproof.features import Patches
from heatproof.models import Model
from heatproof.models.precision import arithmetic, weight_type
from heatproof.types import Batch

MODES = (("float32", False), ("bfloat16", False), ("tf32", True), ("float16", True))
SIDE = 224
EVERY_EXPLAINER = [
    methods.Saliency(),
    methods.InputXGradient(),
    methods.IntegratedGradients(),
    methods.GradientShap(samples=8),
    methods.SmoothGrad(),
    methods.SmoothGradSquared(),
    methods.VarGrad(),
    methods.Mfaba(),
    methods.Lime(features=Patches(size=16)),
    methods.KernelShap(features=Patches(size=16)),
    methods.Occlusion(),
    methods.Rise(),
    methods.FeatureAblation(features=Patches(size=16)),
    methods.GradCAM(),
    methods.GuidedBackprop(),
    methods.DeepLift(),
]


def published(module: torch.nn.Module, x: torch.Tensor, lime: bool) -> tuple[float, float]:
    """Explanations per second of IG, and seconds per explanation of LIME, as the released code calls Captum."""
    from captum.attr import IntegratedGradients as CaptumGradients
    from captum.attr import Lime as CaptumLime

    target = torch.zeros(16, dtype=torch.long, device=x.device)
    attribute = CaptumGradients(module).attribute
    gradients = 16 / seconds(
        lambda: attribute(x[:16], target=target, n_steps=50, internal_batch_size=8)
    )
    if not lime:
        return gradients, math.nan
    patch = torch.arange(SIDE, device=x.device) // 16
    mask = (patch[:, None] * 14 + patch)[None, None]
    explain = CaptumLime(module).attribute
    begun = time.perf_counter()
    explain(x[:1], target=0, feature_mask=mask, n_samples=1000, perturbations_per_eval=1)
    finish()
    return gradients, time.perf_counter() - begun


def at_its_best(model: Model, x: torch.Tensor, rows: int, lime: bool) -> tuple[float, float]:
    """Explanations per second of IG, and seconds per explanation of LIME, by Captum with its best batch size.

    It has the bare network of `model`: in its precision and layout, and compiled where that is.
    """
    from captum.attr import IntegratedGradients as CaptumGradients
    from captum.attr import Lime as CaptumLime

    bare = model._compiled if model.is_compiled else model.module
    layout = torch.channels_last if model.channels_last else torch.contiguous_format
    kind = weight_type(model.precision) or torch.float32
    x = x.to(kind, memory_format=layout)

    attribute = CaptumGradients(bare).attribute
    rates = []
    for images in (max(rows // 50, 1), rows // 8, len(x)):
        some = x[:images]
        target = torch.zeros(len(some), dtype=torch.long, device=x.device)
        options = {"n_steps": 50, "internal_batch_size": max(rows, len(some))}

        def gradients(
            some: torch.Tensor = some,
            target: torch.Tensor = target,
            options: dict[str, int] = options,
        ) -> None:
            attribute(some, target=target, **options)

        rates.append(len(some) / seconds(gradients))
    if not lime:
        return max(rates), math.nan

    patch = torch.arange(SIDE, device=x.device) // 16
    mask = (patch[:, None] * 14 + patch)[None, None]
    explain = CaptumLime(bare).attribute
    spent = []
    for at_once in (max(rows // 4, 1), rows):

        def surrogate(at_once: int = at_once) -> None:
            explain(
                x[:1], target=0, feature_mask=mask, n_samples=1000, perturbations_per_eval=at_once
            )

        spent.append(seconds(surrogate))
    return max(rates), min(spent)


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument(
        "--architectures",
        nargs="+",
        default=["resnet50", "densenet121", "convnext_tiny", "vit_b_16"],
    )
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ask.add_argument("--rows", type=int, default=256 if torch.cuda.is_available() else 8)
    ask.add_argument("--images", type=int, default=128 if torch.cuda.is_available() else 4)
    ask.add_argument("--precisions", nargs="+", default=[precision for precision, _ in MODES])
    ask.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="explainers to time, in every precision, without Captum",
    )
    ask.add_argument("--eager", action="store_true", help="compile nothing")
    ask.add_argument(
        "--explainers",
        default="resnet50",
        help="the architecture on which every explainer is timed",
    )
    given = ask.parse_args()
    print(
        f"torch {torch.__version__}, {_name(given.device)}, batches of {given.rows}, {given.images} images",
        flush=True,
    )
    x = torch.rand(given.images, 3, SIDE, SIDE, device=given.device)
    batch = Batch(tuple(map(str, range(given.images))), x)
    target = torch.zeros(given.images, dtype=torch.long, device=given.device)
    ratios = []
    for name in given.architectures:
        torch.manual_seed(0)
        module = getattr(torchvision.models, name)().eval().to(given.device)
        lime = name in ("resnet50", "vit_b_16")
        way, way_lime = (math.nan, math.nan) if given.only else published(module, x, lime)
        print(
            f"\n{name}, the published way: IG-50 {way:.1f} explanations/s"
            + f", LIME {way_lime:.2f} s" * lime,
            flush=True,
        )
        for precision, compiled in (
            (p, c and not given.eager) for p, c in MODES if p in given.precisions
        ):
            torch._dynamo.reset()
            model = Model(module if weight_type(precision) is None else _twin(name, module)).use(
                precision, compiled
            )
            model.rows = given.rows
            with arithmetic(precision):
                forward, gradient = ceiling(model, (given.rows,), 10)
                if given.only:
                    every(model, batch, target, forward, gradient, given.only)
                    continue
                rate = given.images / seconds(
                    lambda m=model: IntegratedGradients()(m, batch, target, 0)
                )
                line = f"  {precision:<8} {'compiled' if compiled else 'eager':<8} ceiling {forward:>6.0f} forward/s "
                line += f"{gradient:>6.0f} gradients/s  IG-50 {rate:>6.1f}/s, {50 * rate / gradient:.2f} of ceiling, "
                print(line + f"{rate / way:.1f} times the published way", flush=True)
                best, best_lime = at_its_best(model, x, given.rows, lime)
                print(
                    f"           Captum at its best, same network and precision: IG-50 {best:.1f}/s, "
                    f"we are {rate / best:.2f} times as fast",
                    flush=True,
                )
                if lime and precision == given.precisions[-1]:
                    few = batch[:16]
                    explain = Lime(samples=1000, features=Patches(size=16))
                    spent = seconds(
                        lambda m=model, e=explain, b=few: e(m, b, target[:16], 0)
                    ) / len(few)
                    print(
                        f"  {precision} LIME, 1000 samples, 196 features: {spent:.3f} s, {way_lime / spent:.0f} times the "
                        f"published way, {best_lime / spent:.2f} times Captum at its best"
                    )
                if name == given.explainers and precision == given.precisions[-1]:
                    every(model, batch[: min(len(batch), 32)], target, forward, gradient)
            if precision == given.precisions[-1] and not given.only:
                ratios.append(rate / way)
            del model
    if not ratios:
        return
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(
        f"\nIG-50 in {given.precisions[-1]}, geometric mean: {mean:.1f} times the published way",
        flush=True,
    )


def every(
    model: Model,
    batch: Batch,
    target: torch.Tensor,
    forward: float,
    gradient: float,
    only: Sequence[str] = (),
) -> None:
    """Each explainer's passes per second over the ceiling."""
    how = f"{model.precision}{' compiled' * model.is_compiled}, {forward:.0f} forward/s, {gradient:.0f} gradients/s"
    print(f"  {how}, {len(batch)} images: passes, of which differentiated, per image; of ceiling")
    for explainer in (item for item in EVERY_EXPLAINER if not only or item.name in only):
        model.passes = model.gradient_passes = 0
        explainer(model, batch, target[: len(batch)], 0)
        passes, differentiated = model.passes, model.gradient_passes
        spent = seconds(lambda e=explainer: e(model, batch, target[: len(batch)], 0))
        ideal = (passes - differentiated) / forward + differentiated / gradient
        each = f"{passes / len(batch):>6.0f} {differentiated / len(batch):>6.0f}"
        print(
            f"    {explainer.name:<20} {each}  {1000 * spent / len(batch):>7.2f} ms  {ideal / spent:.2f}",
            flush=True,
        )


def _twin(name: str, module: torch.nn.Module) -> torch.nn.Module:
    """The same weights in a network of their own, for a 16-bit model rounds what it is given."""
    twin = getattr(torchvision.models, name)()
    twin.load_state_dict(module.state_dict())
    return twin.eval().to(next(module.parameters()).device)


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"


if __name__ == "__main__":
    main()
