"""How many small pictures go into one pass on a CPU: as many as `heatproof` takes unless told, and 256.

    python benchmarks/bench_rows.py [--networks cifar10-densenet-s0 cifar10-resnet-s0]

Processor time on one thread of a forward and of a differentiated pass of the atlas's networks with random weights, on
pictures of 32 pixels; memory is kept as the command line keeps it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from heatproof.batching import default_batch_size, keep_freed_memory

sys.path.append(str(Path(__file__).resolve().parents[1] / "studies" / "atlas"))

from networks import NETWORKS

PICTURES, CALLS = 256, 3


def milliseconds(work: Callable[[torch.Tensor], object], rows: int) -> float:
    """Of one picture, the quickest of some calls."""
    x = torch.rand(PICTURES, 3, 32, 32)
    taken = []
    for _ in range(CALLS):
        begun = time.process_time()
        for part in x.split(rows):
            work(part)
        taken.append(time.process_time() - begun)
    return 1000 * min(taken) / PICTURES


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["cifar10-densenet-s0", "cifar10-resnet-s0", "cifar10-vit-s0", "cifar10-convnext-s0"]
    ask.add_argument(
        "--networks", nargs="+", default=names, choices=list(NETWORKS), metavar="NETWORK"
    )
    given = ask.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    usual = default_batch_size(3 * 32 * 32)
    for name in given.networks:
        net = NETWORKS[name].build().eval()

        def forward(x: torch.Tensor, net: torch.nn.Module = net) -> None:
            with torch.no_grad():
                net(x)

        def gradient(x: torch.Tensor, net: torch.nn.Module = net) -> None:
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(net(leaf)[:, 0].sum(), leaf)

        for what, work in (("forward", forward), ("differentiated", gradient)):
            few, many = (milliseconds(work, rows) for rows in (usual, PICTURES))
            print(
                f"{name}, {what}: {few:.2f} ms in {usual}, {many:.2f} ms in {PICTURES}, {many / few:.2f} times as fast"
            )


if __name__ == "__main__":
    main()
