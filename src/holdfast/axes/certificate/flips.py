"""An example of an unstable explanation: few added features that flip the prediction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast import rand
from holdfast.axes.certificate.agreement import Problem
from holdfast.features import Grouping
from holdfast.features.fill import Fill, filled, kept_only
from holdfast.models import Model
from holdfast.types import Batch

SINGLES, TRIALS = 40, 63
"""Features tried one by one, and inputs tried in all, in the search for a flip."""
AT_ONCE = 8
"""Features tried before it is asked whether one of them flips: a single one is the smallest set there is."""


def find_flip(model: Model, batch: Batch, mask: Tensor, features: Grouping, fill: Fill, seed: int) -> Tensor:
    """A superset of the explanation `mask` (n,) of one sample on which the prediction differs, with few features added.

    Features are tried one at a time (at most `SINGLES`, drawn at random, until one of `AT_ONCE` flips), then together,
    the most harmful first; the smallest flipping set counts. Gives (4 + n,) float64: class and probability on x ⊙ α,
    class and probability on x ⊙ β, and which features were added, none where no set of the `TRIALS` inputs flips.

    >>> class Sum(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.stack([x.sum(1) * 0 + 2.5, x.sum(1)], 1)
    >>> from holdfast.features import Pixels
    >>> batch, mask = Batch(("a",), torch.ones(1, 4)), torch.tensor([True, False, False, False])
    >>> int(find_flip(Model(Sum()), batch, mask, Pixels(), "zero", 0)[4:].sum())
    2
    """
    problem = Problem(model, batch, mask[None], features, fill, "argmax", None, None, seed)
    mask, addable = problem.mask[0], problem.free[0].nonzero().flatten()
    order = rand.permutation(rand.keys(seed, batch.ids, "flip"), len(addable))[0].to(addable.device)
    tried = addable[order[:SINGLES]]

    def look(added: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The sets with these features added, (R, n), and the class probabilities on them, (R, classes)."""
        kept = mask.repeat(len(added), 1)
        for row, some in zip(kept, added, strict=True):
            row[some] = True
        owner = torch.zeros(len(kept), dtype=torch.int64, device=kept.device)
        return kept, torch.cat([*problem.outputs(owner, kept.__getitem__)]).softmax(1).cpu()

    start = problem.reference[0].softmax(0).cpu()
    predicted = int(start.argmax())
    unchanged = [float(predicted), float(start[predicted])]
    looks: list[tuple[Tensor, Tensor]] = []
    for some in torch.split(tried, AT_ONCE):
        looks.append(look([feature[None] for feature in some]))
        if bool((looks[-1][1].argmax(1) != predicted).any()):
            break
    kept, outputs = (torch.cat(parts) for parts in zip(*looks, strict=True))
    lead = outputs[:, predicted] - outputs.masked_fill(torch.arange(outputs.shape[1]) == predicted, -1.0).amax(1)
    best = int(lead.argmin())
    if int(outputs[best].argmax()) == predicted:
        harmful = tried[lead.argsort(stable=True).to(tried.device)]
        together = [harmful[:size] for size in range(2, min(len(harmful), TRIALS - len(tried)) + 1)]
        if together:
            kept, outputs = look(together)
        flips = (outputs.argmax(1) != predicted).nonzero().flatten()
        if not len(flips):
            return torch.tensor(2 * unchanged + [0.0] * len(mask), dtype=torch.float64)
        best = int(flips[0])
    new = int(outputs[best].argmax())
    head = torch.tensor([*unchanged, new, float(outputs[best, new])], dtype=torch.float64)
    return torch.cat([head, (kept[best] & ~mask).double().cpu()])


def as_pictures(model: Model, batch: Batch, kept: Tensor, features: Grouping, fill: Fill) -> Tensor:
    """What the model sees of images with only the features `kept` (B, n), in the data's own units, on the CPU.

    >>> from holdfast.features import Pixels
    >>> batch, kept = Batch(("a",), torch.ones(1, 1, 1, 2)), torch.tensor([[True, False]])
    >>> as_pictures(Model(torch.nn.Flatten(), mean=0.5), batch, kept, Pixels(), "zero").tolist()
    [[[[1.0, 0.5]]]]
    """
    batch, kept = batch.to(model.device), kept.to(model.device)
    with torch.no_grad():
        inputs, segments = model.inputs(batch), features.segments(batch)
        absent = filled(fill, model, batch, inputs, segments)
        masked = kept_only(features, inputs, absent, batch.aux, kept, segments)[0].float().cpu()
    shape = (1, -1, *[1] * (masked.ndim - 2))
    if model.std is not None:
        masked = masked * torch.tensor(model.std).reshape(shape)
    return masked if model.mean is None else masked + torch.tensor(model.mean).reshape(shape)
