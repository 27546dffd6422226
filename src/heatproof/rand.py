"""Random numbers as a pure function of (seed, sample id, purpose, index).

There is no generator object and no state: a *key* per sample is hashed from the seed, the sample's id and a word
that says what the numbers are for; number i of a sample is a mixing function of key and i. So no draw depends on
batch size, order, worker, interruption or device, and the two maps of a pair can share their draws.

The mixing function is the 64-bit finaliser known from SplitMix64, evaluated at key + i·γ.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15 - (
    1 << 64
)  # odd constants, written as the signed integers that torch multiplies with
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_FOLD = 0xD1B54A32D192ED03 - (1 << 64)


def keys(seed: int, ids: Sequence[str], purpose: str) -> Tensor:
    """One int64 key per sample, shape (B,), from the seed, the ids and what the draws are for.

    >>> a, b = keys(0, ["cat", "dog"], "noise"), keys(0, ["dog"], "noise")
    >>> bool(a[1] == b[0]), bool(a[0] == a[1])
    (True, False)
    """
    words = []
    for name in ids:
        digest = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{name}".encode(), digest_size=8).digest()
        words.append(int.from_bytes(digest, "little", signed=True))
    return torch.tensor(words, dtype=torch.int64)


def fold(key: Tensor, index: int | Tensor) -> Tensor:
    """New keys from old ones and an index: draw number `index` of something that itself needs many numbers.

    >>> k = keys(0, ["a"], "steps")
    >>> bool(fold(k, 0) == fold(k, 1))
    False
    """
    return _mix(key + (torch.as_tensor(index, dtype=torch.int64, device=key.device) + 1) * _FOLD)


def bits(key: Tensor, n: int) -> Tensor:
    """n words of 64 random bits per key, (B, n) int64.

    >>> bits(keys(0, ["a", "b"], "x"), 3).shape
    torch.Size([2, 3])
    """
    index = torch.arange(1, n + 1, dtype=torch.int64, device=key.device)
    return _mix(key[:, None] + index * _GAMMA)


def uniform(key: Tensor, shape: Sequence[int]) -> Tensor:
    """float32 numbers uniform on the open interval (0, 1), shape (B, *shape).

    >>> u = uniform(keys(0, ["a"], "x"), (1000,))
    >>> bool((u > 0).all() and (u < 1).all()), round(float(u.mean()), 1)
    (True, 0.5)
    """
    words = (_halves(key, math.prod(shape)) >> 9).bitwise_and_(
        (1 << 23) - 1
    )  # int32 shifts its sign in
    return words.to(torch.float32).add_(0.5).mul_(2.0**-23).reshape(len(key), *shape)


def normal(key: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal float32 numbers by the Box-Muller transform, shape (B, *shape).

    >>> z = normal(keys(0, ["a"], "x"), (10_000,))
    >>> abs(float(z.mean())) < 0.05, abs(float(z.std()) - 1) < 0.05
    (True, True)
    """
    n = math.prod(shape)
    pairs = uniform(key, (2, (n + 1) // 2))
    radius = pairs[:, 0].log_().mul_(-2).sqrt_()
    angle = pairs[:, 1].mul_(2 * math.pi)
    both = torch.empty_like(pairs)
    torch.cos(angle, out=both[:, 0])
    torch.sin(angle, out=both[:, 1])
    return both.mul_(radius[:, None]).flatten(1)[:, :n].reshape(len(key), *shape)


def integers(key: Tensor, shape: Sequence[int], high: int) -> Tensor:
    """int64 numbers uniform on 0 … high − 1, shape (B, *shape).

    >>> sorted(set(integers(keys(0, ["a"], "x"), (100,), 3).flatten().tolist()))
    [0, 1, 2]
    """
    words = (_mix(bits(key, math.prod(shape))) >> 1) & ((1 << 62) - 1)
    return (words % high).reshape(len(key), *shape)


def permutation(key: Tensor, n: int) -> Tensor:
    """A uniformly random order of 0 … n − 1 per key, (B, n) int64.

    >>> permutation(keys(0, ["a"], "x"), 4).sort().values.tolist()
    [[0, 1, 2, 3]]
    """
    return bits(key, n).argsort(dim=1, stable=True)


def _mix(z: Tensor) -> Tensor:
    """The finaliser, in place."""
    shifted = torch.empty_like(z)
    for by, factor in ((30, _MIX_1), (27, _MIX_2), (31, 1)):
        torch.bitwise_right_shift(z, by, out=shifted)  # arithmetic; the mask makes it a logical one
        z.bitwise_xor_(shifted.bitwise_and_((1 << (64 - by)) - 1))
        if factor != 1:
            z.mul_(factor)
    return z


def _halves(key: Tensor, n: int) -> Tensor:
    """n numbers of 32 bits per key, two from each word and the low one first, (B, n) int32."""
    words = (n + 1) // 2
    halves = bits(key, words).flatten().view(torch.int32).reshape(len(key), words, 2)
    if sys.byteorder == "big":
        halves = halves.flip(2)
    return halves.flatten(1)[:, :n]
