"""What scoring costs: maps against 8 reference maps at 224 px, all at once, against pair by pair in plain operations.

    python benchmarks/bench_scoring.py                  (or `make bench`, which runs all benchmarks)
    python benchmarks/bench_scoring.py --device cuda

*Plain* is the measures as they are written down: a stable sort for the ranks, windows by additions of whole maps, and
for every pair anew the sums of its products in double precision. heatproof sorts once per map, keeps what does not
depend on the other map, and compares all references with all maps together. Both sides run in turns in one process on
one thread, and their scores are compared at the end. Counted is processor time, on a GPU the time until it is done.
Three kinds of maps: without ties, smooth with every value three times (as class activation maps have them), and one
value per patch (as maps of segments have them).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from heatproof.maps.ranks import expected_jaccard
from heatproof.maps.similarity import COMPONENTS, compare_all, profile

SIDE, REFERENCES, MAPS, K, WINDOW, ROUNDS = 224, 8, 4, 100, 11, 5
C1, C2 = 0.01**2, 0.03**2
Plain = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def plain_profile(maps: Tensor) -> Plain:
    """Scaled maps, window means and variances, centred ranks, sure and tied places of the top k, and open slots."""
    flat = maps.flatten(1)
    low, high = flat.amin(1)[:, None, None, None], flat.amax(1)[:, None, None, None]
    unit = (maps - low) / (high - low)
    mean = windows(unit)
    values, order = flat.sort(dim=1, descending=True, stable=True)
    n = flat.shape[1]
    place = torch.arange(n, device=maps.device).expand_as(flat)
    new = torch.ones_like(flat, dtype=torch.bool)
    new[:, 1:] = values[:, 1:] != values[:, :-1]
    first = place.masked_fill(~new, 0).cummax(1).values
    final = place.masked_fill(~new.roll(-1, 1), n).flip(1).cummin(1).values.flip(1)
    rank = torch.empty_like(flat).scatter_(1, order, (n - 1) / 2 - (first + final).float() / 2)
    edge = values[:, K - 1 : K]
    sure, tied = flat > edge, flat == edge
    slots = K - sure.sum(1)
    settled = (slots == tied.sum(1))[:, None]
    slots = slots.masked_fill(settled[:, 0], 0)
    return (
        unit,
        mean,
        windows(unit * unit) - mean * mean,
        rank,
        sure | (tied & settled),
        tied & ~settled,
        slots,
    )


def windows(maps: Tensor) -> Tensor:
    for dim, margin in ((3, (5, 5)), (2, (0, 0, 5, 5))):
        padded, size = F.pad(maps, margin), maps.shape[dim]
        two = padded.narrow(dim, 0, size + 9) + padded.narrow(dim, 1, size + 9)
        four = two.narrow(dim, 0, size + 7) + two.narrow(dim, 2, size + 7)
        eight = four.narrow(dim, 0, size + 3) + four.narrow(dim, 4, size + 3)
        maps = padded.narrow(dim, 0, size) + two.narrow(dim, 1, size) + eight.narrow(dim, 3, size)
    return maps / WINDOW**2


def plain_compare(a: Plain, b: Plain) -> dict[str, Tensor]:
    """One reference with B maps, each score (B,)."""
    unit_a, mean_a, variance_a, rank_a, sure_a, tied_a, slots_a = a
    unit_b, mean_b, variance_b, rank_b, sure_b, tied_b, slots_b = b
    covariance = windows(unit_a * unit_b) - mean_a * mean_b
    score = ((2 * mean_a * mean_b + C1) * (2 * covariance + C2)) / (
        (mean_a * mean_a + mean_b * mean_b + C1) * (variance_a + variance_b + C2)
    )
    x, y = rank_a.double(), rank_b.double()
    rho = (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()
    common = (sure_a & sure_b).sum(1)
    overlap = common.double() / (2 * K - common).double()
    lottery = ((slots_a > 0) | (slots_b > 0)).nonzero().flatten().tolist()
    if lottery:
        sets = [
            tied_a & tied_b,
            tied_a & sure_b,
            tied_a & ~tied_b & ~sure_b,
            tied_b & sure_a,
            tied_b & ~tied_a & ~sure_a,
        ]
        slots = [slots_a.expand_as(common), slots_b]
        counts = torch.stack([common, *slots, *[members.sum(1) for members in sets]], 1).tolist()
        for row in lottery:
            sure, left_a, left_b, both, a_in, a_out, b_in, b_out = counts[row]
            overlap[row] = expected_jaccard(
                K, sure, left_a, left_b, both, (a_in, a_out), (b_in, b_out)
            )
    return {
        "ssim": score.flatten(1).double().mean(1),
        "spearman": (rho + 1) / 2,
        "jaccard": overlap,
    }


def pair_by_pair(references: Plain, maps: Plain) -> dict[str, Tensor]:
    one_by_one = [
        plain_compare(tuple(t[r : r + 1] for t in references), maps) for r in range(REFERENCES)
    ]  # type: ignore[arg-type]
    return {name: torch.stack([scores[name] for scores in one_by_one]) for name in COMPONENTS}


def pictures(kind: str, number: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind == "no ties":
        return torch.randn(number, 3, SIDE, SIDE, generator=generator).to(device)
    coarse = torch.randn(number, 1, 7, 7, generator=generator)
    how = (
        {"mode": "bilinear", "align_corners": False}
        if kind == "smooth, threefold"
        else {"mode": "nearest"}
    )
    return F.interpolate(coarse, SIDE, **how).expand(-1, 3, -1, -1).contiguous().to(device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    begun = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--maps", type=int, default=MAPS)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    rows, worst = [], 0.0
    for kind in ("no ties", "smooth, threefold", "patches"):
        references, maps = (
            pictures(kind, REFERENCES, 1, device),
            pictures(kind, options.maps, 2, device),
        )
        old, new = (
            [plain_profile(m) for m in (references, maps)],
            [profile(m, K) for m in (references, maps)],
        )
        works: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "profile": (lambda m=maps: plain_profile(m), lambda m=maps: profile(m, K)),
            "8 references": (lambda o=old: pair_by_pair(*o), lambda n=new: compare_all(*n)),
        }
        expected, found = pair_by_pair(*old), compare_all(*new)
        worst = max(
            worst, *(float((expected[name] - found[name]).abs().max()) for name in COMPONENTS)
        )
        total = [0.0, 0.0]
        for what, sides in works.items():
            best = [float("inf")] * 2
            for _ in range(ROUNDS):
                for side in range(2):
                    best[side] = min(best[side], seconds(sides[side], device))
            total = [t + b for t, b in zip(total, best, strict=True)]
            rows.append((kind, what, *(1e3 * b / options.maps for b in best), best[0] / best[1]))
        rows.append((kind, "both", *(1e3 * t / options.maps for t in total), total[0] / total[1]))
    print(
        f"milliseconds per map of 3×{SIDE}×{SIDE} on {device}, the best of {ROUNDS}, {options.maps} maps at once"
    )
    columns = ["maps", "work", "plain", "heatproof", "ratio"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="{:.2f}".format))
    print(f"largest difference of a score between the two sides: {worst:.1e}")
    if worst > 1e-6:
        raise SystemExit("the two sides disagree: the comparison is void")


if __name__ == "__main__":
    main()
