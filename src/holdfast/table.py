"""The result table on disk: one Parquet part per finished piece of work, a manifest, and pictures for the gallery.

A part is written under another name, synced and renamed, so it is either whole or absent. Reading checks that no
attempted pair occurs twice. Everything a report needs is in the run directory.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.nn import functional as F

from holdfast.atomic import write_atomically
from holdfast.errors import UserError
from holdfast.types import STATUS, Exhibit, Scores

SCORES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation", "sample", "measure", "condition")]
    + [(name, pa.float64()) for name in ("level", "value", "low", "high")]
    + [("status", pa.string()), ("reason", pa.string())]
)
SAMPLES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "sample")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("predicted_name", pa.string())]
    + [("probability", pa.float64()), ("error", pa.string())]
)
EXHIBITS = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation", "condition")]
    + [("level", pa.float64()), ("sample", pa.string()), ("image", pa.binary())]
    + [("map", pa.binary()), ("height", pa.int32()), ("width", pa.int32()), ("note", pa.string())]
)
KEY = ["dataset", "model", "explainer", "evaluation", "sample", "measure", "condition", "level"]
THUMBNAIL = 128


@dataclass(frozen=True)
class Shown:
    """One picture of the gallery as read back: an 8-bit image (H, W, 3) and its map (H, W), summed over channels."""

    dataset: str
    model: str
    explainer: str
    condition: str
    level: float
    sample: str
    image: npt.NDArray[np.uint8]
    map: npt.NDArray[np.float32] | None
    evaluation: str = ""
    note: str = ""


def slug(name: str) -> str:
    """A file name that is readable, safe on every system, and different for different names.

    >>> slug("IG (steps=20)/x") == slug("IG (steps=20)-x")
    False
    """
    plain = re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")[:60] or "unnamed"
    plain = re.sub(r"^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", r"\1_", plain, flags=re.IGNORECASE)  # names of devices
    # Some systems do not tell A from a, and a name may look like the slug of another.
    alone = plain == name.lower() and not re.search(r"-[0-9a-f]{8}$", plain)
    return plain if alone else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def part_path(root: Path, dataset: str, model: str, evaluation: str, explainer: str, shard: int) -> Path:
    """Where the scores of one (dataset, model, evaluation, explainer, shard) are."""
    return root / "parts" / slug(dataset) / slug(model) / slug(evaluation) / slug(explainer) / f"{shard:05d}.parquet"


def samples_path(root: Path, dataset: str, model: str, shard: int) -> Path:
    """Where the clean predictions of one shard are."""
    return root / "samples" / slug(dataset) / slug(model) / f"{shard:05d}.parquet"


def exhibits_path(root: Path, dataset: str, model: str, evaluation: str, explainer: str, shard: int) -> Path:
    """Where the gallery's pictures of one piece of work are."""
    part = part_path(root, dataset, model, evaluation, explainer, shard)
    return root / "gallery" / part.relative_to(root / "parts")


def score_rows(dataset: str, model: str, evaluation: str, ids: Iterable[str], scores: Iterable[Scores]) -> pa.Table:
    """The rows of one part, in the order in which the scores came."""
    names = list(ids)
    blank = [None] * len(names)
    tables = []
    for s in scores:
        columns = {
            "dataset": [dataset] * len(names),
            "model": [model] * len(names),
            "explainer": [s.explainer] * len(names),
            "evaluation": [evaluation] * len(names),
            "sample": names,
            "measure": [s.measure] * len(names),
            "condition": [s.condition] * len(names),
            "level": [float(s.level)] * len(names),
            "value": s.value.double().tolist(),
            "low": blank if s.low is None else s.low.double().tolist(),
            "high": blank if s.high is None else s.high.double().tolist(),
            "status": [STATUS[code] for code in s.status.tolist()],
            "reason": list(s.reason),
        }
        tables.append(pa.Table.from_pydict(columns, schema=SCORES))
    return pa.concat_tables(tables) if tables else SCORES.empty_table()


def exhibit_rows(dataset: str, model: str, evaluation: str, exhibits: Iterable[Exhibit]) -> pa.Table:
    """The gallery's pictures as small JPEGs, with maps summed over channels in eight bits."""
    rows = []
    for e in exhibits:
        image = _shrink(e.image.detach().float().cpu())
        row: dict[str, Any] = {
            "dataset": dataset,
            "model": model,
            "explainer": e.explainer,
            "evaluation": evaluation,
            "condition": e.condition,
            "level": float(e.level),
            "sample": e.sample,
            "image": _jpeg(image),
            "map": None,
            "height": image.shape[-2],
            "width": image.shape[-1],
            "note": e.note,
        }
        if e.map is not None:
            total = _shrink(e.map.detach().float().cpu().sum(0, keepdim=True))[0]
            peak = float(total.abs().max()) or 1.0  # only the shape is shown, and 255 shades show it
            row["map"] = (total / peak * 127).round().to(torch.int8).numpy().tobytes()
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=EXHIBITS)


