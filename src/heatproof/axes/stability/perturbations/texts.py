"""Perturbations of texts (B, L) that say the same: other letters, blanks or words, or passages in another order.

A changed word may have more or fewer tokens, so maps are compared word by word, as sums over tokens. Words are what
stands between blanks; each is changed and cut into tokens on its own, and one that stays keeps its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import Family, Usual
from heatproof.data.sequences import IGNORED, PADDING, encoder
from heatproof.data.text import as_object, as_text, unpacked
from heatproof.errors import UserError
from heatproof.features import GroupingField, Passages
from heatproof.features.segments import pool
from heatproof.kinds import KindName
from heatproof.models.tasks import ANSWER
from heatproof.rand import integers, keys, permutation
from heatproof.types import Batch, name_of, parameter_class

Some = Annotated[list[str], Field(min_length=1)]
Token = tuple[int, int, int]
"""A token of a changed text, the number of its word in the original, −1 for none, and where that word began there."""


@plain_dataclass(frozen=True)
class Reworded:
    """Changed texts: the word of each token `before` and `after`, (B, L) and −1 for none, and why a text is `lost`.

    >>> words = torch.tensor([[0, 1, -1]]), torch.tensor([[0, 1, 1]])
    >>> changed = Reworded(Batch(("a",), torch.zeros(1, 3)), *words, ("",))
    >>> changed.by_word(torch.tensor([[1.0, 2.0, 4.0]]), changed.after).tolist()
    [[1.0, 6.0, 0.0]]
    """

    batch: Batch
    before: Tensor
    after: Tensor
    lost: tuple[str, ...]
    stochastic: ClassVar[bool] = True  # every text moves in its own way

    def by_word(self, maps: Tensor, word: Tensor) -> Tensor:
        """Sums of maps (B, L) over the tokens of each word, (B, L) by the number of the word."""
        return pool(maps, word.to(maps.device) + 1, maps.shape[1] + 1)[:, 1:]

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Maps (B, L) of the texts as they were by word, and which words both texts have, (B, L) boolean."""
        at, ones = [self.batch.ids.index(name) for name in ids], torch.ones_like(maps)
        both = [self.by_word(ones, word[at]) > 0 for word in (self.before, self.after)]
        return self.by_word(maps, self.before[at]), both[0] & both[1]


class OfTexts(Usual):
    """What perturbations of texts are: of token ids (B, L), which the tokenizer of the data made."""

    family: ClassVar[Family] = "wording"
    kind: ClassVar[KindName | None] = None

    def needs(self, batch: Batch) -> None:
        """Refuse samples that are no token ids, or whose tokenizer is not known."""
        if batch.x.is_floating_point():
            raise UserError(
                f"{name_of(self)} changes texts, which are token ids, and these samples are numbers"
            )
        if not isinstance(self, PassageOrder) and not hasattr(batch.tokenizer, "decode"):
            said = "open_data(texts, vocabulary=tokenizer) and heatproof.prompts(tokenizer, …) bring it"
            raise UserError(
                f"{name_of(self)} needs the tokenizer of the texts, with encode and decode: {said}"
            )
        if isinstance(self, Synonyms) and not self.words:
            raise UserError(
                "synonyms need words: {synonyms: {words: {film: [movie]}}}, or the path of a JSON file"
            )


@parameter_class
class Case(OfTexts):
    """Every letter in upper or lower case, or the first of every word in upper case (`capitalised`).

    >>> Case("capitalised").change([" it", " isn't"])
    [' It', " Isn't"]
    """

    name: ClassVar[str] = "case"
    to: Literal["upper", "lower", "capitalised"] = "upper"

    def change(self, words: list[str], sample: str = "") -> list[str]:
        """The words of a text, each with the blanks before it."""
        if self.to == "capitalised":
            return [re.sub(r"\w", lambda first: first[0].upper(), word, count=1) for word in words]
        return [word.upper() if self.to == "upper" else word.lower() for word in words]

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        return _reworded(self, batch, self.change)


