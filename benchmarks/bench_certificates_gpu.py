"""Certificates per second on a GPU, against the loop of the published code.

    python benchmarks/bench_certificates_gpu.py

The loop draws 150 masks of Δ_r one by one, runs them in batches of 16 at PyTorch's default flags and counts how often
the prediction stays. heatproof certifies the same images with the same explanations and radius, once with the same 150
masks (Hoeffding) and once with its default, which stops as soon as the interval is narrow enough. ResNet-50 and
ViT-B/16 have random weights, which serve for timing; a random network's prediction seldom changes, so the default
stops early here. Passes are printed beside every time.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import heatproof
from heatproof.features import Patches
from heatproof.models import Model
from heatproof.models.precision import arithmetic
from heatproof.types import Batch

MASKS, LOOP_BATCH, RADIUS = 150, 16, 10
ARCHITECTURES = ("resnet50", "vit_b_16")


def published_loop(
    net: torch.nn.Module, x: Tensor, mask: Tensor, generator: torch.Generator
) -> float:
    """The rate for one image (3, 224, 224): masks one by one, batches of 16."""
    n = len(mask)
    outside = (~mask).nonzero().flatten()
    sizes = torch.tensor(
        [float(math.comb(len(outside), k)) for k in range(RADIUS + 1)], dtype=torch.float64
    )

    def masked(kept: Tensor) -> Tensor:
        side = math.isqrt(n)
        return x * kept.reshape(side, side).repeat_interleave(16, 0).repeat_interleave(16, 1).to(x)

    own = net(masked(mask)[None]).argmax(1)
    stays = 0
    for start in range(0, MASKS, LOOP_BATCH):
        inputs = []
        for _ in range(min(LOOP_BATCH, MASKS - start)):
            k = int(torch.multinomial(sizes, 1, generator=generator))
            added = outside[torch.randperm(len(outside), generator=generator)[:k]]
            kept = mask.clone()
            kept[added] = True
            inputs.append(masked(kept))
        stays += int((net(torch.stack(inputs)).argmax(1) == own).sum())
    return stays / MASKS


def seconds(work: Callable[[], Any], repeats: int, device: str) -> float:
    """The best of a few repeats after one to warm up."""
    work()
    best = math.inf
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--loop-images", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--architectures", nargs="*", default=ARCHITECTURES)
    args = parser.parse_args()
    from torchvision import models

    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(
        f"{name}, torch {torch.__version__}, {args.images} images, radius {RADIUS}, 196 patches, a quarter selected"
    )
    print(
        f"{'architecture':<12} {'way':<40} {'passes':>7} {'ms each':>9} {'per s':>8} {'times':>6}"
    )
    for architecture in args.architectures:
        torch.manual_seed(0)
        net = models.get_model(architecture, weights=None).eval().to(args.device)
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(args.images, 3, 224, 224, generator=generator)
        mask = torch.zeros(args.images, 196, dtype=torch.bool)
        for row in mask:
            row[torch.randperm(196, generator=generator)[:49]] = True

        def loop(net: torch.nn.Module = net, x: Tensor = x, mask: Tensor = mask) -> None:
            with torch.no_grad():
                for image in range(args.loop_images):
                    published_loop(
                        net,
                        x[image].to(args.device),
                        mask[image].to(args.device),
                        torch.Generator(),
                    )

        published = seconds(loop, 2, args.device) / args.loop_images
        row = f"{'published loop, default flags':<40} {MASKS:>7} {1000 * published:>9.2f} {1 / published:>8.1f}"
        print(f"{architecture:<12} {row} {1:>6.1f}", flush=True)
        batch = Batch(tuple(str(i) for i in range(args.images)), x).to(args.device)
        for precision, compiled in (
            ("float32", False),
            ("tf32", False),
            ("float16", False),
            ("float16", True),
        ):
            model = Model(net, channels_last=architecture.startswith("res"), rows=512).use(
                precision, compiled
            )  # type: ignore[arg-type]
            for method in ("hoeffding", "clopper-pearson"):
                passes: list[float] = []

                def ours(
                    model: Model = model,
                    batch: Batch = batch,
                    mask: Tensor = mask,
                    method: str = method,
                    passes: list[float] = passes,
                ) -> None:
                    found = heatproof.certify(
                        model,
                        batch,
                        mask,
                        features=Patches(16),
                        radii=(RADIUS,),
                        method=method,
                        seed=0,
                    )
                    passes.append(float(found.passes.double().mean()))

                with arithmetic(precision):
                    each = seconds(ours, 3, args.device) / args.images
                way = f"heatproof, {precision}{', compiled' if compiled else ''}"
                way += ", same masks" if method == "hoeffding" else ""
                row = f"{way:<40} {passes[-1]:>7.0f} {1000 * each:>9.2f} {1 / each:>8.1f} {published / each:>6.1f}"
                print(f"{architecture:<12} {row}", flush=True)


if __name__ == "__main__":
    main()
