"""Perturbations of texts (B, L) that keep their meaning: case, blanks, synonyms, or the order of passages.

A changed word may have more or fewer tokens, so maps are compared word by word, as sums over tokens. Words are
separated by blanks; each is changed and tokenised on its own, and a word that does not change keeps its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import Family, PerturbationDefaults
from heatproof.data.sequences import IGNORED, PADDING, encoder
from heatproof.data.text import as_object, as_text, unpacked
from heatproof.errors import UserError
from heatproof.features import GroupingField, Passages
from heatproof.features.segments import pool
from heatproof.kinds import KindName
from heatproof.models.tasks import ANSWER
from heatproof.rand import integers, keys, permutation
from heatproof.types import Batch, name_of, parameter_class

NonEmpty = Annotated[list[str], Field(min_length=1)]


class Token(NamedTuple):
    """A token of a changed text.

    `word` is the number of its word in the original text, −1 for none (special tokens and padding); `start` is where
    that word began there, −1 for padding.
    """

    id: int
    word: int
    start: int


@plain_dataclass(frozen=True)
class Reworded:
    """Changed texts, with the number of the word that each token belongs to, `before` and `after`, (B, L), −1 for none.

    `failures` says why a text could not be changed, "" where it was.

    >>> words = torch.tensor([[0, 1, -1]]), torch.tensor([[0, 1, 1]])
    >>> changed = Reworded(Batch(("a",), torch.zeros(1, 3)), *words, ("",))
    >>> changed.by_word(torch.tensor([[1.0, 2.0, 4.0]]), changed.after).tolist()
    [[1.0, 6.0, 0.0]]
    """

    batch: Batch
    before: Tensor
    after: Tensor
    failures: tuple[str, ...]
    stochastic: ClassVar[bool] = True  # every text moves in its own way

    def by_word(self, maps: Tensor, word: Tensor) -> Tensor:
        """Return the sums of maps (B, L) over the tokens of each word, (B, L) by the number of the word."""
        return pool(maps, word.to(maps.device) + 1, maps.shape[1] + 1)[:, 1:]

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Return maps (B, L) of the original texts by word, and which words both texts have, (B, L) boolean."""
        rows = [self.batch.ids.index(name) for name in ids]
        ones = torch.ones_like(maps)
        in_original = self.by_word(ones, self.before[rows]) > 0
        in_changed = self.by_word(ones, self.after[rows]) > 0
        return self.by_word(maps, self.before[rows]), in_original & in_changed


