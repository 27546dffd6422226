"""Concepts as a parameter of explainers: examples that show a concept, and examples that do not."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from pydantic import BeforeValidator

from heatproof import rand
from heatproof.errors import BadParameter, UserError
from heatproof.explainers.examples.training_set import Examples, examples
from heatproof.models import Model
from heatproof.types import Batch

FEWEST = 10
"""The fewest positive and negative examples of a concept: some to fit a classifier, some to test it."""
_T = TypeVar("_T")


class Concept:
    """A concept: examples that show it and examples that do not, at least 10 of each.

    `positive` and `negative` are a `Batch`, a tensor, or anything else that makes `Examples`: a data name or path,
    `{source: path, size: 64, limit: 50}`. Two concepts are equal when their names and examples are; the text form is
    short, so a manifest can store it.

    >>> stripes = Concept("stripes", positive=torch.rand(12, 3, 8, 8), negative=torch.rand(20, 3, 8, 8))
    >>> stripes
    Concept(stripes, 12+20, ...)
    >>> Concept("dots", torch.rand(4, 3), torch.rand(20, 3))
    Traceback (most recent call last):
    heatproof.errors.UserError: the concept 'dots' has 4 positive examples; at least 10 are needed, to fit and to test
    """

    def __init__(self, name: str, positive: Any, negative: Any) -> None:
        """Load the examples that show the concept and those that do not; raise `UserError` for too few of them."""
        self.name = str(name)
        self.positive = _examples(self.name, positive)
        self.negative = _examples(self.name, negative)
        for side, side_examples in (("positive", self.positive), ("negative", self.negative)):
            if len(side_examples) < FEWEST:
                raise self._too_few(len(side_examples), side)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the name and of both sides."""
        content = (self.name, self.positive.fingerprint, self.negative.fingerprint)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    @property
    def name_digest(self) -> str:
        """A short digest of the name and of both sides that is the same on every processor."""
        content = (self.name, self.positive.name_digest, self.negative.name_digest)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def split(self, held_out: float) -> tuple[tuple[Batch, Batch], tuple[Batch, Batch]]:
        """Return the examples for fitting a classifier and those for testing it, each as (positive, negative).

        The share `held_out` of both sides is for testing.
        Which is which depends only on an example's content. Copies count once, so that no content is in both parts.

        >>> concept = Concept("c", torch.rand(20, 3), torch.rand(12, 3))
        >>> (fit, _), (test, _) = concept.split(0.25)
        >>> len(fit), len(test)
        (15, 5)
        """
        positive, negative = self.positive.batch, self.negative.batch
        positive_digests, negative_digests = row_digests(positive), row_digests(negative)
        shared = set(positive_digests) & set(negative_digests)
        if shared:
            first = next(i for i, digest in enumerate(positive_digests) if digest in shared)
            raise UserError(
                f"{len(shared)} positive examples of the concept {self.name!r} are negative ones too, "
                f"{positive.ids[first]!r} first"
            )
        fit_positive, test_positive = self._split_side(
            "positive", positive, positive_digests, held_out
        )
        fit_negative, test_negative = self._split_side(
            "negative", negative, negative_digests, held_out
        )
        return (fit_positive, fit_negative), (test_positive, test_negative)

    def _split_side(
        self, side: str, batch: Batch, digests: list[str], held_out: float
    ) -> tuple[Batch, Batch]:
        """Return the examples of one side for fitting and for testing, in an order drawn by their content's hashes.

        `side` is "positive" or "negative", and `digests` are the hashes of the examples. Copies count once.
        """
        # From the end, so that the first of several copies remains.
        row_of = {digest: row for row, digest in reversed(list(enumerate(digests)))}
        if len(row_of) < FEWEST:
            raise self._too_few(len(row_of), f"different {side}")
        distinct_rows = list(row_of.values())
        order = rand.keys(0, list(row_of), "held out").argsort().tolist()
        rows = [distinct_rows[i] for i in order]
        # At least one example to test, and two to fit.
        test_count = min(max(1, round(held_out * len(rows))), len(rows) - 2)
        return batch[rows[test_count:]], batch[rows[:test_count]]

    def remember(self, model: Model, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return `make()`, or the cached value of an earlier call; see `Examples.remember`."""
        return self.positive.remember(model, ("concept", self.negative.fingerprint, key), make)

    def _too_few(self, count: int, which: str) -> UserError:
        """Return the error for a concept with too few examples of one side."""
        return UserError(
            f"the concept {self.name!r} has {count} {which} examples; at least {FEWEST} are needed, to fit and to test"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concept) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Concept({self.name}, {len(self.positive)}+{len(self.negative)}, {self.name_digest[:12]})"


class Concepts:
    """Concepts, in the order of the columns of a concept explanation.

    >>> sides = {"positive": torch.rand(10, 3), "negative": torch.rand(10, 3)}
    >>> both = concepts({"stripes": sides, "dots": sides})
    >>> str(both), len(both), both.names
    ('stripes+dots', 2, ('stripes', 'dots'))
    """

    def __init__(self, *concepts: Concept) -> None:
        """Take one or several concepts, each with a name of its own."""
        if not concepts:
            raise UserError("no concept is given")
        counts = Counter(concept.name for concept in concepts)
        repeated = [name for name, count in counts.items() if count > 1]
        if repeated:
            raise UserError(f"the concept {repeated[0]!r} is given twice")
        self._concepts = concepts

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(concept.name for concept in self)

    def __iter__(self) -> Iterator[Concept]:
        return iter(self._concepts)

    def __len__(self) -> int:
        return len(self._concepts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concepts) and self._concepts == other._concepts

    def __hash__(self) -> int:
        return hash(self._concepts)

    def __repr__(self) -> str:
        return f"Concepts({', '.join(map(repr, self))})"

    def __str__(self) -> str:
        return "+".join(self.names)


def concepts(value: Any, *, folder: str | Path | None = None, allow_code: bool = False) -> Concepts:
    """Return concepts from one, from several, or from `{name: {positive: examples, negative: examples}}`.

    Relative paths are relative to `folder`; names that run code need `allow_code`.

    >>> x = torch.rand(10, 3)
    >>> concepts([Concept("a", x, x + 1)]) == concepts({"a": {"positive": x, "negative": x + 1}})
    True
    """
    if isinstance(value, Concepts):
        return value
    if isinstance(value, Concept):
        return Concepts(value)
    if isinstance(value, list | tuple) and all(isinstance(item, Concept) for item in value):
        return Concepts(*value)
    if not isinstance(value, Mapping):
        raise UserError(
            f"concepts are Concept objects or a mapping {{name: {{positive: …, negative: …}}}}, got {value!r}"
        )
    loaded = []
    for name, sides in value.items():
        if not isinstance(sides, Mapping) or set(sides) != {"positive", "negative"}:
            got = ", ".join(map(str, sides)) if isinstance(sides, Mapping) else repr(sides)
            raise BadParameter(
                f"the concept {name!r} needs the keys positive and negative, got {got}", (name,)
            )
        opened = {
            side: examples(source, folder=folder, allow_code=allow_code)
            for side, source in sides.items()
        }
        loaded.append(Concept(name, **opened))
    return Concepts(*loaded)


ConceptsField = Annotated[Concepts, BeforeValidator(concepts)]
"""The type of a field that holds concepts and is also given as a mapping in a study file."""


def row_digests(batch: Batch) -> list[str]:
    """Return a hash of the content of each sample: of its values and auxiliary tensors, but not of its id or label.

    >>> row_digests(Batch(("a", "b"), torch.zeros(2, 3)))[0] == row_digests(Batch(("c",), torch.zeros(1, 3)))[0]
    True
    """
    tensors = {"x": batch.x, **dict(sorted(batch.aux.items()))}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    digests = []
    for i in range(len(batch)):
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in tensors.items():
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape[1:])}|".encode())
            row = tensor[i].reshape(-1)
            if row.numel():
                digest.update(row.view(torch.uint8).numpy().tobytes())
        digests.append(digest.hexdigest())
    return digests


def _examples(concept: str, source: Any) -> Examples:
    """Load the examples of one side of a concept; raise for a value that cannot be examples."""
    loaded = examples(source)
    if not isinstance(loaded, Examples):
        raise UserError(
            f"examples of the concept {concept!r} are a Batch, a tensor, a path or {{source: path}}, got {loaded!r}"
        )
    return loaded
