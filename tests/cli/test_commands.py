"""The command line as typed: what it prints, where results go, and one line for a mistake."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import heatproof
from heatproof import cli
from heatproof.cli.export import _say
from heatproof.models.guards import untrained_head
from heatproof.report.figures import File, Written
from heatproof.rules import RULES
from heatproof.runs.study.registry import EXPLAINERS
from heatproof.truth.validate import MARK
from support.paths import SMALL, TESTS
from support.small import pictures
from support.whole import BASE, MOVED

STUDY = f"""\
model: python:{SMALL}:model
data: python:{SMALL}:dataset
explainers: [saliency, random]
evaluations: [{{stability: {{perturbations: [jpeg, {{rotation: {{degrees: [5, 10]}}}}], k: 50}}}}]
limit: 6
"""


def write(folder: Path, text: str = STUDY) -> Path:
    path = folder / "shapes.yaml"
    path.write_text(text)
    return path


def installed(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("heatproof")), *map(str, arguments)]
    if not Path(command[0]).is_file():
        command[:1] = [sys.executable, "-m", "heatproof"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_installed_command_runs_a_study_and_ends_with_the_path_of_the_report(tmp_path):
    done = installed("run", write(tmp_path), "--allow-code", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = Path(re.fullmatch(r"report: (.*)", done.stdout.strip().splitlines()[-1])[1])
    assert report == tmp_path / "runs" / "shapes" / "report.html"
    assert report.stat().st_size > 10_000
    assert "saliency" in done.stdout and "random" in done.stdout
    # Not a terminal: no bar, no colours, no carriage returns.
    assert done.stderr == ""
    assert not re.search(r"[\x1b\r\b]", done.stdout)
    run = heatproof.read(tmp_path / "runs" / "shapes")
    command = run.manifest.command
    assert command.startswith("heatproof run ") and "--allow-code" in command
    assert len(run.samples()) == 6
    assert set(zip(run.table().condition, run.table().level, strict=True)) == {
        *{("jpeg", 40.0), ("rotation", 5.0), ("rotation", 10.0)},
        ("redraw", 0.0),
    }


def test_the_installed_command_answers_a_mistake_with_one_line(tmp_path):
    done = installed(
        "run", write(tmp_path, STUDY.replace("saliency", "sailency")), "--allow-code", cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert (
        done.stderr.startswith("heatproof: ")
        and "line 3" in done.stderr
        and "'saliency'" in done.stderr
    )


def test_run_obeys_out_limit_and_seed(main, tmp_path):
    out = tmp_path / "here"
    arguments = ("run", write(tmp_path), "--allow-code", "--out", out, "--limit", 2)
    code, text, _ = main(*arguments, "--seed", 5)
    assert code == 0 and str(out / "report.html") in text
    run = heatproof.read(out)
    assert run.manifest.study.seed == 5
    assert len(run.samples()) == 2
    code, _, error = main(*arguments, "--seed", 6)
    assert code == 2 and re.search("seed.*5.*6", error)
    code, _, _ = main(*arguments, "--seed", 5)
    assert code == 0
    assert [s.passes["shapes"] > 0 for s in heatproof.read(out).manifest.sessions] == [
        True,
        False,
    ]


def test_a_run_says_beforehand_how_long_it_takes_and_what_it_leaves_out(
    main, tmp_path, monkeypatch
):
    monkeypatch.setattr("heatproof.runs.cost.WORTH_AN_ESTIMATE", 6)
    (tmp_path / "net.py").write_text(
        "import torch, heatproof\n"
        "def number():\n"
        "    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 1))\n"
        "    net[1].weight.data, net[1].bias.data = torch.linspace(-1, 1, 3072)[None], torch.zeros(1)\n"
        "    return heatproof.Model(net, task={'regression': {'tolerance': 0.5}})\n"
    )
    axis = "[{certificate: {radii: [1], features: {patches: {size: 16}}}}]"
    study = re.sub(
        "evaluations: .*", f"evaluations: {axis}", STUDY.replace(f"{SMALL}:model", "net.py:number")
    )
    code, text, error = main(
        "run", write(tmp_path, study), "--allow-code", "--out", tmp_path / "run"
    )
    assert code == 0, error
    assert re.search(r"^about .*estimated", text, re.M)
    assert re.search("certificate.*regression", text)
    code, text, _ = main("run", tmp_path / "shapes.yaml", "--allow-code", "--out", tmp_path / "run")
    assert code == 0 and "estimated" not in text, "what is done already needs no estimate"
    more = ("--allow-code", "--out", tmp_path / "run", "--verbose")
    code, verbose, _ = main("run", tmp_path / "shapes.yaml", *more)
    assert code == 0 and len(verbose.splitlines()) > len(text.splitlines())
    assert re.search(r"^ *rank +explainer", verbose, re.M)
    assert not re.search(r"^ *rank +explainer", text, re.M)


def test_validate_says_and_writes_what_measures_tell(main, tmp_path):
    table = tmp_path / "validation.md"
    table.write_text(f"Kept.\n{MARK}Gone.\n")
    code, text, error = main(
        "validate", "--quick", "--only", "words", "--seed", 1, "--markdown", table
    )
    assert code == 0, error
    written = table.read_text()
    assert (
        written.startswith(f"Kept.\n{MARK}")
        and "Gone." not in written
        and "--quick --seed 1" in written
    )
    assert text.splitlines()[-1] == str(table) and len(text.splitlines()) > 3


def test_report_is_drawn_again(main, tmp_path):
    images = pictures(3)[0]
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    jpeg = heatproof.Stability(perturbations="jpeg", k=50)
    run = heatproof.evaluate(net, images, "saliency", jpeg, tmp_path / "run")
    assert not (run.path / "report.html").exists()
    code, text, _ = main("report", run.path)
    assert code == 0 and Path(text.strip()) == run.path / "report.html"
    code, text, _ = main("report", run.path, "--out", tmp_path / "a" / "b.html")
    assert (
        code == 0
        and (tmp_path / "a" / "b.html").read_bytes() == (run.path / "report.html").read_bytes()
    )


LISTED = {
    "explainers": [
        "integrated_gradients",
        "grad_cam",
        "lime",
        "smoothgrad",
        "random",
        "sobel",
        "steps=",
    ],
    "perturbations": [
        "rotation",
        "translation",
        "brightness",
        "gaussian_noise",
        "jpeg",
        "elastic",
        "geometric",
    ],
    "measures": ["ssim", "spearman", "jaccard", "fass", "fass_unaligned", "noise_floor"],
    "presets": ["fass-paper", "fass-mild", "rotation 15°", "jpeg quality 85"],
    "evaluations": ["fractions=[0.1, 0.2", "features=pixels"],
    "groups": ["dihedral", "permutation"],
    "features": ["patches", "superpixels", "tokens"],
    "imputers": ["noisy_linear", "reference_mean", "hidden"],
}


@pytest.mark.parametrize("what", LISTED)
def test_ls_names_everything_with_a_line_each(main, what):
    code, text, error = main("ls", what)
    assert code == 0 and error == ""
    for word in LISTED[what]:
        assert word in text, word
    registry = {"explainers": EXPLAINERS, "perturbations": heatproof.perturbations.KNOWN}
    registry |= {
        "presets": heatproof.perturbations.KNOWN_PRESETS,
        "evaluations": heatproof.axes.EVALUATIONS,
    }
    names = [re.match(r"\S+: \S+|\S+", line)[0] for line in text.splitlines()]
    if what != "measures":  # axes may have different measures of one name
        assert len(names) == len(set(names))
    if what in registry:
        assert [name for name in names if ": " not in name] == list(registry[what])


def test_ls_measures_names_every_axis_that_has_a_measure(main):
    _, text, _ = main("ls", "measures")
    for axis in heatproof.axes.AXES:
        for measure in axis.measures:
            lines = [line for line in text.splitlines() if line.split()[0] == measure.name]
            of_axis = [
                line for line in lines if re.search(rf"\b{axis.name}\b", line.partition(":")[0])
            ]
            assert of_axis, (axis.name, measure.name)
            assert any(measure.text in line for line in of_axis)


def test_ls_of_something_else_names_the_listings():
    done = CliRunner().invoke(cli.app, ["ls", "colours"])
    assert done.exit_code == 2
    for what in LISTED:
        assert what in done.output
    assert "Traceback" not in done.output


def picture_folder(folder: Path) -> Path:
    (folder / "photos").mkdir()
    pixels = (pictures(1)[0][0] * 255).to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(np.asarray(pixels)).save(folder / "photos" / "a.png")
    return folder / "photos"


MISTAKES = {
    "no study": (None, "shapes.yaml"),
    "not YAML": ("model: [", "line 1"),
    "not a study": ("- 1", "mapping"),
    "a word for a key": (STUDY.replace("limit", "limits"), "'limit'"),
    "bad limit": (STUDY.replace("limit: 6", "limit: 0"), "line 5: limit"),
    "bad k": (STUDY.replace("k: 50", "k: -1"), "line 4"),
    "bad perturbation": (STUDY.replace("jpeg", "jpg"), "'jpeg'"),
    "unknown device": (STUDY + "device: gpu\n", "'gpu'"),
    "no such model": (STUDY.replace("small.py:model", "small.py:modle"), "model"),
    "no such data": (STUDY.replace("small.py:dataset", "smal.py:dataset"), "small.py"),
    "code not allowed": (STUDY, "--allow-code"),
    "not text": (b"model: \xff\xfe", "UTF-8"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(main, tmp_path, what):
    text, words = MISTAKES[what]
    study = tmp_path / "shapes.yaml"
    if text is not None:
        study.write_bytes(text if isinstance(text, bytes) else text.encode())
    allow = [] if what == "code not allowed" else ["--allow-code"]
    code, shown, error = main("run", study, "--out", tmp_path / "run", *allow)
    assert code == 2 and shown == ""
    assert error.startswith("heatproof: ") and len(error.strip().splitlines()) == 1
    assert words in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_a_report_of_no_run_is_a_mistake(main, tmp_path):
    code, _, error = main("report", tmp_path)
    assert code == 2 and str(tmp_path) in error and len(error.strip().splitlines()) == 1


OUT_OF_RANGE = [
    (("run", "STUDY", "--limit", 0), ("--limit", "0")),
    (("run", "STUDY", "--workers", 0), ("--workers", "0")),
    (("plan", "STUDY", "--limit", 0), ("--limit", "0")),
    (("demo", "--limit", 0), ("--limit", " 0")),
    (("demo", "--limit", 999), ("--limit", "999")),
    (("report", "HERE", "--out", "HERE"), ("--out", "HERE/report.html")),
    (("compare", "HERE", "HERE", "--out", "HERE"), ("--out", "HERE/comparison.html")),
    (("validate", "--markdown", "HERE"), ("--markdown", "HERE/validation.md")),
]


@pytest.mark.parametrize(("words", "facts"), OUT_OF_RANGE)
def test_an_option_out_of_range_is_a_mistake(main, tmp_path, words, facts):
    places = {"STUDY": write(tmp_path), "HERE": tmp_path}
    code, _, error = main(*(places.get(word, word) for word in words))
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    for fact in facts:
        assert fact.replace("HERE", str(tmp_path)) in error


def test_data_by_path_is_found_beside_the_study(main, tmp_path, monkeypatch):
    picture_folder(tmp_path)
    monkeypatch.chdir(TESTS)
    study = write(tmp_path, re.sub("data: .*", "data: {source: photos, size: 32}", STUDY))
    code, _, error = main("run", study, "--allow-code", "--out", tmp_path / "run")
    assert code == 0, error
    assert heatproof.read(tmp_path / "run").samples()["sample"].tolist() == ["a.png"]


def test_an_interruption_says_how_to_go_on(main, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("heatproof.runs.evaluate.run_jobs", interrupt)
    code, _, error = main("run", write(tmp_path), "--allow-code", "--out", tmp_path / "run")
    assert code == 130
    assert error.strip() and "Traceback" not in error


def test_an_error_that_is_not_the_users_is_not_hidden(tmp_path, monkeypatch):
    def broken(*_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("heatproof.runs.evaluate.run_jobs", broken)
    arguments = ["run", write(tmp_path), "--allow-code", "--out", tmp_path / "run"]
    monkeypatch.setattr(sys, "argv", ["heatproof", *map(str, arguments)])
    with pytest.raises(ValueError, match="a mistake of ours"):
        cli.main()


def test_verify_finds_a_whole_run_whole_and_exits_with_0(main):
    code, text, error = main("verify", BASE)
    assert (code, error) == (0, "")
    assert text.count("\n") == 1


def test_a_report_in_text_names_every_method_and_is_not_written(main):
    code, text, _ = main("report", MOVED, "--text")
    assert code == 0
    for method in ("Grad-CAM", "LIME", "ntegrated Gradients"):
        assert method in text
    code, _, error = main("report", MOVED, "--text", "--out", "x.html")
    assert code == 2
    assert "--text" in error and "--out" in error


def test_a_rule_is_explained_by_its_name_and_all_are_listed(main):
    code, text, error = main("rule", "few-references")
    assert (code, error) == (0, "")
    assert "references: 64" in text and RULES["few-references"].summary in text
    code, text, _ = main("rule")
    assert code == 0
    assert [line.split()[:2] for line in text.splitlines()] == [
        [rule.severity, rule.name] for rule in RULES.values()
    ]
    code, text, error = main("rule", "few-reference")
    assert code == 2 and text == ""
    assert "'few-references'" in error and error.count("\n") == 1


LIMITS = [
    # A requirement that the run meets, and the option with which it fails.
    ("stability.fass{explainer=grad_cam, condition=jpeg} >= 0.3", ("--min-samples", 20)),
]


@pytest.mark.parametrize(("wish", "limit"), LIMITS)
def test_the_gate_is_stricter_with_an_option(main, wish, limit):
    assert main("check", MOVED, "--require", wish)[0] == 0
    assert main("check", MOVED, "--require", wish, *limit)[0] == 1


def test_a_strict_bound_is_lower_where_scores_are_missing(main):
    """Without the option such means have the approximate bound; with it every condition is bet on."""
    wish = ("--min-samples", 3, "--require", "stability.fass{explainer=grad_cam} >= 0.5")
    code, text, _ = main("check", MOVED, *wish)
    assert code == 0 and "Hall" in text
    code, text, _ = main("check", MOVED, *wish, "--strict")
    assert code == 1 and "betting" in text


def test_exports_name_the_files_that_they_wrote(main, tmp_path):
    code, text, _ = main("export", MOVED, "--to", "csv", "--out", tmp_path / "csv")
    assert code == 0
    assert str(tmp_path / "csv") in text
    assert list((tmp_path / "csv").glob("*.csv"))
    code, _, error = main("export", MOVED, "--to", "maps", "--out", tmp_path / "maps")
    assert code == 2, "the run has no maps"
    assert "keep_maps" in error


def test_figures_name_their_index_or_say_that_nothing_was_written(tmp_path, capsys):
    file = File(tmp_path / "curve.pdf", "curve", "paper", "net", "caption")
    _say(Written([file], tmp_path / "index.json"))
    assert "index.json" in capsys.readouterr().out
    _say(Written([], tmp_path / "index.json"))
    nothing = capsys.readouterr().out
    assert "index.json" not in nothing and "no scores" in nothing


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite_pytorch") is None,
    reason="the demo's packages are not installed",
)
def test_the_demo_can_be_planned():
    from heatproof.runs.study.demo import demo_plan

    plan = demo_plan(limit=1)
    assert [len(data) for data in plan.data.values()] == [1]
    (net,) = plan.models.values()
    assert net.passes == 0 and untrained_head(net.module) is None
    assert len(plan.explainers) == 7 and {"sobel", "weight_noise"} <= set(plan.explainers)
    assert len(plan.evaluations["stability"].conditions()) == 5


def test_plan_says_what_a_study_would_do_and_could_tell_apart(tmp_path):
    asked = [
        "plan",
        str(write(tmp_path, STUDY.replace("[saliency,", "[saliency, input_x_gradient,"))),
        "--allow-code",
    ]
    done = CliRunner().invoke(cli.app, asked)
    assert done.exit_code == 0, done.output
    assert re.search(r"stability.*3 conditions.*3 explainers", done.output)
    assert re.search(r"6 samples, 2 methods.*\b8\b", done.output)
    passes = int(re.search(r"about (\d+) passes", done.output)[1])
    again = CliRunner().invoke(cli.app, [*asked, "--no-trial"]).output
    assert "passes" not in again
    assert re.search("chance.* 6 ", again)
    run = CliRunner().invoke(cli.app, ["run", *asked[1:], "--out", str(tmp_path / "run")])
    assert run.exit_code == 0, run.output
    taken = heatproof.read(tmp_path / "run").manifest.sessions[-1].passes
    assert 0.5 * sum(taken.values()) < passes < 2 * sum(taken.values())
