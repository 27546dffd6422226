"""What batching group elements saves: passes and seconds of an equivariance score, against one element at a time.

    python benchmarks/bench_symmetry.py        (or `make bench`, which runs all benchmarks)

All sides score the same small pictures with the same circular network, explainers and elements of (Z/16Z)², in one
process on one thread; the scores are compared at the end. *One by one* explains one sample moved by one element at a
time and explains the sample itself again for each, *with the clean map kept* only does the latter once. *Element by
element* moves the whole batch by one element at a time and explains it again for each, which is how the published
scripts work. heatproof explains each sample once and flattens samples × elements into full batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof.axes.symmetry.groups import torus
from heatproof.axes.symmetry.orbit import orbit
from heatproof.axes.symmetry.scores import equivariance
from heatproof.explainers import GradientShap, InputXGradient, IntegratedGradients, Saliency
from heatproof.maps.similarity import cosine
from heatproof.models.randomised import seeded

PICTURES, SIZE, ELEMENTS, ROWS = 8, 16, 16, 64
EXPLAINERS = {
    "saliency": Saliency(),
    "input_x_gradient": InputXGradient(),
    "integrated_gradients": IntegratedGradients(steps=4),
    "gradient_shap": GradientShap(samples=3, sigma=0.2),
}
GROUP = torus()


def network() -> nn.Module:
    """Circular padding and a mean over all positions: invariant to shifts of rows and columns."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, padding_mode="circular"),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


def fresh_model() -> Model:
    return Model(seeded(network, 0), rows=ROWS)


def with_heatproof(model: Model, batch: Batch, target: Tensor, explainer: Any) -> Tensor:
    return equivariance(model, batch, target, explainer, GROUP, n=ELEMENTS).value


def one_by_one(keep: bool) -> Callable[[Model, Batch, Tensor, Any], Tensor]:
    def score(model: Model, batch: Batch, target: Tensor, explainer: Any) -> Tensor:
        elements = orbit(GROUP, batch, ELEMENTS).elements
        means = []
        for i in range(len(batch)):
            one, wanted, scores = batch[i : i + 1], target[i : i + 1], []
            clean = explainer(model, one, wanted, 0)
            for number, g in enumerate(elements[:, i]):
                if number and not keep:
                    clean = explainer(model, one, wanted, 0)
                moved = explainer(model, GROUP.act(g, one), wanted, 0)
                scores.append(cosine(moved.double(), GROUP.move(g, clean).double()))
            means.append(torch.cat(scores).mean())
        return torch.stack(means)

    return score


def element_by_element(model: Model, batch: Batch, target: Tensor, explainer: Any) -> Tensor:
    scores = []
    for g in orbit(GROUP, batch, ELEMENTS).elements:
        clean, moved = (
            explainer(model, batch, target, 0),
            explainer(model, GROUP.act(g, batch), target, 0),
        )
        scores.append(cosine(moved.double(), GROUP.move(g, clean).double()))
    return torch.stack(scores).mean(0)


def main() -> None:
    torch.set_num_threads(1)
    x = torch.rand(PICTURES, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    batch = Batch(tuple(f"{i:03d}" for i in range(PICTURES)), x)
    sides = {
        "one by one": one_by_one(keep=False),
        "one by one, the clean map kept": one_by_one(keep=True),
        "element by element": element_by_element,
        "heatproof": with_heatproof,
    }
    print(f"{PICTURES} pictures of {SIZE}×{SIZE}, {ELEMENTS} of {SIZE * SIZE} elements, one thread")
    rows, worst = [], 0.0
    for name, explainer in EXPLAINERS.items():
        expected, base = None, 0.0
        for side, score in sides.items():
            model = fresh_model()
            with torch.no_grad():
                target = model.logits(model.inputs(batch)).argmax(1)
            score(model, batch[:2], target[:2], explainer)  # no side pays for the first call
            best, passes = float("inf"), 0
            for _ in range(3):
                before, begun = model.passes, time.perf_counter()
                found = score(model, batch, target, explainer)
                best, passes = min(best, time.perf_counter() - begun), model.passes - before
            expected, base = (found, best) if expected is None else (expected, base)
            worst = max(worst, float((found - expected).abs().max()))
            rows.append((name, side, passes, best, base / best))
    columns = ["explainer", "", "passes", "seconds", "times faster"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="{:.3f}".format))
    print(f"largest difference of a score between the sides: {worst:.1e}")
    if worst > 1e-5:
        raise SystemExit("the sides disagree: the comparison is void")


if __name__ == "__main__":
    main()
