"""How far the chance level depends on which eight samples serve as references.

    python benchmarks/chance_references.py python:FILE.py:FACTORY --images DIR [--samples 32] [--references 48]

Clean maps of some photographs are compared with those of many others, and eight of the others are drawn again and
again: the standard deviation of chance over such draws stands beside the standard error over the samples, which is all
that the intervals of `summary()` know of. Runs code from FILE.py.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from heatproof import Model, load_model, open_data
from heatproof.explainers import GradCAM, InputXGradient
from heatproof.maps.similarity import compare_all, composite, profile
from heatproof.runs.references import MIN_REFERENCES
from heatproof.types import Batch, Explainer

DRAWS = 2000


def maps(explainer: Explainer, model: Model, batch: Batch) -> Tensor:
    """Of the predicted classes."""
    found = []
    for start in range(0, len(batch), model.rows):
        part = batch[start : start + model.rows]
        with torch.no_grad():
            target = model.logits(model.inputs(part)).argmax(1)
        found.append(explainer(model, part, target, 0).detach())
    return torch.cat(found)


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("model")
    ask.add_argument("--images", required=True)
    ask.add_argument("--samples", type=int, default=32)
    ask.add_argument("--references", type=int, default=48)
    ask.add_argument("--mean", type=float, default=0.5)
    ask.add_argument("--std", type=float, default=0.5)
    given = ask.parse_args()
    model = load_model(given.model, allow_code=True, mean=given.mean, std=given.std)
    data = open_data(given.images, name="photographs", size=224)
    count = given.samples + given.references
    places = torch.linspace(0, len(data) - 1, min(count, len(data))).long().tolist()
    batch = data.load(places).batch.to(model.device)
    print("                            chance   sd over eights   se over samples")
    for explainer in (InputXGradient(), GradCAM()):
        found = profile(maps(explainer, model, batch))
        scores = compare_all(found[given.samples :], found[: given.samples])
        for name, values in {**scores, "fass": composite(scores)}.items():
            each = values.nanmean(1)
            order = torch.rand(
                DRAWS, len(each), generator=torch.Generator().manual_seed(0)
            ).argsort(1)
            eights = each.cpu()[order[:, :MIN_REFERENCES]].mean(1).std()
            error = values.nanmean(0).std() / given.samples**0.5
            label = f"{explainer.name} {name}"
            print(f"{label:<26}{values.nanmean():>8.3f}{eights:>17.4f}{error:>18.4f}", flush=True)


if __name__ == "__main__":
    main()
