"""Removal sweeps: in which order features go, how many at each step, and what the model says then.

Positions are the pixels (H, W) of images, the steps (T,) of series, the columns (F,) of tables and the tokens (L,) of
texts; where a shape says (B, H, W), the others take the place of (H, W).

A feature's importance is the mean over its positions of the map summed over channels. Features go from the most
important (`morf`), from the least important (`lerf`, the same order backwards) or in a random order. Values that are
equal to four digits of their root mean square, which is more than batches of another size round off, are ordered by
one draw per sample, the same for every explainer. At fraction f exactly ⌊f·n + ½⌋ of n features are gone,
and what is gone at one fraction is gone at every larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from heatproof import rand
from heatproof.errors import BadParameter, UserError, resolve, unknown
from heatproof.features import pool
from heatproof.removal import IMPUTERS
from heatproof.types import Batch, label_of

Order = Literal["morf", "lerf", "random"]
ORDERS: tuple[Order, ...] = ("morf", "lerf", "random")
VALUES = {"cpu": 2**22, "cuda": 256 * 3 * 224 * 224}
"""How many values of imputed images exist at a time: few enough for a CPU's cache, enough to fill a GPU."""

Predict = Callable[[Batch], Tensor]


def resolve_imputer(value: Any, registry: Mapping[str, Any] = IMPUTERS) -> Any:
    """Return an imputer from its name or from `{name: {parameters}}`; an object is returned unchanged.

    >>> resolve_imputer("noisy-linear")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: unknown imputer 'noisy-linear'; did you mean 'noisy_linear'? Allowed: ...
    """
    kinds = tuple(registry.values())
    return resolve(
        "imputer", registry, value, lambda item: callable(item) or isinstance(item, kinds)
    )


def resolve_imputers(value: Any, registry: Mapping[str, Any] = IMPUTERS) -> tuple[Any, ...]:
    """Return imputers from one or from a list of them; they must be different and at least one."""
    items = value if isinstance(value, list | tuple) else [value]
    imputers = tuple(resolve_imputer(item, registry) for item in items)
    names = [label_of(imputer) for imputer in imputers]
    if not names or len(set(names)) != len(names):
        raise BadParameter(
            f"imputers must be different and at least one, got {', '.join(names) or 'none'}"
        )
    return imputers


def bound(imputer: Any, reference: Tensor, features: Any) -> Any:
    """Return the imputer with the reference samples (R, …) and the features that it needs; most need neither.

    >>> from heatproof.removal.contextual import ReferenceMean
    >>> bound(ReferenceMean(), torch.tensor([[1.0], [2.0]]), None).fill.tolist()
    [1.5]
    """
    return imputer.bound(reference, features) if hasattr(imputer, "bound") else imputer


def try_imputer(imputer: Any, shape: Sequence[int]) -> None:
    """Call an imputer once on a sample of this shape with its first position kept, so that errors show before the run.

    >>> from heatproof.removal import IMPUTERS
    >>> try_imputer(IMPUTERS["dataset_mean"](mean=(0.1, 0.2)), (3, 8, 8))
    Traceback (most recent call last):
    heatproof.errors.UserError: dataset_mean.mean has 2 numbers, not one for each of 3 channels
    """
    positions = list(shape) if len(shape) == 1 else list(shape[1:])
    keep = torch.arange(math.prod(positions)).reshape(1, *positions) < 1
    x = torch.zeros(1, *shape)
    bound(imputer, x, None)(x, keep, ("",), 0)


def needs_kept(imputer: Any) -> bool:
    """Whether an imputer cannot fill in a sample of which nothing is kept, such as one that uses neighbours.

    >>> from heatproof.removal import IMPUTERS
    >>> needs_kept(IMPUTERS["noisy_linear"]()), needs_kept(IMPUTERS["zero"]())
    (True, False)
    """
    return bool(getattr(imputer, "needs_kept", False))


