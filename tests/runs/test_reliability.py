"""What is read is what was written: damage, strangers' parts, changed data, passing faults and hostile files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tarfile
import threading
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import heatproof
from heatproof import Saliency, Stability, UserError, errors
from heatproof.data import open_data
from heatproof.models.loaders.onnx import content_digest, external_data
from heatproof.runs import atomic, digests, references, storage
from heatproof.runs.directory import RunDirectory, write_part
from heatproof.runs.export import export
from heatproof.runs.merge import merge
from heatproof.runs.plan import make_plan
from heatproof.runs.verify import missing, verify
from support.edits import add_part, replace_part
from support.small import model, pictures

JPEG = Stability(perturbations="jpeg", k=20)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(errors, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(storage, "AWAY", ())


def run(out, data=None, explainers=("saliency", "random"), **how):
    named = explainers if isinstance(explainers, dict) else list(explainers)
    data = pictures(6)[0] if data is None else data
    return heatproof.evaluate(model(), data, named, JPEG, out, **{"shard_size": 3, **how})


def states(where) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for verdict in verify(where):
        found.setdefault(verdict.state, []).append(verdict.name)
    return found


def parts(root: Path, folder: str = "parts") -> list[Path]:
    return sorted((root / folder).glob("**/*.parquet"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# --- damage ---------------------------------------------------------------------------------------------------------


def test_verify_tells_intact_corrupt_foreign_duplicate_and_missing_files(tmp_path, main):
    done = run(tmp_path / "run")
    assert set(states(done.path)) == {"intact"} and main("verify", done.path)[0] == 0
    run(tmp_path / "other", seed=1)
    damaged, doubled, missing, stranger, *_ = parts(done.path)
    flip(damaged)
    shutil.copy(
        doubled, twin := doubled.with_name(f"{storage.part_of(doubled.name)}.{'f' * 16}.parquet")
    )
    twin.rename(digests.named(twin, twin.read_bytes() + b""))  # the same bytes have the same name
    rows = pq.ParquetFile(doubled).read()
    add_part(done.directory, doubled, rows.slice(1))
    missing.unlink()
    shutil.copy(parts(tmp_path / "other")[3], stranger.parent)
    stranger.unlink()
    (done.path / "parts" / "notes.txt").write_text("mine")
    found = states(done.path)
    assert found["corrupt"] == [str(damaged.relative_to(done.path))]
    assert len(found["duplicate"]) == 1 and Path(
        found["duplicate"][0]
    ).parent == doubled.parent.relative_to(done.path)
    assert (
        len(found["missing"]) == 1
        and len(found["foreign"]) == 2
        and "parts/notes.txt" in found["foreign"]
    )
    code, out, _ = main("verify", done.path)
    assert code == 1 and damaged.name in out and re.search(r"\b5\b", out)


def test_a_damaged_part_is_told_and_computed_anew_and_never_read_or_joined(tmp_path, main, caplog):
    done = run(tmp_path / "run")
    whole = done.table()
    for folder in ("parts", "samples", "gallery"):
        path = parts(done.path, folder)[0]
        flip(path)
        with pytest.raises(UserError, match=f"{path.name} is damaged"):
            merge(tmp_path / "joined", [done.path])
        assert not (tmp_path / "joined").exists()
        for command in (
            ["report", done.path],
            ["export", done.path, "--to", "zip", "--out", tmp_path / "r.zip"],
        ):
            code, _, said = main(*command)
            assert code == 2 and path.name in said and "damaged" in said
        caplog.clear()
        run(tmp_path / "run")
        assert path.name in caplog.text
        pd.testing.assert_frame_equal(heatproof.read(done.path).table(), whole)
        assert set(states(done.path)) == {"intact"}


@pytest.mark.parametrize("name", ["manifest.json", "sessions"])
def test_a_changed_digit_of_what_describes_a_run_is_damage(tmp_path, name):
    done = run(tmp_path / "run")
    path = done.path / name
    path = path if path.is_file() else next(path.iterdir())
    content = path.read_text()
    path.write_text(content.replace("2", "3", 1))
    assert path.read_text() != content
    with pytest.raises(UserError, match=f"{path.name} is damaged"):
        heatproof.read(done.path)
    assert states(done.path)["corrupt"] == [str(path.relative_to(done.path))]


def test_a_part_of_another_study_is_neither_read_nor_removed(tmp_path):
    done, other = run(tmp_path / "run"), run(tmp_path / "other", seed=1)
    stranger = parts(other.path)[0]
    place = done.path / stranger.relative_to(other.path)
    for path in place.parent.iterdir():
        path.unlink()
    shutil.copy(stranger, place)
    with pytest.raises(UserError, match=place.name):
        done.table()
    with pytest.raises(UserError, match=place.name):
        run(tmp_path / "run")
    assert place.is_file()


def test_a_part_without_a_study_is_foreign_and_samples_that_are_gone_are_missing(tmp_path):
    done = run(tmp_path / "run")
    part = parts(done.path)[0]
    write_part(part, pq.ParquetFile(part).read().replace_schema_metadata(None))
    part.unlink(missing_ok=True)
    (verdict,) = (found for found in verify(done.path) if found.state == "foreign")
    assert "study" in verdict.reason
    other = run(tmp_path / "other")
    for path in (other.path / "samples").rglob("*.parquet"):
        path.unlink()
    assert "samples" in missing(other.path)[0]


def test_an_unfinished_file_is_abandoned_when_its_writer_is_gone(tmp_path):
    away, mine = (
        tmp_path / ".x.node7-123.tmp",
        tmp_path / f".x.{atomic.this_host()}-{os.getppid()}.tmp",
    )
    assert not atomic.is_abandoned(tmp_path / "thesis.tmp") and not atomic.is_abandoned(away), (
        "it was just finished"
    )
    for path in (away, mine):
        path.write_text("")
        assert not atomic.is_abandoned(path)
        os.utime(path, (0, 0))
        assert atomic.is_abandoned(path)


def test_two_parts_of_one_shard_are_refused_until_a_run_keeps_one(tmp_path, caplog):
    done = run(tmp_path / "run")
    whole, part = done.table(), parts(done.path)[0]
    rows = pq.ParquetFile(part).read()
    value = pa.array(np.nextafter(rows["value"].to_numpy(), 2))
    column = rows.schema.get_field_index("value")
    add_part(done.directory, part, rows.set_column(column, "value", value))
    assert len(list(part.parent.glob(f"{storage.part_of(part.name)}.*"))) == 2
    with pytest.raises(UserError, match="same shard"):
        done.table()
    run(tmp_path / "run")
    assert "same shard" in caplog.text and len(heatproof.read(done.path).table()) == len(whole)
    assert min(p.name for p in part.parent.iterdir()) in {p.name for p in part.parent.iterdir()}


def test_a_zip_and_a_store_are_verified_too(tmp_path, main):
    pytest.importorskip("fsspec")
    done = run(f"memory://verify/{os.getpid()}")
    assert set(states(str(done.path))) == {"intact"}
    part = storage.files(done.path / "parts", ".parquet")[0]
    part.write_bytes(part.read_bytes()[:-1])
    assert states(str(done.path))["corrupt"] == [storage.within(part, done.path)]
    local = run(tmp_path / "run")
    export(local, "zip", tmp_path / "run.zip")
    assert main("verify", tmp_path / "run.zip")[0] == 0
    content = bytearray((tmp_path / "run.zip").read_bytes())
    content[content.index(b"PAR1") + 40] ^= 1
    (tmp_path / "bad.zip").write_bytes(content)
    code, _, said = main("verify", tmp_path / "bad.zip")
    assert code == 2 and "bad.zip" in said and ".parquet" in said


def manifest_in(path):
    """The manifest of a zipped run, or None where it cannot be unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read("manifest.json")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError):
        return None


