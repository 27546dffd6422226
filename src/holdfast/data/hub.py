"""Names on the Hugging Face hub or folders with a copy, and the tokenisers there."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.data.files import beside, existing
from holdfast.errors import UserError

PREFIX = "hf:"
LONGEST = 1_000_000
"""Tokenisers that know no longest text say a number above this."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
Found = TypeVar("Found")


def hub_name(rest: str, folder: str | Path | None = None) -> str:
    """`owner/name`, `owner/name@revision`, or the absolute path of a folder that holds a copy of a model.

    >>> hub_name("google/vit-base-patch16-224")
    'google/vit-base-patch16-224'
    >>> hub_name("../no/such/copy")
    Traceback (most recent call last):
    holdfast.errors.UserError: there is no file or folder ...
    """
    path, at, revision = rest.partition("@")
    if beside(path, folder).is_dir():
        return f"{beside(path, folder).resolve()}{at}{revision}"
    if not _HUB_NAME.fullmatch(rest) or ".." in rest:
        existing(beside(path, folder))
        raise UserError(f"{rest!r} is neither owner/name on the Hugging Face hub nor a folder with a copy of a model")
    return rest


def name_and_revision(rest: str) -> tuple[str, str]:
    """The name and what follows `@`, `main` where nothing does.

    >>> name_and_revision("owner/name"), name_and_revision("owner/name@v2")
    (('owner/name', 'main'), ('owner/name', 'v2'))
    """
    name, _, revision = rest.rpartition("@") if "@" in rest else (rest, "", "")
    return name, revision or "main"


def fetched(name: str, files: str, read: Callable[[], Found]) -> Found:
    """What `read` gives; if it fails, an error that says which files to put where."""
    try:
        return read()
    except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{name} brings Python code of its own, which a name never runs; "
                "make the model in a function and name that: python:file.py:make"
            ) from error
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"cannot load {name!r}: {first}\n"
            f"  without a network, put {files} of it into a folder and name that: hf:path/to/folder"
        ) from error


@dataclass(frozen=True)
class TextTokeniser:
    """Token ids of a text with the special tokens of a model, cut so that the closing one stays."""

    tokenizer: Any
    longest: int | None

    def __call__(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self.tokenizer(text, truncation=self.longest is not None, max_length=self.longest)["input_ids"]
        return ids


def tokeniser(spec: str, length: int | None = None) -> TextTokeniser:
    """The tokeniser of a model, for `open_data(..., vocabulary="hf:owner/name")`; texts are cut to `length` tokens.

    >>> tokeniser("hf:../no/such/folder")
    Traceback (most recent call last):
    holdfast.errors.UserError: ...
    """
    check_transformers(spec)
    name, revision = name_and_revision(hub_name(spec.removeprefix(PREFIX)))
    from transformers import AutoTokenizer

    found = fetched(
        name,
        "tokenizer.json and tokenizer_config.json",
        lambda: AutoTokenizer.from_pretrained(
            name, revision="main" if revision == "none" else revision, trust_remote_code=False
        ),
    )
    longest = length or (found.model_max_length if found.model_max_length < LONGEST else None)
    return TextTokeniser(found, longest)


def check_transformers(spec: str) -> None:
    """Refuse a name that needs transformers where it is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f'{spec!r} needs transformers: pip install "holdfast[transformers]"')
