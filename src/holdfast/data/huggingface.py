"""Data sets of Hugging Face: folders that `save_to_disk` wrote, which need no further package, and the hub by name.

`hf:` names either; a folder that is there comes first, as with models.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.data.choices import one_split
from holdfast.data.dataset import as_text, unpacked
from holdfast.errors import UserError

HUB = "hf:"
_NAME = re.compile(r"(?P<name>\w[\w.-]*(?:/\w[\w.-]*)?)(?::(?P<part>[\w.+-]+))?(?:@(?P<split>[\w.-]+))?")
_FIRST_WITHOUT_SCRIPTS = 4


def saved_files(folder: Path, split: str | None) -> tuple[str, list[Path]] | None:
    """Name and Arrow files of what `save_to_disk` wrote, in the order of its rows; None of another folder.

    A folder of several splits has `dataset_dict.json` and one such folder for each.
    """
    if (folder / "dataset_dict.json").is_file():
        names = _json(folder / "dataset_dict.json").get("splits")
        found = {name: folder / name for name in names or () if isinstance(name, str) and (folder / name).is_dir()}
        if not found:
            raise UserError(f"{str(folder)!r} has a dataset_dict.json, but no folder of the splits {names} beside it")
        chosen = one_split(str(folder), split, found)
        inner = saved_files(chosen, None)
        if inner is None:
            raise UserError(f"{str(chosen)!r} has no state.json, which save_to_disk writes beside the rows")
        return f"{folder.resolve().name}-{chosen.name}", inner[1]
    if not (folder / "state.json").is_file() or not any(folder.glob("*.arrow")):
        return None
    listed = _json(folder / "state.json").get("_data_files")
    if not isinstance(listed, list):
        raise UserError(f"{str(folder / 'state.json')!r} lists no _data_files, which save_to_disk writes there")
    names = [entry.get("filename") if isinstance(entry, Mapping) else None for entry in listed]
    wrong = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    missing = [name for name in names if not wrong and not (folder / str(name)).is_file()]
    if wrong or missing or not names:
        problem = (
            f"names {wrong[0]!r}, which is no file beside it" if wrong else f"lacks {missing[0]}" if missing else ""
        )
        raise UserError(f"{str(folder)!r}: state.json {problem or 'names no files'}")
    return folder.resolve().name, [folder / str(name) for name in names]


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(as_text(unpacked(path), str(path)))
    except json.JSONDecodeError as error:
        raise UserError(f"{str(path)!r} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise UserError(f"{str(path)!r} is {type(found).__name__}; an object was expected")
    return found


def local_copy(spec: str, folder: str | Path | None = None) -> tuple[Path, str | None] | None:
    """The folder, made absolute, and the split of `hf:path/to/folder` and `hf:path/to/folder@split`.

    None where there is no such folder. A relative path is relative to `folder` where given.

    >>> local_copy("hf:.@test") == (Path.cwd(), "test"), local_copy("hf:owner/name")
    (True, None)
    """
    rest = spec.removeprefix(HUB)
    name, _, split = rest.rpartition("@")
    for place, part in ((rest, None), (name, split)):
        path = Path(folder or Path.cwd()) / Path(place).expanduser()
        if place and path.is_dir():
            return path.resolve(), part
    return None


def check_hub_name(spec: str) -> str:
    """A name such as `hf:owner/name`, `hf:owner/name@split` or `hf:owner/name:configuration@split`, checked.

    >>> check_hub_name("hf:owner/a name")
    Traceback (most recent call last):
    holdfast.errors.UserError: the data 'hf:owner/a name' is not hf:owner/name, hf:owner/name@split or ...
    """
    if _NAME.fullmatch(spec.removeprefix(HUB)) is None:
        raise UserError(
            f"the data {spec!r} is not hf:owner/name, hf:owner/name@split or hf:owner/name:configuration@split, "
            "nor hf:folder or hf:folder@split with a folder that is there"
        )
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f'the data {spec!r} needs datasets: pip install "holdfast[datasets]"; without it, give the path of a '
            "folder that its save_to_disk wrote, or of Parquet files"
        )
    return spec


def split_of(spec: str, named: str | None, given: str | None) -> str | None:
    """The split that a name carries or that was given; two different ones are refused."""
    if given is not None and named not in (None, given):
        raise UserError(f"the data {spec!r} names the split {named!r}, but split={given!r} was given")
    return named or given


def hub_files(spec: str, split: str | None) -> tuple[str, list[Path]]:
    """Name and Arrow files of a data set of the hub, fetched into the cache of `datasets` where it is not there yet.

    The files are then read here, so that no code that comes with the data is ever run.
    """
    match = _NAME.fullmatch(check_hub_name(spec).removeprefix(HUB))
    assert match is not None
    name, part = match["name"], match["part"]
    wanted = split_of(spec, match["split"], split)
    datasets = importlib.import_module("datasets")
    if int(datasets.__version__.split(".")[0]) < _FIRST_WITHOUT_SCRIPTS:
        raise UserError(
            f"the data {spec!r} needs datasets {_FIRST_WITHOUT_SCRIPTS} or later, which runs no code from the hub; "
            f"{datasets.__version__} is installed"
        )
    try:
        if wanted is None:
            names = datasets.get_dataset_split_names(name, part)
            wanted = one_split(spec, None, {found: found for found in names})
        table = datasets.load_dataset(name, part, split=wanted)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        call = ", ".join(map(repr, (name, part) if part else (name,)))
        hint = (
            f"\n  without a network, run datasets.load_dataset({call}).save_to_disk('folder') where there is one, "
            f"copy the folder here and name it: hf:path/to/folder@{wanted or 'split'}"
        )
        raise UserError(f"cannot open {spec!r}: {error}{hint if isinstance(error, OSError) else ''}") from error
    files = [Path(entry["filename"]) for entry in table.cache_files]
    return f"{name.rpartition('/')[2]}-{wanted}", files
