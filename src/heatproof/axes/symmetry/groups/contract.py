"""The contract of a group, the tensor operations that groups share, and the elements that a mean over one uses.

An element is a tensor of shape (*e); `act` and `move` take one element for all samples or (B, *e), one per sample.
`rank` is the number of dimensions of one element, which tells the two cases apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.models.tasks import with_region
from heatproof.types import Batch

ENUMERABLE = 1_000_000
"""The largest order for which `elements` lists a group."""
ALONG = ("mask", "attention_mask")
"""The auxiliary tensors (B, n, …) that move with the n elements of the input."""


@runtime_checkable
class Group(Protocol):
    """A group with its action ρ on inputs and ρ′ on feature maps; elements are data, never state.

    `exact` is False where the action interpolates; `title` says in words what the group does. A group may also have

    orders(batch)        |G| of each sample, see `BySample`
    view(g, maps)        what of the maps of inputs moved by g can be compared at all
    check_inputs(batch)  an error if its action, tried on samples, is none
    unfit(batch)         why it cannot move a sample, empty where it can
    weights(g)           dG/dp of elements drawn from a distribution p that is not uniform, at most `largest_weight`
    keeps_size           True if only layers of the input's size can be moved
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

    def order(self, batch: Batch) -> float:
        """|G|, a Python integer of any size, or infinity; of the largest, where it depends on the sample."""

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


@runtime_checkable
class BySample(Protocol):
    """A group whose order depends on the sample."""

    def orders(self, batch: Batch) -> list[float]:
        """|G| for each sample."""