class OfTexts(PerturbationDefaults):
    """Base of perturbations of texts: token ids (B, L), made by the tokenizer of the data."""

    family: ClassVar[Family] = "wording"
    kind: ClassVar[KindName | None] = None

    def check_texts(self, batch: Batch) -> None:
        """Refuse samples that are no token ids or come without their tokenizer, and synonyms without words."""
        if batch.x.is_floating_point():
            raise UserError(
                f"{name_of(self)} changes texts, which are token ids, and these samples are numbers"
            )
        if not isinstance(self, PassageOrder) and not hasattr(batch.tokenizer, "decode"):
            raise UserError(
                f"{name_of(self)} needs the tokenizer of the texts, with encode and decode: open_data(texts, "
                "vocabulary=tokenizer) and heatproof.prompts(tokenizer, …) bring it"
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
        """Return the changed words of a text, each with the blanks before it."""
        if self.to == "capitalised":
            return [
                re.sub(r"\w", lambda letter: letter[0].upper(), word, count=1) for word in words
            ]
        if self.to == "upper":
            return [word.upper() for word in words]
        return [word.lower() for word in words]

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
        """Return the changed words of a text, each with the blanks before it."""
        if self.to == "doubled":
            return [re.sub(r"(\s)", r"\1\1", word) for word in words]
        if self.to == "lines":
            return [re.sub(r"\s+", "\n", word) for word in words]
        trimmed = list(words)
        with_letters = [i for i, word in enumerate(words) if word] or [0]
        first, last = with_letters[0], with_letters[-1]
        for i, word in enumerate(words):
            if i == first:
                trimmed[i] = word.lstrip()
            elif i == last:
                trimmed[i] = word.rstrip()
        return [re.sub(r"\s+", " ", word) for word in trimmed]

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        return _reworded(self, batch, self.change)


def _read_synonyms(words: Any) -> Any:
    """Return {word: synonyms} from such a mapping or the path of a JSON file, the words in lower case."""
    if isinstance(words, str | Path):
        words = as_object(as_text(unpacked(Path(words)), str(words)), str(words))
    if not isinstance(words, dict):
        return words
    return {str(word).lower(): synonyms for word, synonyms in words.items()}


@parameter_class
class Synonyms(OfTexts):
    """Each of `words`, {word: [synonym, …]} or a JSON file of them, becomes a synonym drawn from (seed, sample id).

    >>> Synonyms({"film": ["movie"]}).change([" Film,", " films"], "a")
    [' Movie,', ' films']
    """

    name: ClassVar[str] = "synonyms"
    stochastic: ClassVar[bool] = True
    words: Annotated[dict[str, NonEmpty], BeforeValidator(_read_synonyms)] = field(
        default_factory=dict
    )

    def change(self, words: list[str], sample: str, seed: int = 0) -> list[str]:
        """Return the words of a text with synonyms in place of some; a first capital stays one."""
        letters = sum(len(word) for word in words)  # no text has more words than letters
        draws = iter(integers(keys(seed, [sample], self.name), (letters,), 1 << 30)[0].tolist())

        def replacement(match: re.Match[str]) -> str:
            word = str(match[0])
            synonyms = self.words.get(word.lower(), [word])
            synonym: str = synonyms[next(draws) % len(synonyms)]
            return synonym[:1].upper() + synonym[1:] if word[0].isupper() else synonym

        return [re.sub(r"\w+", replacement, word) for word in words]

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        return _reworded(self, batch, partial(self.change, seed=seed))


@parameter_class
class PassageOrder(OfTexts):
    """The passages of a prompt, such as the options of a question, in another order, drawn from (seed, sample id).

    `features` tell them apart; tokens outside passages keep their turn. Every token is a word of its own here.

    >>> batch = Batch(("a",), torch.tensor([[5, 6, 9, 7, 8]]), {"_passages": torch.tensor([[1, 1, 0, 2, 0]])})
    >>> changed = PassageOrder(Passages(mask_token=0))(batch, seed=0)
    >>> changed.batch.x.tolist(), changed.after.tolist()
    ([[7, 9, 5, 6, 8]], [[3, 2, 0, 1, 4]])
    """

    name: ClassVar[str] = "passage_order"
    stochastic: ClassVar[bool] = True
    features: GroupingField = Passages()

    def __call__(self, batch: Batch, seed: int) -> Reworded:
        """Return prompts with their passages in another order."""
        self.check_texts(batch)
        texts = []
        sample_keys = keys(seed, batch.ids, self.name)
        segments = self.features.segments(batch).tolist()
        for key, row, numbers in zip(sample_keys, batch.x.tolist(), segments, strict=True):
            positions = _with_passages_reordered(key, numbers)
            texts.append([Token(row[i], i, i) for i in positions])
        word_of_token = list(range(batch.x.shape[1]))
        return _rebuilt(self, batch, texts, [word_of_token] * len(batch))


def _with_passages_reordered(key: Tensor, numbers: Sequence[int]) -> list[int]:
    """Return the positions of a text's tokens after its passages are put into another order, drawn from a random `key`.

    `numbers` has for each token the number of its passage, 0 for none; tokens of no passage stay between the same two
    passages' turns.
    """
    passages = []
    for number in sorted(set(numbers) - {0}):
        passages.append([i for i, other in enumerate(numbers) if other == number])
    order = permutation(key[None], len(passages))[0].tolist()
    if order == sorted(order):
        # The draw is the present order, which would change nothing.
        order = order[::-1]
    next_passage = iter(order)
    starts = {positions[0] for positions in passages}
    reordered = []
    for i, number in enumerate(numbers):
        if number == 0:
            reordered.append(i)
        elif i in starts:
            reordered += passages[next(next_passage)]
    return reordered


def _reworded(
    perturbation: OfTexts, batch: Batch, change: Callable[[list[str], str], list[str]]
) -> Reworded:
    """Return texts with their words changed by `change(words, id)`, tokenised again, and the word of each token.

    A word includes the blanks before it. Words that do not change keep their tokens, and so do special tokens, which
    `change` gets as empty words.
    """
    perturbation.check_texts(batch)
    tokenizer = batch.tokenizer
    encode, special = encoder(tokenizer), set(getattr(tokenizer, "all_special_ids", ()))
    texts: list[list[Token]] = []
    words_before: list[list[int]] = []
    rows = zip(batch.ids, batch.x.tolist(), _attended(batch).tolist(), strict=True)
    for sample, row, attended in rows:
        # The text ends behind its last token that is no padding.
        end = max((i + 1 for i, is_attended in enumerate(attended) if is_attended), default=0)
        is_plain = [attended[i] and row[i] not in special for i in range(end)]
        words = _words(tokenizer, row, is_plain)
        old_words = [_text(tokenizer, row, is_plain, positions) for positions in words]
        new_words = change(old_words, sample)

        tokens: list[Token] = []
        word_of_token: list[int] = []
        for number, positions in enumerate(words):
            start = positions[0]
            word = number if is_plain[start] else -1
            if new_words[number] == old_words[number]:
                ids = [row[i] for i in positions]
            else:
                ids = _tokens(encode, new_words[number])
            tokens += [Token(token, word, start) for token in ids]
            word_of_token += [number if is_plain[i] else -1 for i in positions]
        texts.append(tokens)
        words_before.append(word_of_token)
    return _rebuilt(perturbation, batch, texts, words_before)


def _attended(batch: Batch) -> Tensor:
    """Return which tokens are no padding, (B, L) boolean."""
    return batch.aux.get("attention_mask", torch.ones_like(batch.x)) != 0


def _words(tokenizer: Any, row: Sequence[int], is_plain: Sequence[bool]) -> list[list[int]]:
    """Return the positions of the tokens of each word, with the blanks before it; special tokens stand alone.

    A token continues a word unless it begins with a blank; blanks belong to the word that follows them.
    """
    words: list[list[int]] = []
    only_blanks = True
    for i, plain in enumerate(is_plain):
        text = _text(tokenizer, row, is_plain, [i])
        continues_text = i > 0 and plain and is_plain[i - 1]
        if continues_text and (only_blanks or not text[:1].isspace()):
            words[-1].append(i)
        else:
            words.append([i])
            only_blanks = True
        only_blanks = only_blanks and not text.strip()
    return words


def _text(
    tokenizer: Any, row: Sequence[int], is_plain: Sequence[bool], positions: Sequence[int]
) -> str:
    """Return the text of neighbouring tokens, those at `positions` of a row of token ids; "" for special tokens.

    Some tokenizers show the blank before a token only behind another token. So the token before is decoded with them,
    and its text is cut off.
    """
    first = positions[0]
    if not is_plain[first]:
        return ""
    before = [row[first - 1]] if first and is_plain[first - 1] else []
    text_before = _decoded(tokenizer, before)
    tokens = [row[i] for i in positions]
    text = _decoded(tokenizer, before + tokens)
    return text[len(text_before) :]


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    """Return the text of token ids; some tokenizers return a list of words."""
    text = tokenizer.decode(ids)
    return text if isinstance(text, str) else " ".join(text)


def _tokens(encode: Callable[[str], Sequence[int]], text: str) -> list[int]:
    """Return the tokens of a word, with the blanks before it.

    Many tokenizers have other tokens for a word behind a blank than for one at the start of a text. So a word with a
    blank is tokenised behind the text "a", whose tokens are cut off.
    """
    before, both = list(encode("a")), list(encode("a" + text))
    if text[:1].isspace() and both[: len(before)] == before:
        return both[len(before) :]
    return list(encode(text)) if text else []


def _rebuilt(
    perturbation: OfTexts,
    batch: Batch,
    texts: Sequence[list[Token]],
    words_before: Sequence[list[int]],
) -> Reworded:
    """Return changed texts as a batch of the same width L, padded, with their auxiliary tensors and the word of each token.

    `texts` has the tokens of each changed text, and `words_before` the word of each token of the original one, both
    without padding. A text that did not change, or has more than L tokens now, stays as it was and gets a failure.
    """
    width, device = batch.x.shape[1], batch.x.device
    padding = Token(PADDING, -1, -1)
    rows, failures, growth, padded_words = [], [], [], []
    for row, words, tokens in zip(batch.x.tolist(), words_before, texts, strict=True):
        failure = ""
        if [token.id for token in tokens] == row[: len(words)]:
            failure = f"{name_of(perturbation)} changes nothing in it"
        if len(tokens) > width:
            failure = (
                f"it would have {len(tokens)} tokens, and texts have {width} here; "
                "open them with a larger length"
            )
        padded = [*words, *[-1] * (width - len(words))]
        if failure:
            original = zip(row, padded, range(width), strict=True)
            rows.append([Token(*token) for token in original])
            growth.append(0)
        else:
            rows.append([*tokens, *[padding] * (width - len(tokens))])
            growth.append(len(tokens) - len(words))
        padded_words.append(padded)
        failures.append(failure)

    x, after, start = torch.tensor(rows, device=device).unbind(2)
    aux = _aux_of(batch, start)
    if ANSWER in aux:
        aux[ANSWER] = _shifted(aux[ANSWER], torch.tensor(growth, device=device))
    before = torch.tensor(padded_words, device=device).masked_fill(~_attended(batch), -1)
    return Reworded(replace(batch, x=x, aux=aux), before, after, tuple(failures))


def _aux_of(batch: Batch, start: Tensor) -> dict[str, Tensor]:
    """Return the auxiliary tensors of changed texts: those of tokens (B, L) are read where each word began before."""
    aux = {}
    for name, values in batch.aux.items():
        if values.shape == start.shape:
            aux[name] = values.gather(1, start.clamp(min=0)).masked_fill(start < 0, 0)
        else:
            aux[name] = values
    return aux


def _shifted(answer: Tensor, growth: Tensor) -> Tensor:
    """Return answers (B, L) moved to the right by the number of tokens (B,) that their prompts grew.

    An answer's tokens stand right behind its prompt; all other positions hold `IGNORED`.
    """
    # Position i of the result is read from position i − growth, if there is one.
    source = torch.arange(answer.shape[1], device=answer.device) - growth[:, None]
    inside = source.clamp(0, source.shape[1] - 1)
    return answer.gather(1, inside).masked_fill(source != inside, IGNORED)
