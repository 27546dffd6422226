"""Models whose right map is known, maps that are less true, and what `validate` makes of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from heatproof import UserError
from heatproof.axes import AXES
from heatproof.cli import app
from heatproof.models.tasks import REGION
from heatproof.truth import GRADES, corrupted, truths, validate
from heatproof.truth.validate import MARK, markdown, needed, sentences

EVERY = truths()
PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


def test_there_are_enough_of_every_kind():
    assert len(EVERY) >= 9
    kinds = {tag for truth in EVERY for tag in truth.tags}
    assert kinds >= {
        "image",
        "series",
        "table",
        "set",
        "text",
        "invariant image",
        "invariant set",
        "region",
    }


@pytest.mark.parametrize("truth", EVERY, ids=lambda truth: truth.name)
def test_right_maps_are_integrated_gradients_from_a_blank_input(truth):
    batch, model = truth.samples(12), truth.model()
    inputs = model.inputs(batch)
    logits = model.logits(inputs, batch.aux)
    target = logits.argmax(1)
    right = model.module.right(inputs, target)
    assert right.shape == inputs.shape and len(target.unique()) > 1
    assert torch.allclose(right.flatten(1).sum(1), logits.max(1).values, rtol=1e-4, atol=1e-4)
    steps = 400
    total = torch.zeros_like(inputs)
    for step in range(steps):
        x = (inputs * (step + 0.5) / steps).requires_grad_()
        score = model.logits(x, batch.aux).gather(1, target[:, None]).sum()
        total += torch.autograd.grad(score, x)[0] / steps
    assert torch.allclose(total * inputs, right, atol=0.02 * float(right.abs().max()))


def test_samples_are_drawn_by_key_and_regions_hold_the_parts():
    for truth in EVERY:
        few, many = truth.samples(3), truth.samples(5)
        assert torch.equal(few.x, many.x[:3]) and not torch.equal(few.x, truth.samples(3, seed=1).x)
        assert (REGION in few.aux) == ("region" in truth.tags)
    planted = next(truth for truth in EVERY if truth.name == "planted")
    region = planted.samples(6).aux[REGION]
    assert (region.flatten(1).sum(1) <= 25).all() and (region.flatten(1).sum(1) >= 20).all()


def test_corruptions_are_what_they_say():
    truth = EVERY[0]
    model, batch = truth.model(), truth.samples(8)
    target = model.logits(batch.x).argmax(1)
    maps = {
        name: corrupted(*made, model, batch, target, 0).flatten(1).double()
        for name, made in GRADES.items()
    }
    right = maps["right map"]

    def near(name: str) -> float:
        return float(torch.nn.functional.cosine_similarity(right, maps[name]).mean())

    ordered = [
        near(name)
        for name in ("right map", "noise 0.05", "noise 0.3", "noise 1", "noise 3", "random")
    ]
    assert (
        ordered == sorted(ordered, reverse=True)
        and ordered[1] > 0.99 > ordered[2]
        and abs(ordered[-1]) < 0.1
    )
    assert near("sign flipped") == pytest.approx(-1) and maps["constant"].unique().tolist() == [1]
    assert (
        torch.equal(maps["shuffled"].sort(1).values, right.sort(1).values)
        and abs(near("shuffled")) < 0.2
    )
    assert 0.3 < near("blurred") < 1 and near("shifted") < 0.7 and near("wrong class") < 0.7
    noisy = maps["noise 1"] - right
    assert torch.allclose(noisy.square().mean(1), right.square().mean(1), rtol=0.2)
    other = corrupted("noise", 1.0, model, batch.with_x(batch.x + 0.01), target, 0).flatten(1)
    assert not torch.allclose(other - right, noisy, atol=0.1 * float(noisy.std())), (
        "fresh noise for every input"
    )


def test_samples_needed_by_brute_force():
    for share in (0.6, 0.75, 0.9):
        n = needed(share)

        def power(n: int, share: float = share) -> float:
            enough = [
                k for k in range(n + 1) if stats.binomtest(k, n, 0.5, "greater").pvalue <= 0.05
            ]
            return sum(stats.binom.pmf(k, n, share) for k in enough)

        assert power(n) >= 0.8 and all(power(m) < 0.8 for m in range(1, n)), share


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return validate(6, only=["planted", "columns"])


def test_shares_have_exact_intervals_and_verdicts_follow(found):
    for row in found.itertuples():
        if not row.n:
            assert row.verdict == "" and np.isnan(row.share)
            continue
        wins, losses = (
            stats.binomtest(k, row.n).proportion_ci(0.95) for k in (row.wins, row.losses)
        )
        assert (row.low, row.high) == pytest.approx((wins.low, wins.high), abs=1e-9)
        assert row.wins + row.losses <= row.n and row.share == row.wins / row.n
        expected = "prefers" if wins.low > 0.5 else "misled" if losses.low > 0.5 else "blind"
        assert row.verdict == expected


def test_what_theory_demands(found):
    """Infidelity is least for the truth, weights tell an edge detector, and constant maps have no score."""
    by = found.set_index(["axis", "measure", "corruption"])
    for corruption in ("noise 1", "noise 3", "shuffled", "sign flipped", "random"):
        assert by.loc[("faithfulness", "infidelity", corruption), "share"] == 1
    for corruption in ("edge filter", "random"):
        assert by.loc[("dependence", "dependence", corruption), "share"] == 1
    assert by.loc[("stability", "fass", "sign flipped"), "verdict"] == "blind", (
        "−a is as stable as a"
    )
    assert by.loc[("localisation", "relevance_mass", "random"), "verdict"] == "prefers"
    assert (found["constant"] == 0).all(), "a constant map never has a score"
    axes = {axis.name for axis in AXES if axis.evaluation is not None and axis.name != "symmetry"}
    assert set(found["axis"]) == axes


def test_words_and_page_say_what_the_table_says(found):
    told = dict(sentences(found))
    assert "prefers" in told["faithfulness.infidelity"]
    assert "higher than" in told["dependence.dependence"], "neither direction is better"
    assert "prefers" not in told["dependence.dependence"]
    text = markdown(found, 6, " --quick")
    assert text.startswith(
        "`heatproof validate --quick --markdown docs/validation.md`, 6 samples of each model"
    )
    assert all(f"- `{name}`: {sentence}" in text for name, sentence in told.items())


def test_the_command_prints_and_writes(tmp_path):
    page = tmp_path / "v.md"
    page.write_text(f"# Kept\n\n{MARK}gone")
    done = CliRunner().invoke(
        app, ["validate", "--quick", "--only", "columns", "--markdown", str(page)]
    )
    assert done.exit_code == 0, done.output
    assert "stability.fass" in done.output and "columns" in page.read_text()
    assert (
        page.read_text().startswith(f"# Kept\n\n{MARK}`heatproof validate")
        and "gone" not in page.read_text()
    )
    with pytest.raises(UserError, match=r"'plantd'.*'planted'"):
        validate(2, only=["plantd"])


def test_headlines_declare_what_the_page_of_validation_shows():
    """What the report says of a headline is the row of docs/validation.md, written by the command."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    rows = {}
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        rows[cells[0], cells[1].strip("`")] = dict(zip(head, cells, strict=True))
    names = [name for name in GRADES if name in head]
    for axis in AXES:
        known = {
            m.name
            for m in axis.measures
            if m.role == "headline" and m.sign and (axis.name, m.name) in rows
        }
        marked = {
            m: {n for n in names if rows[axis.name, m][n].endswith(("?", "!"))} for m in known
        }
        assert set(axis.blind_spots) == {m for m in known if marked[m]}, axis.name
        for (
            measure,
            corruptions,
        ) in axis.blind_spots.items():  # two axes of certificates declare what they share
            assert set(corruptions) <= marked[measure], (axis.name, measure)
