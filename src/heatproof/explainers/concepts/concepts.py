"""Concepts as a parameter: for each, examples that show it and examples that do not."""

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
"""The fewest examples on either side of a concept: some to fit a classifier, some to test it."""
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
        self.name = str(name)
        self.positive, self.negative = (_examples(self.name, side) for side in (positive, negative))
        for side, given in (("positive", self.positive), ("negative", self.negative)):
            if len(given) < FEWEST:
                raise self._too_few(len(given), side)

    @property
    def fingerprint(self) -> str:
        """sha256 of the name and of both sides."""
        content = (self.name, self.positive.fingerprint, self.negative.fingerprint)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    @property
    def name_digest(self) -> str:
        """A short digest of the name and of both sides that is the same on every processor."""
        content = (self.name, self.positive.name_digest, self.negative.name_digest)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def split(self, held_out: float) -> tuple[tuple[Batch, Batch], tuple[Batch, Batch]]:
        """(positive, negative) examples to fit and (positive, negative) to test, the share `held_out` of each side.

        Which is which depends on the content of an example alone. Copies count once, so none is on both sides.

        >>> concept = Concept("c", torch.rand(20, 3), torch.rand(12, 3))
        >>> (fit, _), (test, _) = concept.split(0.25)
        >>> len(fit), len(test)
        (15, 5)
        """
        sides = {"positive": self.positive.batch, "negative": self.negative.batch}
        digests = {side: row_digests(batch) for side, batch in sides.items()}
        both = set(digests["positive"]) & set(digests["negative"])
        if both:
            at = next(i for i, digest in enumerate(digests["positive"]) if digest in both)
            raise UserError(
                f"{len(both)} positive examples of the concept {self.name!r} are negative ones too, "
                f"{sides['positive'].ids[at]!r} first"
            )
        fit, test = [], []
        for side, batch in sides.items():
            different = {digest: i for i, digest in reversed(list(enumerate(digests[side])))}
            if len(different) < FEWEST:
                raise self._too_few(len(different), f"different {side}")
            order = rand.keys(0, list(different), "held out").argsort().tolist()
            rows = [list(different.values())[i] for i in order]
            tested = min(max(1, round(held_out * len(rows))), len(rows) - 2)
            test.append(batch[rows[:tested]])
            fit.append(batch[rows[tested:]])
        return (fit[0], fit[1]), (test[0], test[1])

    def remember(self, model: Model, key: Hashable, make: Callable[[], _T]) -> _T:
        """`make()`, or what it gave for this model, key and weights the last time; see `Examples.remember`."""
        return self.positive.remember(model, ("concept", self.negative.fingerprint, key), make)

    def _too_few(self, count: int, which: str) -> UserError:
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
    """Concepts in their order, which is that of the columns of a concept explanation.

    >>> sides = {"positive": torch.rand(10, 3), "negative": torch.rand(10, 3)}
    >>> both = concepts({"stripes": sides, "dots": sides})
    >>> str(both), len(both), both.names
    ('stripes+dots', 2, ('stripes', 'dots'))
    """

    def __init__(self, *items: Concept) -> None:
        if not items:
            raise UserError("no concept is given")
        repeated = [name for name, count in Counter(c.name for c in items).items() if count > 1]
        if repeated:
            raise UserError(f"the concept {repeated[0]!r} is given twice")
        self._items = items

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(concept.name for concept in self)

    def __iter__(self) -> Iterator[Concept]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concepts) and self._items == other._items

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Concepts({', '.join(map(repr, self))})"

    def __str__(self) -> str:
        return "+".join(self.names)


def concepts(value: Any, *, folder: str | Path | None = None, allow_code: bool = False) -> Concepts:
    """Concepts from one, from several, or from `{name: {positive: examples, negative: examples}}`.

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
    found = []
    for name, sides in value.items():
        if not isinstance(sides, Mapping) or set(sides) != {"positive", "negative"}:
            got = ", ".join(map(str, sides)) if isinstance(sides, Mapping) else repr(sides)
            raise BadParameter(
                f"the concept {name!r} needs the keys positive and negative, got {got}", (name,)
            )
        opened = {
            side: examples(given, folder=folder, allow_code=allow_code)
            for side, given in sides.items()
        }
        found.append(Concept(name, **opened))
    return Concepts(*found)


ConceptsField = Annotated[Concepts, BeforeValidator(concepts)]
"""The type of a field that holds concepts and is also given as a mapping in a study file."""


def row_digests(batch: Batch) -> list[str]:
    """A hash of the content of each sample: its values and its auxiliary tensors, but not its id or label.

    >>> row_digests(Batch(("a", "b"), torch.zeros(2, 3)))[0] == row_digests(Batch(("c",), torch.zeros(1, 3)))[0]
    True
    """
    tensors = [("x", batch.x), *sorted(batch.aux.items())]
    tensors = [(name, tensor.detach().cpu().contiguous()) for name, tensor in tensors]
    digests = []
    for i in range(len(batch)):
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in tensors:
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape[1:])}|".encode())
            row = tensor[i].reshape(-1)
            digest.update(row.view(torch.uint8).numpy().tobytes() if row.numel() else b"")
        digests.append(digest.hexdigest())
    return digests


def _examples(concept: str, given: Any) -> Examples:
    made = examples(given)
    if not isinstance(made, Examples):
        raise UserError(
            f"examples of the concept {concept!r} are a Batch, a tensor, a path or {{source: path}}, got {made!r}"
        )
    return made
