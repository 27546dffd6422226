"""CIFAR-10 and FashionMNIST as bytes, decoded once: what the atlas's networks learn from and are asked about."""

from __future__ import annotations

import gzip
import lzma
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DATA = ("cifar10", "fashion")
NAMES = {
    "cifar10": (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    "fashion": (
        "T-shirt",
        "trousers",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "trainer",
        "bag",
        "boot",
    ),
}
MEAN = {"cifar10": (0.4914, 0.4822, 0.4465), "fashion": (0.2860,)}
STD = {"cifar10": (0.2470, 0.2435, 0.2616), "fashion": (0.3530,)}
"""What is subtracted and divided by, of pixels in [0, 1]: the usual figures of the published training pictures."""
IDX = {"train": "train", "test": "t10k"}


def pictures(name: str, which: str, folder: Path, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, C, H, W) uint8 and labels (N,) int64 of the `which` (train or test) pictures; kept in `cache`.

    `folder` has `cifar10/train.npz` and `test.npz` (blobs of JPEG), `fashion_mnist/train-images-idx3-ubyte` and the
    rest as published, compressed by gzip or xz or not.
    """
    kept = [cache / f"{name}-{which}-{part}.npy" for part in ("x", "y")]
    if not all(path.is_file() for path in kept):
        x, y = _cifar(folder, which) if name == "cifar10" else _fashion(folder, which)
        cache.mkdir(parents=True, exist_ok=True)
        for path, values in zip(kept, (x, y), strict=True):
            np.save(path, values)
    x, y = (np.load(path) for path in kept)
    return x, y


def ready(name: str, folder: Path, cache: Path) -> bool:
    """Whether both parts of a data set can be read."""
    if (cache / f"{name}-train-x.npy").is_file() and (cache / f"{name}-test-x.npy").is_file():
        return True
    if name == "cifar10":
        return (folder / "cifar10" / "train.npz").is_file()
    return any((folder / "fashion_mnist").glob("train-images-idx3-ubyte*"))


def _cifar(folder: Path, which: str) -> tuple[np.ndarray, np.ndarray]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from road_cifar10 import decoded
    finally:
        sys.path.pop(0)
    x, y = decoded(folder / "cifar10" / f"{which}.npz")
    return x, y.astype(np.int64)


def _fashion(folder: Path, which: str) -> tuple[np.ndarray, np.ndarray]:
    x = np.frombuffer(
        _unpacked(folder / "fashion_mnist" / f"{IDX[which]}-images-idx3-ubyte"), np.uint8, offset=16
    )
    y = np.frombuffer(
        _unpacked(folder / "fashion_mnist" / f"{IDX[which]}-labels-idx1-ubyte"), np.uint8, offset=8
    )
    return x.reshape(-1, 1, 28, 28), y.astype(np.int64)


def _unpacked(path: Path) -> bytes:
    for suffix, read in ((".gz", gzip.open), (".xz", lzma.open), ("", open)):
        packed = path.with_name(path.name + suffix)
        if packed.is_file():
            with read(packed, "rb") as stream:
                content: bytes = stream.read()
            return content
    raise SystemExit(
        f"there is no {path}, packed or not; FashionMNIST is the Debian package dataset-fashion-mnist"
    )
