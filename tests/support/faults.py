"""Faults of storage on demand: the n-th thing that is done with a file below a folder, or with an object, fails.

`Faults` stands between the program and its files. A `Scene` is a command on a small run whose right outcome is known,
and `trial` holds one fault against the laws: nothing changes in silence, nothing is lost, an error names a file, and
the same command without the fault ends well.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

import heatproof
from heatproof import errors
from heatproof.runs import storage, tables
from heatproof.runs.verify import verify

ERRORS = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EACCES": errno.EACCES,
    "connection": errno.ECONNRESET,
}
NAMELESS = ("read", "write", "fsync")
"""What the system refuses without saying of which file."""
DIRECTORY = {
    os: (
        "fsync",
        "replace",
        "rename",
        "link",
        "unlink",
        "mkdir",
        "listdir",
        "scandir",
        "stat",
        "rmdir",
    ),
}
STORE = ("info", "ls", "cat_file", "pipe_file", "rm_file", "find")


@dataclass
class Faults:
    """Counts what is done with files below `root`; the `fail`-th, or from there on all, is refused with `error`.

    With `meanwhile` it is not refused, but another process has its turn before it. With `only`, operations whose text
    does not contain it are not counted.
    """

    root: str
    fail: int | None = None
    error: str = "EIO"
    lasting: bool = False
    meanwhile: Callable[[], None] | None = None
    only: str = ""
    done: list[str] = field(default_factory=list)

    def pass_by(self, what: str, where: object) -> None:
        """One operation: counted, and refused if it is its turn."""
        if not isinstance(where, str | os.PathLike) or not str(where).startswith(self.root):
            return
        if self.only not in f"{what} {where}":
            return
        self.done.append(f"{what} {where}")
        if self.fail is not None and (
            len(self.done) == self.fail or (self.lasting and len(self.done) > self.fail)
        ):
            if self.meanwhile is not None:
                act, self.meanwhile, self.fail = self.meanwhile, None, None
                return act()
            number = ERRORS[self.error]
            raise OSError(number, os.strerror(number), *(() if what in NAMELESS else (str(where),)))

    @contextmanager
    def standing_between(self) -> Iterator[None]:
        """All files and objects go through here."""
        with ExitStack() as stack:
            for name in DIRECTORY[os]:
                stack.enter_context(
                    mock.patch.object(os, name, self._watched(name, getattr(os, name)))
                )
            opened = self._opening(io.open)
            stack.enter_context(mock.patch.object(io, "open", opened))
            stack.enter_context(mock.patch.object(builtins, "open", opened))
            for name in STORE:
                stack.enter_context(mock.patch.object(MemoryFileSystem, name, self._asked(name)))
            yield

    def _watched(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **options: Any) -> Any:
            where = (
                os.readlink(f"/proc/self/fd/{given[0]}")
                if name == "fsync"
                else given[0]
                if given
                else "."
            )
            self.pass_by(name, where)
            return act(*given, **options)

        return watched

    def _asked(self, name: str) -> Callable[..., Any]:
        act = getattr(MemoryFileSystem, name)

        def asked(system: Any, path: str, *given: Any, **options: Any) -> Any:
            if (
                sys._getframe(1).f_code.co_filename == storage.__file__
            ):  # not one method of the store by another
                self.pass_by(name, f"memory:/{path}")
            return act(system, path, *given, **options)

        return asked

    def _opening(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def opened(where: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
            self.pass_by("open", where)
            file = act(where, mode, *given, **options)
            if isinstance(where, str | os.PathLike) and str(where).startswith(self.root):
                return _File(file, self, str(where))
            return file

        return opened


class _File:
    """An open file whose reads and writes are counted."""

    def __init__(self, file: Any, faults: Faults, where: str) -> None:
        self._file, self._faults, self._where = file, faults, where

    def read(self, *given: Any) -> Any:
        self._faults.pass_by("read", self._where)
        return self._file.read(*given)

    def write(self, content: Any) -> Any:
        self._faults.pass_by("write", self._where)
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


class PowerLostError(BaseException):
    """The machine is off: nothing is tidied up."""


class Power:
    """What of a folder would be left if the power failed: of a file what was synced, of a directory the synced names.

    What is there at the start is on disk. From then on a file's content counts as of its last fsync, and a name in a
    directory (new, renamed or removed) as of the directory's. `fail` takes that state, and `come_back` puts it in the
    folder's place, whatever the program did meanwhile.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.left = root, dict[Path, bytes | None]()
        self.content: dict[tuple[int, int], bytes] = {}
        self.names: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        self.folders: set[tuple[int, int]] = set()
        self.held: list[int] = []  # open, so that no number of a file is used again
        for folder, _, files in os.walk(root):
            for name in files:
                self._note(os.open(Path(folder) / name, os.O_RDONLY))
            self._note(os.open(folder, os.O_RDONLY))

    def _note(self, handle: int) -> None:
        """A file or directory as it is now is what is on disk."""
        self.held.append(handle)
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(handle) as found:
                entries = {entry.name: entry.stat(follow_symlinks=False) for entry in found}
            self.names[_number(facts)] = {name: _number(entry) for name, entry in entries.items()}
            self.folders |= {
                _number(entry) for entry in entries.values() if stat.S_ISDIR(entry.st_mode)
            }
        else:
            self.content[_number(facts)] = os.pread(handle, facts.st_size, 0)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Every fsync of this process is seen."""
        sync = os.fsync

        def synced(handle: int) -> None:
            sync(handle)
            place = os.readlink(f"/proc/self/fd/{handle}")
            if place.startswith(str(self.root)):
                self._note(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY))

        with mock.patch.object(os, "fsync", synced):
            yield

    def fail(self) -> None:
        """Take what is on disk, and stop."""
        self._take(self.root, _number(os.stat(self.root)))
        raise PowerLostError

    def _take(self, path: Path, number: tuple[int, int]) -> None:
        if number in self.content:
            self.left[path] = self.content[number]
            return
        known = number in self.names or number in self.folders
        self.left[path] = None if known else b""  # its name is on disk, of its content nothing
        for name, inner in self.names.get(number, {}).items():
            self._take(path / name, inner)

    def come_back(self) -> None:
        """The folder as the next start of the machine finds it."""
        for handle in self.held:
            os.close(handle)
        shutil.rmtree(self.root)
        for path, content in self.left.items():
            path.mkdir() if content is None else path.write_bytes(content)


def _number(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


STUDY = """
model: python:{support}/small.py:model
data: {{source: {folder}/pictures, size: 32}}
explainers: [saliency, random]
evaluations: [{{stability: {{perturbations: [jpeg], k: 20}}}}]
shard_size: 3
references: 2
batch_size: 4
device: cpu
"""


@dataclass(frozen=True)
class Scene:
    """A command on a copy of what it needs; what of the copy must stay as it was; and what must come out."""

    name: str
    command: tuple[str, ...]
    kept: tuple[str, ...] = ()
    table: str | None = None
    made: str | None = None


def call(*arguments: str) -> tuple[int, str]:
    """Exit code and everything that a command says, in this process; an exception that comes out of it is -1.

    Commands that compute draw no report, which has scenes of its own.
    """
    from heatproof import cli
    from heatproof.cli.read import print_summary

    storage.forget_listings()
    said = io.StringIO()
    handler = _Logged(said)
    quick = mock.patch.object(sys.modules["heatproof.cli.run"], "_present", print_summary)
    with (
        quick,
        mock.patch.object(sys, "argv", ["heatproof", *arguments]),
        redirect_stdout(said),
        redirect_stderr(said),
        handler,
    ):
        try:
            cli.main()
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue()
        except Exception as error:  # what a user would see as a traceback
            return -1, f"{said.getvalue()}\n{type(error).__name__}: {error}"
    return 0, said.getvalue()


class _Logged:
    """Warnings of the program, which go to standard error where nobody has set up logging."""

    def __init__(self, sink: Any) -> None:
        import logging

        self._logger, self._handler = logging.getLogger("heatproof"), logging.StreamHandler(sink)

    def __enter__(self) -> None:
        self._logger.addHandler(self._handler)

    def __exit__(self, *exception: object) -> None:
        self._logger.removeHandler(self._handler)


class Stage:
    """The runs that scenes start from: pictures, a study, a whole run, two halves of it, one that was interrupted."""

    def __init__(self, folder: Path) -> None:
        from support.small import pictures

        errors.PAUSES, storage.AWAY = (0.0, 0.0, 0.0), (0.0,)
        self.folder, self.work = folder / "stage", folder / "work"
        (self.folder / "pictures").mkdir(parents=True)
        for number, picture in enumerate(pictures(6)[0]):
            pixels = (picture.permute(1, 2, 0) * 255).byte().numpy()
            Image.fromarray(pixels).save(self.folder / "pictures" / f"{number}.png")
        self._write_study(self.folder)
        study = str(self.folder / "study.yaml")
        assert call("run", study, "--out", str(self.folder / "whole"), "--allow-code")[0] == 0
        for half in "12":
            out = str(self.folder / f"half{half}")
            assert call("run", study, "--out", out, "--allow-code", "--shard", f"{half}/2")[0] == 0
        shutil.copytree(self.folder / "whole", self.folder / "broken_off")
        for path in sorted((self.folder / "broken_off").glob("parts/**/*.parquet"))[::2]:
            path.unlink()
        assert (
            call(
                "export",
                str(self.folder / "whole"),
                "--to",
                "zip",
                "--out",
                str(self.folder / "whole.zip"),
            )[0]
            == 0
        )
        whole = self.folder / "whole"
        self.expected = tables.read_scores(whole).to_csv(), heatproof.read(whole).samples().to_csv()
        self._right: dict[str, Any] = {}
        self._database = 0

    def _write_study(self, folder: Path) -> None:
        text = STUDY.format(support=Path(__file__).parent, folder=self.folder)
        (folder / "study.yaml").write_text(text, encoding="utf-8")

    def scenes(self, kind: str) -> list[Scene]:
        """Every command, on directories or on a store."""
        at = f"memory://faults/{self.work.name}" if kind == "store" else str(self.work)
        study, run = str(self.folder / "study.yaml"), f"{at}/whole"
        out = str(self.work / "out")
        held = ("whole",)
        return [
            Scene("run", ("run", study, "--out", f"{at}/new", "--allow-code"), table="new"),
            Scene(
                "resume",
                ("run", study, "--out", f"{at}/broken_off", "--allow-code"),
                table="broken_off",
            ),
            Scene(
                "merge",
                ("merge", f"{at}/joined", f"{at}/half1", f"{at}/half2"),
                ("half1", "half2"),
                "joined",
            ),
            Scene("report", ("report", run, "--out", f"{out}.html"), held, made="out.html"),
            Scene("text", ("report", run, "--text"), held),
            Scene("show", ("show", run), held),
            Scene(
                "compare",
                ("compare", run, f"{at}/half1", "--out", f"{out}.html"),
                (*held, "half1"),
                made="out.html",
            ),
            Scene(
                "check",
                ("check", run, "--require", "stability.fass > -1", "--min-samples", "2"),
                held,
            ),
            Scene("csv", ("export", run, "--to", "csv", "--out", out), held, made="out"),
            Scene(
                "zip", ("export", run, "--to", "zip", "--out", f"{out}.zip"), held, made="out.zip"
            ),
            Scene("verify", ("verify", run), held),
        ]

    def pushing(self, kind: str) -> Scene:
        """`push` to an MLflow database beside the run; each time another, since the client keeps them open."""
        from mlflow import MlflowClient

        if not self._database:
            MlflowClient(f"sqlite:///{self.folder}/mlflow.db").create_experiment(
                "heatproof", f"{self.work}/artefacts"
            )
        self._database += 1
        run, uri = self.scenes(kind)[3].command[1], f"sqlite:///{self.work}/{self._database}.db"
        return Scene("push", ("push", run, "--to", "mlflow", "--uri", uri), ("whole",))

    def place(self, kind: str, name: str) -> storage.Place:
        """Where a run of the copy is."""
        return (
            storage.place(f"memory://faults/{self.work.name}/{name}")
            if kind == "store"
            else self.work / name
        )

    def set_up(
        self, kind: str, names: tuple[str, ...] = ("whole", "half1", "half2", "broken_off")
    ) -> None:
        """A new copy of the runs."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        if self._database:
            shutil.copy(self.folder / "mlflow.db", self.work / f"{self._database}.db")
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        for name in names:
            if kind == "store":
                fsspec.filesystem("memory").put(
                    str(self.folder / name), f"/faults/{self.work.name}/{name}", recursive=True
                )
            else:
                shutil.copytree(self.folder / name, self.work / name)

    def root(self, kind: str) -> str:
        """Below what faults are."""
        return "memory:/" if kind == "store" else str(self.work.parent)

    def content(self, kind: str, name: str) -> dict[str, bytes]:
        """Every finished file of a run, but its report and sessions, which each process adds to."""
        place = self.place(kind, name)
        found = [
            path
            for folder in ("parts", "samples", "gallery")
            for path in storage.files(place / folder, ".parquet")
        ]
        return {storage.within(path, place): path.read_bytes() for path in found}

    def right(self, scene: Scene) -> Any:
        """What a scene on directories comes to."""
        if scene.name not in self._right:
            self._right[scene.name] = rightly(self, "directory", scene)[1]
        return self._right[scene.name]

    def outcome(self, kind: str, scene: Scene, said: str) -> Any:
        """What a scene has come to: the table, or what it made, or what it said."""
        if scene.table is not None:
            root = self.place(kind, scene.table)
            return tables.read_scores(root).to_csv(), heatproof.read(root).samples().to_csv()
        if scene.name == "push":
            return _tracked(scene.command[-1])
        made = self.work / scene.made if scene.made else None
        if made is not None and made.is_dir():
            return {
                path.name: path.read_bytes()
                for path in sorted(made.iterdir())
                if path.suffix != ".json"
            }
        if made is not None:
            return (
                made.read_bytes()
                if made.suffix != ".zip"
                else {p: t.to_csv() for p, t in _zipped(made).items()}
            )
        return said


