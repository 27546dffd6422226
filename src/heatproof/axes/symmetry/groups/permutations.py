"""Permutations of set elements, tokens, passages of texts and graph nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import (
    ALONG,
    aligned,
    axis,
    check_listable,
    draw_keys,
    shape_text,
    take,
    take_along,
)
from heatproof.errors import UserError
from heatproof.features import PASSAGES, GroupingField, Passages
from heatproof.models.tasks import REGION
from heatproof.types import Batch, parameter_class


class _Orders:
    """Base of S_m acting on n positions along `dim`, of which m may move; an element is the order p (n,) they are put in."""

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 1
    dim: int = 1
    along: tuple[str, ...]

    def order(self, batch: Batch) -> int:
        """Return the largest m! of the samples, where m positions of a sample may move."""
        return max(self.orders(batch), default=1)

    def orders(self, batch: Batch) -> list[int]:
        """Return m! for each sample."""
        return [math.factorial(m) for m in self._free(batch).sum(1).tolist()]

    def identity(self, batch: Batch) -> Tensor:
        """Return 0 … n − 1, (n,)."""
        return torch.arange(self._size(batch), device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """Return all m! elements of the group, (m!, n): every order of the m positions that may move.

        They are listed once for all samples, so these must have the same positions to move; the others stay in place.
        """
        free = self._free(batch)
        if not bool((free == free[:1]).all()):
            raise UserError(
                f"{self.name}: the samples have padding at different places; list those of one"
            )
        check_listable(self.name, self.order(batch))
        positions = free[0].nonzero().flatten()
        orders = torch.tensor(list(permutations(range(len(positions)))), dtype=torch.int64)
        elements = self.identity(batch).repeat(len(orders), 1)
        elements[:, positions] = positions[orders.to(batch.x.device)]
        return elements

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return n random permutations of each sample's positions, (n, B, positions), all equally likely.

        Positions that may not move, such as padding, stay where they are.
        """
        draw = torch.arange(n, device=batch.x.device)[:, None]
        keys = rand.fold(draw_keys(seed, batch, self.name), draw)
        may_move = self._free(batch)
        random_numbers = rand.bits(keys.flatten(), may_move.shape[1]).reshape(n, *may_move.shape)
        random_numbers = random_numbers.masked_fill(~may_move, torch.iinfo(torch.int64).max)
        # Sorted by random numbers: the positions that may move in random order, then those that stay, in their order.
        shuffled = random_numbers.argsort(dim=2, stable=True)
        # The same list in ascending order: where the entries of `shuffled` belong.
        destination = (~may_move).long().argsort(dim=1, stable=True).expand_as(shuffled)
        return torch.empty_like(shuffled).scatter_(2, destination, shuffled)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return the permutation gh, first h and then g: (gh)[i] = h[g[i]]; one of them may be a single element."""
        g, h = g + 0 * h, h + 0 * g  # broadcast to the same shape
        return h.gather(-1, g)

    def inverse(self, g: Tensor) -> Tensor:
        """Return the order that puts everything back."""
        return g.argsort(-1)

    def _free(self, batch: Batch) -> Tensor:
        """Return which of a sample's n positions may be permuted, (B, n) boolean: all but padding.

        Padding is where an auxiliary mask (B, n) is 0, if the mask is named in `along`.
        """
        free = torch.ones(len(batch), self._size(batch), dtype=torch.bool, device=batch.x.device)
        for key in set(self.along) & set(ALONG) & set(batch.aux):
            if batch.aux[key].shape == free.shape:
                free = free & batch.aux[key].to(free.device).bool()
        return free

    def _size(self, batch: Batch) -> int:
        return batch.x.shape[axis(self.name, self.dim, batch.x.shape)]

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples permuted, with the auxiliary tensors named in `along`."""
        aux = take_along(self.name, batch.aux, self.along, g.to(batch.x.device))
        return replace(batch, x=self.move(g, batch.x), aux=aux)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) permuted alike."""
        g = aligned(self.name, g, 1, len(maps), maps.device)
        dim = axis(self.name, self.dim, maps.shape)
        if g.shape[-1] != maps.shape[dim]:
            raise UserError(
                f"{self.name}: a permutation of {g.shape[-1]} positions cannot move dimension {self.dim} of a tensor "
                f"of shape {shape_text(maps.shape[1:])}"
            )
        return take(maps, dim, g)


@parameter_class
class Permutation(_Orders):
    """Permutations of the positions along `dim`: (ρ[p]x)[i] = x[p[i]]; an element is the order p, (n,).

    Dimension 1 holds the elements of a set (B, N, F) and the tokens of a text (B, L); maps may lack the features or
    have embeddings besides, so dimensions are counted from the batch on. Auxiliary tensors named in `along`, (B, n)
    each, move with the input where they are present. Padding stays in place, and so do the token ids named in
    `special`, such as those of [CLS] and [SEP]: with m other positions the group is S_m, sample by sample.

    >>> batch = Batch(("a",), torch.tensor([[1, 7, 8, 0]]), {"attention_mask": torch.tensor([[1, 1, 1, 0]])})
    >>> tokens = Permutation(special=(1,))
    >>> [tokens.act(p, batch).x.tolist() for p in tokens.elements(batch)]
    [[[1, 7, 8, 0]], [[1, 8, 7, 0]]]
    """

    name: ClassVar[str] = "permutation"
    dim: Annotated[int, Field(ge=1)] = 1
    special: tuple[Annotated[int, Field(ge=0)], ...] = ()
    along: tuple[str, ...] = ALONG

    @property
    def title(self) -> str:
        """The group in words."""
        return f"permutations along dimension {self.dim}"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape without the dimension."""
        axis(self.name, self.dim, (1, *shape))

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples permuted, with their masks; refuse graphs, whose edges would stay behind."""
        if "adjacency" in batch.aux:
            raise UserError(
                "permutation moves elements but not the edges in aux['adjacency']; use node_permutation()"
            )
        return super().act(g, batch)

    def _free(self, batch: Batch) -> Tensor:
        """Return which positions may move, (B, n) boolean: neither padding nor special tokens."""
        free = super()._free(batch)
        if batch.x.is_floating_point() or not self.special:
            return free
        special = torch.tensor(self.special, dtype=batch.x.dtype, device=batch.x.device)
        return free & ~torch.isin(batch.x, special)


@parameter_class
class PassagePermutation(_Orders):
    """S_m on the m passages of prompts (B, L), which `features` tells apart; an element is the order p (L,) of tokens.

    A passage moves as a whole to where another stood. Tokens before, between and behind passages stay in their turn, and
    shift if lengths differ. Auxiliary tensors named in `along` move with the tokens.

    >>> batch = Batch(("a",), torch.tensor([[5, 6, 9, 7, 8]]), {"_passages": torch.tensor([[1, 1, 0, 2, 0]])})
    >>> group = PassagePermutation(Passages(mask_token=0))
    >>> [group.act(p, batch).x.tolist() for p in group.elements(batch)]
    [[[5, 6, 9, 7, 8]], [[7, 9, 5, 6, 8]]]
    """

    name: ClassVar[str] = "passage_permutation"
    title: ClassVar[str] = "permutations of the passages"
    features: GroupingField = Passages()
    along: tuple[str, ...] = ("attention_mask", PASSAGES, REGION)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are no texts (L,)."""
        self.features.check((1, *shape))

    def orders(self, batch: Batch) -> list[int]:
        """Return m! for each sample; for a made-up sample, which has no passages, the most there could be."""
        if batch.x.is_floating_point():
            return [math.factorial(batch.x.shape[1])]
        return [math.factorial(m) for m in self.features.segments(batch).amax(1).tolist()]

    def elements(self, batch: Batch) -> Tensor:
        """Return all orders, (m!, L), of samples whose passages stand at the same positions."""
        numbers = self.features.segments(batch)
        if not bool((numbers == numbers[:1]).all()):
            raise UserError(
                f"{self.name}: the samples have passages at different places; list those of one"
            )
        check_listable(self.name, self.order(batch))
        ranks = list(permutations(range(int(numbers.max()))))
        sort_by = torch.tensor(ranks, device=numbers.device).double()
        return self._token_orders(numbers[:1].expand(len(ranks), -1), sort_by)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return n random orders of each text's passages, as orders of its tokens (n, B, L), all equally likely."""
        passage_of_token = self.features.segments(batch).repeat(n, 1)
        draw = torch.arange(n, device=passage_of_token.device)[:, None]
        keys = rand.fold(draw_keys(seed, batch, self.name), draw)
        passages = int(passage_of_token.max())
        sort_by = rand.uniform(keys.flatten(), (passages,))
        return self._token_orders(passage_of_token, sort_by).reshape(n, *batch.x.shape)

    def _token_orders(self, numbers: Tensor, sort_by: Tensor) -> Tensor:
        """Return orders of the tokens of texts, (N, L), that put their passages into another order, each as a whole.

        `numbers` (N, L) says which passage a token belongs to, from 1 on, 0 for none; `sort_by` (N, m) has a number for each
        of m passages, and these are to be in ascending order. Tokens between passages stay where they are in the sequence.
        """
        # Cut each text into runs of tokens with the same number, counted from 1: a passage, or what lies between two.
        begins_run = F.pad(numbers.diff(dim=1) != 0, (1, 0), value=True)
        run_of_token = begins_run.cumsum(1).double()

        # The run that each passage is, (N, m): the smallest of its tokens' runs; infinite for passages that a text lacks.
        no_run = torch.full(
            (len(numbers), sort_by.shape[1] + 1),
            torch.inf,
            dtype=run_of_token.dtype,
            device=run_of_token.device,
        )
        run_of_number = no_run.scatter_reduce(1, numbers, run_of_token, "amin")
        run_of_passage = run_of_number[:, 1:]  # without number 0, no passage
        passage_runs = (begins_run & (numbers > 0)).sum(1)
        if bool((passage_runs != run_of_passage.isfinite().sum(1)).any()):
            raise UserError(
                f"{self.name} moves passages in one piece, and one stands in several; number them apart"
            )

        # The passage that is r-th by `sort_by` goes to the r-th of the passages' runs. Lacking ones come last.
        sort_by = sort_by.masked_fill(run_of_passage.isinf(), torch.inf)
        rank = sort_by.argsort(1).argsort(1)
        new_run_of_passage = run_of_passage.sort(1).values.gather(1, rank)

        # Sort the tokens by their new runs.
        new_run_of_number = F.pad(new_run_of_passage, (1, 0))
        new_run_of_token = torch.where(
            numbers > 0, new_run_of_number.gather(1, numbers), run_of_token
        )
        return new_run_of_token.argsort(dim=1, stable=True)