def test_a_flipped_bit_in_what_is_packed_in_a_zip_names_it(tmp_path):
    export(run(tmp_path / "run"), "zip", tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        start, size = (entry := archive.getinfo("manifest.json")).header_offset, entry.compress_size
    content = (tmp_path / "run.zip").read_bytes()
    start += 30 + len("manifest.json")
    for position in range(start, start + size, max(1, size // 60)):
        bad = tmp_path / f"{position}.zip"
        bad.write_bytes(
            content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :]
        )
        if manifest_in(bad) == manifest_in(tmp_path / "run.zip"):
            continue  # a bit that decompression does not use damages nothing
        with pytest.raises(UserError, match=bad.name):
            heatproof.read(bad)


def test_a_part_with_a_right_digest_that_is_no_parquet_is_damage(tmp_path, main):
    root = run(tmp_path / "run").path
    part = parts(root)[0]
    content = bytearray(part.read_bytes())
    footer = int.from_bytes(
        content[-8:-4], "little"
    )  # it ends 8 bytes before the end, with its length
    content[-8 - footer : -8] = bytes(footer)
    part.unlink()
    digests.named(part, content).write_bytes(content)
    assert states(root)["corrupt"] == [digests.named(part, content).relative_to(root).as_posix()]
    code, _, said = main("report", root, "--text")
    assert code == 2 and digests.named(part, content).name in said


def test_a_part_that_asks_for_gigabytes_is_not_read(tmp_path):
    root = run(tmp_path / "run").path
    part = parts(root)[0]
    rows = pq.ParquetFile(part).read()
    zeros = pa.table({"repeat": np.zeros(40_000_000, dtype=np.int8)})
    replace_part(RunDirectory(root), part, zeros)
    assert len(rows) and parts(root)[0].stat().st_size < 2**20
    with pytest.raises(UserError, match=r"\d"):
        heatproof.read(root).table()


# --- references -----------------------------------------------------------------------------------------------------


class Flaky(torch.utils.data.Dataset):
    """Pictures of which some fail as a storage does while `fail` says so."""

    def __init__(self, n: int = 6) -> None:
        self.x, self.fail = pictures(n)[0], {}

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> torch.Tensor:
        if i in self.fail:
            raise self.fail[i]
        return self.x[i]


def test_a_reference_that_cannot_be_read_is_an_error_and_not_another_sample(tmp_path):
    data = Flaky(12)
    opened = open_data(data)
    first = int(references.load_references(opened, 0, 4).ids[0])
    data.fail[first] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(UserError, match=f"'{first:04d}'.*Input/output error"):
        references.load_references(opened, 0, 4)
    data.fail[first] = ValueError("not a picture")  # which it will not be tomorrow either
    assert f"{first:04d}" not in references.load_references(opened, 0, 4).ids
    with pytest.raises(UserError, match=f"'{first:04d}'"):
        references.load_references(opened, 0, 4, [f"{first:04d}"])


def test_every_process_takes_the_references_of_the_manifest(tmp_path):
    plan = make_plan(model(), pictures(12)[0], "saliency", JPEG, shard_size=3, references=4)
    ids = [f"{i:04d}" for i in (3, 5, 7, 11)]
    study = heatproof.runs.plan.describe(plan)
    ((source, entry),) = study.datasets.items()
    entry = entry.model_copy(update={"references": ids})
    study = study.model_copy(update={"datasets": {source: entry}})
    heatproof.runs.manifest.begin(tmp_path, study, 3, "test")
    heatproof.runs.engine.run_jobs(
        plan, RunDirectory(tmp_path), plan.jobs(), lambda step, amount: None
    )
    assert sorted(set(heatproof.read(tmp_path).references()["reference"])) == ids


# --- data that change -----------------------------------------------------------------------------------------------


def tar_of(path: Path, images: list[Image.Image]) -> None:
    with tarfile.open(path, "w") as archive:
        for i, image in enumerate(images):
            image.save(sink := BytesIO(), "BMP")
            info = tarfile.TarInfo(f"{i:04d}.bmp")
            info.size = len(sink.getvalue())
            archive.addfile(info, BytesIO(sink.getvalue()))


def test_one_pixel_in_the_middle_of_a_tar_or_a_large_file_changes_the_fingerprint(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (3, 300, 300, 3), dtype=np.uint8)
    (tmp_path / "folder").mkdir()
    prints = []
    for change in (0, 1):
        noise[1, 150, 150, 0] ^= change
        tar_of(tmp_path / "a.tar", [Image.fromarray(one) for one in noise])
        Image.fromarray(noise[1]).save(tmp_path / "folder" / "large.bmp")
        Image.fromarray(noise[0]).save(tmp_path / "folder" / "other.bmp")
        data = [open_data(tmp_path / name) for name in ("a.tar", "folder")]
        prints.append([(d.fingerprint, d.load([0, 1]).digests) for d in data])
    for (before, old), (after, new) in zip(*prints, strict=True):
        assert before != after and sum(old[name] != new[name] for name in old) == 1


def test_a_resume_on_changed_samples_is_refused_with_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(
        heatproof.data.arrays, "_SAMPLED_ITEMS", 2
    )  # the fingerprint looks at the first and the last
    data = Flaky(9)
    run(tmp_path, data)
    data.x[4] = data.x[4].flip(-1)
    with pytest.raises(UserError, match=r"changed.*0004"):
        run(tmp_path, data, ["saliency", "random", "input_x_gradient"])


def test_a_resume_on_a_changed_picture_is_refused_with_its_name(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, picture in enumerate(pictures(6)[0]):
        Image.fromarray((picture.permute(1, 2, 0) * 255).byte().numpy()).save(folder / f"{i}.png")
    run(tmp_path / "run", open_data(folder, size=32))
    with Image.open(folder / "3.png") as image:
        turned = image.rotate(180)
    turned.save(folder / "3.png")
    with pytest.raises(UserError, match=r"pictures.*3\.png"):
        run(tmp_path / "run", open_data(folder, size=32))


def test_weights_in_files_of_any_name_are_in_the_fingerprint_of_a_graph(tmp_path):
    name = "w" * 200 + ".bin"
    entry = b"\x0a\x08location\x12" + bytes([len(name) & 127 | 128, len(name) >> 7]) + name.encode()
    (tmp_path / "net.onnx").write_bytes(b"graph" + entry + b"more")
    (tmp_path / name).write_bytes(b"\0" * 100)
    assert external_data((tmp_path / "net.onnx").read_bytes()) == [name]
    before = content_digest(tmp_path / "net.onnx")
    (tmp_path / name).write_bytes(b"\0" * 99 + b"\1")
    assert content_digest(tmp_path / "net.onnx") != before


@pytest.mark.parametrize("ids", [["a", "b"], ["a", "b", "c", "d"]])
def test_ids_of_an_archive_must_be_as_many_as_its_samples(tmp_path, ids):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 3, 8, 8), dtype=np.float32), ids=np.array(ids))
    with pytest.raises(UserError, match=f"3 samples.*{len(ids)}.*ids"):
        open_data(tmp_path / "a.npz")


