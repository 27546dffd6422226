"""Random numbers as a pure function of (seed, sample id, purpose, index).

There is no generator object and no state: a *key* per sample is hashed from the seed, the sample's id and a word
that says what the numbers are for; number i of a sample is a mixing function of key and i. So no draw depends on
batch size, order, worker, interruption or device, and the two maps of a pair can share their draws.

The mixing function is that of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA
2014), evaluated at key + i·γ: number i of the sequence that SplitMix64 would give from this key.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

# Odd 64-bit constants, minus 2^64, because torch multiplies signed integers. The first three are those of SplitMix64.
_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_FOLD = 0xD1B54A32D192ED03 - (1 << 64)


def keys(seed: int, ids: Sequence[str], purpose: str) -> Tensor:
    """Return one int64 key per sample, shape (B,), from the seed, the ids and what the draws are for.

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
    """Return new keys from old ones and an index: draw number `index` of something that itself needs many numbers.

    >>> k = keys(0, ["a"], "steps")
    >>> bool(fold(k, 0) == fold(k, 1))
    False
    """
    return _mix(key + (torch.as_tensor(index, dtype=torch.int64, device=key.device) + 1) * _FOLD)


def bits(key: Tensor, n: int) -> Tensor:
    """Return n words of 64 random bits per key, (B, n) int64.

    >>> bits(keys(0, ["a", "b"], "x"), 3).shape
    torch.Size([2, 3])
    """
    index = torch.arange(1, n + 1, dtype=torch.int64, device=key.device)
    return _mix(key[:, None] + index * _GAMMA)


def uniform(key: Tensor, shape: Sequence[int]) -> Tensor:
    """Return float32 numbers uniform on the open interval (0, 1), shape (B, *shape).

    >>> u = uniform(keys(0, ["a"], "x"), (1000,))
    >>> bool((u > 0).all() and (u < 1).all()), round(float(u.mean()), 1)
    (True, 0.5)
    """
    # The upper 23 bits of 32, as many as a float32 has; the mask removes the sign bits that int32 shifts in.
    words = (_halves(key, math.prod(shape)) >> 9).bitwise_and_((1 << 23) - 1)
    return words.to(torch.float32).add_(0.5).mul_(2.0**-23).reshape(len(key), *shape)


def normal(key: Tensor, shape: Sequence[int]) -> Tensor:
    """Return standard normal float32 numbers by the Box-Muller transform, shape (B, *shape).

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
    """Return int64 numbers uniform on 0 … high − 1, shape (B, *shape).

    >>> sorted(set(integers(keys(0, ["a"], "x"), (100,), 3).flatten().tolist()))
    [0, 1, 2]
    """
    words = (_mix(bits(key, math.prod(shape))) >> 1) & ((1 << 62) - 1)
    return (words % high).reshape(len(key), *shape)


def permutation(key: Tensor, n: int) -> Tensor:
    """Return a uniformly random order of 0 … n − 1 per key, (B, n) int64.

    >>> permutation(keys(0, ["a"], "x"), 4).sort().values.tolist()
    [[0, 1, 2, 3]]
    """
    return bits(key, n).argsort(dim=1, stable=True)


def _mix(z: Tensor) -> Tensor:
    """Return 64-bit words scrambled by the output function of SplitMix64; z itself is overwritten.

    Each step is z ^= z >> bits; z *= factor. After the three, words that differ in one bit differ in about half of
    their bits, so that consecutive numbers look random.
    """
    shifted = torch.empty_like(z)
    for bits_shifted, factor in ((30, _MIX_1), (27, _MIX_2), (31, 1)):
        # torch shifts the sign bit in; the mask removes it, as the shift of unsigned integers would.
        torch.bitwise_right_shift(z, bits_shifted, out=shifted)
        z.bitwise_xor_(shifted.bitwise_and_((1 << (64 - bits_shifted)) - 1))
        if factor != 1:
            z.mul_(factor)
    return z


def _halves(key: Tensor, n: int) -> Tensor:
    """Return n numbers of 32 bits per key, two from each word and the low one first, (B, n) int32."""
    words = (n + 1) // 2
    halves = bits(key, words).flatten().view(torch.int32).reshape(len(key), words, 2)
    if sys.byteorder == "big":
        halves = halves.flip(2)
    return halves.flatten(1)[:, :n]
