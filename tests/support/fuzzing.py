"""Inputs that nobody would make by hand: study files, pictures, arrays, parts, manifests, zips, outputs of models.

Each `Subject` is a strategy of hypothesis and what is done with what it draws. The law is the same for all: it ends,
with a result or with a `UserError`; any other exception is a crash. Files of runs carry right digests, as a stranger's
would.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from hypothesis import strategies as st
from PIL import Image

import heatproof
from heatproof import Model, Saliency, Stability, UserError
from heatproof.data import open_data
from heatproof.runs import digests, storage
from heatproof.runs.study.file import read_study
from heatproof.runs.verify import verify
from support.faults import Stage, call
from support.small import pictures

WORDS = (
    "",
    "0",
    "saliency",
    "random",
    "stability",
    "jpeg",
    "\x1b[31m",
    "ß",
    "../x",
    "python:a.py:b",
    "inf",
    "a" * 300,
)
NUMBERS = (
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
)
PLAIN = st.sampled_from([None, True, False, *NUMBERS, *WORDS])
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Whatever YAML and JSON can say."""
STUDY = {
    "model": "bundled:efficientnet-lite0",
    "data": {"source": "pictures.npz", "size": 32},
    "explainers": [
        "saliency",
        {"lime": {"samples": 32}},
        {"smoothgrad": {"of": "saliency", "samples": 4}},
    ],
    "evaluations": [
        {"stability": {"perturbations": ["jpeg", {"rotation": {"degrees": 3}}], "k": 20}},
        {"faithfulness": {"removal": "blur"}},
    ],
    "seed": 0,
    "shard_size": 3,
    "references": 2,
    "batch_size": 4,
    "device": "cpu",
}


@dataclass(frozen=True)
class Subject:
    """What is drawn, and what is done with it."""

    name: str
    drawn: st.SearchStrategy[Any]
    act: Callable[[Any], None]


