"""The contract of a group, the tensor operations that groups share, and the elements that a mean over one uses.

An element is a tensor of shape (*e); `act` and `move` take one element for all samples or (B, *e), one per sample.
`rank` is the number of dimensions of one element, which tells the two cases apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from holdfast import rand
from holdfast.errors import UserError
from holdfast.statistics.bounds import check_share
from holdfast.types import Batch

ENUMERABLE = 1_000_000
"""The largest order for which `elements` lists a group."""
ALONG = ("mask", "attention_mask")
"""The auxiliary tensors (B, n, …) that move with the n elements of the input."""


@runtime_checkable
class Group(Protocol):
    """A finite group with its action ρ on inputs and ρ′ on feature maps; elements are data, never state.

    `exact` is False where the action interpolates; `title` says in words what the group does.
    """

    name: ClassVar[str]

    @property
    def exact(self) -> bool:
        """Whether the action moves values as they are; False where it interpolates."""

    @property
    def rank(self) -> int:
        """How many axes an element has: 0 for a number, 1 for a tuple of numbers."""

    @property
    def title(self) -> str:
        """What the group does, in words."""

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` when the group cannot act on samples of this shape (without the batch)."""

    def order(self, batch: Batch) -> int:
        """|G|, a Python integer of any size."""

    def identity(self, batch: Batch) -> Tensor:
        """The element that moves nothing, (*e)."""

    def elements(self, batch: Batch) -> Tensor:
        """All elements, (|G|, *e), identity first."""

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """n uniform draws for each sample, (n, B, *e), keyed by (seed, sample id, draw number)."""

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """gh: act(compose(g, h)) is act(g) after act(h)."""

    def inverse(self, g: Tensor) -> Tensor:
        """g⁻¹."""

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """ρ[g] x, with the auxiliary tensors that move along."""

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """ρ′[g] e for feature maps (B, …), with or without channels."""


def shape_text(shape: Iterable[int]) -> str:
    """A sample shape as the batch has it.

    >>> shape_text((3, 8))
    '(B, 3, 8)'
    """
    return f"({', '.join(str(n) for n in ('B', *shape))})"


def axis(name: str, dim: int, shape: Sequence[int]) -> int:
    """The dimension `dim` of a batched tensor of this shape, counted from 1 up; the batch itself cannot be moved.

    Positive dims count from the batch on, so they suit maps that lost their last dimension; negative ones count from
    the end, so they suit maps that lost their channels.

    >>> axis("cyclic", -1, (4, 3, 50)), axis("permutation", 1, (4, 10))
    (2, 1)
    """
    index = dim + len(shape) if dim < 0 else dim
    if not 1 <= index < len(shape):
        other = "the batch" if index == 0 else "not there"
        allowed = f"1 to {len(shape) - 1} or -1 to {1 - len(shape)}" if len(shape) > 1 else "none"
        raise UserError(
            f"{name}: dim {dim} of a tensor of shape {shape_text(shape[1:])} is {other}; allowed are {allowed}"
        )
    return index


def aligned(name: str, g: Tensor, rank: int, samples: int, device: torch.device) -> Tensor:
    """The elements on a device, after a check that they are (*e) or (B, *e)."""
    if not isinstance(g, Tensor) or g.ndim not in (rank, rank + 1) or (g.ndim > rank and len(g) not in (1, samples)):
        got = tuple(g.shape) if isinstance(g, Tensor) else repr(g)
        one = "()" if rank == 0 else "(k,)"
        many = f"({samples},)" if rank == 0 else f"({samples}, k)"
        raise UserError(f"{name}: an element is a tensor of shape {one}, or {many} for one per sample; got {got}")
    return g.to(device)


