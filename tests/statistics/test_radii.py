"""Hard radii against brute force on small functions, and the bounds for Bernoulli masks against exact probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from heatproof import Batch, Model, UserError, bounds, radii
from heatproof.features import Pixels
from heatproof.models.smoothed import Smoothed

N, CLASSES = 6, 3
SETS = torch.arange(2**N)
MEMBERS = ((SETS[:, None] >> torch.arange(N)) & 1).bool()
SUPERSETS = SETS[(SETS & 0b11) == 0b11]


class Table(nn.Module):
    """Any function of sets of features, by its values."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)

    def forward(self, x: Tensor) -> Tensor:
        return self.values[(x.long() << torch.arange(N)).sum(1)]


def functions(kind: str, count: int) -> Tensor:
    """Logits on every set of features, (count, 2^n, classes)."""
    g = torch.Generator().manual_seed(7)
    if kind == "random":
        values = torch.randn(count, 2**N, CLASSES, generator=g)
        values[..., 0] += 1.5
        return values
    many = (MEMBERS[:, 2:].sum(1) > torch.randint(0, 3, (count, 1), generator=g)).long()
    if kind == "voting":
        many = torch.where(
            torch.rand(count, 2**N, generator=g) < 0.3,
            torch.randint(0, 3, many.shape, generator=g),
            many,
        )
    scale = 3.0 if kind == "adversarial" else 40.0
    return scale * nn.functional.one_hot(many, CLASSES).float()


@pytest.mark.parametrize(
    ("masks", "keep", "samples"), [("quantised", 0.25, 8), ("bernoulli", 0.15, 20)]
)
@pytest.mark.parametrize("kind", ["random", "adversarial", "saturated", "voting"])
@pytest.mark.parametrize("votes", [False, True])
def test_no_rule_certifies_a_radius_that_a_superset_breaks(
    masks, keep, samples, kind, votes
) -> None:
    means, mask = torch.zeros(2), MEMBERS[None, 0b11]
    for seed, values in enumerate(functions(kind, 40)):
        model = Smoothed(
            Model(Table(values), rows=4096), keep, samples, Pixels(), masks, votes=votes, seed=seed
        )
        found = model.radii(Batch(("a",), torch.ones(1, N)), mask)
        with torch.no_grad():
            predicted = model.logits(MEMBERS[SUPERSETS].float()).argmax(1)
        added = MEMBERS[SUPERSETS].sum(1) - 2
        truth = torch.where(predicted != predicted[0], added - 1, N - 2).amin()
        assert added[0] == 0 and found["per_mask"] <= truth and found["lipschitz"] <= truth
        assert found["per_mask"] >= found["lipschitz"], "never below the paper's rule"
        means += torch.stack([found["per_mask"], found["lipschitz"]]).flatten()
    assert means[0] > 5
    assert means[0] > means[1] or kind != "random" or votes, (
        "and better where masks are of different minds"
    )


def test_an_exact_tie_is_no_lead() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 40 * nn.functional.one_hot((x.sum(1) == 0).long(), 2).float()

    model = Smoothed(Model(Net()), 0.25, 8, Pixels(), "quantised", seed=0)
    batch, mask = Batch(("a",), torch.ones(1, 3)), torch.tensor([[True, False, False]])
    assert (
        model.logits(torch.tensor([[1.0, 0.0, 0.0]])).argmax()
        != model.logits(torch.tensor([[1.0, 1.0, 0.0]])).argmax()
    )
    for rule in ("per_mask", "lipschitz"):
        assert int(model.radius(batch, mask, rule)) == 0, "radius 1 would be wrong"


def test_the_radius_of_every_mask_counts_what_a_feature_can_reach() -> None:
    bank = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]]).bool()
    lead = torch.tensor([1.0, 1.0, 1.0, 1.0]).reshape(1, 4, 1)
    free = torch.tensor([[True, True, True]])
    # The sums lead by 4. Feature 1 reaches two masks and may turn 2·2 of that, so r = 0 with it and all else without.
    assert radii.per_mask_radius(lead, bank, free).tolist() == [0]
    assert radii.per_mask_radius(lead, bank, torch.tensor([[False, True, True]])).tolist() == [2]
    # Masks that are not for the class have nothing to lose: 2 + 2 + 0 + 2 less 2·2 stays above 0 only then.
    weak = torch.tensor([1.0, -1.0, 1.0, 1.0]).reshape(1, 4, 1)
    assert radii.per_mask_radius(weak, bank, torch.tensor([[False, True, True]])).tolist() == [0]
    assert radii.per_mask_radius(
        lead.expand(2, 4, 1), bank, free & torch.tensor([[False], [True]])
    ).tolist() == [0, 0]