class Desk:
    """Where it happens: honest files, and a folder for each input in turn."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.whole, self.folder = self.stage.folder / "whole", folder / "fuzzed"
        np.savez(
            folder / "honest.npz",
            x=pictures(3)[0].numpy(),
            ids=np.array(["a", "b", "c"]),
            label=np.arange(3),
        )
        self.npz = (folder / "honest.npz").read_bytes()
        self.zip = (self.stage.folder / "whole.zip").read_bytes()
        self.manifest = digests.read_json(self.whole / "manifest.json")
        self.parts = sorted(self.whole.glob("*/**/*.parquet"))
        self.pictures = {
            ending: _picture(ending) for ending in ("png", "jpg", "gif", "bmp", "webp", "tif")
        }

    def emptied(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        return self.folder

    def copied(self) -> Path:
        """A run, whose files may be replaced but not written into."""
        return shutil.copytree(self.whole, self.emptied() / "run")

    def subjects(self) -> list[Subject]:
        return [
            Subject("study", changed(STUDY), self.study),
            Subject("study text", damaged(yaml.safe_dump(STUDY).encode()), self.study_text),
            Subject(
                "picture",
                st.sampled_from(sorted(self.pictures)).flatmap(self._damaged_picture),
                self.picture,
            ),
            Subject("npz", arrays(), self.arrays),
            Subject("npz bytes", damaged(self.npz), self.array_bytes),
            Subject("part", st.tuples(st.integers(0, len(self.parts) - 1), st.data()), self.part),
            Subject(
                "part bytes",
                st.integers(0, len(self.parts) - 1).flatmap(self._damaged_part),
                self.part_bytes,
            ),
            Subject("manifest", changed(self.manifest), self.run_manifest),
            Subject("zip", members(), self.zipped),
            Subject("zip bytes", damaged(self.zip), self.zip_bytes),
            Subject("model", outputs(), self.model),
        ]

    def _damaged_picture(self, ending: str) -> st.SearchStrategy[tuple[str, bytes]]:
        return st.tuples(st.just(ending), damaged(self.pictures[ending]))

    def _damaged_part(self, number: int) -> st.SearchStrategy[tuple[int, bytes]]:
        return st.tuples(st.just(number), damaged(self.parts[number].read_bytes()))

    # --- what is done with them ---------------------------------------------------------------------------------

    def study(self, content: Any) -> None:
        self.study_text(yaml.safe_dump(content, allow_unicode=True).encode())

    def study_text(self, content: bytes) -> None:
        path = self.emptied() / "study.yaml"
        path.write_bytes(content)
        (self.folder / "pictures.npz").write_bytes(self.npz)
        read_study(path)

    def picture(self, drawn: tuple[str, bytes]) -> None:
        ending, content = drawn
        folder = self.emptied()
        (folder / f"bad.{ending}").write_bytes(content)
        (folder / "good.png").write_bytes(self.pictures["png"])
        load_all(open_data(folder, size=16))

    def arrays(self, given: dict[str, np.ndarray]) -> None:
        path = self.emptied() / "x.npz"
        np.savez(path, **given)
        load_all(open_data(path))

    def array_bytes(self, content: bytes) -> None:
        path = self.emptied() / "x.npz"
        path.write_bytes(content)
        load_all(open_data(path))

    def part(self, drawn: tuple[int, Any]) -> None:
        number, data = drawn
        source = self.parts[number]
        rows = pq.ParquetFile(source).read()
        name = data.draw(st.sampled_from([*rows.column_names, "new"]))
        column = data.draw(st.sampled_from(COLUMNS))(len(rows))
        kept = rows.drop_columns([name]) if name in rows.column_names else rows
        rows = kept if column is None else kept.append_column(name, column)
        sink = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(pq.read_metadata(source).metadata), sink)
        self.part_bytes((number, sink.getvalue()))

    def part_bytes(self, drawn: tuple[int, bytes]) -> None:
        number, content = drawn
        root = self.copied()
        target = root / self.parts[number].relative_to(self.whole)
        target.unlink()
        digests.named(target, content).write_bytes(content)
        use(root)

    def run_manifest(self, content: Any) -> None:
        root = self.copied()
        content = content if isinstance(content, dict) else {"study": content}
        (root / "manifest.json").write_bytes(digests.sealed(json.loads(json.dumps(content))))
        use(root)

    def zipped(self, changes: list[tuple[str, str, bytes]]) -> None:
        path = self.emptied() / "run.zip"
        with zipfile.ZipFile(io.BytesIO(self.zip)) as archive:
            held = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            names = sorted(held)
            for what, name, content in changes:
                if what == "add":
                    archive.writestr(zipfile.ZipInfo(name.replace("\0", "")), content)
                elif names:
                    held.pop(names.pop(len(content) % len(names)))
            for name in names:
                archive.writestr(name, held[name])
        use(path)

    def zip_bytes(self, content: bytes) -> None:
        path = self.emptied() / "run.zip"
        path.write_bytes(content)
        use(path)

    def model(self, output: Callable[[torch.Tensor], Any]) -> None:
        x, out = pictures(3)[0], self.emptied() / "run"
        net = _Says(output)
        done = heatproof.evaluate(
            Model(net, name="odd"), x, {"saliency": Saliency()}, {"s": Stability(perturbations="jpeg", k=5)}, out,
            references=2, device="cpu",
        )  # fmt: skip
        scores = done.table()
        assert set(scores["sample"]) == set(done.samples()["sample"]) and len(done.samples()) == 3
        assert np.isfinite(scores.loc[scores["status"] == "ok", "value"]).all()


def use(where: Path) -> None:
    """Everything that reads a run of a stranger; what is wrong with it is said, and never as a traceback."""
    storage.forget_listings()
    found: list[UserError] = []
    for read in (
        verify,
        lambda path: heatproof.read(path).table(),
        lambda path: heatproof.read(path).samples(),
    ):
        try:
            read(where)
        except UserError as error:
            found.append(error)
    code, said = call("report", str(where), "--text")
    if code == -1:
        raise AssertionError(said.splitlines()[-1])
    if found:
        raise found[0]


def load_all(data: Any) -> None:
    """Every sample of a data set: read, or told with a reason."""
    loaded = data.load(range(len(data)))
    assert len(loaded.batch.ids) + len(loaded.errors) == len(data)


def _picture(ending: str) -> bytes:
    sink = io.BytesIO()
    pixels = (pictures(1)[0][0].permute(1, 2, 0) * 255).byte().numpy()
    Image.fromarray(pixels).save(sink, {"jpg": "jpeg", "tif": "tiff"}.get(ending, ending))
    return sink.getvalue()


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """Bytes with some of them changed, left out, doubled or put in."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, max(0, len(content) - 1)))
        end = min(len(content), begin + draw(st.sampled_from([0, 1, 2, 8, 64, len(content)])))
        new = draw(
            st.sampled_from([b"", b"\x00", b"\xff" * 4, content[begin:end] * 2])
            | st.binary(max_size=8)
        )
        content = content[:begin] + new + content[end:]
    return content


@st.composite
def changed(draw: Any, content: Any) -> Any:
    """Plain data with one or two values, anywhere in it, replaced, dropped or wrapped."""
    content = json.loads(json.dumps(content))
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(content))
        if not places:
            return content
        within, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["replace", "replace", "drop", "wrap", "rename"]))
        if how == "replace":
            within[key] = draw(ANYTHING)
        elif how == "wrap":
            within[key] = draw(st.sampled_from([[within[key]], {"x": within[key]}]))
        elif how == "rename" and isinstance(within, dict):
            within[draw(st.sampled_from(WORDS))] = within.pop(key)
        else:
            del within[key]
    return content


