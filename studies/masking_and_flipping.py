"""Random masking and random flipping on the same random spectra: Figure 13 of the paper on soft stability.

    python studies/masking_and_flipping.py [--features 10] [--functions 100] [--out figure13.svg] [--network]

Fourier coefficients of random functions are drawn from the normal distribution. Masking M_λ moves their mass to smaller
sets, so low degrees gain; flipping T_λ multiplies each coefficient by λ^|S|, so no degree gains. With `--network` the
weights of degree 1 and 2 of a real network are estimated as well: EfficientNet-Lite0 on a photograph, whose 49 patches
are the features and whose probability of the predicted class is the function. Seconds; with `--network` a minute or two.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import heatproof
from heatproof import boolean
from heatproof.features import Patches
from heatproof.features.fill import kept_only

RATES = (1.0, 0.75, 0.5, 0.25)


def spectra(features: int, functions: int, seed: int = 0) -> dict[str, Tensor]:
    """Return the mean mass on each degree (n + 1,) after masking and flipping with each λ, by "masking 0.5" and so on."""
    g = torch.Generator().manual_seed(seed)
    coefficients = torch.randn(functions, 2**features, generator=g, dtype=torch.float64)
    masses = {}
    for rate in RATES:
        after_masking = boolean.masking(coefficients, rate, "fourier")
        after_flipping = boolean.flipping(coefficients, rate, "fourier")
        masses[f"masking {rate:g}"] = boolean.by_degree(after_masking).mean(0)
        masses[f"flipping {rate:g}"] = boolean.by_degree(after_flipping).mean(0)
    return masses


def draw(masses: dict[str, Tensor], path: str) -> None:
    """Write the two panels of the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, operator in zip(panels, ("masking", "flipping"), strict=True):
        for rate in RATES:
            panel.plot(masses[f"{operator} {rate:g}"].numpy(), marker="o", label=f"λ = {rate:g}")
        panel.set(title=f"random {operator}", xlabel="degree")
    panels[0].set_ylabel("mass")
    panels[0].legend()
    figure.savefig(path)


def weights_of_a_network(draws: int) -> boolean.SampledWeights:
    """Return the estimated weights of degree 1 and 2 of a network on one photograph."""
    model = heatproof.load_model("bundled:efficientnet-lite0")
    batch = heatproof.open_data("bundled:photographs").load([0]).batch
    features = Patches(32)
    inputs = model.inputs(batch)
    segments = features.segments(batch)
    with torch.no_grad():
        predicted = model.logits(inputs).argmax(1)

    def probability(masks: Tensor) -> Tensor:
        """Return the probability of the predicted class with some of the patches."""
        rows = len(masks)
        repeated = inputs.expand(rows, -1, -1, -1)
        with torch.no_grad():
            shown, _ = kept_only(
                features,
                repeated,
                torch.zeros_like(repeated),
                {},
                masks,
                segments.expand(rows, -1, -1),
            )
            return model.logits(shown).softmax(1)[:, predicted.item()]

    n = int(segments.max()) + 1
    return boolean.sampled_weights(probability, n, (1, 2), draws, centre=0.2, rows=16)


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--features", type=int, default=10)
    ask.add_argument("--functions", type=int, default=100)
    ask.add_argument("--draws", type=int, default=400, help="masks for --network")
    ask.add_argument("--network", action="store_true")
    ask.add_argument("--out", help="where to write the figure")
    args = ask.parse_args()
    masses = spectra(args.features, args.functions)
    print(f"{'mass on degree':<16}" + "".join(f"{k:>8}" for k in range(args.features + 1)))
    for name, mass in masses.items():
        print(f"{name:<16}" + "".join(f"{value:>8.1f}" for value in mass.tolist()))
    if args.out:
        draw(masses, args.out)
        print(f"wrote {args.out}")
    if args.network:
        weights = weights_of_a_network(args.draws)
        for degree, weight, low, high in zip(*weights, strict=True):
            print(f"degree {int(degree)}: weight {weight:.4f} [{low:.4f}, {high:.4f}]")


if __name__ == "__main__":
    main()