def test_a_lead_that_rounding_could_have_made_is_none() -> None:
    nowhere, anything = torch.zeros(2, 3).bool(), torch.ones(1, 3).bool()
    for ahead, radius in ((1.5e-6, 3), (0.9e-6, 0)):
        lead = torch.full((1, 2, 1), ahead)
        assert radii.per_mask_radius(lead, nowhere, anything).tolist() == [radius]
    assert radii.per_mask_radius(lead[:0], nowhere, anything[:0]).shape == (0,)


def wrong_votes(shares: list[float], n: int, delta: float) -> float:
    """The exact probability that the bound of the first class is wrong: for more than half of the votes it is alone."""
    lows = bounds.clopper_pearson_low(torch.arange(n + 1), n, delta / 2).numpy()
    first = [next((s for s in range(n + 1) if lows[s] > max(p, 0.5)), n + 1) for p in shares]
    assert min(first) > n / 2, "only one class can have so many"
    return float(sum(stats.binom.sf(s - 1, n, p) for s, p in zip(first, shares, strict=True)))


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("n", [5, 16, 64, 101])
def test_votes_bound_the_gap_for_any_number_of_classes(n: int, delta: float) -> None:
    rng = np.random.default_rng(0)
    splits = [
        [0.5, 0.5],
        [0.5, 0.25, 0.25],
        [1 / 3] * 3,
        [1 / 1000] * 1000,
        [0.5, *[0.5 / 999] * 999],
    ]
    splits += [[p, 1 - p] for p in np.linspace(0.01, 0.99, 40)]
    splits += [list(rng.dirichlet(np.full(int(k), 0.5))) for k in rng.integers(2, 50, 60)]
    worst = max(wrong_votes(p, n, delta) for p in splits)
    assert worst <= delta + 1e-12
    if n == 64 and delta == 0.1:
        assert wrong_votes([0.5, 0.5], n, 2 * delta) > delta, (
            "δ in place of δ/2 would be too bold for two equal classes"
        )


def test_a_thousand_classes_leave_nothing_to_probabilities_and_three_features_to_votes() -> None:
    assert radii.largest_radius(0.125, 16, 1000, 0.1, "bernoulli") == 0
    assert radii.largest_radius(0.125, 16, 1000, 0.1, "bernoulli", votes=True) == 3
    assert radii.largest_radius(0.125, 5000, 1000, 0.1, "bernoulli") > 3
    assert (
        radii.largest_radius(0.5, 64, 10, 0.1, "per_mask")
        == 0
        < radii.largest_radius(0.25, 64, 10, 0.1, "per_mask")
    )
    low = (0.1 / 2) ** (1 / 16)
    assert 3 < math.log(2 * low) / -math.log(0.875) < 4


def test_gaps_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="nan"):
        radii.mus_radius(torch.tensor([0.1, torch.nan]), 0.5)


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.25])
def test_the_mean_of_unequal_rates_is_bounded(delta: float) -> None:
    """The exact law of the pooled agreements, by convolution, for many sets of rates."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        samples, draws = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        rates = rng.beta(*rng.choice([0.3, 1.0, 3.0], 2), samples) * rng.choice([1.0, 0.05])
        law = np.ones(1)
        for p in np.repeat(rates, draws):
            law = np.convolve(law, [1 - p, p])
        missed = 0.0
        for agreed, probability in enumerate(law):
            shares = torch.zeros(samples, dtype=torch.float64)
            for i in range(samples):
                shares[i] = min(draws, max(0, agreed - i * draws)) / draws
            low = bounds.mean_rate_low(shares, torch.full((samples,), draws), delta)
            missed += probability * (low > rates.mean() + 1e-12)
        assert missed <= delta + 1e-9, (rates, draws)
    exact = bounds.mean_rate_low(torch.tensor([0.25, 0.75]), torch.zeros(2), delta)
    assert exact == 0.5, "rates that are known need no bound"
