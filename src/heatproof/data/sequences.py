"""Text: sentences as padded token ids, from files of lines, JSONL, tables with a header, Parquet and Arrow."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heatproof.data.arrays import open_items
from heatproof.data.choices import NO_LABEL, Choice, only_choices, ranked
from heatproof.data.dataset import Data, Sample, checked_length, numbered
from heatproof.data.tables import ARROW, PARQUET, TEXTS, Lines, read_table_texts
from heatproof.data.text import as_object, as_text, cells_of, unpacked
from heatproof.errors import UserError, unknown
from heatproof.types import Batch

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_LABEL_FIRST = re.compile(r"(-?\d+)\s+(\S.*)")
_STEMS = (".txt", ".tsv", ".csv", ".jsonl", ".ndjson", *PARQUET, *ARROW)
PADDING, UNKNOWN = 0, 1
IGNORED = -100  # where no token of an answer stands, as in the labels of transformers


def words(text: str) -> list[str]:
    """Words and marks of a text in lower case.

    >>> words("It isn't bad, it's GREAT")
    ['it', "isn't", 'bad', ',', "it's", 'great']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words and their token ids: 0 is padding, 1 any word that is not listed, and word k has id k + 2.

    >>> vocabulary = Vocabulary.fit(["a good film", "a bad film"], size=4)
    >>> vocabulary.words, vocabulary.encode("a great film")
    (('a', 'film'), [2, 1, 3])
    """

    words: tuple[str, ...]

    @classmethod
    def fit(cls, texts: Iterable[str], size: int | None = None, least: int = 1) -> Vocabulary:
        """The most frequent words of the training texts: at most `size` ids in all, each word `least` times or more."""
        if size is not None and size < 3:
            raise UserError(
                f"a vocabulary of {size} ids has no word beside padding and unknown; give 3 or more"
            )
        counts = Counter(word for text in texts for word in words(text))
        ordered = sorted((-count, word) for word, count in counts.items() if count >= least)
        return cls(tuple(word for _, word in ordered)[: None if size is None else size - 2])

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """A vocabulary that `save` wrote."""
        found = as_object(as_text(unpacked(Path(path)), str(path)), str(path)).get("words")
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise UserError(f'{str(path)!r} is not a vocabulary; {{"words": [...]}} was expected')
        return cls(tuple(found))

    def save(self, path: str | Path) -> None:
        """Write the words as JSON."""
        Path(path).write_text(
            json.dumps({"words": self.words}, ensure_ascii=False, indent=0), encoding="utf-8"
        )

    def __len__(self) -> int:
        return len(self.words) + 2

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, 2)}

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""
        return [self._ids.get(word, UNKNOWN) for word in words(text)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of token ids; `…` where a word is not known, nothing for padding.

        >>> Vocabulary(("a", "film")).decode([2, 1, 3, 0])
        ['a', '…', 'film']
        """
        return [self.words[i - 2] if i > UNKNOWN else "…" for i in map(int, ids) if i != PADDING]


Tokeniser = Vocabulary | Callable[[str], Sequence[int]] | str | Path
"""How text becomes token ids: a vocabulary, the path of one, a tokenizer of transformers, or any function of a text."""


def encoder(vocabulary: Any, bare: bool = True) -> Callable[[str], Sequence[int]]:
    """The function from a text to token ids, of a tokenizer of transformers without its special tokens if `bare`."""
    if isinstance(vocabulary, str | Path):
        vocabulary = Vocabulary.load(vocabulary)
    encode = getattr(vocabulary, "encode", vocabulary)
    return (
        partial(encode, add_special_tokens=not bare)
        if hasattr(vocabulary, "all_special_ids")
        else encode
    )