def _tracked(uri: str) -> Any:
    """What a tracker holds: one run, its numbers, and every byte of its files."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("heatproof").experiment_id])
    folder = Path(found.info.artifact_uri.removeprefix("file://"))
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return found.data.metrics, found.data.params, found.info.status, files


def _zipped(path: Path) -> dict[str, Any]:
    opened = heatproof.read(path)
    return {"table": opened.table(), "samples": opened.samples()}


def rightly(stage: Stage, kind: str, scene: Scene) -> tuple[int, Any]:
    """How many operations a scene has, and what it comes to, without a fault."""
    stage.set_up(kind)
    faults = Faults(stage.root(kind))
    with faults.standing_between():
        code, said = call(*scene.command)
    assert code == 0, (scene, said)
    return len(faults.done), stage.outcome(kind, scene, said)


def trial(
    stage: Stage, kind: str, scene: Scene, right: Any, number: int, error: str, lasting: bool
) -> str | None:
    """Which law one fault breaks, in words; None where all hold."""
    stage.set_up(kind)
    before = {name: stage.content(kind, name) for name in scene.kept}
    earlier = stage.content(kind, scene.table) if scene.table == "broken_off" else {}
    faults = Faults(stage.root(kind), number, error, lasting)
    with faults.standing_between():
        code, said = call(*scene.command)
    where = f"{kind} {scene.name}, {error}{' from there on' * lasting} at {number}: {faults.done[number - 1 : number]}"
    if code == -1:
        return f"{where}: a traceback: {said.splitlines()[-1]}"
    again = [*scene.command]
    if code == 0:
        unread = "could not be read" in said  # said, and mended by reading again
        if unread and scene.command[0] == "run":
            again.append("--retry-errors")
        elif stage.outcome(kind, scene, said) != right:
            return f"{where}: it ended well, with something else"
    elif not any(name in said for name in (str(stage.work.parent), "memory://", "png")):
        return f"{where}: no file is named: {said}"
    for name, content in before.items():
        if stage.content(kind, name) != content:
            return f"{where}: {name} has changed"
    now = stage.content(kind, scene.table) if earlier and scene.table else {}
    if any(now.get(name) != content for name, content in earlier.items()):
        return f"{where}: finished parts are gone"
    if scene.made and (stage.work / scene.made).exists():
        target = stage.work / scene.made
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    code, said = call(*again)
    if code != 0:
        return f"{where}: the same command again: {said}"
    return (
        None
        if stage.outcome(kind, scene, said) == right
        else f"{where}: again it came to something else"
    )


def power_loss(stage: Stage, scene: Scene, right: Any, number: int) -> str | None:
    """Which law is broken where the power fails before operation `number`, or after the last where there are fewer."""
    stage.set_up("directory")
    before = {
        name: stage.content("directory", name)
        for name in (*scene.kept, *filter(None, [scene.table]))
    }
    power = Power(stage.work)
    faults = Faults(stage.root("directory"), number, meanwhile=power.fail)
    ended = False
    with power.on(), faults.standing_between(), suppress(PowerLostError):
        code, said = call(*scene.command)
        if code != 0:
            return f"{scene.name}, power lost at {number}: it ended with {said}"
        ended = True
    if ended:
        with suppress(PowerLostError):
            power.fail()
    power.come_back()
    where = (
        f"{scene.name}, power lost at {number}: {faults.done[number - 1 : number] or 'at the end'}"
    )
    try:
        lost = (
            ended
            and bool(scene.table or scene.made)
            and stage.outcome("directory", scene, "") != right
        )
    except (errors.UserError, OSError):
        lost = True
    if lost:
        return f"{where}: it had ended well, and what it made is lost"
    for name, content in before.items():
        if any(
            stage.content("directory", name).get(path) != held for path, held in content.items()
        ):
            return f"{where}: of {name} finished files are gone"
    if scene.table and (stage.work / scene.table / "manifest.json").exists():
        wrong = [
            v for v in verify(stage.work / scene.table) if v.state not in ("intact", "missing")
        ]
        if wrong:
            return f"{where}: {wrong[0]}"
    if scene.made and (target := stage.work / scene.made).exists():
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    code, said = call(*scene.command)
    if code != 0:
        return f"{where}: the same command again: {said}"
    return (
        None
        if stage.outcome("directory", scene, said) == right
        else f"{where}: again it came to something else"
    )


def race(stage: Stage, kind: str, number: int) -> str | None:
    """Two processes resume one run, the second as a whole between two operations of the first: what goes wrong."""
    stage.set_up(kind)
    scene = next(scene for scene in stage.scenes(kind) if scene.name == "resume")
    second: list[tuple[int, str]] = []
    faults = Faults(stage.root(kind), number, meanwhile=lambda: second.append(call(*scene.command)))
    with faults.standing_between():
        first = call(*scene.command)
    for code, said in (first, *second):
        if code != 0:
            return f"{kind}, the second before operation {number}: {said}"
    wrong = [
        verdict for verdict in verify(stage.place(kind, "broken_off")) if verdict.state != "intact"
    ]
    right = stage.outcome(kind, scene, "") == stage.expected
    return (
        None
        if right and not wrong
        else f"{kind}, the second before operation {number}: {wrong or 'another table'}"
    )


READERS = ("text", "show", "check", "csv", "compare")


def flip(stage: Stage, draw: random.Random) -> tuple[str, str | None]:
    """Flip a bit of one file of a run, or cut it short: what was done, and which law that breaks.

    `verify` names the file; whoever reads it refuses it by name, or comes to the same; running the study again says so
    and comes to the same table.
    """
    stage.set_up("directory", ("whole", "half1"))
    zipped = draw.random() < 0.1
    root = stage.work / "whole"
    if zipped:
        shutil.copy(stage.folder / "whole.zip", root := stage.work / "whole.zip")
    kinds = ("parts", "samples", "gallery", "sessions", "manifest.json")
    files = (
        [root]
        if zipped
        else sorted(p for p in (root / draw.choice(kinds)).glob("**/*") if p.is_file())
    )
    path = draw.choice(files or [root / "manifest.json"])
    content = bytearray(path.read_bytes())
    cut = draw.random() < 0.2
    if cut:
        del content[draw.randrange(len(content)) :]
    else:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    what = (
        f"{'cut' if cut else 'flip'} in {root.name if zipped else path.relative_to(root).parts[0]}"
    )
    code, said = call("verify", str(root))
    if not zipped and (
        code == 0 or path.name not in said
    ):  # much of a zip's frame says nothing of what it holds
        return what, f"{what} {path}: verify says {said}"
    reader = draw.choice(READERS)
    scene = next(scene for scene in stage.scenes("directory") if scene.name == reader)
    command = tuple(
        str(root) if word == str(stage.work / "whole") else word for word in scene.command
    )
    code, said = call(*command)
    if code == -1 or (code != 0 and path.name not in said):
        return what, f"{what} {path}: {scene.name} says {said}"
    unread = {"gallery"} | ({"samples"} if scene.name == "check" else set())
    if code == 0 and not zipped and path.relative_to(root).parts[0] not in unread:
        return what, f"{what} {path}: {scene.name} ended well"
    if code == 0 and zipped and stage.outcome("directory", scene, said) != stage.right(scene):
        return what, f"{what} {path}: {scene.name} came to something else"
    if zipped or path.suffix == ".json":
        return what, None
    command = stage.scenes("directory")[1].command
    code, said = call(*(word.replace("broken_off", "whole") for word in command))
    if code != 0 or path.name not in said:
        return what, f"{what} {path}: running again says {said}"
    found = heatproof.read(stage.work / "whole")
    same = (tables.read_scores(found.path).to_csv(), found.samples().to_csv()) == stage.expected
    return what, None if same else f"{what} {path}: running again came to something else"
