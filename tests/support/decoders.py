"""A decoder whose answers are known: one induction head with weights set by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heatproof
from heatproof.data.sequences import Vocabulary

SHARP = 8.0
"""How much more a head looks at what stood behind the token in question than at anything else."""
KEYS = ("ann", "ben", "cleo", "dan", "eve", "fay")
PLACES = ("rome", "oslo", "lima", "kiev", "bonn", "cork")
WORDS = Vocabulary((*KEYS, *PLACES, "lives", "where", "."))


class Induction(nn.Module):
    """Says what stood behind the last place of the token that stands now: it looks up keys in any passage.

    Token vectors are one-hot. The head at i looks at every j ≤ i with the score SHARP · ⟨e_i, e_(j−1)⟩, and at nothing
    with the score SHARP / 2; the logits are SHARP times the mean of the vectors e_j. Permuting whole passages changes
    none of it.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.eye(size))

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Any:
        real = inputs_embeds * attention_mask[..., None]
        before = F.pad(real, (0, 0, 1, 0))[:, :-1]
        length = real.shape[1]
        hidden = (
            ~torch.ones(length, length, dtype=torch.bool).tril() | (attention_mask == 0)[:, None]
        )
        scores = (SHARP * inputs_embeds @ before.transpose(1, 2)).masked_fill(hidden, -torch.inf)
        weight = F.pad(scores, (0, 1), value=SHARP / 2).softmax(2)[..., :-1]
        return SimpleNamespace(logits=SHARP * weight @ real)


class Causal(nn.Module):
    """A small causal transformer with random weights and learned positions, which tells where a token stands."""

    def __init__(self, size: int, width: int = 16, length: int = 40) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.table, self.place = nn.Embedding(size, width), nn.Embedding(length, width)
            layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, size)
        nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(6))

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        length = inputs_embeds.shape[1]
        x = inputs_embeds + self.place.weight[:length]
        every = torch.ones(length, length, dtype=torch.bool)
        hidden = (attention_mask == 0)[:, None] & ~torch.eye(
            length, dtype=torch.bool
        )  # itself it always sees
        logits: Tensor = self.head(
            self.body(x, mask=(~every.tril() | hidden).repeat_interleave(2, 0))
        )
        return logits


def questions(count: int = 8, passages: int = 4) -> tuple[heatproof.Batch, Tensor]:
    """Prompts "ann rome. ben oslo. … ben", and the number of the passage that holds the answer, (N,)."""
    g = torch.Generator().manual_seed(3)
    texts, right = [], []
    for _ in range(count):
        keys = torch.randperm(len(KEYS), generator=g)[:passages].tolist()
        places = torch.randperm(len(PLACES), generator=g)[:passages].tolist()
        asked = int(torch.randint(passages, (), generator=g))
        longer = ["" if i % 2 else "lives . " for i in range(passages)]
        pieces = [
            f"{long}{KEYS[k]} {PLACES[p]} ."
            for long, k, p in zip(longer, keys, places, strict=True)
        ]
        texts.append([*pieces, f"where {KEYS[keys[asked]]}"])
        right.append(asked + 1)
    return heatproof.prompts(WORDS, texts), torch.tensor(right)


def induction(**options: Any) -> heatproof.Model:
    """The decoder as a model."""
    return heatproof.decoder(Induction(len(WORDS)), WORDS, **options)