def take(x: Tensor, dim: int, source: Tensor) -> Tensor:
    """out[b, …, i, …] = x[b, …, source[b, i], …] along `dim`; source is (n,) or (B, n) int64.

    >>> take(torch.tensor([[1, 2, 3], [4, 5, 6]]), 1, torch.tensor([[2, 1, 0], [0, 1, 2]])).tolist()
    [[3, 2, 1], [4, 5, 6]]
    """
    if source.ndim == 1:
        return x.index_select(dim, source)
    shape = [1] * x.ndim
    shape[0], shape[dim] = source.shape
    size = list(x.shape)
    size[dim] = source.shape[1]
    return x.gather(dim, source.reshape(shape).expand(size))


def take_along(name: str, aux: Mapping[str, Tensor], keys: Iterable[str], source: Tensor) -> dict[str, Tensor]:
    """The auxiliary tensors with those named in `keys`, each (B, n, …), rearranged like the input."""
    moved = dict(aux)
    for key in keys:
        if key not in aux:
            continue
        tensor = aux[key]
        if tensor.ndim < 2 or tensor.shape[1] != source.shape[-1]:
            raise UserError(
                f"{name}: aux[{key!r}] has shape {shape_text(tensor.shape[1:])} but moves with {source.shape[-1]} "
                f"positions; expected (B, {source.shape[-1]}), or leave it out of `along`"
            )
        moved[key] = take(tensor, 1, source.to(tensor.device))
    return moved


def listed(name: str, order: int) -> int:
    """The order of a group that is small enough to be listed."""
    if order > ENUMERABLE:
        many = order_text(order)
        raise UserError(f"{name} has {many} elements here, too many to list (at most {ENUMERABLE}); use sample()")
    return order


def order_text(order: int) -> str:
    """The order of a group, a large one by its power of ten.

    >>> order_text(24), order_text(math.factorial(20))
    ('24', 'about 10^18')
    """
    return str(order) if order < 10**12 else f"about 10^{len(str(order)) - 1}"


def draw_keys(seed: int, batch: Batch, purpose: str) -> Tensor:
    """One key per sample on the batch's device."""
    return rand.keys(seed, batch.ids, f"group {purpose}").to(batch.x.device)


def probe(shape: Sequence[int]) -> Batch:
    """One made-up sample of a shape, for questions that only the shape can answer."""
    key = rand.keys(0, ("probe",), "group probe")
    return Batch(ids=("probe",), x=rand.uniform(key, tuple(shape)))


def plan_elements(group: Group, batch: Batch, limit: int, seed: int) -> tuple[Tensor, bool]:
    """Elements (n, B, *e) for a mean over the group, and whether they are all of it.

    All |G| elements, identity first and the same for every sample, if there are at most `limit`; else `limit` uniform
    draws for each sample, keyed by (seed, sample id), whose mean is within `monte_carlo_error(limit)` of the full one.

    >>> from holdfast.axes.symmetry.groups import Cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 5))
    >>> elements, whole = plan_elements(Cyclic(), batch, limit=8, seed=0)
    >>> elements.T.tolist(), whole
    ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], True)
    >>> plan_elements(Cyclic(), batch, limit=3, seed=0)[0].shape
    torch.Size([3, 2])
    """
    if limit < 1:
        raise UserError(f"the number of group elements must be at least 1, got {limit}")
    if group.order(batch) > limit:
        return group.sample(batch, limit, seed), False
    every = group.elements(batch)
    return every[:, None].expand(len(every), len(batch), *every.shape[1:]), True


def monte_carlo_error(n: int, delta: float = 0.05, low: float = -1.0, high: float = 1.0) -> float:
    """Hoeffding: the mean of n independent scores in [low, high] is within this of its expectation, but for delta.

    (high − low) · √(log(2/delta) / 2n). It holds for one sample with its n draws, and for the mean over B samples with
    n·B draws in place of n because draws are keyed by sample.

    >>> round(monte_carlo_error(50), 3)
    0.384
    """
    check_share("delta", delta)
    if n < 1 or not low < high:
        raise UserError(f"n must be at least 1 and low below high, got n={n}, low={low}, high={high}")
    return (high - low) * math.sqrt(math.log(2 / delta) / (2 * n))
