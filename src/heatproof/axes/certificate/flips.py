"""An example of an unstable explanation: few added features that flip the prediction."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.certificate.agreement import Problem
from heatproof.features import Grouping
from heatproof.features.fill import Fill, filled, kept_only
from heatproof.models import Model
from heatproof.types import Batch

TRIALS = 63
"""How many inputs are usually tried in all."""
SHARE_OF_SINGLES = 40 / 63
"""The share of the trials that are for single features."""
AT_ONCE = 8
"""How many single features are tried at a time; if one of them flips, the search is over: no set is smaller."""

Search = Generator[list[Tensor], Tensor, "Flip"]
"""The search in one sample: yields sets of features to be added, and is sent the probabilities (R, K) with them."""


class Flip(NamedTuple):
    """Class and probability before and after `added` features (k,) were added; none were where nothing flips."""

    class_before: int
    probability_before: float
    class_after: int
    probability_after: float
    added: Tensor


def find_flips(
    model: Model,
    batch: Batch,
    mask: Tensor,
    features: Grouping,
    fill: Fill,
    seed: int,
    trials: int = TRIALS,
) -> Tensor:
    """Return small sets of features that change the prediction when they are added to the explanations `mask` (B, n).

    It is a search that takes at most `trials` model passes per sample, about two thirds of them for single features in
    random order. If none of them changes the prediction, features are added together, the most harmful first; the
    smallest set that changes it counts. The result (B, 4 + n) float64 has the class and its probability before, the class
    and its probability after, and which features were added, none if no set was found.

    >>> class Sum(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.stack([x.sum(1) * 0 + 2.5, x.sum(1)], 1)
    >>> from heatproof.features import Pixels
    >>> batch, mask = Batch(("a",), torch.ones(1, 4)), torch.tensor([[True, False, False, False]])
    >>> int(find_flips(Model(Sum()), batch, mask, Pixels(), "zero", 0)[0, 4:].sum())
    2
    """
    problem = Problem(model, batch, mask, features, fill, "argmax", None, None, seed)
    return _search_all(problem, trials, seed)


def bounds_by_search(
    model: Model,
    batch: Batch,
    mask: Tensor,
    features: Grouping,
    fill: Fill,
    seed: int,
    trials: int,
) -> Tensor:
    """Return an upper bound of how many features can be added to each explanation without changing the prediction.

    A search looks for few added features that change it (a flip). A flip of k features is a counterexample for the radius
    k, so the hard radius is at most k − 1; where no flip was found the bound is m, the number of features that can be
    added, which says nothing. The result (B, 3) float64 has the class predicted on the explanation alone, the bound, and
    m. The bound is NaN where the model's scores of a masked input are not finite.

    >>> class Sum(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.stack([x.sum(1) * 0 + 2.5, x.sum(1)], 1)
    >>> from heatproof.features import Pixels
    >>> batch, mask = Batch(("a",), torch.ones(1, 4)), torch.tensor([[True, False, False, False]])
    >>> bounds_by_search(Model(Sum()), batch, mask, Pixels(), "zero", 0, trials=20).tolist()
    [[0.0, 1.0, 3.0]]
    """
    problem = Problem(model, batch, mask, features, fill, "argmax", None, None, seed)
    flips = _search_all(problem, trials, seed)
    size = flips[:, 4:].sum(1)
    addable = problem.left_out.double()
    bound = torch.where(size > 0, size - 1, addable)
    bound[problem.not_finite.cpu() > 0] = torch.nan
    return torch.stack([flips[:, 0], bound, addable], 1)


def _search_all(problem: Problem, trials: int, seed: int) -> Tensor:
    """Return, for every sample, few added features that change the prediction, in the columns of `find_flips`.

    The search in one sample (`_search`) is a generator: it yields the sets of features that it wants to try, is sent the
    model's probabilities with them, and returns its result at the end. The searches of all samples advance together, so
    that batches of the model are full.
    """
    model, batch = problem.model, problem.batch
    explanations = problem.mask.cpu()
    probabilities_before = problem.reference.softmax(1).cpu()
    singles = max(1, round(SHARE_OF_SINGLES * trials))
    searches: list[Search] = []
    for i, key in enumerate(rand.keys(seed, batch.ids, "flip")):
        addable = problem.free[i].nonzero().flatten().cpu()
        in_random_order = addable[rand.permutation(key[None], len(addable))[0]]
        searches.append(_search(in_random_order[:singles], probabilities_before[i], trials))

    # What the search of each sample wants to try next; searches that have ended have no entry.
    sets_to_try = {i: next(search) for i, search in enumerate(searches)}
    results = torch.zeros(len(batch), 4 + explanations.shape[1], dtype=torch.float64)
    while sets_to_try:
        # One masked input per set: the explanation of its sample with the set added.
        counts = [len(sets) for sets in sets_to_try.values()]
        owner = torch.tensor(list(sets_to_try)).repeat_interleave(torch.tensor(counts))
        masks = explanations[owner]
        for row, added in zip(masks, chain.from_iterable(sets_to_try.values()), strict=True):
            row[added] = True
        masks = masks.to(model.device)
        outputs = torch.cat(list(problem.outputs(owner.to(model.device), masks.__getitem__)))
        probabilities = torch.split(outputs.softmax(1).cpu(), counts)
        for i, of_sample in zip(list(sets_to_try), probabilities, strict=True):
            try:
                sets_to_try[i] = searches[i].send(of_sample)
            except StopIteration as end:
                flip: Flip = end.value
                results[i, :4] = torch.tensor(flip[:4], dtype=torch.float64)
                results[i, 4 + flip.added] = 1
                del sets_to_try[i]
    return results


def _search(candidates: Tensor, before: Tensor, trials: int) -> Search:
    """Search in one sample for few features that change the prediction when they are added to the explanation.

    `candidates` (F,) are the features to try one by one, and `before` (K,) are the class probabilities on the explanation
    alone. A generator: it yields lists of feature sets to try, is sent the probabilities (R, K) with each of them added,
    and returns the `Flip`.
    """
    predicted = int(before.argmax())
    outputs_of_singles = []
    for features in torch.split(candidates, AT_ONCE):
        outputs = yield list(features[:, None])
        outputs_of_singles.append(outputs)
        if bool((outputs.argmax(1) != predicted).any()):
            break  # no set is smaller than a single feature
    outputs = torch.cat(outputs_of_singles)
    lead = _lead(outputs, predicted)
    smallest = int(lead.argmin())
    if int(outputs[smallest].argmax()) != predicted:
        return _flip(before, outputs[smallest], candidates[smallest][None])

    # No single feature flips: add more and more of them, the most harmful first.
    harmful = candidates[lead.argsort(stable=True)]
    most = min(len(harmful), trials - len(candidates))
    sets = [harmful[:size] for size in range(2, most + 1)]
    if sets:
        outputs = yield sets
        flips = (outputs.argmax(1) != predicted).nonzero().flatten()
        if len(flips):
            first = int(flips[0])
            return _flip(before, outputs[first], sets[first])
    return _flip(before, before, candidates[:0])


def _lead(outputs: Tensor, predicted: int) -> Tensor:
    """Return by how much the predicted class is ahead of the next one, (R,), from probabilities (R, K)."""
    is_predicted = torch.arange(outputs.shape[1]) == predicted
    next_best = outputs.masked_fill(is_predicted, -1.0).amax(1)
    return outputs[:, predicted] - next_best


def _flip(before: Tensor, after: Tensor, added: Tensor) -> Flip:
    """Return the flip between two predictions (K,)."""
    old, new = int(before.argmax()), int(after.argmax())
    return Flip(old, float(before[old]), new, float(after[new]), added)


def as_pictures(model: Model, batch: Batch, kept: Tensor, features: Grouping, fill: Fill) -> Tensor:
    """Return images with only the features `kept` (B, n), the others filled, as the model sees them, on the CPU.

    The values are in the data's own units: the model's normalisation is undone.

    >>> from heatproof.features import Pixels
    >>> batch, kept = Batch(("a",), torch.ones(1, 1, 1, 2)), torch.tensor([[True, False]])
    >>> as_pictures(Model(torch.nn.Flatten(), mean=0.5), batch, kept, Pixels(), "zero").tolist()
    [[[[1.0, 0.5]]]]
    """
    batch, kept = batch.to(model.device), kept.to(model.device)
    with torch.no_grad():
        inputs, segments = model.inputs(batch), features.segments(batch)
        absent = filled(fill, model, batch, inputs, segments)
        masked, _ = kept_only(features, inputs, absent, batch.aux, kept, segments)
    pictures = masked.float().cpu()
    per_channel = (1, -1, *[1] * (pictures.ndim - 2))
    if model.std is not None:
        pictures = pictures * torch.tensor(model.std).reshape(per_channel)
    if model.mean is not None:
        pictures = pictures + torch.tensor(model.mean).reshape(per_channel)
    return pictures
