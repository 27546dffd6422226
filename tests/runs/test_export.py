"""Exports: exact tables in every format, one zip that is a run, and no harm from names or from a stranger's zip."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from pandas.testing import assert_frame_equal

import heatproof
from heatproof import UserError
from heatproof.runs.export import export, fingerprint, unpacked
from heatproof.runs.export.card import KINDS

TRAP = '=HYPERLINK("http://x","y")'


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A real run in three shards, one of whose explainers has a name that a spreadsheet would run."""
    images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[1] = 0.5  # a picture without edges: rows without scores
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    methods = {TRAP: heatproof.SobelEdges(), "saliency": heatproof.Saliency()}
    axes = {"stability": heatproof.Stability(perturbations=("jpeg",), k=5)}
    data = (images, torch.tensor([0, 1, 2, 3, 0]))
    return heatproof.evaluate(
        net, data, methods, axes, tmp_path_factory.mktemp("runs") / "a", shard_size=2
    )


def same(found, expected):
    """Equal to the last bit; what is missing may be None, NaN, NA or an empty text."""
    assert list(found.columns) == list(expected.columns) and len(found) == len(expected) > 0
    for name in expected.columns:
        pairs = zip(found[name].tolist(), expected[name].tolist(), strict=True)
        read = {bool: {"True": True, "False": False, True: True, False: False}.get}
        assert all(
            (absent(a) and absent(b)) or read.get(type(b), type(b))(a) == b for a, b in pairs
        ), name


def absent(value):
    return value == "" or pd.isna(value)


def frames(run):
    return {"scores": run.table(), "samples": run.samples(), "summary": run.summary()}


def test_csv_holds_every_number_exactly_and_runs_nothing(run, tmp_path):
    done = export(run, "csv", tmp_path / "tables")
    assert set(run.table()["status"]) == {"ok", "flipped", "undefined"}
    for name, frame in frames(run).items():
        found = pd.read_csv(done.path / f"{name}.csv", dtype=str, keep_default_na=False)
        assert not any(text.startswith(("=", "@", "+")) for text in found.to_numpy().ravel())
        if "explainer" in found:
            assert f"'{TRAP}" in set(found["explainer"])
            found["explainer"] = found["explainer"].str.removeprefix("'")
        same(found, frame)
        assert done.files[f"{name}.csv"] == len(frame) > 0
    facts = json.loads((done.path / "study.json").read_text(encoding="utf-8"))
    assert (
        facts["study"] == json.loads(json.dumps(run.manifest.study.as_mapping()))
        and facts["missing"] == []
        and facts["run"] == fingerprint(run)
    )


def test_arrow_files_are_the_tables(run, tmp_path):
    done = export(run.path, "arrow", tmp_path / "tables")
    for name, frame in frames(run).items():
        with pa.OSFile(str(done.path / f"{name}.arrow")) as source:
            rows = pa.ipc.open_file(source).read_all()
        assert set(rows.schema.types) <= set(KINDS)
        same(rows.to_pandas(), frame)
        same(pd.read_feather(done.path / f"{name}.arrow"), frame)