@parameter_class
class WhiteSpace(OfTexts):
    """Every blank twice (`doubled`), line breaks for blanks (`lines`), or single blanks, none at the ends (`trimmed`).

    >>> WhiteSpace("lines").change([" It", "  is "]), WhiteSpace("trimmed").change([" It", "  is "])
    (['\\nIt', '\\nis\\n'], ['It', ' is'])
    """

    name: ClassVar[str] = "white_space"
    to: Literal["doubled", "lines", "trimmed"] = "doubled"

    def change(self, words: list[str], sample: str = "") -> list[str]:
        """The words of a text, each with the blanks before it."""
        said = [i for i, word in enumerate(words) if word] or [0]
        if self.to == "trimmed":
            words = [
                w.lstrip() if i == said[0] else w.rstrip() if i == said[-1] else w
                for i, w in enumerate(words)
            ]
        pattern, by = {
            "doubled": (r"(\s)", r"\1\1"),
            "lines": (r"\s+", "\n"),
            "trimmed": (r"\s+", " "),
        }[self.to]
        return [re.sub(pattern, by, word) for word in words]

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        return _reworded(self, batch, self.change)


def _listed(words: Any) -> Any:
    read = isinstance(words, str | Path)
    given = as_object(as_text(unpacked(Path(words)), str(words)), str(words)) if read else words
    return (
        {str(word).lower(): meant for word, meant in given.items()}
        if isinstance(given, dict)
        else given
    )


@parameter_class
class Synonyms(OfTexts):
    """Each of `words`, {word: [synonym, …]} or a JSON file of them, becomes a synonym drawn from (seed, sample id).

    >>> Synonyms({"film": ["movie"]}).change([" Film,", " films"], "a")
    [' Movie,', ' films']
    """

    name: ClassVar[str] = "synonyms"
    stochastic: ClassVar[bool] = True
    words: Annotated[dict[str, Some], BeforeValidator(_listed)] = field(default_factory=dict)

    def change(self, words: list[str], sample: str, seed: int = 0) -> list[str]:
        """The words of a text; a first capital stays one."""
        draws = iter(
            integers(keys(seed, [sample], self.name), (sum(map(len, words)),), 1 << 30)[0].tolist()
        )

        def other(found: re.Match[str]) -> str:
            word, meant = str(found[0]), self.words.get(found[0].lower(), [found[0]])
            chosen: str = meant[next(draws) % len(meant)]
            return chosen[:1].upper() + chosen[1:] if word[0].isupper() else chosen

        return [re.sub(r"\w+", other, word) for word in words]

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        return _reworded(self, batch, partial(self.change, seed=seed))


@parameter_class
class PassageOrder(OfTexts):
    """The passages of a prompt, such as the options of a question, in another order, drawn from (seed, sample id).

    `features` tell them apart; what is no passage keeps its turn. Every token is a word of its own here.

    >>> batch = Batch(("a",), torch.tensor([[5, 6, 9, 7, 8]]), {"_passages": torch.tensor([[1, 1, 0, 2, 0]])})
    >>> changed = PassageOrder(Passages(mask_token=0))(batch, seed=0)
    >>> changed.batch.x.tolist(), changed.after.tolist()
    ([[7, 9, 5, 6, 8]], [[3, 2, 0, 1, 4]])
    """

    name: ClassVar[str] = "passage_order"
    stochastic: ClassVar[bool] = True
    features: GroupingField = Passages()

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        self.needs(batch)
        texts, width = list[list[Token]](), batch.x.shape[1]
        known = (
            keys(seed, batch.ids, self.name),
            batch.x.tolist(),
            self.features.segments(batch).tolist(),
        )
        for key, row, number in zip(*known, strict=True):
            places = [
                [at for at, other in enumerate(number) if other == n]
                for n in sorted(set(number) - {0})
            ]
            order = permutation(key[None], len(places))[0].tolist()
            turns = iter(
                order if order != sorted(order) else order[::-1]
            )  # never the one that it has
            begin = {own[0] for own in places}
            runs = [
                places[next(turns)] if n else [at]
                for at, n in enumerate(number)
                if not n or at in begin
            ]
            texts.append([(row[at], at, at) for run in runs for at in run])
        return _rebuilt(self, batch, texts, [list(range(width))] * len(batch))


