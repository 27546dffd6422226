"""What a tokenizer of transformers made of texts, as `tokenizer(texts)` gives it, and texts that still need one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heatproof.data.arrays import open_arrays
from heatproof.data.dataset import Data, how_to
from heatproof.data.tables import TEXTS
from heatproof.errors import UserError

IDS = "input_ids"
_NOT_INPUTS = {IDS, "labels", "label", "special_tokens_mask", "offset_mapping", "length", "idx"}
"""What stands beside the token ids and is no input of a network."""


class SeenTokens:
    """What the output of a tokenizer says of it: which ids are special, and the words of ids.

    It has the attributes of a tokenizer of transformers by which texts are grouped into tokens and shown.
    """

    mask_token_id = None

    def __init__(self, words: Mapping[int, str], special: Sequence[int]) -> None:
        self.words = dict(words)
        self.all_special_ids = list(special)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the word of each id, or the id itself where it was not seen."""
        return [self.words.get(int(token), str(int(token))) for token in ids]


def is_encoding(source: Any) -> bool:
    """Whether something is the output of a tokenizer, a mapping with `input_ids`.

    >>> is_encoding({"input_ids": [[1, 2]], "attention_mask": [[1, 1]]}), is_encoding({"a": 1})
    (True, False)
    """
    return isinstance(source, Mapping) and IDS in source


def open_encoding(source: Mapping[str, Any], name: str = "texts") -> Data:
    """Open the output of a tokenizer as a data set: token ids (N, L), or lists of them, by the name `input_ids`.

    An `attention_mask` and further inputs of the network are taken over by name. Lists of different lengths are padded
    with 0 at the end, where the attention mask is 0.

    >>> data = open_encoding({"input_ids": [[1, 7, 2], [1, 2]]})
    >>> data.load([1]).batch.x.tolist(), data.load([1]).batch.aux["attention_mask"].tolist()
    ([[1, 2, 0]], [[1, 1, 0]])
    """
    ids = _padded(source[IDS], IDS)
    if "attention_mask" in source:
        mask = _padded(source["attention_mask"], "attention_mask")
    else:
        lengths = torch.tensor([len(row) for row in source[IDS]])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    aux = {"attention_mask": mask}
    for key, values in source.items():
        if key not in _NOT_INPUTS and key not in aux:
            aux[str(key)] = _padded(values, str(key))
    labels = source.get("labels", source.get("label"))
    data = open_arrays(name, ids, how_to("auto", "squash"), labels=labels, aux=aux)
    return replace(data, tokenizer=_seen_tokens(source))


def _padded(values: Any, name: str) -> Tensor:
    """Return a tensor (N, L) of ids or masks, from one or from lists."""
    try:
        if isinstance(values, Tensor):
            return values.detach().cpu().long()
        rows = [torch.as_tensor(row, dtype=torch.int64) for row in values]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{name} must be whole numbers (texts, tokens), as tokenizer(texts, padding=True) gives them: {error}"
        ) from error


def _seen_tokens(source: Any) -> SeenTokens | None:
    """Return the words and special ids that a fast tokenizer records in its output; None where it has none."""
    words: dict[int, str] = {}
    special: dict[int, None] = {}
    for encoding in getattr(source, "encodings", None) or ():
        words |= dict(zip(encoding.ids, encoding.tokens, strict=True))
        for token, is_special in zip(encoding.ids, encoding.special_tokens_mask, strict=True):
            if is_special:
                special[token] = None
    return SeenTokens(words, list(special)) if words else None


def holds_texts(source: Any) -> bool:
    """Whether something is texts that need a tokenizer: a list, a pair of texts and labels, or rows with a text.

    >>> holds_texts(["a film", "a bad film"]), holds_texts((["a film"], [1])), holds_texts([1, 2])
    (True, True, False)
    """
    if isinstance(source, tuple) and len(source) == 2:
        return isinstance(source[0], list) and holds_texts(source[0])
    if isinstance(source, list):
        return bool(source) and all(isinstance(text, str) for text in source)
    row = _first_row(source)
    return (
        row is not None and IDS not in row and any(isinstance(row.get(key), str) for key in TEXTS)
    )


def encoding_of_rows(source: Any) -> dict[str, list[Any]] | None:
    """Return the columns of a Dataset whose rows are mappings with token ids; None of any other."""
    row = _first_row(source)
    if row is None or IDS not in row:
        return None
    rows = [source[i] for i in range(len(source))]
    numeric = [key for key, value in row.items() if not isinstance(value, str)]
    return {key: [item[key] for item in rows] for key in numeric}


def class_names_of(source: Any) -> tuple[str, ...] | None:
    """Return the names of the labels of a `datasets.Dataset`; None where it has none."""
    features = getattr(source, "features", None)
    if not isinstance(features, Mapping):
        return None
    for key in ("label", "labels"):
        names = getattr(features.get(key), "names", None)
        if names:
            return tuple(map(str, names))
    return None


def _first_row(source: Any) -> Mapping[str, Any] | None:
    """Return the first row of a map-style Dataset whose rows are mappings; None for anything else."""
    if isinstance(source, Mapping | str | list | tuple | Tensor):
        return None
    is_dataset = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not is_dataset or not len(source):
        return None
    try:
        row = source[0]
    except (KeyError, TypeError, ValueError, OSError):
        return None
    return row if isinstance(row, Mapping) else None
