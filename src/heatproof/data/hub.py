"""The Hugging Face hub: names there or folders with a copy, tokenisers, and data sets.

A folder that is there comes first. Folders that `save_to_disk` wrote need no further package.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from heatproof.data.choices import one_split
from heatproof.data.files import beside, existing
from heatproof.data.text import as_object, as_text, unpacked
from heatproof.errors import UserError

PREFIX = "hf:"
LONGEST = 1_000_000
"""Tokenisers that know no longest text say a number above this."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_NAME = re.compile(
    r"(?P<name>\w[\w.-]*(?:/\w[\w.-]*)?)(?::(?P<part>[\w.+-]+))?(?:@(?P<split>[\w.-]+))?"
)
_FIRST_WITHOUT_SCRIPTS = 4
"""The first version of `datasets` that runs no code from the hub."""
Value = TypeVar("Value")


def hub_name(rest: str, folder: str | Path | None = None) -> str:
    """Return the name of a model on the Hugging Face hub, checked, or the absolute path of a folder with a copy of one.

    `rest` is what follows `hf:`, such as `owner/name` or `owner/name@revision`; a relative path is relative to `folder`.

    >>> hub_name("google/vit-base-patch16-224")
    'google/vit-base-patch16-224'
    >>> hub_name("../no/such/copy")
    Traceback (most recent call last):
    heatproof.errors.UserError: there is no file or folder ...
    """
    path, at, revision = rest.partition("@")
    if beside(path, folder).is_dir():
        return f"{beside(path, folder).resolve()}{at}{revision}"
    if not _HUB_NAME.fullmatch(rest) or ".." in rest:
        existing(beside(path, folder))
        raise UserError(
            f"{rest!r} is neither owner/name on the Hugging Face hub nor a folder with a copy of a model"
        )
    return rest


def name_and_revision(rest: str) -> tuple[str, str]:
    """Return the name and the revision, which follows `@`; `main` where none is given.

    >>> name_and_revision("owner/name"), name_and_revision("owner/name@v2")
    (('owner/name', 'main'), ('owner/name', 'v2'))
    """
    name, _, revision = rest.rpartition("@") if "@" in rest else (rest, "", "")
    return name, revision or "main"


def fetched(name: str, files: str, read: Callable[[], Value]) -> Value:
    """Return the result of `read`, which loads `name` from the hub.

    If it fails, the error says which `files` to put into a local folder instead. A model that brings Python code is
    refused.
    """
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


def tokeniser(spec: str, length: int | None = None) -> Callable[[str], list[int]]:
    """Return the function from a text to token ids for `vocabulary="hf:owner/name"`; texts are cut to `length` tokens."""
    tokenizer = tokenizer_of(spec)
    longest = length
    if longest is None and tokenizer.model_max_length < LONGEST:
        longest = tokenizer.model_max_length
    return partial(tokenizer.encode, truncation=longest is not None, max_length=longest)


