"""Differentiated passes of networks with batch norms: torch's way back through a norm, and one product.

    python benchmarks/bench_norms.py [--architectures resnet18 mobilenet_v2] [--precision float32]

On a CPU processor time on one thread, on a GPU seconds; batches of 8 or 256 photographs that lie ready, random
weights, both sides in one process. The gradients of both are compared. Needs torchvision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from heatproof import Model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, CALLS = (256, 10) if DEVICE == "cuda" else (8, 4)


def seconds(work: Callable[[], Tensor]) -> float:
    """Of one call, the quickest of some."""
    clock = time.perf_counter if DEVICE == "cuda" else time.process_time
    taken = []
    for _ in range(CALLS + 1):
        begun = clock()
        work()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken.append(clock() - begun)
    return min(taken[1:])


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--architectures", nargs="+", default=["resnet18", "mobilenet_v2"])
    ask.add_argument("--precision", default="float32")
    given = ask.parse_args()
    try:
        import torchvision
    except ImportError:
        print("torchvision is not installed; its networks are compared")
        return
    torch.set_num_threads(1)
    for name in given.architectures:
        for last in (False, True):
            torch.manual_seed(0)
            net = getattr(torchvision.models, name)().eval()
            model = Model(net, device=DEVICE, channels_last=last).use(given.precision)
            x = torch.rand(ROWS, 3, 224, 224, device=DEVICE)

            def gradient(model: Model = model, x: Tensor = x) -> Tensor:
                leaf = x.detach().requires_grad_()
                return torch.autograd.grad(model.logits(leaf)[:, 0].sum(), leaf)[0]

            quick, ours = seconds(gradient), gradient()
            for layer in model.module.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    del layer.forward
            plain, theirs = seconds(gradient), gradient()
            known = theirs.isfinite()  # of random weights some leave the range of 16 bits
            assert torch.equal(known, ours.isfinite())
            gap = float((ours - theirs)[known].abs().max() / theirs[known].abs().max())
            layout = "channels last" if model.channels_last else "channels first"
            print(
                f"{name}, {given.precision}, {layout}: {1000 * plain / ROWS:.2f} ms a differentiated pass, by products "
                f"{1000 * quick / ROWS:.2f} ms, {plain / quick:.2f} times as fast; largest difference {gap:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