class Numbered:
    """Base of finite groups whose elements are the numbers 0 … |G| − 1, of which 0 moves nothing."""

    name: ClassVar[str]
    order: Callable[[Batch], int]
    rank: ClassVar[int] = 0

    def identity(self, batch: Batch) -> Tensor:
        """Return element 0, ()."""
        return torch.zeros((), dtype=torch.int64, device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """Return 0 … |G| − 1, (|G|,)."""
        order = self.order(batch)
        check_listable(self.name, order)
        return torch.arange(order, device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return uniform elements, (n, B)."""
        keys = draw_keys(seed, batch, self.name)
        return rand.integers(keys, (n,), self.order(batch)).T


class Moving:
    """Base of groups that move a sample as they move its map; regions move along, other auxiliary tensors stay."""

    check: Callable[[Sequence[int]], None]
    move: Callable[[Tensor, Tensor], Tensor]

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples moved by g."""
        self.check(batch.x.shape[1:])
        return with_region(batch, self.move(g, batch.x), partial(self.move, g))


class Additive:
    """Base of groups whose elements are added: shifts, angles and logarithms of factors."""

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return g + h."""
        return g + h

    def inverse(self, g: Tensor) -> Tensor:
        """Return −g."""
        return -g


def shape_text(shape: Iterable[int]) -> str:
    """Return the shape of a sample as that of a batch, for messages.

    >>> shape_text((3, 8))
    '(B, 3, 8)'
    """
    return f"({', '.join(str(n) for n in ('B', *shape))})"


def axis(name: str, dim: int, shape: Sequence[int]) -> int:
    """Return the dimension `dim` of a batched tensor of this shape as an index from 1 on; refuse 0, which is the batch.

    `name` is that of the group, for the message. Positive dims count from the batch on, so they suit maps without the
    last dimension of their input; negative ones count from the end, so they suit maps without channels.

    >>> axis("cyclic", -1, (4, 3, 50)), axis("permutation", 1, (4, 10))
    (2, 1)
    """
    index = dim + len(shape) if dim < 0 else dim
    if 1 <= index < len(shape):
        return index
    problem = "the batch" if index == 0 else "not there"
    allowed = "none"
    if len(shape) > 1:
        allowed = f"1 to {len(shape) - 1} or -1 to {1 - len(shape)}"
    raise UserError(
        f"{name}: dim {dim} of tensors of shape {shape_text(shape[1:])} is {problem}; allowed: {allowed}"
    )


def aligned(name: str, g: Tensor, rank: int, samples: int, device: torch.device) -> Tensor:
    """Return the elements on a device; refuse anything that is neither one element (*e) nor one per sample (B, *e)."""
    if isinstance(g, Tensor):
        is_one = g.ndim == rank
        is_one_per_sample = g.ndim == rank + 1 and len(g) in (1, samples)
        if is_one or is_one_per_sample:
            return g.to(device)
    got = tuple(g.shape) if isinstance(g, Tensor) else repr(g)
    shape_of_one = "()" if rank == 0 else "(k,)"
    shape_of_many = f"({samples},)" if rank == 0 else f"({samples}, k)"
    raise UserError(
        f"{name}: an element is a tensor of shape {shape_of_one}, or {shape_of_many} for one per sample; got {got}"
    )


def take(x: Tensor, dim: int, source: Tensor) -> Tensor:
    """Return x rearranged along `dim`: out[b, …, i, …] = x[b, …, source[b, i], …]; source is (n,) or (B, n) int64.

    >>> take(torch.tensor([[1, 2, 3], [4, 5, 6]]), 1, torch.tensor([[2, 1, 0], [0, 1, 2]])).tolist()
    [[3, 2, 1], [4, 5, 6]]
    """
    if source.ndim == 1:
        return x.index_select(dim, source)
    # `gather` needs an index for every entry of the result: the same at all positions of the other dimensions.
    shape = [1] * x.ndim
    shape[0], shape[dim] = source.shape
    size_of_result = list(x.shape)
    size_of_result[dim] = source.shape[1]
    return x.gather(dim, source.reshape(shape).expand(size_of_result))


def take_along(
    name: str, aux: Mapping[str, Tensor], keys: Iterable[str], source: Tensor
) -> dict[str, Tensor]:
    """Return the auxiliary tensors of samples whose n positions were rearranged, such as masks of padding.

    Those named in `keys` (B, n, …) are rearranged alike: position i gets what was at source[i], with `source` (n,) or
    (B, n). The others stay as they are. `name` is that of the group, for the message.
    """
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


def check_listable(name: str, order: float) -> None:
    """Raise `UserError` if a group has too many elements to be listed."""
    if order > ENUMERABLE:
        raise UserError(
            f"{name} has {order_text(order)} elements here, too many to list (at most {ENUMERABLE}); use sample()"
        )


def order_text(order: float) -> str:
    """Return the order of a group in words, a large one by its power of ten.

    >>> order_text(24), order_text(math.factorial(20)), order_text(math.inf)
    ('24', 'about 10^18', 'infinitely many')
    """
    if order == math.inf:
        return "infinitely many"
    return str(order) if order < 10**12 else f"about 10^{len(str(order)) - 1}"


def draw_keys(seed: int, batch: Batch, purpose: str) -> Tensor:
    """Return one random key per sample for drawing group elements, (B,), on the batch's device."""
    return rand.keys(seed, batch.ids, f"group {purpose}").to(batch.x.device)


def probe(shape: Sequence[int]) -> Batch:
    """Return a made-up sample of a shape, to try on it what depends on the shape alone."""
    key = rand.keys(0, ("probe",), "group probe")
    return Batch(ids=("probe",), x=rand.uniform(key, tuple(shape)))


class Plan(NamedTuple):
    """The elements (n, B, *e) that a mean over a group uses, of which sample b has the first counts[b].

    `exhaustive` (B,) says for which samples these are all elements of the group, the identity first.
    """

    elements: Tensor
    counts: Tensor
    exhaustive: Tensor


def plan_elements(group: Group, batch: Batch, limit: int, seed: int) -> Plan:
    """Return the elements for a mean over the group, sample by sample.

    All |G| elements if there are at most `limit`; else `limit` uniform draws keyed by (seed, sample id). Groups of
    permutations leave padding in place, so that their order depends on the sample: short ones are listed though long
    ones beside them are sampled.

    >>> from heatproof.axes.symmetry.groups import Cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 5))
    >>> plan = plan_elements(Cyclic(), batch, limit=8, seed=0)
    >>> plan.elements.T.tolist(), plan.exhaustive.tolist()
    ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], [True, True])
    >>> plan_elements(Cyclic(), batch, limit=3, seed=0).counts.tolist()
    [3, 3]
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UserError(
            f"the number of group elements must be a whole number from 1 on, got {limit!r}"
        )
    exhaustive = torch.tensor([order <= limit for order in orders(group, batch)])
    if not isinstance(group, BySample):
        if exhaustive.all():
            elements = group.elements(batch)[:, None]
        else:
            elements = group.sample(batch, limit, seed)
        elements = elements.expand(-1, len(batch), *elements.shape[2:])
        return Plan(elements, torch.full((len(batch),), len(elements)), exhaustive)
    drawn = group.sample(batch, limit, seed)
    of_samples = []
    for i, lists_all in enumerate(exhaustive.tolist()):
        of_samples.append(group.elements(batch[i : i + 1]) if lists_all else drawn[:, i])
    return Plan(*side_by_side(of_samples), exhaustive)


def orders(group: Group, batch: Batch) -> list[float]:
    """Return |G| for each sample; the same for all unless the group depends on the sample.

    >>> from heatproof.axes.symmetry.groups import Permutation
    >>> orders(Permutation(), Batch(("a",), torch.zeros(1, 4, 2), {"mask": torch.tensor([[1, 1, 1, 0]])}))
    [6]
    """
    return group.orders(batch) if isinstance(group, BySample) else [group.order(batch)] * len(batch)


def side_by_side(columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the elements (n_b, *e) of each sample as one tensor (n, B, *e), and their numbers (B,).

    Shorter columns are filled up with their first element.

    >>> side_by_side([torch.tensor([1, 2]), torch.tensor([3])])[0].tolist()
    [[1, 3], [2, 3]]
    """
    counts = torch.tensor([len(column) for column in columns])
    most = int(counts.max())
    filled = []
    for column in columns:
        padding = column[:1].expand(most - len(column), *column.shape[1:])
        filled.append(torch.cat([column, padding]))
    return torch.stack(filled, 1), counts


def check_inputs(group: Group, batch: Batch) -> None:
    """Raise `UserError` if a group's action, tried on these samples, turns out not to be one."""
    if len(batch) and hasattr(group, "check_inputs"):
        group.check_inputs(batch)


def viewed(group: Group, g: Tensor, maps: Tensor) -> Tensor:
    """Return the part of the maps of inputs moved by g that can be compared: all, unless the group has a `view`."""
    view = getattr(group, "view", None)
    return maps if view is None else cast(Tensor, view(g, maps))


def unfit_samples(group: Group, batch: Batch) -> list[str]:
    """Return why a group cannot move a sample, empty where it can."""
    unfit = getattr(group, "unfit", None)
    return [""] * len(batch) if unfit is None else list(unfit(batch))


def element_weights(group: Group, elements: Tensor) -> Tensor | None:
    """Return the weights (n, B) of elements (n, B, *e) in a mean over the group; None where all are 1."""
    weights = getattr(group, "weights", None)
    return None if weights is None else cast("Tensor | None", weights(elements))


def largest_weight(group: Group) -> float:
    """Return the largest weight that an element of a group can have."""
    return float(getattr(group, "largest_weight", 1.0))