def tokenizer_of(spec: str) -> Any:
    """Return the tokenizer of the model `hf:owner/name` or of a local folder.

    >>> tokenizer_of("hf:../no/such/folder")
    Traceback (most recent call last):
    heatproof.errors.UserError: ...
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f'{spec!r} needs transformers: pip install "heatproof[transformers]"')
    name, revision = name_and_revision(hub_name(spec.removeprefix(PREFIX)))
    from transformers import AutoTokenizer

    at = {"revision": "main" if revision == "none" else revision, "trust_remote_code": False}
    return fetched(
        name,
        "tokenizer.json and tokenizer_config.json",
        lambda: AutoTokenizer.from_pretrained(name, **at),
    )


def saved_files(folder: Path, split: str | None) -> tuple[str, list[Path]] | None:
    """Return the name and the Arrow files of a data set that `save_to_disk` of `datasets` wrote; None for other folders.

    Files are in the order of their rows. A folder of several splits has `dataset_dict.json` and a folder for each.
    """
    if (folder / "dataset_dict.json").is_file():
        chosen = _saved_split(folder, split)
        files_of_split = saved_files(chosen, None)
        if files_of_split is None:
            raise UserError(
                f"{str(chosen)!r} has no state.json, which save_to_disk writes beside the rows"
            )
        return f"{folder.resolve().name}-{chosen.name}", files_of_split[1]
    if not (folder / "state.json").is_file() or not any(folder.glob("*.arrow")):
        return None
    return folder.resolve().name, _listed_files(folder)


def _described(path: Path) -> Mapping[str, Any]:
    return as_object(as_text(unpacked(path), str(path)), str(path))


def local_copy(spec: str, folder: str | Path | None = None) -> tuple[Path, str | None] | None:
    """Return the folder, made absolute, and the split of `hf:path/to/folder` and `hf:path/to/folder@split`.

    None where there is no such folder. A relative path is relative to `folder` where given.

    >>> local_copy("hf:.@test") == (Path.cwd(), "test"), local_copy("hf:owner/name")
    (True, None)
    """
    rest = spec.removeprefix(PREFIX)
    before_at, _, after_at = rest.rpartition("@")
    for name, split in ((rest, None), (before_at, after_at)):
        path = beside(name, folder)
        if name and path.is_dir():
            return path.resolve(), split
    return None


def check_hub_name(spec: str) -> str:
    """Return the name of a data set on the hub unchanged, after checking its form and that `datasets` is installed.

    Names are `hf:owner/name`, `hf:owner/name@split` or `hf:owner/name:configuration@split`.

    >>> check_hub_name("hf:owner/a name")
    Traceback (most recent call last):
    heatproof.errors.UserError: the data 'hf:owner/a name' is not hf:owner/name, hf:owner/name@split or ...
    """
    if _NAME.fullmatch(spec.removeprefix(PREFIX)) is None:
        raise UserError(
            f"the data {spec!r} is not hf:owner/name, hf:owner/name@split or hf:owner/name:configuration@split, "
            "nor hf:folder or hf:folder@split with a folder that is there"
        )
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f'the data {spec!r} needs datasets: pip install "heatproof[datasets]"; without it, give the path of a '
            "folder that its save_to_disk wrote, or of Parquet files"
        )
    return spec


def split_of(spec: str, named: str | None, split: str | None) -> str | None:
    """Return the split that a name carries or that was given beside it; refuse two different ones."""
    if split is not None and named not in (None, split):
        raise UserError(
            f"the data {spec!r} names the split {named!r}, but split={split!r} was given"
        )
    return named or split


def hub_files(spec: str, split: str | None) -> tuple[str, list[Path]]:
    """Return name and Arrow files of a data set of the hub, fetched into the cache of `datasets` if need be.

    The files are then read here, so that no code that comes with the data is ever run.
    """
    match = _NAME.fullmatch(check_hub_name(spec).removeprefix(PREFIX))
    assert match is not None
    name, configuration = match["name"], match["part"]
    chosen = split_of(spec, match["split"], split)
    datasets = importlib.import_module("datasets")
    if int(datasets.__version__.split(".")[0]) < _FIRST_WITHOUT_SCRIPTS:
        raise UserError(
            f"the data {spec!r} needs datasets {_FIRST_WITHOUT_SCRIPTS} or later, which runs no code from the hub; "
            f"{datasets.__version__} is installed"
        )
    try:
        if chosen is None:
            names = datasets.get_dataset_split_names(name, configuration)
            chosen = one_split(spec, None, {split_name: split_name for split_name in names})
        table = datasets.load_dataset(name, configuration, split=chosen)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        hint = ""
        if isinstance(error, OSError):
            arguments = ", ".join(map(repr, (name, configuration) if configuration else (name,)))
            hint = (
                f"\n  without a network, run datasets.load_dataset({arguments}).save_to_disk('folder') where there "
                f"is one, copy the folder here and name it: hf:path/to/folder@{chosen or 'split'}"
            )
        raise UserError(f"cannot open {spec!r}: {error}{hint}") from error
    files = [Path(entry["filename"]) for entry in table.cache_files]
    return f"{name.rpartition('/')[2]}-{chosen}", files


def _saved_split(folder: Path, split: str | None) -> Path:
    """Return the folder of one split of those that `dataset_dict.json` lists."""
    listed = _described(folder / "dataset_dict.json").get("splits")
    folders = {}
    for name in listed or ():
        if isinstance(name, str) and (folder / name).is_dir():
            folders[name] = folder / name
    if not folders:
        raise UserError(
            f"{str(folder)!r} has a dataset_dict.json, but no folder of the splits {listed} beside it"
        )
    return one_split(str(folder), split, folders)


def _listed_files(folder: Path) -> list[Path]:
    """Return the files that `state.json` lists; refuse one that is missing, or lies elsewhere."""
    listed = _described(folder / "state.json").get("_data_files")
    if not isinstance(listed, list):
        raise UserError(
            f"{str(folder / 'state.json')!r} lists no _data_files, which save_to_disk writes there"
        )
    if not listed:
        raise UserError(f"{str(folder)!r}: state.json names no files")
    files = []
    for entry in listed:
        name = entry.get("filename") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{str(folder)!r}: state.json names {name!r}, no file beside it")
        if not (folder / name).is_file():
            raise UserError(f"{str(folder)!r}: state.json lacks {name}")
        files.append(folder / name)
    return files
