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
_SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl", ".ndjson", *PARQUET, *ARROW)
PADDING, UNKNOWN = 0, 1
"""The first two ids of every `Vocabulary`."""
IGNORED = -100
"""The id where no token of an answer stands, as in the labels of transformers."""


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
        """Return the most frequent words of the training texts: at most `size` ids, each word `least` times or more."""
        if size is not None and size < 3:
            raise UserError(
                f"a vocabulary of {size} ids has no word beside padding and unknown; give 3 or more"
            )
        counts = Counter(word for text in texts for word in words(text))
        # The most frequent first; equally frequent ones in alphabetical order, whatever the order of the texts.
        ordered = sorted((-count, word) for word, count in counts.items() if count >= least)
        by_frequency = tuple(word for _, word in ordered)
        if size is None:
            return cls(by_frequency)
        return cls(by_frequency[: size - 2])  # two ids are padding and unknown

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Return a vocabulary that `save` wrote."""
        content = as_object(as_text(unpacked(Path(path)), str(path)), str(path))
        listed = content.get("words")
        if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
            raise UserError(f'{str(path)!r} is not a vocabulary; {{"words": [...]}} was expected')
        return cls(tuple(listed))

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
        """Return the words of token ids; `…` where a word is not known, nothing for padding.

        >>> Vocabulary(("a", "film")).decode([2, 1, 3, 0])
        ['a', '…', 'film']
        """
        decoded = []
        for token in map(int, ids):
            if token != PADDING:
                decoded.append("…" if token == UNKNOWN else self.words[token - 2])
        return decoded


Tokeniser = Vocabulary | Callable[[str], Sequence[int]] | str | Path
"""How text becomes token ids: a vocabulary, the path of one, a tokenizer of transformers, or any function of a text."""


def encoder(vocabulary: Any, bare: bool = True) -> Callable[[str], Sequence[int]]:
    """Return the function from a text to token ids.

    `bare` leaves out the special tokens of a tokenizer of transformers.
    """
    if isinstance(vocabulary, str | Path):
        vocabulary = Vocabulary.load(vocabulary)
    encode = getattr(vocabulary, "encode", vocabulary)
    is_of_transformers = hasattr(vocabulary, "all_special_ids")
    return partial(encode, add_special_tokens=not bare) if is_of_transformers else encode


def spelled(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return a word for each token id, or the id where the tokenizer is unknown.

    >>> spelled(Vocabulary(("a", "film")), [3, 0, 1]), spelled(None, [3])
    (['film', '', '…'], ['3'])
    """
    if isinstance(tokenizer, Vocabulary):
        return ["".join(tokenizer.decode([token])) for token in ids]
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return list(map(str, tokenizer.convert_ids_to_tokens(list(ids))))
    return list(map(str, ids))


