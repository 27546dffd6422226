"""Smoothing by random masking: a model that averages its predictions over inputs with features left out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

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
"""How far the mean over the masks may move when the same inputs are computed in another batch, by precision."""
COARSE_GUARD = 0.01
"""The same in tf32 and with 16 bits."""


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
        if not isinstance(model, Model) or isinstance(model, Smoothed):
            raise UserError(
                f"Smoothed(...) needs a plain heatproof.Model, got {type(model).__name__}"
            )
        if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
            raise UserError(f"keep must be above 0 and at most 1, got {keep!r}")
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise UserError(f"samples must be a whole number of at least 1, got {samples!r}")
        if masks not in ("bernoulli", "quantised"):
            raise unknown("masks", masks, ("bernoulli", "quantised"))
        if masks == "quantised":
            check_quantised(keep, samples)
        number = (
            isinstance(fill, int | float) and not isinstance(fill, bool) and math.isfinite(fill)
        )
        if fill != "zero" and not number:
            raise unknown("fill", fill, ("zero", "a finite number"))
        if not model.task.exclusive:
            raise UserError(
                f"Smoothed(...) averages class probabilities, and {model.task.name} has none"
            )
        self.base, self.declared = model, model.declared
        self.keep, self.samples, self.features, self.masks = float(keep), samples, features, masks
        self.votes, self.fill, self.seed = votes, fill, seed
        self.name = name or f"{model.name} smoothed ×{keep:g}"
        self.classes, self.channels_last, self.module = (
            model.classes,
            model.channels_last,
            model.module,
        )
        self._mean, self._std, self.precision = model._mean, model._std, model.precision
        self.embedding = (
            None if isinstance(features, Hiding) else model.embedding
        )  # tokens are hidden among the ids
        self._banks: dict[int, Tensor] = {}

    def size_of(self, rows: int) -> int:
        """As many as there are: passes are those of the model inside, which fills them up."""
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
        """sha256 of the network's fingerprint and all parameters of the smoothing."""
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
        """Refused: a layer sees `samples` masked versions of an input, so it has no one feature map of the input."""
        raise UserError(
            f"{self.name} averages over masked inputs, so a layer such as {path!r} has no single feature map; "
            "use the model inside (grad_cam on a smoothed model is not defined)"
        )

    def bank(self, n: int) -> Tensor:
        """The masks for n features, (samples, n) boolean; the same for every input.

        >>> model = Smoothed(Model(nn.Linear(4, 2)), keep=0.25, samples=8, masks="quantised")
        >>> model.bank(5).double().mean(0).tolist()
        [0.25, 0.25, 0.25, 0.25, 0.25]
        """
        if n not in self._banks:
            key = rand.keys(self.seed, ("bank",), f"smoothing {self.masks}")
            if self.masks == "quantised":
                offset = rand.integers(key, (n,), self.samples)[0]
                turn = (offset + torch.arange(self.samples)[:, None]) % self.samples
                self._banks[n] = turn < round(self.keep * self.samples)
            else:
                draws = rand.fold(key.expand(self.samples), torch.arange(self.samples))
                self._banks[n] = rand.uniform(draws, (n,)) < self.keep
        return self._banks[n]

    def each(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logs of the probabilities for every mask, (B, samples, classes) float64, differentiable."""
        samples = Batch(tuple(str(i) for i in range(len(inputs))), inputs, aux or {})
        refuse_changing(self.features, inputs.shape)
        segments = self.features.segments(samples)
        bank = self.bank(self.features.total(tuple(inputs.shape)) or int(count(segments).max())).to(
            inputs.device
        )
        always = fixed(self.features, samples)
        fill = self._fill(samples, inputs, segments)
        parts = []
        for rows in torch.split(
            torch.arange(len(inputs) * self.samples, device=inputs.device), max(1, self.base.rows)
        ):
            owner, draw = rows // self.samples, rows % self.samples
            kept = bank[draw] if always is None else bank[draw] | always[owner]
            own = {name: value[owner.to(value.device)] for name, value in (aux or {}).items()}
            masked, own = kept_only(
                self.features, inputs[owner], fill[owner], own, kept, segments[owner]
            )
            parts.append(self.base.logits(masked, own).double().log_softmax(1))
        return torch.cat(parts).reshape(len(inputs), self.samples, -1)

    def logits(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logs of the mean probabilities (B, classes), differentiable; or logs of the shares of votes.

        Sums are in float64: in float32 an exact tie between two classes goes either way.
        """
        logs = self.each(inputs, aux)
        if self.votes:
            lost = logs.isnan().any(2).any(1, keepdim=True)
            shares = _votes(logs).mean(1).masked_fill(lost, torch.nan)
            return shares.clamp(min=torch.finfo(torch.float32).tiny).log().float()
        mean: Tensor = logs.logsumexp(1) - math.log(self.samples)
        return mean.float()

    def scores(self, batch: Batch) -> Tensor:
        """`logits` of samples (B, classes) without a gradient, as many at a time as go into a pass."""
        batch = batch.to(self.device)
        with torch.no_grad():
            inputs, parts = (
                self.inputs(batch),
                torch.split(torch.arange(len(batch), device=self.device), self.rows),
            )
            return torch.cat(
                [self.logits(inputs[p], {k: v[p] for k, v in batch.aux.items()}) for p in parts]
            )

    def _fill(self, batch: Batch, inputs: Tensor, segments: Tensor) -> Tensor:
        """Values for features that are left out; the inputs themselves, unread, where the grouping hides features."""
        return (
            inputs
            if isinstance(self.features, Hiding)
            else filled(self.fill, self.base, batch, inputs, segments)
        )

    def radius(
        self,
        batch: Batch,
        mask: Tensor | None = None,
        rule: RadiusRule = "per_mask",
        delta: float = 0.1,
    ) -> Tensor:
        """The number of features that can surely be added to x ⊙ mask without changing the prediction, (B,) int64.

        `mask` (B, n) boolean is the explanation; without one x itself is x ⊙ α, and any of its features may change.
        "per_mask", from what every single mask says, and the paper's "lipschitz", from the gap of the means and the
        largest share of masks that keep one feature, are exact for this model and its bank. "bernoulli", for Bernoulli
        masks, is about the mean over *all* masks and holds with probability 1 − delta, which only it uses.

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
        found = self.radii(batch, mask, delta)[rule]
        if bool(found.isnan().any()):
            sample = batch.ids[int(found.isnan().nonzero()[0])]
            raise UserError(
                f"{self.base.name} gives scores that are not finite for masked sample {sample!r}"
            )
        return found.long()

    def radii(
        self,
        batch: Batch,
        mask: Tensor | None = None,
        delta: float = 0.1,
        target: Tensor | None = None,
    ) -> dict[RadiusRule, Tensor]:
        """`radius` by every rule that holds for these masks, from the same passes; NaN where a score is not finite.

        With a `target` (B,) it is NaN too where another class is predicted.

        >>> from heatproof.features import Pixels
        >>> model = Smoothed(Model(nn.Linear(4, 2)), keep=0.125, samples=16, features=Pixels())
        >>> list(model.radii(Batch(("a",), torch.zeros(1, 4))))
        ['per_mask', 'lipschitz', 'bernoulli']
        """
        check_share("delta", delta)
        batch = batch.to(self.device)
        segments, always = self.features.segments(batch), fixed(self.features, batch)
        widest = max(
            int(count(segments).max()), 0 if mask is None or mask.ndim != 2 else mask.shape[1]
        )
        n = (
            self.features.total(tuple(batch.x.shape)) or widest
        )  # other samples of the mask may have more
        there = torch.arange(n, device=self.device) < count(segments)[:, None]
        always = None if always is None else nn.functional.pad(always, (0, n - always.shape[1]))
        free = there if always is None else there & ~always
        if mask is not None and (
            mask.dtype != torch.bool or tuple(mask.shape) != tuple(free.shape)
        ):
            raise UserError(
                f"mask must be boolean of shape {tuple(free.shape)}, got {mask.dtype} {tuple(mask.shape)}"
            )
        with torch.no_grad():
            inputs, aux = self.inputs(batch), batch.aux
            if mask is not None:
                mask = mask.to(self.device)
                free, kept = free & ~mask, mask if always is None else mask | always
                inputs, aux = kept_only(
                    self.features, inputs, self._fill(batch, inputs, segments), aux, kept, segments
                )
            parts = torch.split(torch.arange(len(batch), device=self.device), self.rows)
            logs = torch.cat(
                [self.each(inputs[p], {k: v[p] for k, v in aux.items()}) for p in parts]
            ).cpu()
        guard = GUARDS.get(self.precision, COARSE_GUARD)
        first, second = logs.topk(2, dim=2).values.unbind(2)
        outputs, lost = _votes(logs) if self.votes else logs.exp(), logs.isnan().flatten(1).any(1)
        if target is not None:
            lost |= outputs.mean(1).argmax(1) != target.cpu()
        lead = leads(outputs.nan_to_num(), first - second < guard if self.votes else None)
        free, bank = free.cpu(), self.bank(n)
        gap = lead.mean(1).amin(1) - guard
        each = zip(gap, there.cpu(), strict=True)
        found: dict[RadiusRule, Tensor] = {
            "per_mask": per_mask_radius(lead, bank, free, guard),
            "lipschitz": torch.stack(
                [mus_radius(g, float(bank.double().mean(0)[own].max())) for g, own in each]
            ),
        }
        if self.masks == "bernoulli":
            found["bernoulli"] = mus_radius(
                bernoulli_gap(lead, delta, self.votes) - guard, self.keep, "bernoulli"
            )
        most = free.sum(1)
        return {
            rule: r.minimum(most).double().masked_fill(lost, torch.nan) for rule, r in found.items()
        }


def _votes(logs: Tensor) -> Tensor:
    """One-hot votes (B, samples, classes) float64 of the masks."""
    return nn.functional.one_hot(logs.argmax(2), logs.shape[2]).double()


def refuse_changing(features: Grouping, shape: Sequence[int]) -> None:
    """Refuse features that are found anew in a masked input, as superpixels are; hidden tokens keep their numbers.

    >>> refuse_changing(Patches(4), (1, 3, 8, 8))
    """
    if features.total(tuple(shape)) is None and not isinstance(features, Hiding):
        raise UserError(
            f"{label_of(features)} change with what is left of an input, and a smoothed model needs features that "
            "stay; use patches, windows, elements, tokens or passages"
        )


def check_quantised(keep: float, samples: int) -> None:
    """Refuse a share λ = keep that quantised masks cannot have exactly: keep·samples must be whole.

    >>> check_quantised(0.25, 64)
    """
    if not math.isclose(keep * samples, round(keep * samples), abs_tol=1e-9):
        near = max(1, round(keep * samples)) / samples
        raise UserError(
            f"quantised masks need keep·samples whole, got {keep}·{samples}; the nearest keep is {near}"
        )