@parameter_class
class NodePermutation(_Orders):
    """S_m on the m real nodes of graphs: rows of x (B, N, F), rows and columns of the adjacency together.

    (ρ[p]x)[i] = x[p[i]] and (ρ[p]A)[i, j] = A[p[i], p[j]]; an element is the order p, (N,). `edges` names the
    auxiliary tensors (B, N, N, …) to permute, `along` those of shape (B, N, …). Maps (B, N, F) and (B, N) move like x.
    Padding nodes, as the mask tells them, stay in place.

    >>> graph = Batch(("a",), torch.tensor([[[7], [8]]]), {"adjacency": torch.tensor([[[0, 1], [2, 3]]])})
    >>> moved = NodePermutation().act(torch.tensor([1, 0]), graph)
    >>> moved.x.tolist(), moved.aux["adjacency"].tolist()
    ([[[8], [7]]], [[[3, 2], [1, 0]]])
    """

    name: ClassVar[str] = "node_permutation"
    title: ClassVar[str] = "permutations of the nodes with their edges"
    edges: tuple[str, ...] = ("adjacency",)
    along: tuple[str, ...] = ("mask",)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not node features (N, F)."""
        if len(shape) != 2:
            raise UserError(
                f"node_permutation needs node features (B, N, F), got shape {shape_text(shape)}"
            )

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the graphs with their nodes in another order, and their edges alike."""
        self.check(batch.x.shape[1:])
        moved, source = super().act(g, batch), g.to(batch.x.device)
        n = source.shape[-1]
        aux = dict(moved.aux)
        for key in self.edges:
            if key not in aux:
                raise UserError(
                    f"node_permutation needs aux[{key!r}] of shape (B, {n}, {n}); the batch has {sorted(aux)}"
                )
            shape = aux[key].shape
            if len(shape) < 3 or not shape[1] == shape[2] == n:
                raise UserError(
                    f"node_permutation needs aux[{key!r}] of shape (B, {n}, {n}); it has shape {shape_text(shape[1:])}"
                )
            order = source.to(aux[key].device)
            aux[key] = take(take(aux[key], 1, order), 2, order)
        return replace(moved, aux=aux)