def write_part(path: Path, table: pa.Table) -> None:
    """Write a Parquet file that is either whole or absent, whatever happens."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue())


def read_scores(root: Path) -> pd.DataFrame:
    """Every row of a run, sorted by its key; a key that occurs twice is an error."""
    frame = _read(root / "parts", SCORES).sort_values(KEY, kind="stable", ignore_index=True)
    twice = frame.duplicated(KEY)
    if twice.any():
        row = frame[twice].iloc[0]
        raise UserError(f"{root} holds {int(twice.sum())} duplicate rows, the first is {dict(row[KEY])}")
    return frame


def read_samples(root: Path) -> pd.DataFrame:
    """One row per sample: label, prediction, probability, or why it could not be read."""
    frame = _read(root / "samples", SAMPLES).sort_values(["dataset", "model", "sample"], ignore_index=True)
    return frame.astype({"label": "Int64", "predicted": "Int64"})


def read_exhibits(root: Path) -> list[Shown]:
    """The pictures of the gallery."""
    shown = []
    for path in sorted((root / "gallery").glob("**/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            image = np.asarray(Image.open(io.BytesIO(row["image"])).convert("RGB"))
            size = (row["height"], row["width"])
            flat = None if row["map"] is None else np.frombuffer(row["map"], np.int8).reshape(size)
            place = (row["dataset"], row["model"], row["explainer"], row["condition"], row["level"], row["sample"])
            scaled = None if flat is None else (flat / 127).astype(np.float32)
            shown.append(Shown(*place, image, scaled, row["evaluation"], row.get("note") or ""))
    return shown


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a run directory."""
    path = root / "manifest.json"
    if not path.is_file():
        raise UserError(f"{root} is not a run directory: it has no manifest.json")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not the manifest of a holdfast run: {error}") from error
    if not isinstance(manifest, dict) or not {"holdfast", "study", "shard_size"} <= manifest.keys():
        raise UserError(f"{path} is not the manifest of a holdfast run")
    return _with_sessions(root, manifest)


def _with_sessions(root: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with what every process wrote in a file of its own: its session, and what it added to the study."""
    sessions = read_sessions(root)
    for session in sessions:
        manifest["study"] = joined(manifest["study"], session.pop("adds", {}))
        manifest |= {key: session[key] for key in ("command", "versions") if key in session}
    if sessions:
        manifest["sessions"] = [*manifest.get("sessions", []), *sessions]
    return manifest


def read_sessions(root: Path) -> list[dict[str, Any]]:
    """What the processes that worked in a run directory wrote, in the order in which they started."""
    sessions = []
    for path in sorted((root / "sessions").glob("[!.]*.json")):
        try:
            sessions.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise UserError(f"{path} is not a session of a holdfast run: {error}") from error
    return sessions


def joined(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with what another one names besides.

    >>> joined({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    found = dict(known)
    for name, value in more.items():
        if name not in found:
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(found[name], Mapping):
            found[name] = joined(found[name], value)
    return found


def write_manifest(root: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest atomically."""
    write_atomically(root / "manifest.json", as_json(manifest))


def as_json(content: Mapping[str, Any]) -> bytes:
    """Plain data as the manifest holds it."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Where two studies disagree, in words; names that only one of them has are not disagreements.

    >>> differences({"seed": 0, "a": {"k": 1}}, {"seed": 1, "a": {"k": 1}, "b": 2})
    ['seed: the run has 0, this study says 1']
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for name in old:
            if name in new:
                found += differences(old[name], new[name], f"{place}.{name}" if place else str(name))
        return found
    if _are_named(old) and _are_named(new):
        return _list_differences(old, new, place)
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    return [] if same else [f"{place}: the run has {_brief(old)}, this study says {_brief(new)}"]


def _are_named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) and "name" in v for v in value)


def _list_differences(old: list[Any], new: list[Any], place: str) -> list[str]:
    """The entries that only one of two lists of parameter objects has, such as perturbations."""
    before, after = ([json.dumps(v, sort_keys=True) for v in values] for values in (old, new))
    gone = [_call(v) for v, text in zip(old, before, strict=True) if text not in after]
    come = [_call(v) for v, text in zip(new, after, strict=True) if text not in before]
    if not gone and not come:
        return [] if before == after else [f"{place}: the same entries in another order or number"]
    parts = [f"the run has {', '.join(gone)}" if gone else "", f"this study adds {', '.join(come)}" if come else ""]
    if gone and come:
        parts[1] = f"this study says {', '.join(come)}"
    elif gone:
        parts[0] += ", this study does not"
    return [f"{place}: {', '.join(filter(None, parts))}"]


def _call(item: Mapping[str, Any]) -> str:
    """A parameter object as one would write it."""
    given = ", ".join(f"{key}={_brief(value)}" for key, value in item.items() if key != "name")
    return f"{item['name']}({given})"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(folder: Path, schema: pa.Schema) -> pd.DataFrame:
    paths = sorted(folder.glob("**/[!.]*.parquet"))
    tables = [pq.read_table(path, schema=schema) for path in paths]
    frame: pd.DataFrame = (pa.concat_tables(tables) if tables else schema.empty_table()).to_pandas()
    return frame


def _shrink(picture: torch.Tensor) -> torch.Tensor:
    """At most THUMBNAIL pixels on the longer side."""
    height, width = picture.shape[-2:]
    scale = THUMBNAIL / max(height, width)
    if scale >= 1:
        return picture
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return F.interpolate(picture[None], size, mode="bilinear", antialias=True, align_corners=False)[0]


def _jpeg(image: torch.Tensor) -> bytes:
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3])
    sink = io.BytesIO()
    picture.save(sink, "JPEG", quality=90)
    return sink.getvalue()
