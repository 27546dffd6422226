"""Pictures of flips for the report: the input, the explanation alone, and what a few added features make of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from heatproof.axes.certificate.explanations import Explanations, joined
from heatproof.axes.certificate.flips import TRIALS, as_pictures, find_flips
from heatproof.evaluation import GalleryImage
from heatproof.features import Grouping, spread
from heatproof.features.fill import Fill
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import Batch

INPUT, EXPLANATION, FLIP = "input", "explanation", "flip"
"""Conditions of the gallery: x, x ⊙ α, and x ⊙ β with as many added features as the level says, 0 where none flip."""
EXAMPLES = 2
"""For how many samples of an explainer a flip is searched; each costs up to `TRIALS` passes that no row counts."""
NO_FLIP = f"no flip found in at most {TRIALS} trials"


def flip_gallery(
    subject: Subject, chosen: Sequence[Explanations], features: Grouping, fill: Fill
) -> dict[str, list[GalleryImage]]:
    """Return pictures of a few added features that change the prediction, as lists by explainer; empty without pictures.

    Each example has three: the input, the input with only the features of the explanation, and with a few more that flip
    the prediction, if a search found some. `chosen` has the explanations, one entry per explainer.
    """
    gallery: dict[str, list[GalleryImage]] = {explanations.explainer: [] for explanations in chosen}
    is_picture = subject.batch.x.ndim == 4 and subject.batch.x.shape[1] in (1, 3)
    # A flip is a change of the class, so without classes there is none to search for.
    if not is_picture or not subject.model.task.exclusive:
        return gallery
    ids = sorted(subject.gallery_ids)[:EXAMPLES]
    on_show = [explanations.only(ids) for explanations in chosen]
    together = joined(subject.batch, on_show)
    if not len(together.rows):
        return gallery
    model, batch, mask = subject.model, together.batch, together.mask

    def search(batch: Batch, mask: Tensor) -> Tensor:
        return find_flips(model, batch, mask, features, fill, subject.seed)

    def paint(batch: Batch, mask: Tensor) -> Tensor:
        return as_pictures(model, batch, mask, features, fill)

    flips = subject.compute(search, batch, mask)
    added = flips[:, 4:].bool().to(mask.device)
    explained = subject.compute(paint, batch, mask)
    flipped = subject.compute(paint, batch, mask | added)
    regions = spread(added.to(batch.x.device).float(), features.segments(batch))[:, None]
    names: list[str] = []
    for explanations in on_show:
        names += [explanations.explainer] * len(explanations.rows)
    for i, (name, row) in enumerate(zip(names, together.rows.tolist(), strict=True)):
        class_before, p_before, class_after, p_after = flips[i, :4].tolist()
        class_of_input = int(subject.target[row])
        of_input = _class_and_probability(model, class_of_input, float(subject.probability[row]))
        of_explanation = _class_and_probability(model, class_before, p_before)
        of_flip = NO_FLIP
        if bool(added[i].any()):
            of_flip = _class_and_probability(model, class_after, p_after)
            if class_after == class_of_input:
                of_flip += ", as on the whole input"
        sample, size = batch.ids[i], float(added[i].sum())
        gallery[name] += [
            GalleryImage(name, INPUT, 0.0, sample, batch.x[i], None, of_input),
            GalleryImage(name, EXPLANATION, 0.0, sample, explained[i], None, of_explanation),
            GalleryImage(name, FLIP, size, sample, flipped[i], regions[i], of_flip),
        ]
    return gallery


def _class_and_probability(model: Model, target: float, probability: float) -> str:
    """Return a prediction as it is written below a picture: its class and probability."""
    return f"{model.class_name(int(target))} ({100 * probability:.0f} %)"