# --- faults that pass -----------------------------------------------------------------------------------------------


def test_a_passing_fault_is_tried_again():
    calls = []

    def reader():
        calls.append(1)
        if len(calls) < 3:
            raise OSError(errno.ESTALE, "Stale file handle")
        return "read"

    assert errors.retry(reader) == "read" and len(calls) == 3


def test_a_lasting_fault_is_tried_again_when_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(
        heatproof.data.arrays, "_SAMPLED_ITEMS", 2
    )  # the fingerprint needs the first and the last
    data = Flaky()
    right = run(tmp_path / "right", data, references=2).table()
    lost = next(
        i
        for i in (4, 3, 2, 1)
        if f"{i:04d}" not in references.load_references(open_data(data), 0, 2).ids
    )
    data.fail = {lost: OSError(errno.EACCES, "Permission denied")}
    samples = run(tmp_path / "run", data, references=2).samples().set_index("sample")
    assert samples.transient.sum() == 1 and samples.transient[f"{lost:04d}"]
    data.fail = {}
    assert len(run(tmp_path / "run", data, references=2).table()) < len(right)
    again = run(tmp_path / "run", data, references=2, retry_errors=True)
    pd.testing.assert_frame_equal(again.table(), right)
    assert not again.samples().transient.any()
    data.fail = {5: OSError(errno.EIO, "Input/output error")}  # of which the fingerprint is taken
    with pytest.raises(UserError, match=r"(5|'0005') of Flaky.*Input/output error"):
        run(tmp_path / "run", data, references=2)