def importance(maps: Tensor, absolute: bool = False, tokens: bool = False) -> Tensor:
    """Return the map summed over channels, (B, C, H, W) to (B, H, W) in float64; of absolute values if `absolute`.

    Of series (B, C, T) to (B, T); rows of a table (B, F) have no channels, and those of `tokens` come last, (B, L, D).

    >>> importance(torch.tensor([[[[1.0, 2.0]], [[-3.0, 2.0]]]])).tolist()
    [[[-2.0, 4.0]]]
    """
    values = maps.double().abs() if absolute else maps.double()
    if values.ndim == 2:
        return values
    return values.sum(2) if tokens else values.sum(1)


def feature_means(values: Tensor, segments: Tensor, n: int) -> Tensor:
    """Return the mean of `values` (B, H, W) over each of n features, (B, n); 0 for features that a sample lacks.

    >>> feature_means(torch.tensor([[1.0, 3.0, 4.0]]), torch.tensor([[0, 0, 1]]), 3).tolist()
    [[2.0, 4.0, 0.0]]
    """
    area = pool(torch.ones_like(segments, dtype=values.dtype), segments, n)
    return pool(values, segments, n) / area.clamp(min=1)


def removal_ranks(
    values: Tensor, counts: Tensor, ids: Sequence[str], order: Order = "morf", seed: int = 0
) -> Tensor:
    """Return the position of each feature in the order of removal, (B, n) int64, 0 for the first that is removed.

    "morf" (most relevant first) removes features from the largest of `values` (B, n) to the smallest, "lerf" (least
    relevant first) is the same order backwards, and "random" ignores the values. Sample b has counts[b] features; the
    entries beyond that come last. Values that are equal but for rounding are ordered by a random draw, which depends on
    the seed and the sample's id alone.

    >>> ranks = removal_ranks(torch.tensor([[0.5, 2.0, 1.0]]), torch.tensor([3]), ["a"])
    >>> ranks.tolist(), removal_ranks(torch.tensor([[0.5, 2.0, 1.0]]), torch.tensor([3]), ["a"], "lerf").tolist()
    ([[2, 0, 1]], [[0, 2, 1]])
    """
    if order not in ORDERS:
        raise unknown("order", order, ORDERS)
    n, device, counts = values.shape[1], values.device, counts.to(values.device)
    if order == "random":
        random_order = rand.permutation(rand.keys(seed, ids, "random order").to(device), n)
        values = -_ranks_of(random_order).double()
    else:
        values = settled(values, counts)
    exists = torch.arange(n, device=device) < counts[:, None]
    values = values.masked_fill(~exists, -torch.inf)

    # A stable sort of shuffled values orders equal ones as they were shuffled: ties are broken at random.
    shuffle = rand.permutation(rand.keys(seed, ids, "ties").to(device), n)
    shuffled_values = values.gather(1, shuffle)
    order_of_shuffled = shuffled_values.argsort(dim=1, descending=True, stable=True)
    removal_order = shuffle.gather(1, order_of_shuffled)
    ranks = _ranks_of(removal_order)
    return backwards(ranks, counts) if order == "lerf" else ranks


def backwards(ranks: Tensor, counts: Tensor) -> Tensor:
    """Return positions in an order of removal (B, n) with that order reversed; features beyond `counts` (B,) stay last.

    >>> backwards(torch.tensor([[0, 1, 2]]), torch.tensor([2])).tolist()
    [[1, 0, 2]]
    """
    exists = ranks < counts[:, None]
    reversed_ranks = counts[:, None] - 1 - ranks
    return torch.where(exists, reversed_ranks, ranks)


def settled(values: Tensor, counts: Tensor) -> Tensor:
    """Return values (B, n) rounded to multiples of a unit: 2⁻¹⁴ of their root mean square, as a power of two.

    The last digits of a map depend on the batch that it was computed in, and would order what is equal. A unit that is
    a power of two is the same in every batch.

    >>> settled(torch.tensor([[1.0, 1.0 + 1e-6, 1.001]]), torch.tensor([3])).tolist()
    [[16384.0, 16384.0, 16400.0]]
    """
    mean_square = values.double().square().sum(1, keepdim=True) / counts[:, None].clamp(min=1)
    exponent = mean_square.sqrt().log2().floor() - 14
    unit = torch.where(mean_square > 0, torch.exp2(exponent), 1.0)
    return (values.double() / unit).round()


