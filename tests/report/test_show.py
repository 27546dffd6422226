"""What a terminal shows: the verdict, one sample's story, and what a run holds."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import heatproof
from heatproof.cli.read import MOST_UNREADABLE, Listing, list_names, report, show
from heatproof.errors import UserError
from heatproof.report.figures import write
from heatproof.report.sample import _standing, sparkline
from support import small

AXES = {
    "stability": {
        "stability": {"perturbations": ["jpeg", {"gaussian_noise": {"sigma": 0.6}}], "k": 50}
    },
    "certificate": {"certificate": {"radii": (2,), "features": {"patches": {"size": 8}}}},
    "faithfulness": {
        "faithfulness": {
            "imputers": "zero",
            "fractions": (0.2, 0.5, 0.8),
            "orders": ("morf", "lerf"),
            "metrics": ("road",),
        }
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    images, labels = small.pictures(9)
    data = heatproof.Batch(tuple(f"set/{i:02d}.png" for i in range(9)), images, {}, labels)
    out = tmp_path_factory.mktemp("show") / "run"
    return heatproof.evaluate(small.model(), data, ["saliency", "random"], AXES, out)


def call(*arguments):
    app = typer.Typer()
    for name, command in (("report", report), ("show", show), ("ls", list_names)):
        app.command(name)(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_story_tells_scores_flips_bounds_and_curves_as_the_table_has_them(run):
    table, samples = run.table(), run.samples()
    flips = table[(table.status == "flipped") & (table.measure == "fass")]
    assert len(flips), "the noise is meant to flip some predictions"
    sample = flips["sample"].iloc[0]
    done = call("show", run.path, "--sample", sample)
    assert done.exit_code == 0, done.exception
    text = done.output
    assert max(map(len, text.splitlines())) <= 100
    facts = samples.set_index("sample").loc[sample]
    predicted = rf"{facts.predicted_name} \({facts.predicted}\).* {facts.probability:.2f}"
    assert re.search(predicted, text)
    assert flips["reason"].iloc[0].split(" to ")[-1] in text and "flipped" in text
    rate = table[
        (table["sample"] == sample) & (table.measure == "rate") & (table.explainer == "saliency")
    ].iloc[0]
    assert f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]" in text
    fass = table[
        (table.measure == "fass") & (table.condition == "jpeg") & (table.explainer == "saliency")
    ]
    own = fass[fass["sample"] == sample].iloc[0]
    others = fass[(fass["sample"] != sample) & (fass.status == "ok")]
    if own.status == "ok":
        below = 100 * np.mean(others.value < own.value)
        shown = rf"{own.value:.2f} .*{fass.value.median():.2f}.* {below:.0f} % of {len(others)}\b"
        assert re.search(shown, text)
    curve = table[
        (table["sample"] == sample)
        & (table.measure == "probability")
        & (table.explainer == "saliency")
    ]
    values = curve[curve.condition == "zero morf"].sort_values("level").value.tolist()
    assert f"zero morf  {sparkline(values)}  {values[0]:.2f} → {values[-1]:.2f}" in text


def test_one_sample_is_not_set_beside_others(tmp_path):
    lone = heatproof.evaluate(
        small.model(), small.pictures(1), ["saliency"], AXES["stability"], tmp_path / "run"
    )
    text = call("show", lone.path, "--sample", lone.samples()["sample"].iloc[0]).output
    assert re.search(r"jpeg quality 40 +\d\.\d\d", text) and "others" not in text


def test_a_value_stands_half_above_those_that_equal_it():
    every = np.array([0.0, 0.0, 0.0, 0.4, 1.0, 1.0])
    for i, value in enumerate(every):
        others = np.delete(every, i)
        above = np.mean(np.where(others == value, 0.5, others < value))
        assert _standing(value, every) == (0.2, pytest.approx(above), 6)


def test_the_figure_of_maps_has_the_pictures_of_the_run(run, tmp_path):
    (figure, _) = write(run, tmp_path, ("svg",), ["proof-sheet"])
    pictured = figure.read_text().count("<image")
    assert pictured == str(run.proof_sheet().svg("")).count("<image") > 2


def test_a_filter_and_an_ending_find_what_they_name_and_mistakes_name_the_nearest(run):
    only = call("show", run.path, "--sample", "03.png", "--explainer", "sal*").output
    assert only.startswith("set/03.png") and "  saliency" in only and "  random" not in only
    for arguments, said in (
        (("--sample", "set/93.png"), "'set/93.png'.*set/03.png"),
        (("--sample", ".png"), r"9 .*'\.png'"),
        (("--sample", "03.png", "--explainer", "salience"), "'saliency'"),
        (("--explainer", "salience"), "'saliency'"),
    ):
        failure = call("show", run.path, *arguments).exception
        assert isinstance(failure, UserError) and re.search(said, str(failure))


def test_the_overview_lists_the_samples_with_the_lowest_scores_first(run):
    text = call("show", run.path, "--worst", 3).output
    assert "complete" in text and "jpeg quality 40" in text and "set, " not in text.splitlines()[0]
    table = run.table()
    fass = table[
        (table.measure == "fass") & (table.explainer == "saliency") & (table.condition != "redraw")
    ]
    mean = fass.assign(value=fass.value.where(fass.status == "ok")).groupby("sample").value.mean()
    order = mean.sort_values(na_position="first").index[:3].tolist()
    assert [name for name in re.findall(r"^  (set/\d\d\.png)", text, re.M)] == order
    assert text.splitlines()[-1].endswith(f"--sample {order[0]}")


def test_the_verdict_fits_a_narrow_page_and_is_plain_in_a_pipe(run):
    text = call("report", run.path, "--text").output
    assert "Stability" in text and "Certificates" in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert not (run.path / "report.html").exists()
    assert isinstance(call("report", run.path, "--text", "--out", "x.html").exception, UserError)


def read_all(end: int, into: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(end, 4096)
        except OSError:  # how Linux says that the other end is closed
            return
        if not piece:
            return
        into.append(piece)


def test_samples_that_could_not_be_read_are_told_of(tmp_path):
    for i in range(MOST_UNREADABLE + 4):
        (tmp_path / f"{i:02d}.png").write_bytes(b"no picture")
    for i in range(2):
        Image.fromarray((small.pictures(2)[0][i] * 255).byte().permute(1, 2, 0).numpy()).save(
            tmp_path / f"{i:02d}.png"
        )
    data, axis = heatproof.open_data(tmp_path, size=32), {"s": AXES["stability"]}
    found = heatproof.evaluate(
        small.model(), data, "saliency", axis, tmp_path / "run", shard_size=2
    )
    n = MOST_UNREADABLE + 2
    assert re.search(rf"\b{n} samples", call("show", found.path).output)
    assert "read" in call("show", found.path, "--sample", "05.png").output
    text = call("report", found.path, "--text").output
    assert f"{n} of {n + 2} samples" in text
    assert "and 2 more" in text and "11.png" in text and "12.png" not in text


def test_a_prediction_without_a_probability_is_told_as_it_is(tmp_path):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 1))
    value = heatproof.Model(net, task={"regression": {"tolerance": 9.0}})
    axis = {"stability": {"stability": {"perturbations": "brightness", "k": 5}}}
    made = heatproof.evaluate(value, torch.rand(3, 3, 4, 4), "saliency", axis, tmp_path)
    (line,) = (
        line
        for line in call("show", tmp_path, "--sample", "0001").output.splitlines()
        if "predicted" in line
    )
    assert line.endswith(made.samples().set_index("sample").predicted_name["0001"])


def test_nothing_is_lowest_where_only_controls_were_judged(tmp_path):
    axis = {"stability": {"stability": {"perturbations": "jpeg", "k": 50}}}
    heatproof.evaluate(small.model(), small.pictures(2)[0], "random", axis, tmp_path)
    assert "Samples with" not in call("show", tmp_path).output


def test_a_terminal_gets_lists_in_lines_that_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    text = on_terminal(monkeypatch, lambda: list_names(Listing.explainers))
    lines = text.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 70 and any(line.startswith("   ") for line in lines)
    joined, piped = " ".join(text.split()), call("ls", "explainers").output
    assert joined == " ".join(piped.split()) and max(map(len, piped.splitlines())) > 70


def on_terminal(monkeypatch, act) -> str:
    """What a terminal is given by `act`."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, shown), daemon=True)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        act()
    reader.join(60)
    os.close(ours)
    return b"".join(shown).decode()


@pytest.mark.parametrize("no_colour", [False, True])
def test_a_terminal_gets_colours_unless_told_otherwise(run, no_colour, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    text = on_terminal(monkeypatch, lambda: show(run.path, None, None, 3))
    assert "lowest fass" in text
    assert ("\x1b[1;36m" in text) is not no_colour
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    table = plain[[line.startswith("Samples with") for line in plain].index(True) : -1]
    assert max(map(len, table[1:])) <= 60