def prompts(
    tokenizer: Any,
    texts: Sequence[Any],
    answers: Sequence[str] = (),
    length: int | None = None,
) -> Batch:
    """Return N prompts for a language model as a batch of token ids (N, L), with the passages and answers marked.

    A prompt is a text, or a list of passages that ends with the question. Its pieces become token ids one by one, behind
    the tokens that the tokenizer puts at the start of any text, and it is padded at the end, to `length` or the longest
    prompt. `aux` has `attention_mask` (N, L), 1 at tokens that are no padding; `_passages` (N, L), the number of the
    passage of each token from 1 on, 0 elsewhere; and with `answers`, `answer` (N, L + T), the answer's token ids
    right behind the prompt and −100 elsewhere.

    >>> batch = prompts(Vocabulary(("a", "b", "who")), [["a a", "b", "who"], ["b", "who"]], ["b", "b"])
    >>> batch.x.tolist(), batch.aux["_passages"].tolist()
    ([[2, 2, 3, 4], [3, 4, 0, 0]], [[1, 1, 2, 0], [1, 0, 0, 0]])
    >>> batch.aux["answer"].tolist()
    [[-100, -100, -100, -100, 3], [-100, -100, 3, -100, -100]]
    """
    if isinstance(texts, str):
        raise UserError(f"prompts takes a list of texts, got the text {texts[:40]!r}")
    encode = encoder(tokenizer)
    prefix = list(encoder(tokenizer, bare=False)(""))
    ids: list[list[int]] = []
    passages: list[list[int]] = []
    for text in texts:
        pieces = [text] if isinstance(text, str) else list(text)
        tokens, numbers = list(prefix), [0] * len(prefix)
        for number, piece in enumerate(pieces, 1):
            is_question = number == len(pieces)
            piece_ids = list(encode(piece))
            tokens += piece_ids
            numbers += [0 if is_question else number] * len(piece_ids)
        ids.append(tokens)
        passages.append(numbers)
    ids_of_answers = [list(encode(answer)) for answer in answers]
    has_empty = not all(ids + ids_of_answers)
    if not ids or has_empty or len(answers) not in (0, len(ids)):
        raise UserError(
            "a prompt is a text, or a list such as [passage, passage, question], has at least one token, and has "
            "one answer if any are given"
        )
    width = max(length or 0, *map(len, ids))
    lengths = torch.tensor([len(tokens) for tokens in ids])
    aux = {
        "attention_mask": (torch.arange(width) < lengths[:, None]).long(),
        "_passages": _padded_rows(passages, width, PADDING),
    }
    if answers:
        behind = []
        for tokens, answer in zip(ids, ids_of_answers, strict=True):
            behind.append([IGNORED] * len(tokens) + answer)
        longest_answer = max(map(len, ids_of_answers))
        aux["answer"] = _padded_rows(behind, width + longest_answer, IGNORED)
    x = _padded_rows(ids, width, PADDING)
    return Batch(numbered(len(ids)), x, aux, tokenizer=tokenizer)


def open_texts(name: str, lines: Lines, vocabulary: Tokeniser, length: int | None = None) -> Data:
    """Open texts as token ids x (L,) int64 with aux attention_mask (L,), 1 at real tokens.

    L is `length`, and then longer texts are cut, or that of the longest text. A text without a token is an error.
    Words as labels are numbered in sorted order.

    >>> data = open_texts("films", Lines(["a film", "a bad film"]), Vocabulary(("a", "film")))
    >>> data.load([0, 1]).batch.x.tolist()
    [[2, 3, 0], [2, 1, 3]]
    """
    if isinstance(vocabulary, str | Path):
        vocabulary = Vocabulary.load(vocabulary)
    encode = encoder(vocabulary, bare=False)
    encoded = [torch.tensor(list(encode(text)), dtype=torch.int64) for text in lines.texts]
    items = [(ids,) if len(ids) else ValueError("the text has no tokens") for ids in encoded]
    longest = checked_length(length, max(map(len, encoded), default=1))
    labels, class_names = lines.labels, lines.class_names
    if labels is not None and any(isinstance(label, str) for label in labels):
        labels, class_names = ranked([str(label) for label in labels])
    data = open_items(
        name,
        items,
        partial(_padded_tokens, length=longest),
        prepared=f"padded to {longest} tokens",
        shape=(longest,),
        ids=lines.ids,
        labels=labels,
        class_names=class_names,
    )
    # `hf:owner/name` gives a partial of the tokenizer's method; `__self__` of a method is its object.
    method = vocabulary.func if isinstance(vocabulary, partial) else None
    return replace(data, tokenizer=getattr(method, "__self__", vocabulary))


def _padded_tokens(tokens: tuple[Tensor], length: int) -> Sample:
    """Return the first `length` token ids, padded to as many."""
    ids = tokens[0][:length]
    x = torch.full((length,), PADDING, dtype=torch.int64)
    x[: len(ids)] = ids
    return Sample(x, aux={"attention_mask": (torch.arange(length) < len(ids)).long()})


