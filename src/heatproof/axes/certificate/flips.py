"""An example of an unstable explanation: few added features that flip the prediction."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.certificate.agreement import Problem
from heatproof.features import Grouping
from heatproof.features.fill import Fill, filled, kept_only
from heatproof.models import Model
from heatproof.types import Batch

SINGLES, TRIALS = 40, 63
"""Features tried one by one, and inputs tried in all, in the search for a flip."""
AT_ONCE = 8
"""Features tried before it is asked whether one of them flips: a single one is the smallest set there is."""


def find_flips(
    model: Model, batch: Batch, mask: Tensor, features: Grouping, fill: Fill, seed: int
) -> Tensor:
    """Supersets of the explanations `mask` (B, n) on which the prediction differs, with few features added.

    Of each sample, features are tried one at a time (at most `SINGLES`, drawn at random, until one of `AT_ONCE` flips),
    then together, the most harmful first; the smallest flipping set counts. Gives (B, 4 + n) float64: class and
    probability on x ⊙ α, class and probability on x ⊙ β, and which features were added, none where no set of the
    `TRIALS` inputs flips.

    >>> class Sum(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.stack([x.sum(1) * 0 + 2.5, x.sum(1)], 1)
    >>> from heatproof.features import Pixels
    >>> batch, mask = Batch(("a",), torch.ones(1, 4)), torch.tensor([[True, False, False, False]])
    >>> int(find_flips(Model(Sum()), batch, mask, Pixels(), "zero", 0)[0, 4:].sum())
    2
    """
    problem = Problem(model, batch, mask, features, fill, "argmax", None, None, seed)
    alone, start, searches = problem.mask.cpu(), problem.reference.softmax(1).cpu(), []
    for i, key in enumerate(rand.keys(seed, batch.ids, "flip")):
        addable = problem.free[i].nonzero().flatten().cpu()
        searches.append(
            _search(addable[rand.permutation(key[None], len(addable))[0, :SINGLES]], start[i])
        )
    asked = {i: next(search) for i, search in enumerate(searches)}
    found = torch.zeros(len(batch), 4 + alone.shape[1], dtype=torch.float64)
    while asked:  # what all samples want to know next is one look
        sizes = [len(sets) for sets in asked.values()]
        owner = torch.tensor(list(asked)).repeat_interleave(torch.tensor(sizes))
        kept = alone[owner]
        for row, some in zip(kept, chain.from_iterable(asked.values()), strict=True):
            row[some] = True
        owner, kept = owner.to(model.device), kept.to(model.device)
        told = torch.cat([*problem.outputs(owner, kept.__getitem__)]).softmax(1).cpu()
        for i, answer in zip(list(asked), torch.split(told, sizes), strict=True):
            try:
                asked[i] = searches[i].send(answer)
            except StopIteration as end:
                found[i, :4], added = torch.tensor(end.value[0], dtype=torch.float64), end.value[1]
                found[i, 4 + added] = 1
                del asked[i]
    return found


def _search(
    tried: Tensor, start: Tensor
) -> Generator[list[Tensor], Tensor, tuple[list[float], Tensor]]:
    """The search of a sample: asks for sets of features to be added, and is sent the probabilities (R, K) with them.

    Gives the class and probability before and after, and the features that were added.
    """
    predicted = int(start.argmax())
    unchanged = [float(predicted), float(start[predicted])]
    sets, looks = list(tried[:, None]), list[Tensor]()
    for some in torch.split(tried, AT_ONCE):
        looks.append((yield list(some[:, None])))
        if bool((looks[-1].argmax(1) != predicted).any()):
            break
    outputs = torch.cat(looks)
    lead = outputs[:, predicted] - outputs.masked_fill(
        torch.arange(outputs.shape[1]) == predicted, -1.0
    ).amax(1)
    best = int(lead.argmin())
    if int(outputs[best].argmax()) == predicted:
        harmful = tried[lead.argsort(stable=True)]
        sets = [harmful[:size] for size in range(2, min(len(harmful), TRIALS - len(tried)) + 1)]
        outputs = (yield sets) if sets else outputs
        flips = (outputs.argmax(1) != predicted).nonzero().flatten()
        if not len(flips):
            return 2 * unchanged, tried[:0]
        best = int(flips[0])
    new = int(outputs[best].argmax())
    return [*unchanged, float(new), float(outputs[best, new])], sets[best]


def as_pictures(model: Model, batch: Batch, kept: Tensor, features: Grouping, fill: Fill) -> Tensor:
    """What the model sees of images with only the features `kept` (B, n), in the data's own units, on the CPU.

    >>> from heatproof.features import Pixels
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