def _ranks_of(order: Tensor) -> Tensor:
    """Return the position of each item in an order (B, n), (B, n): the inverse of the permutation in each row."""
    position = torch.arange(order.shape[1], device=order.device).expand_as(order)
    # ranks[b, order[b, i]] = i
    return torch.empty_like(order).scatter_(1, order, position)


def check_fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    """Return the fractions as a tuple; refuse them unless they lie in [0, 1], rise strictly and are not all 0.

    >>> check_fractions((0.5, 1.5))
    Traceback (most recent call last):
    heatproof.errors.UserError: fractions must lie in [0, 1], got 1.5; 0.5 means that half of the features are removed
    """
    for fraction in fractions:
        if not 0 <= fraction <= 1:
            hint = "0.5 means that half of the features are removed"
            raise UserError(f"fractions must lie in [0, 1], got {fraction!r}; {hint}")
    if not fractions or fractions[-1] == 0:
        raise UserError(f"fractions must hold at least one above 0, got {list(fractions)}")
    if any(b <= a for a, b in pairwise(fractions)):
        raise UserError(
            f"fractions must rise without repeats, got {list(fractions)}; try {sorted(set(fractions))}"
        )
    return tuple(fractions)


def removal_sizes(fractions: Sequence[float], counts: Tensor) -> Tensor:
    """Return how many of n features are gone at each fraction, ⌊f·n + ½⌋, (B, S) int64, for `counts` (B,).

    >>> removal_sizes((0.1, 0.5), torch.tensor([10, 3])).tolist()
    [[1, 5], [0, 2]]
    """
    shares = torch.tensor(fractions, dtype=torch.float64, device=counts.device)
    return (shares * counts[:, None].double() + 0.5).floor().long()


