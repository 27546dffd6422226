"""Orders, exact nested masks, sweeps and what is read off them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heatproof import UserError, rand
from heatproof.axes.faithfulness.curves import aopc, area, irof, readouts, road, summaries
from heatproof.axes.faithfulness.sweeps import (
    check_fractions,
    feature_means,
    importance,
    needs_kept,
    predict_kept,
    removal_ranks,
    removal_sizes,
    resolve_imputers,
    sweep,
)
from heatproof.types import Batch


def black(x, keep, ids, seed):
    return x * keep[:, None]


def noisy(x, keep, ids, seed):
    drawn = rand.uniform(rand.keys(seed, ids, "test"), x.shape[1:])
    return torch.where(keep[:, None], x, drawn)


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def counts(values):
    return torch.full((len(values),), values.shape[1])


def test_morf_goes_down_the_values_and_lerf_is_the_same_order_backwards():
    values = random(5, 40).double()
    ids = list("abcde")
    morf = removal_ranks(values, counts(values), ids)
    assert torch.equal(morf, values.argsort(1, descending=True).argsort(1))
    tied = (values * 4).floor()
    down, up = (removal_ranks(tied, counts(tied), ids, order) for order in ("morf", "lerf"))
    assert torch.equal(down + up, torch.full_like(down, 39))
    by_rank = tied.gather(1, down.argsort(1))
    assert (by_rank.diff(dim=1) <= 0).all()


def test_ties_are_settled_by_one_draw_per_sample_and_seed():
    flat = torch.zeros(2, 50)
    first = removal_ranks(flat, counts(flat), ["a", "b"])
    assert torch.equal(first, removal_ranks(flat, counts(flat), ["a", "b"]))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, removal_ranks(flat, counts(flat), ["a", "b"], seed=1))
    assert torch.equal(first[1:], removal_ranks(flat[1:], counts(flat[1:]), ["b"])), (
        "a neighbour changes nothing"
    )
    # Two maps that tie at the same places lose these places in the same order.
    a, b = torch.zeros(1, 50), torch.zeros(1, 50)
    a[0, :10], b[0, :10] = 1.0, torch.arange(10.0, 20.0)
    rest = [removal_ranks(v, counts(v), ["a"])[0, 10:] for v in (a, b)]
    assert torch.equal(*rest)


def test_the_random_order_is_a_permutation_that_no_map_changes():
    values = random(3, 30)
    drawn = removal_ranks(values, counts(values), list("abc"), "random")
    assert torch.equal(drawn.sort(1).values, torch.arange(30).expand(3, 30))
    assert torch.equal(drawn, removal_ranks(-values, counts(values), list("abc"), "random"))
    lottery = removal_ranks(torch.zeros(3, 30), counts(values), list("abc"))
    assert not torch.equal(drawn, lottery), "the tie draw must not be the random order"


def test_features_that_a_sample_lacks_go_last_and_neighbours_do_not_matter():
    values = torch.tensor([[0.1, 0.5, 0.3, 9.0, 9.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    for order in ("morf", "lerf", "random"):
        both = removal_ranks(values, torch.tensor([3, 5]), ["a", "b"], order)
        alone = removal_ranks(values[:1, :3], torch.tensor([3]), ["a"], order)
        assert torch.equal(both[:1, :3], alone)
        assert sorted(both[0, :3].tolist()) == [0, 1, 2]
    with pytest.raises(UserError, match=r"'mrf'.*'morf'"):
        removal_ranks(values, torch.tensor([3, 5]), ["a", "b"], "mrf")


def test_sizes_are_exact_and_masks_nested_even_when_everything_ties():
    fractions = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)
    n = torch.tensor([10, 7])
    sizes = removal_sizes(fractions, n)
    assert sizes.tolist() == [[0, 1, 3, 5, 9, 10], [0, 1, 2, 4, 6, 7]]
    ranks = removal_ranks(torch.zeros(2, 10), n, ["a", "b"])
    gone = [(ranks < sizes[:, s : s + 1]) for s in range(len(fractions))]
    for s, mask in enumerate(gone):
        assert mask.sum(1).tolist() == sizes[:, s].tolist()
        if s:
            assert (mask | ~gone[s - 1]).all(), "what was gone stays gone"


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((-0.1, 0.5), r"-0\.1"),
        ((0.5, 1.5), r"1\.5"),
        ((0.5, float("nan")), "nan"),
        ((0.5, 0.2), r"\[0\.2, 0\.5\]"),
        ((0.2, 0.2), r"\[0\.2\]"),
        ((), r"fractions.*0"),
        ((0.0,), r"fractions.*0"),
    ],
)
def test_fractions_that_make_no_sense_are_refused(fractions, message):
    with pytest.raises(UserError, match=message):
        check_fractions(fractions)


def test_a_sweep_is_what_a_loop_over_samples_and_steps_finds():
    x = random(3, 2, 4, 5)
    batch, labels = Batch(("a", "b", "c"), x), torch.arange(20).reshape(1, 4, 5).expand(3, 4, 5)
    weight = random(40, 3, seed=1)
    seen = []

    def predict(part):
        seen.append(len(part))
        return (part.x.flatten(1) @ weight).sin()

    values = feature_means(importance(x - 0.5), labels, 20)
    ranks = removal_ranks(values, torch.full((3,), 20), batch.ids).reshape(3, 4, 5)
    sizes = removal_sizes((0.0, 0.02, 0.5, 0.51, 1.0), torch.full((3,), 20))
    assert sizes[0].tolist() == [0, 0, 10, 10, 20]
    found = sweep(predict, batch, ranks, sizes, noisy, 3, predict(batch))
    assert sum(seen[1:]) == 3 * 2, "nothing removed is known already, and equal sizes are one pass"
    for b in range(3):
        order = (x[b] - 0.5).sum(0).flatten().argsort(descending=True)
        for s, size in enumerate(sizes[b].tolist()):
            keep = torch.ones(20, dtype=torch.bool)
            keep[order[:size]] = False
            one = noisy(x[b : b + 1], keep.reshape(1, 4, 5), batch.ids[b : b + 1], 3)
            assert torch.allclose(found[b, s], (one.flatten(1) @ weight).sin()[0], atol=1e-5)


def test_a_sweep_does_not_depend_on_how_many_images_exist_at_a_time(monkeypatch):
    x = random(3, 1, 4, 4)
    batch = Batch(("a", "b", "c"), x)
    ranks = removal_ranks(x.flatten(1), torch.full((3,), 16), batch.ids).reshape(3, 4, 4)
    sizes = removal_sizes((0.2, 0.6), torch.full((3,), 16))

    def predict(part):
        return part.x.flatten(1).cumsum(1)

    whole = sweep(predict, batch, ranks, sizes, noisy, 0, predict(batch))
    monkeypatch.setattr("heatproof.axes.faithfulness.sweeps.VALUES", {"cpu": 1})
    largest = []

    def counted(part):
        largest.append(len(part))
        return predict(part)

    assert torch.equal(whole, sweep(counted, batch, ranks, sizes, noisy, 0, predict(batch)))
    assert largest == [1] * 6


def test_an_empty_batch_sweeps_to_nothing():
    batch = Batch((), torch.zeros(0, 1, 2, 2))
    empty = torch.zeros(0, 2, 2, dtype=torch.int64)
    none = torch.zeros(0, 3, dtype=torch.int64)
    assert sweep(lambda b: b.x, batch, empty, none, black, 0, torch.zeros(0, 5)).shape == (0, 3, 5)
    assert predict_kept(lambda b: b.x, batch, none[:, 0], lambda r: empty, black, 0).numel() == 0


def test_readouts_against_numpy():
    logits = 4 * random(4, 6, 5) - 2
    target, truth = torch.tensor([0, 1, 4, 2]), torch.tensor([0, 3, -1, 2])
    found = readouts(logits, target, truth)
    z = logits.double().numpy()
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    for b in range(4):
        for s in range(6):
            t = int(target[b])
            others = np.delete(z[b, s], t)
            assert found["probability"][b, s].item() == pytest.approx(p[b, s, t])
            assert found["logit"][b, s].item() == z[b, s, t]
            assert found["margin"][b, s].item() == pytest.approx(z[b, s, t] - others.max())
            right = found["accuracy"][b, s].item()
            assert np.isnan(right) if b == 2 else right == float(z[b, s].argmax() == int(truth[b]))
    assert torch.equal(
        readouts(logits, target)["accuracy"], readouts(logits, target, target)["accuracy"]
    )


def test_logits_that_are_not_finite_give_no_readout():
    logits = torch.zeros(1, 2, 3)
    logits[0, 1, 2] = torch.nan
    for value in readouts(logits, torch.tensor([0])).values():
        assert torch.isfinite(value[0]).tolist() == [True, False]


def test_areas_and_drops_against_numpy():
    fractions, curve, start = (0.1, 0.25, 0.7), random(5, 3).double(), random(5, seed=2).double()
    at = np.array([0.0, *fractions])
    height = np.concatenate([start.numpy()[:, None], curve.numpy()], 1)
    trapezoid = ((height[:, 1:] + height[:, :-1]) / 2 * np.diff(at)).sum(1) / 0.7
    assert np.allclose(area(fractions, curve, start), trapezoid)
    assert np.allclose(aopc(fractions, curve, start), (height[:, :1] - height).mean(1))
    relative = height / height[:, :1]
    over = 1 - ((relative[:, 1:] + relative[:, :-1]) / 2 * np.diff(at)).sum(1) / 0.7
    assert np.allclose(irof(fractions, curve, start), over)
    with_zero = torch.cat([start[:, None], curve], 1)
    for summary in (area, aopc, irof):
        assert torch.allclose(
            summary((0.0, *fractions), with_zero, start), summary(fractions, curve, start)
        )
    other = random(5, 3, seed=3).double()
    assert np.allclose(road(curve, other), ((other - curve) / 2).numpy().mean(1))


def test_summaries_read_each_curve_as_its_name_says():
    fractions, start = (0.5, 1.0), {"probability": torch.ones(1), "logit": torch.full((1,), 2.0)}
    curve = {
        "morf": {"probability": torch.tensor([[0.2, 0.1]]), "logit": torch.tensor([[1.0, 0.0]])},
        "lerf": {"probability": torch.tensor([[0.9, 0.1]]), "logit": torch.tensor([[1.5, 0.0]])},
        "random": {"probability": torch.tensor([[0.6, 0.1]]), "logit": torch.tensor([[1.2, 0.0]])},
    }
    found = summaries(curve, fractions, start, "logit")
    assert {name: summary.value.item() for name, summary in found.items()} == pytest.approx(
        {
            "road": (0.5 + 0.0) / 4,
            "deletion_auc": (1.2 + 0.3) / 4,
            "pixel_flipping": (3.0 + 1.0) / 4,
            "aopc": (1.0 + 2.0) / 3,
            "insertion_auc": (1.9 + 1.0) / 4,
        }
    )
    assert {name: summary.chance.item() for name, summary in found.items()} == pytest.approx(
        {
            "road": 0,
            "deletion_auc": (1.6 + 0.7) / 4,
            "pixel_flipping": (3.2 + 1.2) / 4,
            "aopc": (0.8 + 2.0) / 3,
            "insertion_auc": (1.6 + 0.7) / 4,
        }
    )


def test_imputers_by_name_and_what_they_need():
    named = resolve_imputers(["zero", {"noisy_linear": {"sigma": 0.05}}, black])
    assert named[1].sigma == 0.05 and named[2] is black
    assert [needs_kept(item) for item in named] == [False, True, False]
    for bad, message in [
        ("noise_linear", r"'noise_linear'.*'noisy_linear'"),
        ({"zero": {}, "blur": {}}, "zero"),
        (3, "imputers"),
        ([], "imputers"),
        (["zero", "zero"], "zero, zero"),
        ({"noisy_linear": {"sigme": 1}}, r"'sigme'.*'sigma'"),
        ({"noisy_linear": {"sigma": -1}}, "noisy_linear.sigma"),
    ]:
        with pytest.raises(UserError, match=message):
            resolve_imputers(bad)
