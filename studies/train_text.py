"""A bag of words on the sentences of SST-2: exactly invariant to the order of the words.

A tenth of the training sentences chooses the epoch to stop at.
"""

from __future__ import annotations

import torch
from common import arguments, place, restored, save_concept, save_sets, split, train_network, whole

from holdfast import Model
from holdfast.data import Vocabulary, open_data
from holdfast.data.sequences import read_texts
from holdfast.models.nets import BagOfWords
from holdfast.types import Batch

CLASSES = ("negative", "positive")
LENGTH = 64
CONCEPTS = {
    "negation": "not n't no never nothing without neither nor",
    "praise": "good great best funny love beautiful perfect brilliant wonderful charming enjoyable",
    "complaint": "bad worst dull boring mess silly tired awful lacks predictable flat stupid fails",
}
"""A concept is present where a sentence has one of its words."""


def model() -> Model:
    """The trained network, for a study file."""
    return restored("text", "bag", BagOfWords, embedding="embedding")


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
    sets = {part: whole(open_data(file, vocabulary=known, length=LENGTH)) for part, file in files.items()}
    options = {"size": len(known), "classes": len(CLASSES)}
    train, validation = split(sets["train"], 0.1, args.seed)
    save_sets(args.out, train, sets["test"], CLASSES)
    for name, present in concepts(train, known).items():
        save_concept(args.out, name, train, present, CLASSES)
    both = (train, sets["test"], CLASSES)
    train_network(
        args.out / "bag", BagOfWords, options, *both, epochs=8, lr=2e-3, seed=args.seed, validation=validation
    )


if __name__ == "__main__":
    main()