def test_a_storage_that_is_away_is_an_error_with_a_name_at_the_first_sample(tmp_path):
    data = Flaky()
    opened, asked = open_data(data), []
    data.fail = {i: OSError(errno.EIO, "Input/output error") for i in range(6)}
    load = type(opened).load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(opened), "load", lambda self, positions: asked.append(1) or load(self, positions)
        )
        with pytest.raises(UserError, match=r"'0000'.*Input/output error"):
            run(tmp_path, opened)
    assert len(asked) == 1


def test_an_undecodable_sample_is_not_transient():
    data = Flaky()
    data.fail = {2: OSError("image file is truncated"), 3: ConnectionError("reset")}
    loaded = open_data(data).load(range(6))
    assert (
        set(loaded.errors) == {"0002", "0003"}
        and loaded.transient == {"0003"}
        and len(loaded.digests) == 4
    )


# --- writing --------------------------------------------------------------------------------------------------------


def test_processes_with_the_same_host_and_number_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.os, "getpid", lambda: 1)
    monkeypatch.setattr(atomic, "this_host", lambda: "container")
    failed = []

    def write(i):
        try:
            for _ in range(20):
                atomic.write_atomically(tmp_path / "same.json", f"{i}".encode() * 1000)
        except UserError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and len(set((tmp_path / "same.json").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["same.json"]


def test_without_hard_links_a_file_is_still_whole_or_absent(tmp_path, monkeypatch):
    def no_links(*given, **options):
        raise OSError(errno.EPERM, "Operation not permitted")

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", no_links)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            atomic.create_atomically(tmp_path / "manifest.json", b"{}")
    assert not (tmp_path / "manifest.json").exists()
    assert atomic.create_atomically(tmp_path / "manifest.json", b"{}")
    assert not atomic.create_atomically(tmp_path / "manifest.json", b"other")
    assert (tmp_path / "manifest.json").read_bytes() == b"{}"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs to know what a handle is of")
def test_names_are_synced_after_contents(tmp_path, monkeypatch):
    done, sync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (done.append(os.readlink(f"/proc/self/fd/{handle}")), sync(handle)),
    )
    monkeypatch.setattr(Path, "replace", lambda *given: (done.append("rename"), replace(*given)))
    atomic.write_atomically(tmp_path / "a" / "b" / "part", b"content")
    content, renamed, folder = done[-3:]
    assert (
        Path(content).name.startswith(".part.")
        and renamed == "rename"
        and folder == str(tmp_path / "a" / "b")
    )
    assert done[:-3] == [str(tmp_path), str(tmp_path / "a")], "so are the folders that were made"


def test_a_full_disk_is_one_line_with_the_path_and_what_to_do(tmp_path, monkeypatch, main):
    done = run(tmp_path / "run")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    code, _, said = main("report", done.path)
    assert code == 2 and said.count("\n") == 1
    assert (
        f"{done.path / 'report.html'} cannot be written: No space left on device; make room" in said
    )


# --- hostile files --------------------------------------------------------------------------------------------------


def test_names_cannot_command_the_terminal(tmp_path, main):
    x = pictures(4)[0]
    nasty = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb"
    data = heatproof.Batch(tuple(f"{nasty}{i}" for i in range(4)), x)
    done = run(tmp_path / "run", {nasty: data}, {nasty: Saliency()})
    for command in (
        ["show", done.path],
        ["report", done.path, "--text"],
        ["show", done.path, "--sample", f"{nasty}0"],
    ):
        code, out, err = main(*command)
        assert code == 0 and "\\u001b[2J" in out
        assert not set(out + err) & set("\x1b\x07\x9b\u202e")
    code, _, err = main("show", done.path, "--sample", "\x1b[31m")
    assert code == 2 and "\x1b" not in err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_that_is_called_a_picture_is_not_waited_for(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    (tmp_path / "c.png").symlink_to("/dev/zero")
    data = open_data(tmp_path, size=8)
    assert data.fingerprint
    assert {name: "not a file" in why for name, why in data.load(range(3)).errors.items()} == {
        "b.png": True,
        "c.png": True,
    }


def test_labels_that_are_no_classes_of_the_model_are_refused(tmp_path):
    labels = torch.tensor([0, 1, 2, 99, 0, 1])
    with pytest.raises(UserError, match=r"'0003'.*99.* 0 to"):
        run(
            tmp_path,
            heatproof.Batch(tuple(f"{i:04d}" for i in range(6)), pictures(6)[0], label=labels),
        )


class Leaves(torch.nn.Module):
    """A network that ends the process at its second pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = model().module, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 1:
            sys.exit(0)
        return self.net(x)


def test_a_model_that_exits_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"called sys\.exit\(0\)"):
        heatproof.evaluate(Leaves(), pictures(4)[0], "random", JPEG, tmp_path / "run")


def test_a_folder_that_cannot_be_removed_hides_no_error(tmp_path, monkeypatch):
    """The standard library's temporary directory calls itself until the stack is full where removing is refused."""

    def refused(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(atomic.tempfile, "tempdir", str(tmp_path))
    with atomic.scratch() as folder:
        (folder / "file").write_text("1")
    assert folder.parent == tmp_path and not folder.exists()
    for name in ("rmdir", "unlink"):
        monkeypatch.setattr(os, name, refused)
    with pytest.raises(UserError, match="the server is away"), atomic.scratch():
        raise UserError("the server is away")