def _places(content: Any) -> Any:
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in list(items):
        yield content, key
        yield from _places(value)


DTYPES = (
    "float32",
    "float64",
    "float16",
    "int8",
    "uint8",
    "int64",
    "bool",
    "complex64",
    "U3",
    "S2",
    "datetime64[s]",
)


@st.composite
def arrays(draw: Any) -> dict[str, np.ndarray]:
    """Archives of arrays under the usual names, of any kind and shape."""
    found = {}
    for name in draw(
        st.lists(
            st.sampled_from(["x", "ids", "label", "labels", "y", "mask", "other"]), unique=True
        )
    ):
        shape = tuple(draw(st.lists(st.sampled_from([0, 1, 3, 4, 16]), max_size=5)))
        kind = draw(st.sampled_from(DTYPES))
        values = np.zeros(shape) + draw(
            st.sampled_from([0.0, 1.0, -1.0, 300.0, float("nan"), float("inf")])
        )
        with np.errstate(all="ignore"):
            found[name] = (
                np.nan_to_num(values).astype(kind)
                if kind in ("datetime64[s]",)
                else values.astype(kind)
            )
    return found


COLUMNS: tuple[Callable[[int], pa.Array | None], ...] = (
    lambda n: None,
    pa.nulls,
    lambda n: pa.array(["x"] * n),
    lambda n: pa.array(["\x1b[31m"] * n).dictionary_encode(),
    lambda n: pa.array([b"\xff\xfe"] * n),
    lambda n: pa.array([2**63 - 1] * n),
    lambda n: pa.array([-1] * n, pa.int8()),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([float("inf")] * n, pa.float32()),
    lambda n: pa.array([True] * n),
    lambda n: pa.array([[1, 2]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array([0] * n, pa.timestamp("s")),
)


def members() -> st.SearchStrategy[list[tuple[str, str, bytes]]]:
    """What is added to a zip and left out of it."""
    names = [
        "manifest.json",
        "parts/../../x",
        "/etc/x",
        "a/manifest.json",
        "parts/x.parquet",
        "report.html",
    ]
    names += [
        "sessions/1.json",
        "parts/a/b/c/d/00000.0123456789abcdef.parquet",
        "\u202e.json",
        "a" * 250 + "/x",
    ]
    names += ["samples/.hidden.parquet", "gallery/x", "batch_sizes/x.json"]
    change = st.tuples(
        st.sampled_from(["add", "drop"]), st.sampled_from(names), st.binary(max_size=40)
    )
    return st.lists(change, min_size=1, max_size=3)


class _Says(torch.nn.Module):
    """A network whose output is changed on its way out."""

    def __init__(self, output: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.head = torch.nn.Linear(3072, 4)
        self.output = output

    def forward(self, x: torch.Tensor) -> Any:
        scores = self.head(x.flatten(1))
        try:
            return self.output(scores)
        except Exception as error:  # of one change after another, which is the network's own affair
            raise UserError("the network's own") from error


def _leave() -> Any:
    raise SystemExit(0)


OUTPUTS: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda y: y * float("nan"),
    lambda y: y / 0,
    lambda y: y * 0,
    lambda y: y.detach(),
    lambda y: y.round().long(),
    lambda y: y > 0,
    lambda y: y.to(torch.float16),
    lambda y: y.double(),
    lambda y: y[:, :1],
    lambda y: y[:, :0],
    lambda y: y[:1],
    lambda y: y[:0],
    lambda y: y.sum(),
    lambda y: y[:, 0],
    lambda y: y[..., None],
    lambda y: y[:, :, None, None].expand(-1, -1, 3, 3),
    lambda y: torch.cat([y, y]),
    lambda y: y.to(torch.complex64),
    lambda y: y.to_sparse(),
    lambda y: (y, y),
    lambda y: {"logits": y},
    lambda y: {},
    lambda y: [],
    lambda y: None,
    lambda y: "cat",
    lambda y: y.detach().numpy(),
    lambda y: y + torch.tensor([0, float("inf"), 0, 0]),
    lambda y: torch.where(torch.arange(len(y))[:, None] == 0, float("nan"), y),
    lambda y: _leave(),
    lambda y: y * 1e38 * 1e38,
    lambda y: y * 1e-45,
)


def outputs() -> st.SearchStrategy[Callable[[torch.Tensor], Any]]:
    """One change to what a network says, or two of them."""
    one = st.sampled_from(OUTPUTS)
    return one | st.tuples(one, one).map(lambda pair: lambda y: pair[1](pair[0](y)))