def _reworded(of: OfTexts, batch: Batch, change: Callable[[list[str], str], list[str]]) -> Reworded:
    """The texts with every word as `change(words, id)` has it; special tokens, words without letters here, stay."""
    of.needs(batch)
    encode, special = encoder(batch.tokenizer), set(getattr(batch.tokenizer, "all_special_ids", ()))
    texts, before = list[list[Token]](), list[list[int]]()
    for sample, row, real in zip(
        batch.ids, batch.x.tolist(), _attended(batch).tolist(), strict=True
    ):
        end = max((i + 1 for i, there in enumerate(real) if there), default=0)
        plain = [real[i] and row[i] not in special for i in range(end)]
        words = _words(batch.tokenizer, row, plain)
        olds = [_text(batch.tokenizer, row, plain, own) for own in words]
        changed, new = zip(words, olds, change(olds, sample), strict=True), list[Token]()
        for n, (own, old, said) in enumerate(changed):
            tokens = [row[i] for i in own] if said == old else _tokens(encode, said)
            new += [(token, n if plain[own[0]] else -1, own[0]) for token in tokens]
        texts, before = (
            [*texts, new],
            [*before, [n if plain[i] else -1 for n, own in enumerate(words) for i in own]],
        )
    return _rebuilt(of, batch, texts, before)


def _attended(batch: Batch) -> Tensor:
    return batch.aux.get("attention_mask", torch.ones_like(batch.x)) != 0


def _words(tokenizer: Any, row: Sequence[int], plain: Sequence[bool]) -> list[list[int]]:
    """The places of the tokens of each word, with the blanks before it; special tokens stand alone."""
    words, blank = list[list[int]](), True
    for i, free in enumerate(plain):
        piece = _text(tokenizer, row, plain, [i])
        if i and free and plain[i - 1] and (blank or not piece[:1].isspace()):
            words[-1].append(i)
        else:
            words, blank = [*words, [i]], True
        blank = blank and not piece.strip()
    return words


def _text(tokenizer: Any, row: Sequence[int], plain: Sequence[bool], places: Sequence[int]) -> str:
    """What tokens in a row say behind the one before them, whose end decides on a blank; nothing of special ones."""
    first = places[0]
    before = [row[first - 1]] if first and plain[first - 1] else []
    said = [tokenizer.decode(ids) for ids in (before, [*before, *(row[i] for i in places)])]
    short, long = (text if isinstance(text, str) else " ".join(text) for text in said)
    return long[len(short) :] if plain[first] else ""


def _tokens(encode: Callable[[str], Sequence[int]], text: str) -> list[int]:
    """The tokens of a word; one with a blank before it is cut as behind another word."""
    anchor, both = list(encode("a")), list(encode("a" + text))
    if text[:1].isspace() and both[: len(anchor)] == anchor:
        return both[len(anchor) :]
    return list(encode(text)) if text else []


def _rebuilt(
    of: OfTexts, batch: Batch, texts: Sequence[list[Token]], before: Sequence[list[int]]
) -> Reworded:
    """Changed texts in the width of the batch, with what stands beside their tokens; one that does not fit is lost."""
    width, rows, lost, shift = batch.x.shape[1], list[list[Token]](), list[str](), list[list[int]]()
    words = [[*word, *[-1] * (width - len(word))] for word in before]
    for row, word, old, new in zip(batch.x.tolist(), words, before, texts, strict=True):
        why = (
            f"{name_of(of)} changes nothing in it"
            if [t for t, *_ in new] == row[: len(old)]
            else ""
        )
        if len(new) > width:
            why = f"it would have {len(new)} tokens, and texts have {width} here; open them with a larger length"
        lost, shift = [*lost, why], [*shift, [0 if why else len(new) - len(old)]]
        kept = list(zip(row, word, range(width), strict=True)) if why else new
        rows.append(kept + [(PADDING, -1, -1)] * (width - len(kept)))
    x, after, place = torch.tensor(rows, device=batch.x.device).unbind(2)
    aux = {key: held.gather(1, place.clamp(min=0)).masked_fill(place < 0, 0) if held.shape == x.shape else held
           for key, held in batch.aux.items()}  # fmt: skip
    if ANSWER in aux:  # right behind the prompt, wherever that ends now
        at = torch.arange(aux[ANSWER].shape[1], device=x.device) - torch.tensor(
            shift, device=x.device
        )
        inside = at.clamp(0, at.shape[1] - 1)
        aux[ANSWER] = aux[ANSWER].gather(1, inside).masked_fill(at != inside, IGNORED)
    known = torch.tensor(words, device=x.device).masked_fill(~_attended(batch), -1)
    return Reworded(replace(batch, x=x, aux=aux), known, after, tuple(lost))
