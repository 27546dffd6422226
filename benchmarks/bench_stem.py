"""A first layer of patches in 16 bits on a GPU: torch's own, and in blocks, as heatproof computes it.

    python benchmarks/bench_stem.py [--architectures convnext_tiny vit_b_16] [--compile]

Passes and differentiated passes a second of the whole network, with random weights, on batches of 256 photographs that
lie ready; both sides run in one process on the same weights. Needs a GPU and torchvision.
"""

from __future__ import annotations

import argparse

import torch

ROWS = 256


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument(
        "--architectures",
        nargs="+",
        default=["convnext_tiny", "vit_b_16"],
    )
    ask.add_argument("--compile", action="store_true")
    given = ask.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU here; this compares layers on one")
        return
    import fass_grid
    from bench_study import ceiling
    from heatproof import Model
    from heatproof.models.convolutions import in_blocks

    for name in given.architectures:
        model = Model(fass_grid.network(name), fass_grid.MEAN, fass_grid.STD, device="cuda")
        model.use("float16", given.compile)
        stems = [layer for layer in model.module.modules() if _function(layer) is in_blocks]
        if not stems:
            print(f"{name}: no first layer of patches", flush=True)
            continue
        rates = []
        for own in (False, True):
            for layer in stems if own else ():
                del layer.forward
            torch._dynamo.reset()  # a network is compiled at its first pass
            rates.append(ceiling(model, (ROWS,)))
        print(f"{name}, in blocks against torch's own first layer, passes a second:", flush=True)
        for what, ours, theirs in zip(("forwards", "differentiated"), *rates, strict=True):
            print(
                f"  {what}: {ours:.0f} and {theirs:.0f}, {ours / theirs:.2f} times as many",
                flush=True,
            )


def _function(layer: torch.nn.Module) -> object:
    """What a layer that computes in another form calls."""
    return getattr(vars(layer).get("forward"), "func", None)


if __name__ == "__main__":
    main()