def test_the_data_set_folder_says_what_is_in_it(run, tmp_path):
    done = export(run, "hf", tmp_path / "set")
    card = (done.path / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---\n")[1])
    assert [c["config_name"] for c in head["configs"] if c.get("default")] == ["scores"]
    for config, info in zip(head["configs"], head["dataset_info"], strict=True):
        rows = pq.read_table(done.path / config["data_files"][0]["path"])
        assert info["splits"][0]["num_examples"] == len(rows) > 0
        assert [(f["name"], f["dtype"]) for f in info["features"]] == [
            (f.name, KINDS[f.type]) for f in rows.schema
        ]
    assert sorted(p.name for p in done.path.glob("**/*") if p.is_file()) == sorted(
        ["README.md", "samples.parquet", "scores.parquet", "summary.parquet"]
    )


def test_datasets_loads_the_folder(run, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    done = export(run, "hf", tmp_path / "set")
    for name, frame in frames(run).items():
        loaded = datasets.load_dataset(
            str(done.path), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        same(loaded.to_pandas(), frame)
    assert len(
        datasets.load_dataset(str(done.path), cache_dir=str(tmp_path / "cache"))["train"]
    ) == len(run.table())


def test_a_zip_is_the_run_and_always_the_same_bytes(run, tmp_path):
    (run.path / "report.html").write_text("<html>drawn before</html>")
    first, second = export(run, "zip", tmp_path / "a.zip"), export(run, "zip", tmp_path / "b.zip")
    assert first.path.read_bytes() == second.path.read_bytes()
    opened = heatproof.read(first.path)
    assert_frame_equal(opened.table(), run.table())
    assert_frame_equal(opened.samples(), run.samples())
    assert opened.manifest == run.manifest and fingerprint(opened) == fingerprint(run)
    assert sorted(first.files) == sorted(
        path.relative_to(run.path).as_posix() for path in run.path.glob("**/*") if path.is_file()
    )
    assert opened.report() == tmp_path / "a.html" and (tmp_path / "a.html").read_bytes()
    assert unpacked(first.path) == opened.path  # once per zip
    assert export(first.path, "arrow").path == tmp_path / "a-arrow"

    by_hand = shutil.make_archive(
        str(tmp_path / "hand"), "zip", run.path.parent, run.path.name
    )  # in a folder
    assert_frame_equal(heatproof.read(by_hand).table(), run.table())


def test_a_zip_without_a_report_gets_one(run, tmp_path):
    copy = shutil.copytree(run.path, tmp_path / "copy")
    (copy / "report.html").unlink(missing_ok=True)
    done = export(copy, "zip")
    assert done.path == tmp_path / "copy.zip" and not (copy / "report.html").exists()
    with zipfile.ZipFile(done.path) as archive:
        assert b"<html" in archive.read("report.html")


def hostile(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    return path


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([("manifest.json", "{}"), ("../../evil.json", "x")], "evil"),
        ([("manifest.json", "{}"), ("/etc/evil", "x")], "evil"),
        ([("manifest.json", "{}"), ("parts/..\\..\\evil.parquet", "x")], "evil"),
        ([("manifest.json", "{}"), ("C:/evil.parquet", "x")], "evil"),
        (
            [("manifest.json", "{}"), (link("parts"), "/etc"), ("parts/passwd.parquet", "x")],
            "a link",
        ),
        ([("manifest.json", "{}"), ("manifest.json", "{}")], "twice"),
        ([("manifest.json", "{}"), ("report.html", b"\0" * 30_000_000)], "200"),
        ([("notes.txt", "x")], "no manifest.json"),
        ([("a/manifest.json", "{}"), ("b/manifest.json", "{}")], "manifest.json"),
    ],
)
def test_a_strangers_zip_does_no_harm(tmp_path, entries, why):
    with pytest.raises(UserError, match=why):
        heatproof.read(hostile(tmp_path / "run.zip", entries))
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


def test_an_encrypted_zip_is_refused(tmp_path):
    path = hostile(tmp_path / "run.zip", [("manifest.json", "{}")])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= (
        1  # the flag of encryption in the directory of the archive
    )
    path.write_bytes(content)
    with pytest.raises(UserError, match="encrypted"):
        heatproof.read(path)


def test_what_is_no_file_of_a_run_is_left_in_the_zip(run, tmp_path):
    path = export(run, "zip", tmp_path / "a.zip").path
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("setup.py", "print('hello')")
        archive.writestr("parts/.hidden.parquet", "x")
    opened = heatproof.read(path)
    assert_frame_equal(opened.table(), run.table())
    assert not list(opened.path.glob("**/setup.py")) and not list(opened.path.glob("**/.hidden*"))


def test_a_damaged_zip_is_an_error(run, tmp_path):
    whole = export(run, "zip", tmp_path / "a.zip").path.read_bytes()
    at = whole.index(b"PAR1") + 40
    (tmp_path / "flipped.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    for name in ("flipped.zip", "cut.zip"):
        with pytest.raises(UserError, match=name):
            heatproof.read(tmp_path / name)


def test_nothing_is_overwritten_and_nothing_is_left_of_a_failure(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for target in (mine, mine / "note.txt"):
        if target is not mine:
            target.write_text("mine")
        for to in ("csv", "arrow", "hf", "zip"):
            with pytest.raises(UserError, match=str(target)):
                export(run, to, target)
    with pytest.raises(UserError, match="tables"):
        export(run, "csv", run.path / "tables")
    with pytest.raises(UserError, match="local path"):
        export(run, "csv", "s3://bucket/tables")
    broken = shutil.copytree(run.path, tmp_path / "broken")
    next(broken.glob("parts/**/*.parquet")).write_bytes(b"not a table")
    with pytest.raises(UserError, match=r"parts/.*\.parquet is damaged"):
        export(broken, "csv", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "mine"]
    assert (mine / "note.txt").read_text() == "mine"


def test_an_unfinished_run_says_so_everywhere(run, tmp_path, main):
    part = shutil.copytree(run.path, tmp_path / "part")
    lost = sorted(part.glob("parts/**/*.parquet"))[0]
    lost.unlink()
    code, _, err = main("export", part, "--to", "hf")
    assert code == 0 and "1 part" in err
    assert "Unfinished" in (tmp_path / "part-hf" / "README.md").read_text(encoding="utf-8")
    unfinished = heatproof.read(part)
    assert "Unfinished: 1 part" in unfinished.text() and "Unfinished" in unfinished.markdown()
    assert "Unfinished" not in run.text(), "a finished run"
    code, text, _ = main("report", part, "--text")
    assert code == 0 and "Unfinished: 1 part" in text
    done = export(part, "csv")
    assert (
        len(json.loads((done.path / "study.json").read_text(encoding="utf-8"))["missing"])
        == 1
        == len(done.missing)
    )
    shutil.rmtree(part / "parts")  # nothing was measured yet
    assert export(part, "arrow").files["scores.arrow"] == 0


def test_the_command_says_where_and_what_next(run, tmp_path, main):
    code, out, err = main("export", run.path, "--to", "zip", "--out", tmp_path / "r.zip")
    assert (code, err) == (0, "")
    assert str(tmp_path / "r.zip") in out and "heatproof.read" in out
    code, _, err = main("export", run.path, "--to", "zip", "--out", tmp_path / "r.zip")
    assert code == 2 and str(tmp_path / "r.zip") in err


def test_exports_read_no_random_state(run, tmp_path):
    before = torch.random.get_rng_state()
    export(run, "csv", tmp_path / "tables")
    assert torch.equal(before, torch.random.get_rng_state())
