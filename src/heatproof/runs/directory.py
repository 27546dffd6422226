"""A run directory: where its parts are, and how they are written and read.

A part is one Parquet file. It is written under another name, synced and renamed, so it is either whole or absent, and its
final name carries the digest of its bytes. Its footer carries the digest of the study that its rows depend on. Reading
checks both. Everything a report needs is in the run directory, or at the run's address in a store.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import TracebackType
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from heatproof.errors import Damaged, Foreign
from heatproof.runs import columns, digests, storage
from heatproof.runs.atomic import write_atomically
from heatproof.runs.manifest import Manifest, read_manifest
from heatproof.runs.storage import Place, place, within

Kind = Literal["scores", "references", "samples", "gallery", "maps"]


class Job(NamedTuple):
    """What one process does at a time: a shard of a data set on a model."""

    dataset: str
    model: str
    shard: int

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.dataset} on {self.model}"


FOLDERS: dict[Kind, str] = {
    "scores": "parts",
    "references": "references",
    "samples": "samples",
    "gallery": "gallery",
    "maps": "maps",
}
"""The folder of each kind of part."""
LARGEST, LARGEST_GROWTH = 2**28, 200
"""A part that takes more bytes to read than this, plus so many for each of its own, is a decompression bomb."""
WAITING = 4
"""Parts that may wait to be written: methods of one pass make them faster than a disk takes them."""


@lru_cache(maxsize=4096)
def slug(name: str) -> str:
    """Return a file name that is readable, safe on every system, and different for different names.

    >>> slug("IG (steps=20)/x") == slug("IG (steps=20)-x")
    False
    """
    plain = re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")[:60] or "unnamed"
    # Windows keeps these names for devices.
    plain = re.sub(r"^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", r"\1_", plain, flags=re.IGNORECASE)
    # Some systems do not tell A from a, and a name may look like the slug of another.
    is_unique = plain == name.lower() and not re.search(r"-[0-9a-f]{8}$", plain)
    return plain if is_unique else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class PartKey:
    """What one file of a run holds.

    >>> key = PartKey.scores(Job("photos", "mobilenet", 3), "stability", "lime")
    >>> str(key), key.folder
    ('shard 3 of photos on mobilenet: stability of lime', 'parts/photos/mobilenet/stability/lime')
    """

    kind: Kind
    dataset: str
    model: str
    evaluation: str = ""
    explainer: str = ""
    shard: int = 0

    @classmethod
    def scores(cls, job: Job, evaluation: str, explainer: str) -> PartKey:
        """The scores of an explainer in an evaluation."""
        dataset, model, shard = job
        return cls("scores", dataset, model, evaluation, explainer, shard)

    @classmethod
    def references(cls, job: Job, evaluation: str, explainer: str) -> PartKey:
        """What each reference sample adds to the chance level of these scores."""
        dataset, model, shard = job
        return cls("references", dataset, model, evaluation, explainer, shard)

    @classmethod
    def gallery(cls, job: Job, evaluation: str, explainer: str) -> PartKey:
        """The images of an evaluation that the report shows."""
        dataset, model, shard = job
        return cls("gallery", dataset, model, evaluation, explainer, shard)

    @classmethod
    def samples(cls, job: Job) -> PartKey:
        """The samples of a shard with the model's predictions."""
        dataset, model, shard = job
        return cls("samples", dataset, model, shard=shard)

    @classmethod
    def maps(cls, job: Job, explainer: str) -> PartKey:
        """The kept maps of an explainer."""
        dataset, model, shard = job
        return cls("maps", dataset, model, explainer=explainer, shard=shard)

    @property
    def folder(self) -> str:
        """The folder within the run, with slashes."""
        names = [self.dataset, self.model]
        if self.kind in ("scores", "references", "gallery"):
            names.append(self.evaluation)
        if self.kind != "samples":
            names.append(self.explainer)
        return "/".join([FOLDERS[self.kind], *map(slug, names)])

    def path(self, root: Place) -> Place:
        """Return where the part is in a run; the name of the file on disk also has the digest of its content."""
        return root / f"{self.folder}/{self.shard:05d}.parquet"

    def study_key(self, manifest: Manifest) -> str:
        """Return what the footer of the part must say."""
        return manifest.study_key(self.dataset, self.model, self.evaluation, self.explainer)

    @property
    def step(self) -> str:
        """What the part holds, whatever the shard: "stability of lime"; a step of the progress bar."""
        if self.kind == "samples":
            return "its samples"
        content = {"scores": self.evaluation, "maps": "maps"}.get(self.kind)
        if content is None:
            content = f"{self.kind} of {self.evaluation}"
        return f"{content} of {self.explainer}"

    def __str__(self) -> str:
        return f"{Job(self.dataset, self.model, self.shard)}: {self.step}"


