"""Noisy linear imputation against the implementations a user would otherwise pick, in one process on one thread.

    python benchmarks/bench_removal.py                    (or `make bench`, which runs all benchmarks)
    python benchmarks/bench_removal.py --device cuda      milliseconds per image of heatproof alone, in batches

Every implementation fills the same pictures for the same masks: 32 and 224 pixels with three channels, removed pixels
scattered or in blobs, half or nine tenths of them. One after the other fills a batch of four pictures, round after
round, so that what else the machine does falls on all alike; the peers take one picture at a time. A time is processor
time of all threads per picture, the median of the rounds; a ratio is that of medians. Noise is included on every side.

The peers are called through their own functions: Quantus' `noisy_linear_imputation` and pytorch-grad-cam's
`NoisyLinearImputer`; `pip install quantus==0.6.0 grad-cam` brings them, and one that is absent is named and left out.
Both hand the matrix to scipy's `spsolve` after building it entry by entry. "scipy spsolve" is what a careful user would
write instead: the same solver, the matrix built without a loop over pixels. The largest difference from it, both
without noise, stands in the last column.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve

from heatproof.removal import NoisyLinear

SIGMA, TOGETHER = 0.1, 4
CASES = [(kind, removed) for kind in ("random", "blobs") for removed in (0.5, 0.9)]
Impute = Callable[[torch.Tensor, torch.Tensor], object]


def picture(size: int, seed: int) -> torch.Tensor:
    """Smooth colours with some grain, (3, H, W) in [0, 1]."""
    draw = np.random.default_rng(seed)
    smooth = gaussian_filter(draw.random((3, size, size)), (0, size / 16, size / 16))
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return torch.from_numpy(0.8 * smooth + 0.2 * draw.random((3, size, size))).float()


def mask(kind: str, removed: float, size: int, seed: int) -> torch.Tensor:
    """(H, W), True where a pixel is kept."""
    draw = np.random.default_rng(seed).random((size, size))
    if kind == "blobs":
        draw = gaussian_filter(draw, size / 16)
    keep = np.ones(size * size, dtype=bool)
    keep[draw.ravel().argsort()[: round(removed * size * size)]] = False
    return torch.from_numpy(keep.reshape(size, size))


def one_by_one(impute: Impute, x: torch.Tensor, keep: torch.Tensor) -> object:
    return [impute(*pair) for pair in zip(x, keep, strict=True)]


def with_spsolve(x: torch.Tensor, keep: torch.Tensor, sigma: float = SIGMA) -> torch.Tensor:
    image, kept = x.double().numpy(), keep.numpy()
    height, width = kept.shape
    rows, columns = np.nonzero(~kept)
    n = len(rows)
    number = np.full(kept.shape, -1)
    number[~kept] = np.arange(n)
    diagonal, right, entries = np.zeros(n), np.zeros((n, len(image))), []
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            if not (down or across):
                continue
            weight = 1 / 12 if down and across else 1 / 6
            i, j = rows + down, columns + across
            inside = np.flatnonzero((i >= 0) & (i < height) & (j >= 0) & (j < width))
            diagonal[inside] += weight
            i, j = i[inside], j[inside]
            fixed = kept[i, j]
            right[inside[fixed]] += weight * image[:, i[fixed], j[fixed]].T
            entries.append(
                (inside[~fixed], number[i[~fixed], j[~fixed]], np.full((~fixed).sum(), -weight))
            )
    entries.append((np.arange(n), np.arange(n), diagonal))
    at, to, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    solved = spsolve(coo_matrix((values, (at, to)), shape=(n, n)).tocsc(), right).T
    out = image.copy()
    out[:, ~kept] = solved + sigma * np.random.default_rng(0).standard_normal(solved.shape)
    return torch.from_numpy(out)


def peers() -> dict[str, Impute]:
    """The other implementations that are installed; says which are not."""
    found: dict[str, Impute] = {"scipy spsolve": with_spsolve}
    try:
        quantus = import_module("quantus.functions.perturb_func").noisy_linear_imputation
        found[f"quantus {version('quantus')}"] = lambda x, keep: quantus(
            x.numpy(), np.flatnonzero(~keep.numpy().ravel()), noise=SIGMA
        )
    except (ImportError, RuntimeError) as error:
        print(f"quantus is absent ({error})")
    try:
        imputer = import_module("pytorch_grad_cam.metrics.road").NoisyLinearImputer(noise=SIGMA)
        found[f"grad-cam {version('grad-cam')}"] = lambda x, keep: imputer(x, keep.float())
    except (ImportError, RuntimeError) as error:
        print(f"pytorch-grad-cam is absent ({error})")
    return found


def on_the_cpu(rounds: int) -> None:
    torch.set_num_threads(1)
    others = peers()
    print(f"{'picture':8}{'removed':>14}{'heatproof':>14}", end="")
    print("".join(f"{name:>24}" for name in others) + f"{'largest difference':>22}")
    for size in (32, 224):
        for kind, removed in CASES:
            x = torch.stack([picture(size, i) for i in range(TOGETHER)])
            keep = torch.stack([mask(kind, removed, size, i) for i in range(TOGETHER)])
            sides: dict[str, Callable[[], object]] = {
                "heatproof": partial(NoisyLinear(sigma=SIGMA), x, keep)
            }
            sides |= {name: partial(one_by_one, impute, x, keep) for name, impute in others.items()}
            times: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(rounds + 1):
                for name, impute in sides.items():
                    begun = time.process_time()
                    impute()
                    if turn:  # the first round warms caches and imports
                        times[name].append((time.process_time() - begun) / TOGETHER)
            middle = {name: statistics.median(seconds) for name, seconds in times.items()}
            gap = (
                (NoisyLinear(sigma=0.0)(x, keep)[0] - with_spsolve(x[0], keep[0], 0.0)).abs().max()
            )
            print(
                f"{size:4} px {removed:6.0%} {kind:7}{middle['heatproof'] * 1e3:11.2f} ms", end=""
            )
            for name in others:
                print(
                    f"{middle[name] * 1e3:12.1f} ms {middle[name] / middle['heatproof']:6.1f}×",
                    end="  ",
                )
            print(f"{float(gap):20.1e}")


def on_a_gpu(device: str, rounds: int) -> None:
    print(torch.cuda.get_device_name(device))
    for size, n in ((32, 512), (224, 128)):
        for kind, removed in CASES:
            x = torch.stack([picture(size, i % 8) for i in range(n)]).to(device)
            keep = torch.stack([mask(kind, removed, size, i % 8) for i in range(n)]).to(device)
            seconds = []
            for _ in range(rounds + 2):
                torch.cuda.synchronize(device)
                begun = time.perf_counter()
                filled = NoisyLinear(sigma=0.0)(x, keep)
                torch.cuda.synchronize(device)
                seconds.append(time.perf_counter() - begun)
            gap = (filled[0].cpu() - with_spsolve(x[0].cpu(), keep[0].cpu(), 0.0)).abs().max()
            middle = statistics.median(seconds[2:]) / n
            print(
                f"{size:4} px {removed:4.0%} {kind:7} {n:4} together {middle * 1e3:8.3f} ms per image, off by {gap:.1e}"
            )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Noisy linear imputation against its peers")
    options.add_argument(
        "--device", default="cpu", help="cpu, or cuda for milliseconds per image in batches"
    )
    options.add_argument("--rounds", type=int, default=7, help="rounds to take the median of")
    chosen = options.parse_args()
    if chosen.device == "cpu":
        on_the_cpu(chosen.rounds)
    else:
        on_a_gpu(chosen.device, chosen.rounds)