def read_texts(path: Path, label: str | None = None) -> Lines:
    """Return the texts in a file, with their labels and ids where it has some; the suffix says how it is read.

    `.jsonl`: objects with text (or sentence), and optionally label and id. `.tsv` and `.csv`: a header that names
    these columns; a `.tsv` without a header has the columns `label, text` or `text, label`. Parquet and Arrow: these
    columns. `.txt`: one text per line. Any other suffix: one text per line, behind its label if every line begins with a
    whole number. Files may be compressed (`.gz`). `label` names the column of labels if it is not called label.
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
    if suffix == ".csv" and lines:
        header = next(csv.reader(lines[:1]))
        if _names_texts(header):
            return _from_table(cells_of(text, str(path), ",", strict=True), str(path), label)
    only_choices(str(path), Choice(label=label))
    texts = [line.strip() for line in lines]
    if suffix != ".txt":
        matches = [_LABEL_FIRST.fullmatch(text) for text in texts]
        labelled = [match for match in matches if match is not None]
        if texts and len(labelled) == len(texts):
            return Lines([match[2] for match in labelled], [int(match[1]) for match in labelled])
    return Lines(texts)


def open_text_file(
    path: Path, vocabulary: Tokeniser, *, length: int | None = None, label: str | None = None
) -> Data:
    """Open a file of texts as token ids; see `read_texts` and `open_texts`."""
    name = path.name.removesuffix(".gz")
    if Path(name).suffix.lower() in _SUFFIXES:
        name = Path(name).stem
    return open_texts(name, read_texts(path, label), vocabulary, length)


def lines_of(records: Sequence[Mapping[str, Any]], what: str, label: str | None = None) -> Lines:
    """Return the texts of objects with text (or sentence), and optionally label and id."""
    key = next((k for k in TEXTS if records and k in records[0]), None)
    if key is None:
        keys = ", ".join(map(str, records[0])) if records else "none"
        raise UserError(f"{what!r} has the keys {keys}; text or sentence was expected")
    for number, record in enumerate(records, 1):
        if not isinstance(record.get(key), str):
            raise UserError(f"{what!r}: entry {number} has no {key}")
    texts = [record[key] for record in records]

    labels = None
    label_key = "label" if label is None else label
    has_labels = any(label_key in record for record in records)
    if label not in (None, NO_LABEL) and not has_labels:
        raise unknown(f"column of {what!r}", label, map(str, records[0]))
    if has_labels and label != NO_LABEL:
        labels = [record.get(label_key) for record in records]

    ids = None
    if all("id" in record for record in records):
        ids = [str(record["id"]) for record in records]
    return Lines(texts, labels, ids)


def _from_table(rows: Sequence[Sequence[str]], what: str, label: str | None = None) -> Lines:
    """Return the texts and labels in rows of cells (`what` names the file in errors).

    The rows have a header with text or sentence, or a single column of texts, or two columns of which one holds whole
    numbers: the labels.
    """
    if rows and _names_texts(rows[0]):
        return _from_named_columns(rows, what, label)
    if rows and all(len(row) == 1 for row in rows):
        return Lines([row[0] for row in rows])
    only_choices(what, Choice(label=label))
    for label_column, text_column in ((0, 1), (1, 0)):
        if rows and all(len(row) == 2 and _is_whole(row[label_column]) for row in rows):
            labels = [int(row[label_column]) for row in rows]
            return Lines([row[text_column] for row in rows], labels)
    raise UserError(
        f"{what!r} needs a header with text (or sentence) and label, or two columns, one a number"
    )


def _padded_rows(rows: Sequence[list[int]], width: int, value: int) -> Tensor:
    """Return lists of numbers as rows of one width, with a value behind them."""
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


def _names_texts(header: Sequence[str]) -> bool:
    """Whether a row of cells is a header with a column of texts."""
    return any(cell.strip().lower() in TEXTS for cell in header)


def _from_named_columns(rows: Sequence[Sequence[str]], what: str, label: str | None) -> Lines:
    """Return the texts under a header; labels that are all whole numbers become ints."""
    width = len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise UserError(f"{what!r}: line {number} has {len(row)} columns, the header {width}")
    names = []
    for cell in rows[0]:
        name = cell.strip()
        names.append(name if name == label else name.lower())
    lines = lines_of([dict(zip(names, row, strict=True)) for row in rows[1:]], what, label)
    if lines.labels is not None and all(_is_whole(value) for value in lines.labels):
        return lines._replace(labels=[int(value) for value in lines.labels])
    return lines


def _is_whole(cell: str) -> bool:
    return re.fullmatch(r"-?\d+", cell.strip()) is not None
