"""Tokens and passages of a text as features: which of them may be hidden, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

_SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""The special tokens by which a tokenizer of transformers names them."""
PASSAGES = "_passages"
"""The auxiliary tensor (B, L) that numbers the passage of every token from 1, and is 0 at those of none."""


@parameter_class
class Tokens:
    """Every position of token ids (B, L) is a feature; those in `special` and padding are always kept.

    A hidden token becomes `mask_token`, or, where that is None, is removed through the attention mask
    `aux[attention]`, which also says what is padding (0). Then every text must keep at least one token: a network
    that may attend to nothing attends to everything.

    >>> attended = {"attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    >>> batch = Batch(ids=("a",), x=torch.tensor([[1, 7, 8, 2, 0]]), aux=attended)
    >>> tokens = Tokens(special=(1, 2), mask_token=3)
    >>> tokens.fixed(batch).int().tolist()
    [[1, 0, 0, 1, 1]]
    >>> kept = torch.tensor([[True, False, True, True, True]])
    >>> tokens.hide(batch.x, batch.aux, kept)[0].tolist()
    [[1, 3, 8, 2, 0]]
    """

    name: ClassVar[str] = "tokens"
    special: tuple[Annotated[int, Field(ge=0)], ...] = ()
    mask_token: Annotated[int, Field(ge=0)] | None = None
    attention: str = "attention_mask"

    def check(self, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs of this shape are texts (B, L) of at least two tokens."""
        if len(shape) != 2 or shape[1] < 2:
            raise UserError(
                f"tokens are features of token ids (B, L) with L above 1, got inputs of {tuple(shape)}"
            )

    def total(self, shape: Sequence[int]) -> int | None:
        """Return the number of positions L, fixed ones included."""
        self.check(shape)
        return int(shape[1])

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, L) int64: every position is a feature."""
        self.check(batch.x.shape)
        if batch.x.is_floating_point():
            raise UserError(
                f"tokens need integer token ids, got {str(batch.x.dtype).removeprefix('torch.')}"
            )
        return torch.arange(batch.x.shape[1], device=batch.x.device).expand(batch.x.shape)

    @classmethod
    def of(cls, tokenizer: Any) -> Any:
        """Return the tokens of a text as features, with the special tokens and the mask token of a tokenizer.

        Special tokens are never hidden; hidden tokens become the mask token, if there is one. An unknown word is a
        word, and may be hidden, unless its id is that of the end of texts, as in GPT-2.
        """
        unknown = getattr(tokenizer, "unk_token", None)
        names = [name for name in _SPECIAL if getattr(tokenizer, name, None) is not None]
        others = {getattr(tokenizer, name) for name in names if name != "unk_token"}
        special = list(dict.fromkeys(tokenizer.all_special_ids))
        if unknown is not None and unknown not in others and names:
            special.remove(tokenizer.unk_token_id)
        return cls(special=tuple(special), mask_token=getattr(tokenizer, "mask_token_id", None))

    def fixed(self, batch: Batch) -> Tensor:
        """Return which positions are never hidden, (B, L) boolean: special tokens and padding."""
        special = torch.tensor(self.special, dtype=batch.x.dtype, device=batch.x.device)
        fixed = torch.isin(batch.x, special)
        if self.attention in batch.aux:
            fixed = fixed | (batch.aux[self.attention].to(batch.x.device) == 0)
        elif self.mask_token is None:
            raise UserError(
                f"tokens are hidden through aux[{self.attention!r}], which the batch does not have; "
                "give Tokens(mask_token=…) or the attention mask"
            )
        return fixed

    def hide(
        self, inputs: Tensor, aux: Mapping[str, Tensor], kept: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return texts in which all tokens but those `kept` (B, L) are hidden: token ids and auxiliary tensors.

        Hidden tokens become the mask token, or without one, 0 in the attention mask. `kept` includes the special tokens.
        """
        if self.mask_token is not None:
            return torch.where(kept, inputs, self.mask_token), dict(aux)
        attended = aux[self.attention] * kept.to(aux[self.attention].dtype)
        if bool((attended == 0).all(1).any()):
            raise UserError(
                "a text would be left without any token to attend to, and a network then attends to all of them; "
                "name its special tokens in Tokens(special=…), which are always kept, or give a mask_token"
            )
        return inputs, {**aux, self.attention: attended}


@parameter_class
class Passages(Tokens):
    """Passages of a prompt (B, L) are the features, from 1 on; feature 0 is the rest, such as the question, and stays.

    `aux["_passages"]` (B, L) numbers them, as `heatproof.prompts` does. Without it a passage ends with one of the token
    ids `separators`, as a sentence with its full stop, and what follows the last one is the rest. Special tokens and
    padding belong to the rest; passages are hidden as `Tokens` are.

    >>> batch = Batch(("a",), torch.tensor([[5, 6, 2, 7, 2, 8]]))
    >>> passages = Passages(separators=(2,), mask_token=0)
    >>> passages.segments(batch).tolist()
    [[1, 1, 1, 2, 2, 0]]
    >>> passages.hide(batch.x, batch.aux, torch.tensor([[True, False, True]]))[0].tolist()
    [[0, 0, 0, 7, 2, 8]]
    """

    name: ClassVar[str] = "passages"
    separators: tuple[Annotated[int, Field(ge=0)], ...] = ()

    def total(self, shape: Sequence[int]) -> int | None:
        """Return None, because the number of passages depends on the prompt."""
        return None

    def segments(self, batch: Batch) -> Tensor:
        """Return labels (B, L) int64: the number of the passage, 0 for the rest."""
        super().segments(batch)  # raises for inputs that are no token ids
        x = batch.x
        if PASSAGES in batch.aux:
            numbers = batch.aux[PASSAGES].to(x.device).long()
        elif self.separators:
            separators = torch.tensor(self.separators, dtype=x.dtype, device=x.device)
            is_separator = torch.isin(x, separators).long()
            # A separator belongs to the passage that it ends.
            separators_before = is_separator.cumsum(1) - is_separator
            passage_count = is_separator.sum(1, keepdim=True)
            is_in_passage = separators_before < passage_count
            numbers = torch.where(is_in_passage, separators_before + 1, 0)
        else:
            raise UserError(
                f"passages are numbered by aux[{PASSAGES!r}], or end with Passages(separators=…); give one"
            )
        return numbers.masked_fill(super().fixed(batch), 0)

    def fixed(self, batch: Batch) -> Tensor:
        """Return which features are never hidden, (B, n) boolean: feature 0, the rest."""
        n = int(self.segments(batch).max()) + 1
        is_rest = torch.arange(n, device=batch.x.device) == 0
        return is_rest.expand(len(batch), n)

    def hide(
        self, inputs: Tensor, aux: Mapping[str, Tensor], kept: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return prompts in which all passages but those `kept` (B, n) are hidden: token ids and auxiliary tensors.

        The rest of the prompt, feature 0, always stays.
        Passages keep their numbers, which the auxiliary tensors hold from then on.
        """
        numbers = self.segments(Batch(("",) * len(inputs), inputs, aux))
        kept_tokens = kept.gather(1, numbers) | (numbers == 0)
        return super().hide(inputs, {**aux, PASSAGES: numbers}, kept_tokens)