def spelled(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """A word for each token id, or the id where nobody knows more.

    >>> spelled(Vocabulary(("a", "film")), [3, 0, 1]), spelled(None, [3])
    (['film', '', '…'], ['3'])
    """
    if isinstance(tokenizer, Vocabulary):
        return ["".join(tokenizer.decode([token])) for token in ids]
    return list(map(str, getattr(tokenizer, "convert_ids_to_tokens", list)(ids)))


def prompts(
    tokenizer: Any,
    texts: Sequence[Sequence[str]],
    answers: Sequence[str] = (),
    length: int | None = None,
) -> Batch:
    """Prompts for a decoder: each is a list of passages that ends with the question; padded behind, to `length`.

    Pieces become token ids one by one, after what the tokenizer puts before any text. `aux` has the `attention_mask`,
    `_passages` (N, L), from 1 for the first passage and 0 elsewhere, and where `answers` are given `answer` (N, L + T),
    their ids right behind the prompt and −100 elsewhere.

    >>> batch = prompts(Vocabulary(("a", "b", "who")), [["a a", "b", "who"], ["b", "who"]], ["b", "b"])
    >>> batch.x.tolist(), batch.aux["_passages"].tolist()
    ([[2, 2, 3, 4], [3, 4, 0, 0]], [[1, 1, 2, 0], [1, 0, 0, 0]])
    >>> batch.aux["answer"].tolist()
    [[-100, -100, -100, -100, 3], [-100, -100, 3, -100, -100]]
    """
    encode, before = encoder(tokenizer), list(encoder(tokenizer, bare=False)(""))
    pieces = [[before, *map(encode, text)] for text in texts]
    ids = [[i for piece in text for i in piece] for text in pieces]
    said = [list(encode(answer)) for answer in answers]
    if (
        not ids
        or any(isinstance(t, str) for t in texts)
        or not all(ids + said)
        or len(said) not in (0, len(ids))
    ):
        raise UserError(
            "a prompt is a list such as [passage, passage, question], and has one answer if any are given"
        )
    turns = [
        [k % (len(text) - 1) for k, piece in enumerate(text) for _ in piece] for text in pieces
    ]
    width, lengths = max(length or 0, *map(len, ids)), torch.tensor(list(map(len, ids)))
    x, numbers = (
        torch.tensor([row + [PADDING] * (width - len(row)) for row in part])
        for part in (ids, turns)
    )
    aux = {"attention_mask": (torch.arange(width) < lengths[:, None]).long(), "_passages": numbers}
    if said:
        rest = [IGNORED] * (width + max(map(len, said)))  # room for the longest behind the longest
        each = zip(ids, said, strict=True)
        aux["answer"] = torch.tensor(
            [(rest[: len(row)] + answer + rest)[: len(rest)] for row, answer in each]
        )
    return Batch(numbered(len(ids)), x, aux, tokenizer=tokenizer)


def open_texts(name: str, found: Lines, vocabulary: Tokeniser, length: int | None = None) -> Data:
    """Texts as token ids x (L,) int64 with aux attention_mask (L,), 1 at real tokens.

    L is `length`, and then longer texts are cut, or that of the longest text. A text without a token is an error.
    Words as labels are numbered in sorted order.

    >>> data = open_texts("films", Lines(["a film", "a bad film"]), Vocabulary(("a", "film")))
    >>> data.load([0, 1]).batch.x.tolist()
    [[2, 3, 0], [2, 1, 3]]
    """
    if isinstance(vocabulary, str | Path):
        vocabulary = Vocabulary.load(vocabulary)
    encode = encoder(vocabulary, bare=False)
    encoded = [torch.tensor(list(encode(text)), dtype=torch.int64) for text in found.texts]
    items = [(ids,) if len(ids) else ValueError("the text has no tokens") for ids in encoded]
    longest = checked_length(length, max(map(len, encoded), default=1))
    labels, names = found.labels, found.class_names
    if labels is not None and any(isinstance(label, str) for label in labels):
        labels, names = ranked([str(label) for label in labels])
    made, how, one = (
        partial(_padded_tokens, length=longest),
        f"padded to {longest} tokens",
        (longest,),
    )
    data = open_items(
        name, items, made, prepared=how, shape=one, ids=found.ids, labels=labels, class_names=names
    )
    method = (
        vocabulary.func if isinstance(vocabulary, partial) else None
    )  # what `hf:owner/name` gives
    return replace(data, tokenizer=getattr(method, "__self__", vocabulary))


def _padded_tokens(tokens: tuple[Tensor], length: int) -> Sample:
    kept = tokens[0][:length]
    x = torch.full((length,), PADDING, dtype=torch.int64)
    x[: len(kept)] = kept
    return Sample(x, aux={"attention_mask": (torch.arange(length) < len(kept)).long()})


def read_texts(path: Path, label: str | None = None) -> Lines:
    """The texts of a file, `.gz` or not.

    `.jsonl`: objects with text (or sentence), and if they like label and id. `.tsv` and `.csv`: a header that names
    these columns, or without one `label, text` or `text, label` (`.tsv`). Parquet and Arrow: these columns. `.txt`: one
    text per line. Other suffixes: one text per line, after its label when every line begins with a whole number.
    `label` names another column than label.
    """
    if path.suffix.lower() in (*PARQUET, *ARROW):
        return read_table_texts([path], label)
    text = as_text(unpacked(path), str(path))
    lines = [line for line in text.split("\n") if line.strip()]
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        records = [as_object(line, f"{path}, object {i + 1}") for i, line in enumerate(lines)]
        return lines_of(records, str(path), label)
    if suffix == ".tsv":
        return _from_table([line.rstrip("\r").split("\t") for line in lines], str(path), label)
    if (
        suffix == ".csv"
        and lines
        and set(TEXTS) & {cell.strip().lower() for cell in next(csv.reader(lines[:1]))}
    ):
        return _from_table(cells_of(text, str(path), ",", strict=True), str(path), label)
    only_choices(str(path), Choice(label=label))
    matches = [None if suffix == ".txt" else _LABEL_FIRST.fullmatch(line.strip()) for line in lines]
    found = [match for match in matches if match is not None]
    if lines and len(found) == len(lines):
        return Lines([match[2] for match in found], [int(match[1]) for match in found])
    return Lines([line.strip() for line in lines])


def open_text_file(
    path: Path, vocabulary: Tokeniser, *, length: int | None = None, label: str | None = None
) -> Data:
    """A file of texts as token ids; see `read_texts` and `open_texts`."""
    whole = path.name.removesuffix(".gz")
    name = Path(whole).stem if Path(whole).suffix.lower() in _STEMS else whole
    return open_texts(name, read_texts(path, label), vocabulary, length)


def lines_of(records: Sequence[Mapping[str, Any]], what: str, label: str | None = None) -> Lines:
    """The texts of objects with text (or sentence), and if they like label and id."""
    key = next((k for k in TEXTS if records and k in records[0]), None)
    if key is None:
        keys = ", ".join(map(str, records[0])) if records else "none"
        raise UserError(f"{what!r} has the keys {keys}; text or sentence was expected")
    wrong = next(
        (i for i, record in enumerate(records) if not isinstance(record.get(key), str)), None
    )
    if wrong is not None:
        raise UserError(f"{what!r}: entry {wrong + 1} has no {key}")
    target = "label" if label is None else label
    if label not in (None, NO_LABEL) and not any(target in record for record in records):
        raise unknown(f"column of {what!r}", label, map(str, records[0]))
    labelled = label != NO_LABEL and any(target in record for record in records)
    labels = [record.get(target) for record in records] if labelled else None
    ids = (
        [str(record["id"]) for record in records]
        if all("id" in record for record in records)
        else None
    )
    return Lines([record[key] for record in records], labels, ids)


def _from_table(rows: Sequence[Sequence[str]], what: str, label: str | None = None) -> Lines:
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if set(TEXTS) & set(header):
        wrong = next((i for i, row in enumerate(rows) if len(row) != len(header)), None)
        if wrong is not None:
            raise UserError(
                f"{what!r}: line {wrong + 1} has {len(rows[wrong])} columns, the header {len(header)}"
            )
        names = [
            cell.strip() if cell.strip() == label else low
            for cell, low in zip(rows[0], header, strict=True)
        ]
        lines = lines_of([dict(zip(names, row, strict=True)) for row in rows[1:]], what, label)
        whole = lines.labels is not None and all(
            re.fullmatch(r"-?\d+", label.strip()) for label in lines.labels
        )
        return (
            lines._replace(labels=[int(label) for label in lines.labels or ()]) if whole else lines
        )
    if rows and all(len(row) == 1 for row in rows):
        return Lines([row[0] for row in rows])
    only_choices(what, Choice(label=label))
    for first, second in ((0, 1), (1, 0)):
        if rows and all(
            len(row) == 2 and re.fullmatch(r"-?\d+", row[first].strip()) for row in rows
        ):
            return Lines([row[second] for row in rows], [int(row[first]) for row in rows])
    raise UserError(
        f"{what!r} needs a header with text (or sentence) and label, or two columns, one a number"
    )