def expected_parts(
    job: Job,
    explainers_of_evaluation: Mapping[str, Iterable[str]],
    explainers_with_maps: Iterable[str],
) -> list[PartKey]:
    """Return the parts that a finished job has: its samples, its scores and its kept maps.

    It may also have a gallery, and references where chance is taken from them.
    """
    expected = [PartKey.samples(job)]
    for evaluation, explainers in explainers_of_evaluation.items():
        for explainer in explainers:
            expected.append(PartKey.scores(job, evaluation, explainer))
    expected += [PartKey.maps(job, explainer) for explainer in explainers_with_maps]
    return expected


class RunDirectory:
    """A run on disk or in a store: its manifest and its parts."""

    def __init__(self, root: str | Place) -> None:
        self.root = place(root)
        self._manifest: Manifest | None = None
        self._keys_by_folder: dict[str, PartKey] = {}
        self._study_keys: dict[str, str] = {}

    def __str__(self) -> str:
        return str(self.root)

    @property
    def manifest(self) -> Manifest:
        """The manifest as it was when it was first asked for; `reread` it for what other processes added since."""
        return self.reread() if self._manifest is None else self._manifest

    def reread(self) -> Manifest:
        """Read the manifest again."""
        self._manifest = read_manifest(self.root)
        self._keys_by_folder = {key.folder: key for key in _first_parts(self._manifest)}
        return self._manifest

    def has_manifest(self) -> bool:
        """Return whether a run was begun here."""
        return self._manifest is not None or (self.root / "manifest.json").is_file()

    # ---- parts by key ----------------------------------------------------------------------------------------------

    def has(self, key: PartKey) -> bool:
        """Return whether a part is there, as of at most `storage.FRESH` seconds ago."""
        return storage.present(key.path(self.root))

    def existing_files(self, keys: Iterable[PartKey]) -> list[Place]:
        """Return the files of these parts: none or one each, or several if processes did a shard at the same time."""
        files: list[Place] = []
        for key in keys:
            files += storage.existing_files(key.path(self.root))
        return files

    def write(self, key: PartKey, rows: pa.Table) -> None:
        """Write a part, which is either whole or absent, whatever happens."""
        path = key.path(self.root)
        study_key = self.study_key_of(path) if self.has_manifest() else ""
        write_part(path, rows, study_key)

    def writer(self) -> PartWriter:
        """Return a context that writes parts in a thread of its own."""
        return PartWriter(self)

    def remove(self, keys: Iterable[PartKey]) -> None:
        """Remove parts that are about to be written anew with other content, and so under another name."""
        storage.drop_parts(key.path(self.root) for key in keys)

    def expected_parts(self, job: Job) -> list[PartKey]:
        """Return the parts that the manifest promises of a job."""
        study = self.manifest.study
        dataset, model = job.dataset, job.model
        explainers_of = {}
        for name in study.evaluations_of(dataset):
            explainers_of[name] = study.explainers_of(name, dataset, model)
        expected = expected_parts(job, explainers_of, study.explainers_with_maps(dataset, model))
        # Retraining has jobs of its own, with neither shards nor samples.
        return expected if len(expected) > 1 else []

    def missing(self) -> list[PartKey]:
        """Return the parts that the manifest promises and that are not there; none if the run is complete.

        The samples of a shard count only where nothing else of it is missing: one that was not begun has none.
        """
        storage.forget_listings()
        manifest = self.reread()
        missing = []
        for dataset, model in product(manifest.study.datasets, manifest.study.models):
            for shard in manifest.shards(dataset):
                expected = self.expected_parts(Job(dataset, model, shard))
                absent = [key for key in expected if not self.has(key)]
                without_samples = [key for key in absent if key.kind != "samples"]
                missing += without_samples or absent
        return missing

    # ---- reading ---------------------------------------------------------------------------------------------------

    def parts(self, kind: Kind) -> list[Place]:
        """Return the files of all parts of a kind, sorted; raise if two are of the same shard."""
        return digests.parts(self.root / FOLDERS[kind])

    def read(
        self, kind: Kind, schema: pa.Schema, texts: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield the rows of every part of a kind."""
        return self.read_files(self.parts(kind), schema, texts)

    def read_files(
        self, paths: Sequence[Place], schema: pa.Schema, texts: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield the rows of these files, each checked for damage and for being of this run's study.

        The columns `texts` are read as dictionaries, which hold each text once.
        """
        for path, content in zip(paths, digests.contents(paths), strict=True):
            try:
                with self.open(path, content, texts) as part:
                    yield columns.of_part(part, schema)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise Damaged(f"{path} is damaged; {digests.ADVICE}: {error}") from error

    def open(
        self,
        path: Place,
        content: bytes,
        texts: Collection[str] = (),
        of_any_study: bool = False,
    ) -> pq.ParquetFile:
        """Return an opened part; raise if it is of another study or would fill the memory."""
        metadata = pq.read_metadata(pa.BufferReader(content))
        size = 8 * metadata.num_rows * metadata.num_columns
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
        if size > LARGEST + LARGEST_GROWTH * len(content):
            raise Damaged(
                f"{path} has {len(content)} bytes and would take {size:,} to read; it is not a part of a run"
            )
        if self.has_manifest() and not of_any_study:
            study_key = study_key_in(metadata)
            if study_key and study_key != self.study_key_of(path):
                raise Foreign(
                    f"{path} belongs to another study than the manifest of {self.root}; remove it"
                )
        coded = [name for name in texts if name in metadata.schema.names]
        return pq.ParquetFile(pa.BufferReader(content), metadata=metadata, read_dictionary=coded)

    def study_key_of(self, path: Place) -> str:
        """Return what the footer of a file must say; empty if its folder is none of the study's."""
        folder = within(path.parent, self.root)
        if folder in self._study_keys:
            return self._study_keys[folder]
        if folder not in self._keys_by_folder:
            self.reread()  # another process may have added an explainer since
        if folder not in self._keys_by_folder:
            return ""
        study_key = self._keys_by_folder[folder].study_key(self.manifest)
        self._study_keys[folder] = study_key
        return study_key


def _first_parts(manifest: Manifest) -> Iterator[PartKey]:
    """Yield the key of the first shard of everything that a run may hold."""
    for dataset, model in product(manifest.study.datasets, manifest.study.models):
        job = Job(dataset, model, 0)
        yield PartKey.samples(job)
        for explainer in manifest.study.explainers:
            yield PartKey.maps(job, explainer)
        for evaluation, explainer in product(manifest.study.evaluations, manifest.study.explainers):
            yield PartKey.scores(job, evaluation, explainer)
            yield PartKey.references(job, evaluation, explainer)
            yield PartKey.gallery(job, evaluation, explainer)


class PartWriter:
    """Makes and writes parts in a thread of its own while the device computes; leaving the context waits for the last.

    An error in writing is raised when another part is handed in, or at the end.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "heatproof-writer")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> PartWriter:
        return self

    def write(self, key: PartKey, make_rows: Callable[[], pa.Table]) -> None:
        """Make the rows of a part and write it after those before it."""
        self._wait_until(WAITING)
        self._pending.append(self._thread.submit(self._write, key, make_rows))

    def _write(self, key: PartKey, make_rows: Callable[[], pa.Table]) -> None:
        self._directory.write(key, make_rows())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.shutdown(wait=True)
        if error is None:
            self._wait_until(0)

    def _wait_until(self, waiting: int) -> None:
        """Wait until no more parts than these are left to write; raise the error of one that could not be written."""
        while self._pending and (len(self._pending) > waiting or self._pending[0].done()):
            self._pending.popleft().result()


def write_part(path: Place, rows: pa.Table, study_key: str = "") -> Place:
    """Write a Parquet file whose name gets the digest of its bytes, and return where it is."""
    sink = io.BytesIO()
    # A part is small and read whole: statistics and a second schema would be a third of it.
    with pq.ParquetWriter(
        sink, rows.schema, compression="zstd", write_statistics=False, store_schema=False
    ) as file:
        file.write_table(rows)
        file.add_key_value_metadata({"study": study_key})
    content = sink.getvalue()
    target = digests.named(path, content)
    write_atomically(target, content)
    storage.note(target)
    return target


def study_key_in(metadata: pq.FileMetaData) -> str:
    """Return what the footer of a part says of its study; empty if it says nothing."""
    return str((metadata.metadata or {}).get(b"study", b"").decode())
