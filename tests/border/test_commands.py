"""The exit code of every command: success, a user's mistake, a failed gate, and damaged or missing files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import heatproof
from border.entry import NETS, Done, command, process, write_study
from border.nets import NAMES
from border.tables import assert_same

TESTS = ["stability", "certificate: {radii: [1]}"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    return write_study(
        folder, "series", "[saliency, random]", TESTS, "keep_maps: true\nshard_size: 4"
    )


@pytest.fixture(scope="module")
def whole(study: Path) -> Path:
    done = command("run", study, "--allow-code", "--out", study.parent / "whole")
    assert done.code == 0, done.err
    return study.parent / "whole"


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def damaged(copied: Path) -> tuple[Path, str]:
    """A run with one flipped bit, and the name of the file that has it."""
    part = min((copied / "parts").rglob("*.parquet"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    return copied, part.name


def assert_mistake(done: Done, *facts: object) -> None:
    """Require exit code 2, nothing on standard output, and these facts on standard error, without a traceback."""
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    for fact in facts:
        assert str(fact) in done.err


# Success.


def test_run_ends_with_code_0_and_the_path_of_the_page(study, tmp_path):
    done = command("run", study, "--allow-code", "--out", tmp_path / "run", "--limit", 3)
    assert done.code == 0
    assert str(tmp_path / "run" / "report.html") in done.out.splitlines()[-1]
    assert (tmp_path / "run" / "report.html").is_file()
    assert len(heatproof.read(tmp_path / "run").samples()) == 3


def test_run_again_computes_nothing_and_keeps_every_part(study, copied):
    before = {path: path.stat().st_mtime_ns for path in (copied / "parts").rglob("*.parquet")}
    assert command("run", study, "--allow-code", "--out", copied).code == 0
    after = {path: path.stat().st_mtime_ns for path in (copied / "parts").rglob("*.parquet")}
    assert before == after


def test_plan_says_the_samples_and_runs_nothing(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("plan", study, "--allow-code")
    assert done.code == 0, done.err
    assert str(len(NAMES)) in done.out
    assert "stability" in done.out and "certificate" in done.out
    assert list(tmp_path.iterdir()) == []


def test_report_writes_the_page_where_it_is_told(whole, tmp_path):
    done = command("report", whole, "--out", tmp_path / "page.html")
    assert done.code == 0
    assert done.out.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().lstrip().lower().startswith("<!doctype html")


def test_report_as_text_has_every_method_and_test(whole):
    done = command("report", whole, "--text")
    assert done.code == 0
    for name in ("saliency", "random", "stability", "certificate"):
        assert name in done.out.lower()


def test_show_lists_the_samples_and_tells_of_one(whole):
    everything = command("show", whole)
    assert everything.code == 0
    assert set(re.findall(r"case-\d", everything.out)) == set(NAMES)
    one = command("show", whole, "--sample", "case-3")
    assert one.code == 0
    assert "case-3" in one.out


def test_verify_counts_the_files_of_a_whole_run(whole):
    done = command("verify", whole)
    assert done.code == 0
    parts = len(list(whole.rglob("*.parquet")))
    assert int(re.findall(r"\d+", done.out)[0]) >= parts


@pytest.mark.parametrize(("bound", "code"), [(-1.0, 0), (1.01, 1)])
def test_check_fails_where_the_bound_falls_short(whole, bound, code):
    requirement = f"certificate.rate >= {bound}"
    done = command("check", whole, "--require", requirement)
    assert done.code == code
    assert "saliency" in done.out


def test_check_fails_where_too_few_samples_have_a_score(whole):
    requirement = ("--require", "certificate.rate >= -1")
    assert command("check", whole, *requirement, "--min-samples", len(NAMES)).code == 0
    assert command("check", whole, *requirement, "--min-samples", len(NAMES) + 1).code == 1


def test_check_gives_the_same_answer_to_programs(whole):
    requirement = ("--require", "certificate.rate >= 1.01")
    done = command("check", whole, *requirement, "--format", "json")
    assert done.code == 1
    assert "saliency" in json.dumps(json.loads(done.out))


def test_a_run_compared_with_its_copy_differs_in_nothing(whole, copied):
    done = command("compare", whole, copied, "--out", copied / "comparison.html")
    assert done.code == 0, done.err
    assert (copied / "comparison.html").is_file()
    found = heatproof.compare(whole, copied).differences
    assert set(found["explainer"]) == {"saliency", "random"}
    assert found["difference"].abs().max() == 0
    assert not found["significant"].any()
    assert "identical" in done.out


def test_leaderboard_writes_a_page_and_its_numbers(whole, tmp_path):
    done = command("leaderboard", whole, "--out", tmp_path / "board")
    assert done.code == 0, done.err
    for name in ("leaderboard.json", "leaderboard.html"):
        assert name in done.out
        assert "aliency" in (tmp_path / "board" / name).read_text()


def test_figures_are_those_that_the_index_lists(whole, tmp_path):
    pytest.importorskip("matplotlib")
    done = command("figures", whole, "--out", tmp_path / "figures", "--format", "png")
    assert done.code == 0, done.err
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert "index.json" in written and any(name.endswith(".png") for name in written)
    index = (tmp_path / "figures" / "index.json").read_text()
    assert all(name in index for name in written - {"index.json"})


def test_exported_csv_has_every_row_and_number(whole, tmp_path):
    done = command("export", whole, "--to", "csv", "--out", tmp_path / "csv")
    assert done.code == 0, done.err
    table = heatproof.read(whole).table()
    exported = pd.read_csv(tmp_path / "csv" / "scores.csv", keep_default_na=False, na_values=[""])
    assert len(exported) == len(table)
    keys = ["evaluation", "explainer", "condition", "level", "measure", "sample"]
    left = table.sort_values(keys)["value"].to_numpy()
    right = exported.sort_values(keys)["value"].to_numpy(float)
    # Before version 3, pandas reads the last digit of a number wrongly.
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=0, equal_nan=True)
    samples = pd.read_csv(tmp_path / "csv" / "samples.csv")
    assert sorted(samples["sample"]) == sorted(NAMES)


@pytest.mark.parametrize("form", ["arrow", "hf"])
def test_exported_tables_have_every_row(whole, tmp_path, form):
    done = command("export", whole, "--to", form, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    rows = len(heatproof.read(whole).table())
    if form == "arrow":
        assert len(pd.read_feather(tmp_path / "out" / "scores.arrow")) == rows
    else:
        assert len(pd.read_parquet(tmp_path / "out" / "data" / "scores.parquet")) == rows


def test_exported_maps_are_those_that_the_run_kept(whole, tmp_path):
    done = command("export", whole, "--to", "maps", "--out", tmp_path / "maps")
    assert done.code == 0, done.err
    kept = heatproof.read(whole).maps("saliency")
    (file,) = [path for path in (tmp_path / "maps").rglob("*.npz") if "saliency" in path.name]
    packed = np.load(file)
    assert packed["ids"].tolist() == list(kept)
    for name, found in zip(packed["ids"], packed["maps"], strict=True):
        assert (found == kept[name]).all()


def test_a_packed_run_is_read_like_its_directory(whole, tmp_path):
    packed = tmp_path / "run.zip"
    assert command("export", whole, "--to", "zip", "--out", packed).code == 0
    assert_same(heatproof.read(packed).table(), heatproof.read(whole).table())
    assert command("verify", packed).code == 0


def test_shares_that_are_merged_are_the_whole_run(study, whole, tmp_path):
    for share in (1, 2):
        out = tmp_path / f"share-{share}"
        done = command("run", study, "--allow-code", "--out", out, "--shard", f"{share}/2")
        assert done.code == 0, done.err
        assert command("verify", out).code == 1
    done = command("merge", tmp_path / "merged", tmp_path / "share-1", tmp_path / "share-2")
    assert done.code == 0, done.err
    assert_same(heatproof.read(tmp_path / "merged").table(), heatproof.read(whole).table())


LISTED = {
    "explainers": ("saliency", "grad_cam", "lime", "random", "sobel"),
    "evaluations": ("stability", "certificate", "smoothing", "symmetry", "faithfulness"),
    "perturbations": ("rotation", "jpeg", "time_shift", "column_noise"),
    "presets": ("fass-paper", "fass-mild"),
    "groups": ("dihedral", "permutation", "cyclic"),
    "features": ("patches", "superpixels", "tokens"),
    "imputers": ("noisy_linear", "zero"),
    "measures": ("fass", "rate", "equivariance", "road", "dependence", "relevance_mass"),
}


@pytest.mark.parametrize("what", LISTED)
def test_ls_names_what_a_study_may_say(what):
    done = command("ls", what)
    assert done.code == 0
    names = {line.split()[0] for line in done.out.splitlines() if line.strip()}
    assert set(LISTED[what]) <= names


def test_validate_tries_a_model_whose_right_map_is_known():
    done = command("validate", "--quick", "--only", "words")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) > 3


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("run", "--help")])
def test_help_and_version_are_no_mistake(words):
    assert command(*words).code == 0


# A user's mistake: exit code 2, and the facts that are needed to mend it.


def changed(study: Path, folder: Path, old: str, new: str) -> Path:
    text = study.read_text()
    assert old in text
    path = folder / "changed.yaml"
    path.write_text(text.replace(old, new))
    return path


MISTAKES = {
    "explainer": ("saliency", "sailency", ("sailency", "saliency", "line 3")),
    "test": ("- stability", "- stabilty", ("stabilty", "stability", "line 5")),
    "key": ("shard_size", "shard_sise", ("shard_sise", "shard_size", "line 8")),
    "parameter": ("radii", "radi", ("radi", "radii", "line 6")),
    "value": ("radii: [1]", "radii: [-7]", ("-7", "line 6")),
    "model": ("series_model", "series_modle", ("series_modle", "series_model")),
}


@pytest.mark.parametrize("verb", ["run", "plan"])
@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_a_study_is_told_with_its_value_its_line_and_the_nearest_name(
    study, tmp_path, what, verb
):
    old, new, facts = MISTAKES[what]
    out = ("--out", tmp_path / "run") if verb == "run" else ()
    done = command(verb, changed(study, tmp_path, old, new), "--allow-code", *out)
    assert_mistake(done, *facts)
    assert not (tmp_path / "run").exists()


def test_code_in_a_study_runs_only_where_it_is_allowed(study, tmp_path):
    done = command("run", study, "--out", tmp_path / "run")
    assert_mistake(done, "--allow-code")
    assert not (tmp_path / "run").exists()


def test_another_study_is_refused_by_a_directory_that_has_one(study, copied):
    before = heatproof.read(copied).table()
    done = command("run", study, "--allow-code", "--out", copied, "--seed", 5)
    assert done.code == 2
    assert "seed" in done.err and "5" in done.err
    assert "saliency" not in done.out, "nothing is announced that is not going to run"
    assert_same(before, heatproof.read(copied).table())


READERS: dict[str, tuple[str, ...]] = {
    "report": ("RUN",),
    "show": ("RUN",),
    "verify": ("RUN",),
    "check": ("RUN", "--require", "certificate.rate >= 0"),
    "compare": ("RUN", "WHOLE"),
    "leaderboard": ("RUN", "--out", "OUT"),
    "export": ("RUN", "--to", "csv", "--out", "OUT"),
    "figures": ("RUN", "--out", "OUT"),
    "merge": ("OUT", "RUN"),
}


def read_with(verb: str, run: Path, whole: Path, out: Path) -> Done:
    if verb == "figures":
        pytest.importorskip("matplotlib")
    places = {"RUN": run, "WHOLE": whole, "OUT": out}
    return command(verb, *(places.get(word, word) for word in READERS[verb]))


@pytest.mark.parametrize("verb", READERS)
def test_a_run_that_is_not_there_is_named(verb, whole, tmp_path):
    done = read_with(verb, tmp_path / "nowhere", whole, tmp_path / "out")
    assert_mistake(done, tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_study_that_is_not_there_is_named(verb, tmp_path):
    assert_mistake(command(verb, tmp_path / "nowhere.yaml"), tmp_path / "nowhere.yaml")


def test_a_sample_that_is_not_there_is_told_with_those_that_are(whole):
    assert_mistake(command("show", whole, "--sample", "case-99"), "case-99", "case-")


@pytest.mark.parametrize(
    ("requirement", "facts"),
    [
        ("stability.fas >= 0.3", ("'fas'", "'fass'")),
        ("stabilty.fass >= 0.3", ("stabilty", "stability")),
        ("certificate.rate{explainer=lime} >= 0", ("lime",)),
        ("nonsense", ("nonsense",)),
    ],
)
def test_a_requirement_about_nothing_in_the_run_is_a_mistake_and_no_failed_gate(
    whole, requirement, facts
):
    assert_mistake(command("check", whole, "--require", requirement), *facts)


def test_an_export_overwrites_nothing(whole, tmp_path):
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "mine.txt").write_text("kept")
    done = command("export", whole, "--to", "csv", "--out", tmp_path / "csv")
    assert_mistake(done, tmp_path / "csv")
    assert [path.name for path in (tmp_path / "csv").iterdir()] == ["mine.txt"]


def test_runs_of_other_samples_are_not_compared(study, whole, tmp_path):
    few = tmp_path / "few"
    assert command("run", study, "--allow-code", "--out", few, "--limit", 5).code == 0
    assert_mistake(command("compare", whole, few), "5", len(NAMES))


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("ls", "colours"), "colours"),
        (("nosuch",), "nosuch"),
        (("validate", "--quick", "--only", "nosuch"), "nosuch"),
        (("run", "STUDY", "--limit", 0), "--limit"),
        (("run", "STUDY", "--workers", 0), "--workers"),
    ],
)
def test_a_word_that_the_command_line_does_not_know_is_named(study, words, fact):
    done = command(*(study if word == "STUDY" else word for word in words))
    assert_mistake(done, fact)


# Damaged, missing and unreadable files.


def test_verify_names_the_part_that_is_damaged(damaged):
    directory, name = damaged
    done = command("verify", directory)
    assert done.code == 1
    assert name in done.out


@pytest.mark.parametrize("verb", sorted(set(READERS) - {"verify"}))
def test_nothing_is_said_about_a_run_with_a_damaged_part(verb, whole, damaged, tmp_path):
    directory, name = damaged
    assert_mistake(read_with(verb, directory, whole, tmp_path / "out"), name)


def test_run_computes_a_damaged_part_anew(study, whole, damaged):
    directory, _ = damaged
    assert command("run", study, "--allow-code", "--out", directory).code == 0
    assert_same(heatproof.read(directory).table(), heatproof.read(whole).table())


def test_a_run_with_a_missing_part_is_verified_and_gated_as_unfinished(copied):
    min((copied / "parts").rglob("*.parquet")).unlink()
    done = command("verify", copied)
    assert done.code == 1
    assert "saliency" in done.out or "random" in done.out
    assert command("check", copied, "--require", "certificate.rate >= -1").code == 2
    drawn = command("report", copied)
    assert drawn.code == 0 and "1" in drawn.err


def test_a_picture_that_cannot_be_read_is_recorded_and_the_others_are_judged(tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    generator = np.random.default_rng(0)
    for name in ("a.png", "b.png", "d.png"):
        pixels = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "c.png").write_bytes(b"this is no picture")
    study = tmp_path / "study.yaml"
    study.write_text(
        f"model: python:{NETS}:image_model\ndata: {{source: photos, size: 16}}\n"
        "explainers: [saliency]\nevaluations: [{stability: {perturbations: jpeg}}]\n"
    )
    done = command("run", study, "--allow-code", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "c.png" in done.out + done.err
    samples = heatproof.read(tmp_path / "run").samples().set_index("sample")
    assert sorted(samples.index) == ["a.png", "b.png", "c.png", "d.png"]
    assert samples["error"]["c.png"] != ""
    assert set(heatproof.read(tmp_path / "run").table()["sample"]) == {"a.png", "b.png", "d.png"}


# In processes of their own.


def test_python_m_heatproof_ends_like_the_command(study, whole, tmp_path):
    done = process("run", study, "--allow-code", "--out", "run", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out.splitlines()[-1].endswith("report.html")
    assert_same(heatproof.read(tmp_path / "run").table(), heatproof.read(whole).table())


def test_python_m_heatproof_answers_a_mistake_in_one_line(study, tmp_path):
    mistaken = changed(study, tmp_path, "saliency", "sailency")
    done = process("run", mistaken, "--allow-code", cwd=tmp_path)
    assert_mistake(done, "sailency", "saliency", "line 3")
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_ends_with_code_130_and_goes_on_where_it_was(
    study, tmp_path, monkeypatch, sent
):
    interrupting = changed(
        study, tmp_path, "[saliency, random]", f"[random, 'python:{NETS}:interrupted']"
    )
    interrupting.write_text(interrupting.read_text().replace("shard_size: 4", "shard_size: 2"))
    words = ("run", interrupting, "--allow-code", "--out", "run")
    (tmp_path / "interrupt").write_text(sent)
    done = process(*words, cwd=tmp_path)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "interrupt").exists()
    assert command("verify", tmp_path / "run").code == 1
    kept = {path: path.read_bytes() for path in (tmp_path / "run" / "parts").rglob("*.parquet")}
    assert len(kept) > 0
    monkeypatch.chdir(tmp_path)
    assert command(*words).code == 0
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert command("verify", tmp_path / "run").code == 0
    words = ("run", interrupting, "--allow-code", "--out", tmp_path / "never-interrupted")
    assert command(*words).code == 0
    assert_same(
        heatproof.read(tmp_path / "run").table(),
        heatproof.read(tmp_path / "never-interrupted").table(),
    )
