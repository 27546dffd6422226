"""Smoothing by random masking: a model that averages its predictions over inputs with features left out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from heatproof import rand
from heatproof.errors import UserError, unknown
from heatproof.features import Grouping, Hiding, Patches, count, fixed
from heatproof.features.fill import filled, kept_only
from heatproof.models import Model
from heatproof.models.precision import Precision
from heatproof.statistics.bounds import check_share
from heatproof.statistics.radii import (
    GUARD,
    RULES,
    RadiusRule,
    bernoulli_gap,
    leads,
    mus_radius,
    per_mask_radius,
)
from heatproof.types import Batch, label_of

Masks = Literal["bernoulli", "quantised"]
GUARDS: dict[str, float] = {"float32": 10 * GUARD}
"""How far the mean over the masks may move when the same inputs are computed in another batch, by precision.

Networks round differently in batches of different sizes; `GUARD` alone covers sums of equal numbers."""
COARSE_GUARD = 0.01
"""The same in tf32 and with 16 bits."""
KEEP = "_smoothing_keep"
"""The auxiliary tensor (B, n) that may hold a λ for every feature of every sample."""


class Smoothed(Model):
    """M_λ f(x) = the mean of f's probabilities over `samples` masks that keep each feature with probability λ = `keep`.

    A model like any other: `logits` are the logs of the mean probabilities, or with `votes` of the shares of masks
    that predict each class (these have no gradient). Left-out features become `fill`, 0 after normalisation by default.

    "bernoulli" masks keep features independently. "quantised" masks are those of MuS: feature j is kept by mask t if
    (o_j + t) mod samples < λ·samples for a random offset o_j, so each is kept by exactly the share λ of the masks and
    the Lipschitz radius holds without any sampling error; λ·samples must be whole.

    The masks are one bank, drawn from the seed, for all inputs. A certificate compares the model with itself on x ⊙ α
    and x ⊙ β: were the noise a function of the input's content, the two would be two different functions. One input
    costs `samples` passes; `rows` is the number of inputs that fit into a pass of the model inside, at least 1.

    A batch whose `aux` has the tensor `KEEP` (B, n) names a λ for every feature of every sample, in place of `keep`: 1
    for features that smoothing spares. Quantised masks round it to a multiple of 1/samples.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    >>> model = Smoothed(Model(net), keep=0.5, samples=8, features=Patches(4))
    >>> batch = Batch(("a",), torch.rand(1, 3, 8, 8))
    >>> model.logits(model.inputs(batch)).softmax(1).sum().round(decimals=4).item(), model.passes
    (1.0, 8)
    """

    def __init__(
        self,
        model: Model,
        keep: float,
        samples: int = 64,
        features: Grouping = Patches(),  # noqa: B008 (frozen)
        masks: Masks = "bernoulli",
        *,
        votes: bool = False,
        fill: Literal["zero"] | float = "zero",
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        """Check the parameters, and take over what the smoothed model shares with the model inside; see the class."""
        _check_smoothing(model, keep, samples, masks, fill)
        self.base = model
        self.keep = float(keep)
        self.samples = samples
        self.features = features
        self.masks = masks
        self.votes = votes
        self.fill = fill
        self.seed = seed
        self.name = name or f"{model.name} smoothed ×{keep:g}"
        self.declared = model.declared
        self.classes = model.classes
        self.channels_last = model.channels_last
        self.module = model.module
        self.precision = model.precision
        self._mean = model._mean
        self._std = model._std
        # Features that hide tokens work on token ids, so the inputs must not be vectors then.
        self.embedding = None if isinstance(features, Hiding) else model.embedding
        self._levels: dict[int, Tensor] = {}

    def size_of(self, rows: int) -> int:
        """Return `rows`: the model inside does the passes, and fills them up itself."""
        return rows

    @property
    def rows(self) -> int:
        """How many inputs go into one pass, all their masked versions together."""
        return max(1, self.base.rows // self.samples)

    @rows.setter
    def rows(self, value: int) -> None:
        self.base.rows = value

    @property
    def passes(self) -> int:
        """Masked inputs that went through the network."""
        return self.base.passes

    @passes.setter
    def passes(self, value: int) -> None:
        self.base.passes = value

    def use(self, precision: Precision = "float32", compile: bool = False) -> Smoothed:
        """Compute in another precision; see `Model.use`."""
        self.base.use(precision, compile)
        self.precision = self.base.precision
        return self

    def to(self, device: torch.device | str) -> Smoothed:
        """Move the network inside."""
        self.base.to(device)
        return self

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the network's fingerprint and all parameters of the smoothing."""
        parameters = (
            self.keep,
            self.samples,
            label_of(self.features),
            self.masks,
            self.votes,
            self.fill,
            self.seed,
        )
        return hashlib.sha256(f"{self.base.fingerprint}|{parameters!r}".encode()).hexdigest()

    def layer(self, path: str) -> nn.Module:
        """Raise `UserError`: a layer sees many masked versions of an input, so it has no single feature map of it."""
        raise UserError(
            f"{self.name} averages over masked inputs, so a layer such as {path!r} has no single feature map; "
            "use the model inside (grad_cam on a smoothed model is not defined)"
        )

    def bank(self, n: int) -> Tensor:
        """Return the masks for n features, (samples, n) boolean; the same for every input.

        >>> model = Smoothed(Model(nn.Linear(4, 2)), keep=0.25, samples=8, masks="quantised")
        >>> model.bank(5).double().mean(0).tolist()
        [0.25, 0.25, 0.25, 0.25, 0.25]
        """
        return self.levels(n) < self.keep

    def levels(self, n: int) -> Tensor:
        """Return thresholds (samples, n) in (0, 1): mask t keeps feature j if its λ is above levels[t, j].

        So one draw gives the masks for every λ, and masks for a larger λ keep all features that those for a smaller one
        keep. The thresholds depend on the seed only, not on the input.
        """
        if n in self._levels:
            return self._levels[n]
        key = rand.keys(self.seed, ("bank",), f"smoothing {self.masks}")
        mask_numbers = torch.arange(self.samples)
        if self.masks == "quantised":
            # Feature j is kept by mask t if (o_j + t) mod samples < λ·samples, with a random offset o_j. The half keeps
            # the comparison clear of rounding.
            offsets = rand.integers(key, (n,), self.samples)[0]
            turns = (offsets + mask_numbers[:, None]) % self.samples
            self._levels[n] = (turns + 0.5) / self.samples
        else:
            # Each mask has a key of its own: a bank of more masks begins with the same ones.
            mask_keys = rand.fold(key.expand(self.samples), mask_numbers)
            self._levels[n] = rand.uniform(mask_keys, (n,))
        return self._levels[n]

    def _shares(self, batch: Batch, n: int) -> Tensor:
        """Return with which share λ masks keep each feature, (B, n) float64, or (1, n) where all samples have the same.

        That is `self.keep`, unless the batch brings its own λ in `aux`; it may do so for its first features only.
        """
        keep = batch.aux.get(KEEP)
        if keep is None:
            return torch.full((1, n), self.keep, dtype=torch.float64)
        missing_columns = max(0, n - keep.shape[1])
        return nn.functional.pad(keep.double(), (0, missing_columns), value=self.keep)[:, :n]

    def _banks_of(self, batch: Batch, n: int) -> Tensor:
        """Return the masks of every sample, (B, samples, n) boolean or, where all have the same, (1, samples, n)."""
        shares = self._shares(batch, n)
        return self.levels(n).to(shares.device) < shares[:, None]

    def each(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the log-probabilities of each input under every mask, (B, samples, classes) float64, differentiable.

        Each input runs `self.samples` times through the base model, each time with the features that one mask of the
        bank leaves out replaced by the fill value.
        """
        aux = aux or {}
        batch = Batch(tuple(str(i) for i in range(len(inputs))), inputs, aux)
        refuse_changing(self.features, inputs.shape)
        segments = self.features.segments(batch)
        feature_count = self.features.total(tuple(inputs.shape)) or int(count(segments).max())
        banks = self._banks_of(batch, feature_count).to(inputs.device)
        banks = banks.expand(len(inputs), -1, -1)
        always_kept = fixed(self.features, batch)
        fill = self._fill(batch, inputs, segments)

        # Pairs of an input and a mask are numbered in one list: the masks of input 0, those of input 1, …
        pairs = torch.arange(len(inputs) * self.samples, device=inputs.device)
        log_probabilities = []
        for chunk in torch.split(pairs, max(1, self.base.rows)):
            input_index, mask_index = chunk // self.samples, chunk % self.samples
            kept = banks[input_index, mask_index]
            if always_kept is not None:
                kept = kept | always_kept[input_index]
            chunk_aux = _rows_of(aux, input_index)
            masked, masked_aux = kept_only(
                self.features,
                inputs[input_index],
                fill[input_index],
                chunk_aux,
                kept,
                segments[input_index],
            )
            logits = self.base.logits(masked, masked_aux)
            log_probabilities.append(logits.double().log_softmax(1))
        return torch.cat(log_probabilities).reshape(len(inputs), self.samples, -1)

    def logits(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the class scores of the smoothed model, (B, classes): logs of a mean over `self.samples` masks.

        By default that is the mean of the class probabilities of the masked inputs, differentiable. With `self.votes` it
        is the share of masks that predict a class, without a gradient.
        """
        # (B, samples, classes) in float64. In float32, rounding would decide exact ties between two classes.
        log_probabilities = self.each(inputs, aux)
        if self.votes:
            is_nan = log_probabilities.isnan().flatten(1).any(1, keepdim=True)
            shares = _votes(log_probabilities).mean(1).masked_fill(is_nan, torch.nan)
            smallest = torch.finfo(torch.float32).tiny  # for classes without a vote
            return shares.clamp(min=smallest).log().float()
        log_mean: Tensor = log_probabilities.logsumexp(1) - math.log(self.samples)
        return log_mean.float()

    def scores(self, batch: Batch) -> Tensor:
        """Return the `logits` of samples (B, classes) without a gradient, as many at a time as go into a pass."""
        batch = batch.to(self.device)
        with torch.no_grad():
            inputs = self.inputs(batch)
            chunks = torch.split(torch.arange(len(batch), device=self.device), self.rows)
            return torch.cat(
                [self.logits(inputs[chunk], _rows_of(batch.aux, chunk)) for chunk in chunks]
            )

    def _fill(self, batch: Batch, inputs: Tensor, segments: Tensor) -> Tensor:
        """Return the values of features that are left out; where the grouping hides features, nothing reads them."""
        if isinstance(self.features, Hiding):
            return inputs
        return filled(self.fill, self.base, batch, inputs, segments)

    def radius(
        self,
        batch: Batch,
        mask: Tensor | None = None,
        rule: RadiusRule = "per_mask",
        delta: float = 0.1,
    ) -> Tensor:
        """Return how many features can be added to x ⊙ mask, whichever they are, without changing the prediction, (B,).

        `mask` (B, n) boolean is the explanation: the features that x keeps. Without one x itself is taken, and any of its
        features may change. There are three rules for this certified radius:

        - "per_mask": from the outputs of every single mask; exact for this model and its masks;
        - "lipschitz" (MuS, Xue et al. 2023): from the gap between the means of the two best classes and the largest share of
          masks that keep a feature; exact as well, and never larger than the first;
        - "bernoulli": about the mean over *all* Bernoulli masks, of which the model has a sample; it holds with
          probability 1 − delta, which the other rules do not use.

        >>> from heatproof.features import Pixels
        >>> model = Smoothed(Model(nn.Linear(4, 2)), keep=0.125, samples=16, features=Pixels(), masks="quantised")
        >>> model.radius(Batch(("a",), torch.zeros(1, 4))).shape
        torch.Size([1])
        """
        if rule not in RULES:
            raise unknown("radius rule", rule, RULES)
        if rule == "bernoulli" and self.masks != "bernoulli":
            raise UserError(
                "the Bernoulli rule needs masks that keep features independently: masks='bernoulli'"
            )
        radius = self.radii(batch, mask, delta)[rule]
        if bool(radius.isnan().any()):
            sample = batch.ids[int(radius.isnan().nonzero()[0])]
            raise UserError(
                f"{self.base.name} gives scores that are not finite for masked sample {sample!r}"
            )
        return radius.long()

    def radii(
        self,
        batch: Batch,
        mask: Tensor | None = None,
        delta: float = 0.1,
        target: Tensor | None = None,
    ) -> dict[RadiusRule, Tensor]:
        """Return the certified radius (B,) by each rule that holds for this kind of masks, all from the same passes.

        A radius is how many features can be added to x ⊙ mask without changing the prediction; see `radius`. It is NaN
        where a score is not finite and, with a `target` (B,), where another class is predicted.

        >>> from heatproof.features import Pixels
        >>> model = Smoothed(Model(nn.Linear(4, 2)), keep=0.125, samples=16, features=Pixels())
        >>> list(model.radii(Batch(("a",), torch.zeros(1, 4))))
        ['per_mask', 'lipschitz', 'bernoulli']
        """
        check_share("delta", delta)
        batch = batch.to(self.device)
        exists, free = self._existing_and_free(batch, mask)
        if mask is not None:
            mask = mask.to(self.device)
            free = free & ~mask
        log_probabilities = self._each_of_masked(batch, mask).cpu()
        exists, free = exists.cpu(), free.cpu()
        banks = self._banks_of(batch, exists.shape[1]).cpu()

        guard = GUARDS.get(self.precision, COARSE_GUARD)
        is_undefined = log_probabilities.isnan().flatten(1).any(1)
        if self.votes:
            # A mask whose two best classes are as close as rounding may vote for either.
            first, second = log_probabilities.topk(2, dim=2).values.unbind(2)
            outputs, is_unsure = _votes(log_probabilities), first - second < guard
        else:
            outputs, is_unsure = log_probabilities.exp(), None
        if target is not None:
            is_undefined |= outputs.mean(1).argmax(1) != target.cpu()
        lead = leads(outputs.nan_to_num(), is_unsure)

        radii: dict[RadiusRule, Tensor] = {"per_mask": per_mask_radius(lead, banks, free, guard)}
        gaps = lead.mean(1).amin(1) - guard
        # The λ that counts is the largest among features that can be added. Where samples bring no λ of their own, all
        # features have the same, and counting the others as well changes nothing.
        counted = free if KEEP in batch.aux else exists
        share_kept = banks.double().mean(1).expand(len(lead), -1)
        radii["lipschitz"] = _radii_by_largest_share(gaps, share_kept, counted)
        if self.masks == "bernoulli":
            gap_of_all_masks = bernoulli_gap(lead, delta, self.votes) - guard
            shares = self._shares(batch, exists.shape[1]).cpu().expand(len(lead), -1)
            radii["bernoulli"] = _radii_by_largest_share(
                gap_of_all_masks, shares, counted, "bernoulli"
            )

        free_count = free.sum(1)  # no more features than these can be added
        for rule, radius in radii.items():
            limited = radius.minimum(free_count).double()
            radii[rule] = limited.masked_fill(is_undefined, torch.nan)
        return radii

    def _existing_and_free(self, batch: Batch, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return which of n features each sample has, and which of these masks may leave out, (B, n) boolean each.

        Some groupings always keep features, such as special tokens. n is the number of columns of `mask` (B, n), if it
        has more columns than any sample has features: it may come from a larger batch.
        """
        segments = self.features.segments(batch)
        counts = count(segments)
        always_kept = fixed(self.features, batch)
        columns_of_mask = 0 if mask is None or mask.ndim != 2 else mask.shape[1]
        n = self.features.total(tuple(batch.x.shape)) or max(int(counts.max()), columns_of_mask)
        exists = torch.arange(n, device=self.device) < counts[:, None]
        free = exists
        if always_kept is not None:
            free = exists & ~nn.functional.pad(always_kept, (0, n - always_kept.shape[1]))
        if mask is not None and (mask.dtype != torch.bool or mask.shape != free.shape):
            raise UserError(
                f"mask must be boolean of shape {tuple(free.shape)}, got {mask.dtype} {tuple(mask.shape)}"
            )
        return exists, free

    def _each_of_masked(self, batch: Batch, mask: Tensor | None) -> Tensor:
        """Return the log-probabilities of masked samples under every mask of the bank, (B, samples, classes).

        Of each sample only the features in `mask` (B, n) are left, all without one. No gradient.
        """
        with torch.no_grad():
            inputs, aux = self.inputs(batch), batch.aux
            if mask is not None:
                segments = self.features.segments(batch)
                fill = self._fill(batch, inputs, segments)
                always_kept = fixed(self.features, batch)
                if always_kept is not None:
                    missing_columns = mask.shape[1] - always_kept.shape[1]
                    mask = mask | nn.functional.pad(always_kept, (0, missing_columns))
                inputs, aux = kept_only(self.features, inputs, fill, aux, mask, segments)
            chunks = torch.split(torch.arange(len(batch), device=self.device), self.rows)
            return torch.cat([self.each(inputs[chunk], _rows_of(aux, chunk)) for chunk in chunks])


def _votes(logs: Tensor) -> Tensor:
    """Return 1 for the class that each mask predicts and 0 for the others, (B, samples, classes) float64."""
    return nn.functional.one_hot(logs.argmax(2), logs.shape[2]).double()


def _radii_by_largest_share(
    gaps: Tensor, shares: Tensor, counted: Tensor, rule: RadiusRule = "lipschitz"
) -> Tensor:
    """Return the certified radius of each sample, (B,), from the gap of its class probabilities and a share λ of masks.

    gaps     (B,) the gap between the two best classes
    shares   (B, n) the share λ of masks that keep each feature
    counted  (B, n) the features among which the largest λ is taken

    If no mask keeps any of the features, adding them changes nothing, and the radius is n.
    """
    largest = shares.masked_fill(~counted, 0.0).amax(1)
    radii = []
    for gap, share in zip(gaps, largest.tolist(), strict=True):
        if share == 0:
            radii.append(torch.tensor(shares.shape[1]).where(gap > 0, 0))
        else:
            radii.append(mus_radius(gap, min(share, 1.0), rule))
    return torch.stack(radii)


def refuse_changing(features: Grouping, shape: Sequence[int]) -> None:
    """Raise `UserError` for features that depend on the values of an input, such as superpixels.

    A smoothed model masks inputs, which would change these features. Patches, windows, columns and tokens stay.

    >>> refuse_changing(Patches(4), (1, 3, 8, 8))
    """
    if features.total(tuple(shape)) is None and not isinstance(features, Hiding):
        raise UserError(
            f"{label_of(features)} change with what is left of an input, and a smoothed model needs features that "
            "stay; use patches, windows, elements, tokens or passages"
        )


def check_quantised(keep: float, samples: int) -> None:
    """Raise `UserError` for a share `keep` that quantised masks cannot have exactly: keep · samples must be whole.

    >>> check_quantised(0.25, 64)
    """
    if not math.isclose(keep * samples, round(keep * samples), abs_tol=1e-9):
        near = max(1, round(keep * samples)) / samples
        raise UserError(
            f"quantised masks need keep·samples whole, got {keep}·{samples}; the nearest keep is {near}"
        )


def _check_smoothing(model: Any, keep: Any, samples: Any, masks: Any, fill: Any) -> None:
    """Raise `UserError` for a model that cannot be smoothed, or a parameter that is out of range."""
    if not isinstance(model, Model) or isinstance(model, Smoothed):
        raise UserError(f"Smoothed(...) needs a plain heatproof.Model, got {type(model).__name__}")
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise UserError(f"keep must be above 0 and at most 1, got {keep!r}")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise UserError(f"samples must be a whole number of at least 1, got {samples!r}")
    if masks not in ("bernoulli", "quantised"):
        raise unknown("masks", masks, ("bernoulli", "quantised"))
    if masks == "quantised":
        check_quantised(keep, samples)
    is_number = isinstance(fill, int | float) and not isinstance(fill, bool)
    if fill != "zero" and not (is_number and math.isfinite(fill)):
        raise unknown("fill", fill, ("zero", "a finite number"))
    if not model.task.exclusive:
        raise UserError(
            f"Smoothed(...) averages class probabilities, and {model.task.name} has none"
        )


def _rows_of(aux: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Return the rows of auxiliary tensors, each of which may be on another device."""
    return {name: tensor[rows.to(tensor.device)] for name, tensor in aux.items()}
