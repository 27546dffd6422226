"""How two explanations are compared, and why some cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from heatproof.errors import unknown
from heatproof.maps import similarity

TOP = 0.1
"""The share of positions that `jaccard` calls the top."""


@dataclass(frozen=True)
class Criterion:
    """What a score over a group compares.

    `similarity` names how two explanations are compared. `moves` says whether the explanation should move with the
    input (equivariance) or stay as it is (invariance), and `delta` how often a bound may miss the mean over the group.

    >>> Criterion("cosine", moves=False).measure
    'invariance'
    """

    similarity: str
    moves: bool
    delta: float = 0.05

    @property
    def measure(self) -> str:
        """The name of the score."""
        return "equivariance" if self.moves else "invariance"

    @property
    def lowest(self) -> float:
        """The lowest value that the similarity has; the highest is always 1."""
        return 0.0 if self.similarity in ("agreement", "jaccard") else -1.0


def compare(name: str, a: Tensor, b: Tensor) -> Tensor:
    """Return the named similarity of two (B, …) tensors: (B,) float64 on the CPU, NaN where it is not defined.

    >>> compare("agreement", torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 1]])).tolist()
    [0.666...]
    """
    if name not in SIMILARITIES:
        raise unknown("similarity", name, SIMILARITIES)
    return SIMILARITIES[name](a.double(), b.double()).double().cpu()


def _agreement(a: Tensor, b: Tensor) -> Tensor:
    """Return the share of entries of two (B, …) tensors that are equal, (B,); NaN where an entry is not finite."""
    share = (a == b).double().flatten(1).mean(1)
    is_finite = torch.isfinite(a).flatten(1).all(1) & torch.isfinite(b).flatten(1).all(1)
    return torch.where(is_finite, share, torch.nan)


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": similarity.cosine,
    "agreement": _agreement,
    "spearman": similarity.spearman,
    "ssim": similarity.ssim,
    "jaccard": partial(similarity.jaccard, k=TOP),
}


FLAWS = ("", "not finite", "zero", "constant")
"""Why an explanation cannot be compared with another, by the number that `flaws` returns; 0 is no flaw."""
NO_FLAW, NOT_FINITE, ZERO, CONSTANT = range(4)


def flaws(name: str, maps: Tensor) -> Tensor:
    """Return why each explanation cannot be compared with another by the similarity `name`, (B,) integers on the CPU.

    The numbers are NO_FLAW (0), NOT_FINITE, ZERO and CONSTANT; where several apply, the first of these is returned.
    `maps` (B, …) are the explanations. Correlations and the like are undefined for maps that are zero or constant, and a
    map of a single number is constant: its cosine could only be 1 or −1. "agreement", the share of equal entries, is
    defined for them, too, so there only entries that are not finite are a flaw.
    """
    values = maps.flatten(1)
    flaw = torch.full((len(maps),), NO_FLAW, device=maps.device)
    # The more serious flaw comes later and replaces the others.
    if name != "agreement":
        is_zero = ~values.any(1)
        flaw = flaw.masked_fill(similarity.undefined(maps), CONSTANT)
        flaw = flaw.masked_fill(is_zero, ZERO)
    is_finite = torch.isfinite(values).all(1)
    return flaw.masked_fill(~is_finite, NOT_FINITE).cpu()


def flaw_text(flaw: int, what: str = "the explanation") -> str:
    """Return a flaw as the reason for a missing score, empty for none.

    >>> flaw_text(2), flaw_text(0)
    ('the explanation is zero', '')
    """
    return f"{what} is {FLAWS[flaw]}" if flaw else ""


def reasons(clean: Tensor, others: Tensor, what: str, missing: Tensor) -> tuple[str, ...]:
    """Return why each sample has no similarity score, in words, "" where it has one.

    `clean` (B,) are the flaws (see `flaws`) of the samples' own explanations, `others` (B, n) those of the n maps that each
    is compared with, which `what` names, such as "the second draw". `missing` (B,) marks samples without a score.

    >>> reasons(torch.tensor([0]), torch.tensor([[0, 1]]), "the second draw", torch.tensor([True]))
    ('the second draw is not finite',)
    """
    texts = []
    for flaw, other_flaws, is_missing in zip(
        clean.tolist(), others.tolist(), missing.tolist(), strict=True
    ):
        first_other = next((other for other in other_flaws if other), NO_FLAW)
        text = flaw_text(flaw) or flaw_text(first_other, what)
        if is_missing and not text:
            text = "nothing to compare"
        texts.append(text)
    return tuple(texts)
