"""What sharing saves: model passes for 4 explainers × 5 perturbations, against the same work done pair by pair.

    python benchmarks/bench_sharing.py        (or `make bench`, which runs all benchmarks)

Both sides score the same 16 pictures with the same small trained classifier, explainers, perturbations, filter and
measures, in one process on one thread, and their scores are compared at the end. *Pair by pair* is how the published
scripts work: for every explainer and every perturbation anew, predict the clean and the perturbed input, keep the
pairs whose top-1 class is unchanged, and explain both inputs of each pair that was kept. heatproof predicts a clean
input once per shard, a perturbed one once for all explainers, and explains a clean input once for all perturbations.
So the fewer pairs flip, and the more perturbations there are, the more is saved: towards half of the explanations.

heatproof also does what the other side does not: it predicts its reference samples and scores every map against
theirs (the chance level), redraws stochastic explainers (the noise floor), and compares moved maps (alignment). The row
"heatproof, the same work" leaves out noise floor and alignment; the passes for the references, which cannot be left
out, are counted in it and shown. "heatproof, everything" is the default. A pass is one input through the network;
backward passes are not counted, on either side.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import heatproof
from heatproof import Batch, GradCAM, GradientShap, IntegratedGradients, Lime, Model, Stability
from heatproof.axes.stability.perturbations import PRESETS, condition
from heatproof.features import Patches
from heatproof.maps.similarity import compare, composite, profile
from heatproof.runs.references import default_reference_count
from heatproof.runs.study.registry import explainers as labelled
from support.small import model, pictures

PICTURES, BATCH, K, SEED = 16, 8, 100, 0
EXPLAINERS = labelled(
    [
        IntegratedGradients(steps=16),
        GradientShap(),
        GradCAM(),
        Lime(samples=50, features=Patches(size=8)),
    ]
)
PERTURBATIONS = PRESETS["fass-paper"]
Scores = dict[tuple[str, str, str], float]


def with_heatproof(
    images: torch.Tensor, explainers: Any = EXPLAINERS, **options: bool
) -> tuple[Model, float, Scores]:
    net = model(rows=BATCH)
    evaluation = Stability(perturbations=PERTURBATIONS, k=K, **options)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run = heatproof.evaluate(
            net, images, explainers, evaluation, folder, seed=SEED, batch_size=BATCH
        )
        seconds = time.perf_counter() - begun
        frame = run.table()
    # The other side moves no map with its input.
    kept = frame[frame.measure.isin(["fass", "fass_unaligned"]) & (frame.status == "ok")]
    kept = kept.sort_values("measure").drop_duplicates(
        ["explainer", "condition", "sample"], keep="last"
    )
    rows = zip(kept.explainer, kept.condition, kept["sample"], kept.value, strict=True)
    return (
        net,
        seconds,
        {(explainer, where, sample): value for explainer, where, sample, value in rows},
    )


def pair_by_pair(images: torch.Tensor) -> tuple[Model, float, Scores]:
    net = model(rows=BATCH)
    ids = tuple(f"{i:04d}" for i in range(len(images)))
    scores: Scores = {}
    begun = time.perf_counter()
    for name, explainer in EXPLAINERS.items():
        for perturbation in PERTURBATIONS:
            for start in range(0, len(images), BATCH):
                clean = Batch(ids[start : start + BATCH], images[start : start + BATCH])
                perturbed = clean.with_x(perturbation(clean, SEED))
                with torch.no_grad():
                    target = net.logits(net.inputs(clean)).argmax(1)
                    same = net.logits(net.inputs(perturbed)).argmax(1) == target
                if not bool(same.any()):
                    continue
                pair = [
                    profile(explainer(net, b[same], target[same], SEED), K, "average")
                    for b in (clean, perturbed)
                ]
                for sample, value in zip(
                    clean[same].ids, composite(compare(*pair), (1, 1, 1)).tolist(), strict=True
                ):
                    scores[name, condition(perturbation), sample] = value
    return net, time.perf_counter() - begun, scores


def main() -> None:
    torch.set_num_threads(1)
    images, _ = pictures(PICTURES)
    model()  # trained here, so that no side pays for it
    with_heatproof(images[:2])  # nor for the first imports
    sides = {
        "pair by pair": pair_by_pair(images),
        "heatproof, the same work": with_heatproof(images, noise_floor=False, aligned=False),
        "heatproof, everything": with_heatproof(images),
    }
    base, base_seconds, expected = sides["pair by pair"]
    shared, _, _ = with_heatproof(
        images, "sobel"
    )  # an explainer without passes leaves the predictions
    singly = 2 * PICTURES * len(EXPLAINERS) * len(PERTURBATIONS)
    rows = []
    for what, (net, seconds, _) in sides.items():
        predicted = singly if net is base else shared.passes
        rows.append((what, predicted, net.passes - predicted, net.passes, base.passes / net.passes))
        rows[-1] += (seconds, base_seconds / seconds)
    columns = ["", "to predict", "to explain", "passes", "ratio", "seconds", "ratio of seconds"]
    sizes = (
        f"{len(EXPLAINERS)} explainers × {len(PERTURBATIONS)} perturbations × {PICTURES} pictures"
    )
    print(f"{sizes}, {len(expected)} pairs kept")
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="{:.2f}".format))
    print(
        f"of heatproof's predictions {default_reference_count(PICTURES)} are of reference samples, for the chance level"
    )
    del sides["pair by pair"]
    for what, (_, _, scores) in sides.items():
        if scores.keys() != expected.keys():
            raise SystemExit(f"{what} kept other pairs: the comparison is void")
        worst = np.abs([scores[key] - expected[key] for key in expected]).max()
        print(f"largest difference of a score from pair by pair, {what}: {worst:.1e}")


if __name__ == "__main__":
    main()