def predict_kept(
    predict: Predict,
    batch: Batch,
    index: Tensor,
    keep: Callable[[slice], Tensor],
    imputer: Any,
    seed: int,
) -> Tensor:
    """Return what the model predicts for R masked versions of samples, logits (R, classes).

    Version r is sample index[r] with all positions outside its mask replaced by the imputer. `keep(rows)` returns the
    masks (r, H, W) of a slice of the versions, True where a position stays; it is called chunk by chunk, so that only a
    few imputed images exist at a time. An imputer for texts has a method `hide(batch, keep)`; any other is called.

    >>> def black(x, keep, ids, seed):
    ...     return x * keep[:, None]
    >>> batch = Batch(("a",), torch.ones(1, 1, 1, 2))
    >>> masks = torch.tensor([[[True, False]], [[False, False]]])
    >>> predict_kept(lambda b: b.x.flatten(1), batch, torch.tensor([0, 0]), lambda r: masks[r], black, 0).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    values_at_a_time = VALUES.get(batch.x.device.type, VALUES["cpu"])
    step = max(1, values_at_a_time // max(1, math.prod(batch.x.shape[1:])))
    index = index.cpu()
    logits = []
    for start in range(0, len(index), step):
        rows = slice(start, min(start + step, len(index)))
        samples = batch[index[rows]]
        if hasattr(imputer, "hide"):
            imputed = imputer.hide(samples, keep(rows))
        else:
            imputed = samples.with_x(imputer(samples.x, keep(rows), samples.ids, seed))
        logits.append(predict(imputed))
    return torch.cat(logits) if logits else torch.empty(0)


def sweep(
    predict: Predict,
    batch: Batch,
    ranks: Tensor,
    sizes: Tensor,
    imputer: Any,
    seed: int,
    clean: Tensor,
) -> Tensor:
    """Return logits (B, S, classes) at the S steps of a removal: at step s, sample b has lost sizes[b, s] features.

    `ranks` (B, H, W) has for each pixel the position of its feature in the order of removal. Where nothing is removed,
    the `clean` logits (B, classes) of the whole sample are used; a size that occurs twice in a sample is predicted once.

    >>> def black(x, keep, ids, seed):
    ...     return x * keep[:, None]
    >>> batch, sizes = Batch(("a",), torch.tensor([[[[3.0, 5.0]]]])), torch.tensor([[0, 1, 1, 2]])
    >>> def total(b):
    ...     return b.x.flatten(1).sum(1, keepdim=True)
    >>> sweep(total, batch, torch.tensor([[[1, 0]]]), sizes, black, 0, total(batch)).flatten().tolist()
    [8.0, 3.0, 3.0, 0.0]
    """
    # A sample and a size as one number, sample · base + size, so that what occurs twice is predicted once.
    sample = torch.arange(len(batch), device=sizes.device)[:, None].expand_as(sizes)
    base = int(sizes.max()) + 1 if sizes.numel() else 1
    unique: tuple[Tensor, Tensor] = torch.unique(sample * base + sizes, return_inverse=True)
    versions, version_of = unique
    versions = versions.to(ranks.device)
    index, size = versions // base, versions % base
    logits = clean[index.cpu()]

    is_changed = (size > 0).nonzero().flatten()
    index, size = index[is_changed], size[is_changed]

    def keep(rows: slice) -> Tensor:
        """Return which pixels of some versions stay (r, H, W): those whose feature is not among the first `size`."""
        size_of_row = size[rows].reshape(-1, *[1] * (ranks.ndim - 1))
        return ranks[index[rows]] >= size_of_row

    if len(is_changed):
        logits[is_changed.cpu()] = predict_kept(predict, batch, index, keep, imputer, seed)
    return logits[version_of.cpu()].reshape(*sizes.shape, clean.shape[1])


def removal(
    predict: Predict,
    batch: Batch,
    clean: Tensor,
    values: Tensor | None,
    segments: Tensor,
    counts: Tensor,
    fractions: Sequence[float],
    orders: Sequence[Order],
    imputer: Any,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Remove the features of samples step by step and return what the model predicts, for several orders of removal.

    The result is the logits (O, B, S, classes) for O orders and S fractions, and for each pixel the position of its
    feature in each order, (O, B, H, W). `values` (B, H, W) is the importance of pixels, None for the random order, which
    must then be the only one. `segments` (B, H, W) labels the features 0, 1, …, of which sample b has counts[b]; a label
    beyond that is never removed. Logits are NaN where all features would be removed, but the imputer fills in from those
    that are kept.

    >>> def black(x, keep, ids, seed):
    ...     return x * keep[:, None]
    >>> def total(b):
    ...     return b.x.flatten(1).sum(1, keepdim=True)
    >>> batch, labels = Batch(("a",), torch.tensor([[[[3.0, 5.0]]]])), torch.tensor([[[0, 1]]])
    >>> values, counts, fractions = batch.x[:, 0], torch.tensor([2]), (0.5, 1.0)
    >>> orders = ("morf", "lerf")
    >>> logits, ranks = removal(total, batch, total(batch), values, labels, counts, fractions, orders, black, seed=0)
    >>> logits[..., 0].tolist(), ranks.tolist()
    ([[[3.0, 0.0]], [[5.0, 0.0]]], [[[[1, 0]]], [[[0, 1]]]])
    """
    n = max(int(counts.max()), int(segments.max()) + 1) if len(counts) else 0
    if values is None:
        means = torch.zeros(len(batch), n, dtype=torch.float64, device=segments.device)
    else:
        means = feature_means(values, segments, n)
    forwards: Order = "random" if "random" in orders else "morf"
    ranks = removal_ranks(means, counts, batch.ids, forwards, seed)

    # One row for each order and sample, so that all orders are imputed and predicted together.
    by_order = [backwards(ranks, counts) if order == "lerf" else ranks for order in orders]
    labels = segments.flatten(1).repeat(len(orders), 1)
    # A pixel has the rank of its feature: the entry at its label.
    pixel_ranks = torch.cat(by_order).gather(1, labels).reshape(-1, *segments.shape[1:])
    sample = torch.arange(len(batch)).repeat(len(orders))
    sizes = removal_sizes(fractions, counts).repeat(len(orders), 1)
    all_removed = sizes >= counts.repeat(len(orders))[:, None]
    impossible = all_removed & needs_kept(imputer)
    logits = sweep(
        predict,
        batch[sample],
        pixel_ranks,
        sizes.masked_fill(impossible, 0),
        imputer,
        seed,
        clean[sample],
    )
    logits = logits.masked_fill(impossible.cpu()[..., None], torch.nan)
    return torch.stack(logits.chunk(len(orders))), torch.stack(pixel_ranks.chunk(len(orders)))
