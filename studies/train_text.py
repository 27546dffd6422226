"""A bag of words and a transformer on the sentences of SST-2: the first is exactly invariant to the order of the words.

A tenth of the training sentences chooses the epoch to stop at. The transformer is trained with words left out at
random, so that a masked word is nothing new to it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import arguments, place, restored, save_concept, save_sets, split, train_network, whole
from nets import BagOfWords, MaskedMean
from torch import Tensor, nn

from heatproof import Model
from heatproof.data import Vocabulary, open_data
from heatproof.data.sequences import read_texts
from heatproof.types import Batch

CLASSES = ("negative", "positive")
LENGTH = 64
UNKNOWN, LEFT_OUT = 1, 0.2
"""The id of a word that is not known, and the share of words that training puts it for."""
CONCEPTS = {
    "negation": "not n't no never nothing without neither nor",
    "praise": "good great best funny love beautiful perfect brilliant wonderful charming enjoyable",
    "complaint": "bad worst dull boring mess silly tired awful lacks predictable flat stupid fails",
}
"""A concept is present where a sentence has one of its words."""


class Attention(nn.Module):
    """Self-attention of the real tokens among (B, L, E)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.into, self.out = (
            heads,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            self.into(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        )
        real = None if mask is None else mask.bool()[:, None, None]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=real)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a two-layer network, each behind a norm and added."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.attention, self.drop = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.Dropout(dropout),
        )
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), mask))
        return x + self.drop(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    """Word vectors with their places, two layers of attention, the mean of the real tokens, and a linear head."""

    num_prefix_tokens = 0

    def __init__(
        self, size: int, classes: int = 2, width: int = 64, layers: int = 2, heads: int = 4
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, width, padding_idx=0)
        with torch.no_grad():
            self.embedding.weight.mul_(0.1)  # as in BagOfWords
        self.position = nn.Parameter(0.02 * torch.randn(1, LENGTH, width))
        self.drop = nn.Dropout(0.3)
        self.layers = nn.ModuleList(Layer(width, heads, 0.1) for _ in range(layers))
        self.norm, self.pool, self.head = (
            nn.LayerNorm(width),
            MaskedMean(),
            nn.Linear(width, classes),
        )

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Class scores (B, classes) of token ids (B, L); attention_mask (B, L) is 1 at real tokens."""
        words = self.embedding(x)
        tokens = self.drop(words + self.position[:, : words.shape[1]])
        for layer in self.layers:
            tokens = layer(tokens, attention_mask)
        scores: Tensor = self.head(self.pool(self.norm(tokens), attention_mask))
        return scores


def model() -> Model:
    """The trained bag of words, for a study file."""
    return restored("text", "bag", BagOfWords, embedding="embedding")


def transformer() -> Model:
    """The trained transformer."""
    return restored("text", "transformer", Transformer, embedding="embedding")


def words_left_out(batch: Batch, generator: torch.Generator) -> Batch:
    """Every word unknown with a chance of one in five; padding stays."""
    gone = torch.rand(batch.x.shape, generator=generator) < LEFT_OUT
    return batch.with_x(torch.where(gone & (batch.x != 0), UNKNOWN, batch.x))


def vocabulary() -> Vocabulary:
    """The words that the network knows."""
    return Vocabulary.load(place("text") / "vocabulary.json")


def concepts(train: Batch, known: Vocabulary) -> dict[str, torch.Tensor]:
    """Which sentences have a word of the concept."""
    found = {}
    for name, listed in CONCEPTS.items():
        words = [known.words.index(word) + 2 for word in listed.split() if word in known.words]
        found[name] = torch.isin(train.x, torch.tensor(words)).any(1)
    return found


def main() -> None:
    args = arguments("text", __doc__ or "")
    files = {part: args.data / "text" / f"stsa.binary.{part}" for part in ("train", "test")}
    known = Vocabulary.fit(read_texts(files["train"]).texts, least=2)
    args.out.mkdir(parents=True, exist_ok=True)
    known.save(args.out / "vocabulary.json")
    sets = {
        part: whole(open_data(file, vocabulary=known, length=LENGTH))
        for part, file in files.items()
    }
    options = {"size": len(known), "classes": len(CLASSES)}
    train, validation = split(sets["train"], 0.1, args.seed)
    save_sets(args.out, train, sets["test"], CLASSES)
    for name, present in concepts(train, known).items():
        save_concept(args.out, name, train, present, CLASSES)
    both = (train, sets["test"], CLASSES)
    chosen = {"seed": args.seed, "validation": validation}
    train_network(args.out / "bag", BagOfWords, options, *both, epochs=8, lr=2e-3, **chosen)
    more = {"augment": words_left_out, "anneal": True, **chosen}
    train_network(args.out / "transformer", Transformer, options, *both, epochs=10, lr=1e-3, **more)


if __name__ == "__main__":
    main()
