"""What a terminal shows: the verdict, one sample's story, and what a run holds."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import holdfast
from holdfast.cli.read import list_names, report, show
from holdfast.errors import UserError
from holdfast.report.story import sparkline
from support import small

AXES = {
    "stability": {"stability": {"perturbations": ["jpeg", {"gaussian_noise": {"sigma": 0.6}}], "k": 50}},
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
    data = holdfast.Batch(tuple(f"set/{i:02d}.png" for i in range(9)), images, {}, labels)
    out = tmp_path_factory.mktemp("show") / "run"
    return holdfast.evaluate(small.model(), data, ["saliency", "random"], AXES, out)


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
    assert f"predicted {facts.predicted_name} ({facts.predicted}) with probability {facts.probability:.2f}" in text
    assert flips["reason"].iloc[0].split(" to ")[-1] in text and "flipped: top-1 changed from" in text
    rate = table[(table["sample"] == sample) & (table.measure == "rate") & (table.explainer == "saliency")].iloc[0]
    assert f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]" in text
    fass = table[(table.measure == "fass") & (table.condition == "jpeg") & (table.explainer == "saliency")]
    own = fass[fass["sample"] == sample].iloc[0]
    others = fass[(fass["sample"] != sample) & (fass.status == "ok")]
    if own.status == "ok":
        below = 100 * np.mean(others.value < own.value)
        assert f"{own.value:.2f}  usual {fass.value.median():.2f}, above {below:.0f} % of {len(others)} others" in text
    curve = table[(table["sample"] == sample) & (table.measure == "probability") & (table.explainer == "saliency")]
    values = curve[curve.condition == "zero morf"].sort_values("level").value.tolist()
    assert f"zero morf  {sparkline(values)}  {values[0]:.2f} → {values[-1]:.2f}" in text


def test_a_filter_and_an_ending_find_what_they_name_and_mistakes_name_the_nearest(run):
    only = call("show", run.path, "--sample", "03.png", "--explainer", "sal*").output
    assert only.startswith("set/03.png") and "  saliency" in only and "  random" not in only
    for arguments, said in (
        (("--sample", "set/93.png"), "no sample 'set/93.png'; the nearest are set/03.png"),
        (("--sample", ".png"), "9 samples end in '.png'"),
        (("--sample", "03.png", "--explainer", "salience"), "did you mean 'saliency'"),
        (("--explainer", "salience"), "did you mean 'saliency'"),
    ):
        failure = call("show", run.path, *arguments).exception
        assert isinstance(failure, UserError) and said in str(failure)


def test_the_overview_lists_the_samples_with_the_lowest_scores_first(run):
    text = call("show", run.path, "--worst", 3).output
    assert "complete" in text and "jpeg quality 40" in text and "set, " not in text.splitlines()[0]
    table = run.table()
    fass = table[(table.measure == "fass") & (table.explainer == "saliency") & (table.condition != "redraw")]
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


@pytest.mark.parametrize("no_colour", [False, True])
def test_a_terminal_gets_colours_unless_told_otherwise(run, no_colour, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, shown), daemon=True)
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        show(run.path, None, None, 3)
    monkeypatch.undo()
    reader.join(60)
    os.close(ours)
    text = b"".join(shown).decode()
    assert "lowest fass" in text
    assert ("\x1b[1;36m" in text) is not no_colour
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    table = plain[[line.startswith("Samples with") for line in plain].index(True) : -1]
    assert max(map(len, table[1:])) <= 60
