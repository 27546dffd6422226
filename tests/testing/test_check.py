"""The gate: what it lets through is decided by confidence bounds, and doubt is a failure with its reason."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

import heatproof
from heatproof.cli.compare import check as check_command
from heatproof.errors import UserError
from heatproof.runs.directory import PartKey, RunDirectory
from heatproof.runs.manifest import FORMAT, Manifest, write_manifest
from heatproof.runs.results import arrays_of_run
from heatproof.runs.tables import SAMPLES, SCORES
from heatproof.statistics.bounds_of_means import bet_on_mean, bound_mean, samples_needed
from heatproof.statistics.estimates import of_means
from heatproof.statistics.intervals import rate_interval
from heatproof.testing import assert_run_holds
from heatproof.testing.check import Limits, check
from heatproof.testing.output import lines
from heatproof.testing.requirement import parse, read_requirements
from support import row_statistics, synthetic


def run_of(root: Path, table: pd.DataFrame) -> heatproof.Run:
    """A run directory with these rows, as a finished study would leave it."""
    datasets = {
        str(name): {"samples": rows["sample"].nunique()} for name, rows in table.groupby("dataset")
    }
    study = {
        "seed": 0,
        "datasets": datasets,
        "models": {name: {} for name in table["model"].unique()},
    }
    study["explainers"] = {name: {"name": name} for name in table["explainer"].unique()}
    study["evaluations"] = {
        name: {
            "name": name,
            "conditions": [],
            "left_out": {e: "" for e in set(table["explainer"]) - set(own["explainer"])},
        }
        for name, own in table.groupby("evaluation")
    }
    about = {"format": FORMAT, "heatproof": "0", "shard_size": 10_000, "study": study}
    write_manifest(root, Manifest.model_validate(about))
    run_directory = RunDirectory(root)
    whole = synthetic.stored(table)
    for (dataset, model, evaluation, explainer), rows in whole.groupby(
        ["dataset", "model", "evaluation", "explainer"], sort=False
    ):
        part = pa.Table.from_pandas(rows, schema=SCORES, preserve_index=False)
        run_directory.write(PartKey.scores((dataset, model, 0), evaluation, explainer), part)
    for dataset, model in table[["dataset", "model"]].drop_duplicates().itertuples(index=False):
        run_directory.write(PartKey.samples((dataset, model, 0)), SAMPLES.empty_table())
    return heatproof.read(root)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rate = [
        ("grad_cam", "rate", "radius", 5.0, np.linspace(0.8, 1, 20)),
        ("grad_cam", "rate", "radius", 9.0, np.linspace(0, 0.4, 20)),
        ("hollow(k=1, l=2)", "rate", "radius", 5.0, [np.nan] * 20),
    ]
    accuracy = [
        ("grad_cam", "accuracy", "zero morf", 0.5, [1.0] * 6 + [0.0] * 14),
        ("grad_cam", "accuracy", "zero lerf", 0.5, [1.0] * 20),
    ]
    made_up = [
        synthetic.rows_of(rate, "certificate", "mobilenet"),
        synthetic.rows_of(accuracy, model="mobilenet"),
    ]
    table = pd.concat([synthetic.table(), *made_up], ignore_index=True)
    table["order"] = table["condition"].map({"zero morf": "morf", "zero lerf": "lerf"}).fillna("")
    return run_of(tmp_path_factory.mktemp("gate") / "run", table.assign(dataset="photos"))


def one(run, text, **limits):
    (found,) = check(run, [text], Limits(**limits))
    return found


def test_the_bound_decides_and_not_the_mean(run):
    found = one(run, "stability.fass{explainer=grad_cam} >= 0")
    assert found.passed and found.seen.bound < found.seen.mean
    between = (found.seen.bound + found.seen.mean) / 2
    short = one(run, f"stability.fass{{explainer=grad_cam}} >= {between}")
    assert not short.passed and re.search(r"\d+ samples", short.need)
    assert one(run, f"stability.fass{{explainer=grad_cam}} >= {found.seen.bound!r}").passed
    assert not one(run, f"stability.fass{{explainer=grad_cam}} > {found.seen.bound!r}").passed
    above = one(run, "stability.fass{explainer=grad_cam} <= 1")
    assert above.passed and above.seen.bound > above.seen.mean
    assert one(run, "stability.fass{explainer=grad_cam} >= 0 @ 0.99").seen.bound < found.seen.bound


def test_the_numbers_are_those_of_the_report(run):
    ranking = run.ranking("stability").set_index("explainer")
    for explainer in ("grad_cam", "lime"):
        for text, column in (("fass.calibrated", "score"), ("fass", "raw")):
            seen = one(run, f"stability.{text}{{explainer={explainer}}} >= 0 @ 0.975").seen
            assert seen.mean == pytest.approx(ranking.loc[explainer, column], abs=1e-6)
            low = ranking.loc[explainer, f"{column}_low".replace("score_", "")]
            if column == "raw":
                assert seen.bound == pytest.approx(low, abs=1e-5)
            else:  # a bet, which holds for any scores and needs more of them
                assert seen.bound < low and seen.method == "betting, for these references"
    summary = run.summary()
    row = summary[
        (summary.explainer == "lime")
        & (summary.measure == "ssim")
        & (summary.condition == "rotation")
    ].iloc[0]
    for readout in ("mean", "calibrated", "chance"):
        seen = one(run, f"stability.ssim.{readout}{{explainer=lime, rotation=15}} >= -1").seen
        assert seen.mean == pytest.approx(row[readout], abs=1e-6)
    assert one(run, "stability.noise_floor >= 0").seen.mean == pytest.approx(
        summary[(summary.explainer == "lime") & (summary.measure == "fass")].noise_floor.iloc[0]
    )


def test_shares_are_counted_by_sample_and_exactly_where_that_is_possible(run):
    kept = row_statistics.retention(arrays_of_run(run.table()))
    kept = kept[kept.evaluation == "stability"]
    row = kept[(kept.explainer == "grad_cam") & (kept.condition == "jpeg")].iloc[0]
    found = one(run, "stability.retention{explainer=grad_cam, condition=jpeg} >= 0.1 @ 0.9")
    exact = stats.binomtest(
        int(row.retained), int(row.attempted), alternative="greater"
    ).proportion_ci(0.9)
    assert found.seen.mean == row.retention and found.seen.bound == pytest.approx(
        exact.low, abs=1e-3
    )
    assert found.seen.method == "Clopper-Pearson"
    flipped = one(run, "stability.flipped{explainer=grad_cam, condition=jpeg} <= 1").seen
    exact = stats.binomtest(int(row.flipped), int(row.attempted), alternative="less").proportion_ci(
        0.95
    )
    assert flipped.bound == pytest.approx(exact.high, abs=1e-3)
    # Five conditions of 40 samples are not 200 independent trials.
    pooled = one(run, "stability.retention{explainer=grad_cam} >= 0.1 @ 0.975").seen
    share = kept[kept.explainer == "grad_cam"].retention.mean()
    assert pooled.n == 40 and rate_interval(round(share * 40), 40)[0] < pooled.bound < share
    assert pooled.bound < rate_interval(round(share * 200), 200)[0]


def mixture(generator, shape):
    """Nine of ten scores near .95, the tenth near .3: mean .885."""
    return np.where(generator.random(shape) < 0.1, 0.3, 0.95) + generator.uniform(
        -0.03, 0.03, shape
    )


@pytest.mark.parametrize("n", [8, 14, 30, 100])
def test_bets_miss_no_more_often_than_they_say_even_with_few_skewed_scores(n):
    generator, times = np.random.default_rng(n), 300
    beta = stats.beta(5, 1.5)
    for seen, truth in (
        (mixture(generator, (times, n)), 0.885),
        (beta.rvs((times, n), generator), beta.mean()),
    ):
        bounds = [bet_on_mean(row[None], (0.0, 1.0), ["jpeg"], 0.95, True).bound for row in seen]
        assert np.mean(np.array(bounds) > truth) < 0.05
    if n < 30:
        few = mixture(np.random.default_rng(0), (1000, n))
        student = stats.t.interval(0.9, n - 1, few.mean(1), stats.sem(few, axis=1))[0]
        assert np.mean(student > 0.885) > 0.2, "which is why the gate bets"


def test_strict_bounds_are_asked_for_and_refused_where_there_is_none(run):
    usual, strict = (
        one(run, "stability.fass{explainer=grad_cam} >= 0.1", strict=flag) for flag in (False, True)
    )
    assert strict.seen.method == "betting" and strict.passed
    assert (
        strict.seen.mean == pytest.approx(usual.seen.mean) and strict.seen.bound < usual.seen.bound
    )
    with pytest.raises(UserError, match=r"strict.*calibrated"):
        one(run, "stability.fass.calibrated >= 0.1", strict=True)


def test_a_strict_bound_of_grouped_samples_is_that_of_their_groups(tmp_path):
    table = synthetic.table({"grad_cam": 0.9}, (("jpeg", 40.0),), samples=40, flip=0, undefined=0)
    grouped = run_of(tmp_path, table)
    names = sorted(table["sample"].unique())
    known = synthetic.samples(40, 0).assign(group=[f"patient {i // 4}" for i in range(40)])
    shutil.rmtree(tmp_path / "samples")
    grouped.directory.write(
        PartKey.samples(("photos", "mobilenet", 0)),
        pa.Table.from_pandas(known[SAMPLES.names], SAMPLES),
    )
    found = one(grouped, "stability.fass >= 0.1", strict=True)
    scores = table[table["measure"] == "fass"].set_index("sample")["value"][names].to_numpy()
    by_hand = bet_on_mean(scores.reshape(1, 10, 4).mean(2), (0.0, 1.0), ["jpeg"], 0.95, True)
    assert found.seen.bound == pytest.approx(by_hand.bound) and found.seen.n == 10


def test_a_noise_floor_without_scores_gives_no_reason_of_pairs(tmp_path):
    table = synthetic.table()
    table.loc[table["measure"] == "noise_floor", ["value", "status", "reason"]] = (
        np.nan,
        "undefined",
        "constant map",
    )
    found = one(run_of(tmp_path, table), "stability.noise_floor >= 0")
    assert not found.passed and "40 of 40" in found.need and "pairs" not in found.need


def test_what_is_needed_would_do():
    for scores, rate in (
        (np.random.default_rng(0).random((1, 20)), False),
        (np.ones((1, 9)), True),
    ):
        seen = bound_mean(of_means(scores, (0.0, 1.0), rate=rate), ["jpeg"], 0.95, True)
        goal = seen.mean - (seen.mean - seen.bound) / 3
        n = samples_needed(of_means(scores[0], (0.0, 1.0), rate=rate), goal, 0.95, True)
        repeats = -(-n // scores.shape[1])
        assert repeats > 1
        enough, fewer = (
            bound_mean(of_means(np.tile(scores, k), (0.0, 1.0), rate=rate), ["jpeg"], 0.95, True)
            for k in (repeats, repeats // 2)
        )
        assert enough.bound > goal - 0.005 and fewer.bound < goal
    assert samples_needed(of_means(scores[0], (0.0, 1.0), rate=True), 1.0, 0.95, True) is None


@pytest.mark.parametrize(
    ("asked", "need"),
    [
        ("> 0.5", "0.2 higher"),
        ("< 0.1", "0.2 lower"),
        (">= {mean!r}", "mean"),
    ],
)
def test_where_no_number_of_samples_helps_the_mean_must_change(run, asked, need):
    measure = "faithfulness.accuracy{condition=zero morf}"
    found = one(run, f"{measure} {asked.format(mean=one(run, f'{measure} > 0').seen.mean)}")
    assert not found.passed and need in found.need and "samples" not in found.need


def test_each_must_pass_but_controls(run):
    assert [o.explainer for o in check(run, ["stability.fass > 0"])] == [
        "grad_cam",
        "integrated_gradients(steps=16)",
        "lime",
    ]
    assert [o.explainer for o in check(run, ["stability.fass{explainer=*} > 0"])][-1] == "lime"
    assert one(run, "stability.fass{explainer=random} > 0").explainer == "random"
    assert (
        one(run, "stability.fass{explainer=integrated*} > 0").explainer
        == "integrated_gradients(steps=16)"
    )
    found = check(run, ["stability.fass{explainer=grad_cam|lime, condition=each} > 0"])
    assert len(found) == 10 and {o.condition for o in found} >= {"rotation 15°", "jpeg quality 40"}
    assert one(
        run, "certificate.rate{radius=9, explainer=grad_cam} > 0"
    ).seen.mean == pytest.approx(0.2)
    assert one(run, "certificate.rate{explainer=grad_cam} > 0").seen.mean == pytest.approx(0.55)
    morf = one(run, "faithfulness.accuracy{condition=zero morf} <= 0.5 @ 0.9")
    assert morf.seen.mean == pytest.approx(0.3) and morf.passed


def test_doubt_is_a_failure_with_its_reason(run, tmp_path):
    hollow = one(run, "certificate.rate{explainer='hollow(k=1, l=2)'} >= 0")
    assert not hollow.passed and "20 of 20" in hollow.need and "constant map" in hollow.need
    assert not one(run, "certificate.rate{explainer=hollow} <= 1").passed
    few = one(run, "certificate.rate{radius=5, explainer=grad_cam} >= 0", samples=21)
    assert not few.passed and "21" in few.need and "20" in few.need
    scarce = one(run, "stability.fass{explainer=grad_cam} >= 0", retention=0.99)
    assert not scarce.passed and "prediction" in scarce.need
    flipping = run_of(
        tmp_path, synthetic.table({"grad_cam": 1.0}, (("jpeg", 40.0), ("blur", 1.0)), flip=1.0)
    )
    found = one(flipping, "stability.fass >= 0")
    assert not found.passed and np.isnan(found.seen.bound) and "0 of 40 pairs" in found.need


def test_the_kind_of_bound_is_printed(run: heatproof.Run) -> None:
    text = "\n".join(lines(check(run, ["stability.fass.calibrated{explainer=grad_cam} > 0"])))
    assert "betting, for these references" in text


@pytest.mark.parametrize(("still_open", "passed"), [(2, True), (3, False)])
def test_no_share_is_believed_that_leaves_out_many_open_decisions(
    tmp_path: Path, still_open: int, passed: bool
) -> None:
    """All decided samples say yes, so a share of those alone is 1."""
    values = np.where(np.arange(20) < still_open, np.nan, 1.0)
    rows = synthetic.rows_of([("grad_cam", "stable", "radius", 5.0, values)], "certificate")
    rows.loc[rows["value"].isna(), "status"] = "open"
    outcome = one(run_of(tmp_path, rows), "certificate.stable >= 0.5")
    assert outcome.passed == passed
    if not passed:
        assert "3 of 20" in outcome.need and "open" in outcome.need


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stabilty.fass > 0", "'stability'"),
        ("stability.fas > 0", "'fass'"),
        ("stability.fass.calibratd > 0", "'calibrated'"),
        ("stability.fass{explainer=gradcam} > 0", "'grad_cam'"),
        ("stability.fass{condition=jpg} > 0", "'jpeg'"),
        ("stability.fass{rotaton=15} > 0", "'rotation'"),
        ("stability.fass{rotation=16} > 0", r"16.*\b15\b"),
        ("stability.fass{model=resnet} > 0", "resnet.*mobilenet"),
        ("certificate.rate.calibrated > 0", "calibrated"),
        ("faithfulness.accuracy > 0", "order"),
        ("stability.fass 0.6", "stability.fass >= 0.6 @ 0.95"),
        ("stability.fass > high", "high"),
        ("stability.fass > 0.6 @ 95", r"0\.5.*0\.999"),
        ("stability.fass{grad_cam} > 0", "key=value"),
        ("stability.fass{jpeg=40, condition=jpeg} > 0", "condition="),
        ("stability.fass{rotation=high} > 0", "number.*'high'"),
        ("stability.fass{model=a, model=b} > 0", "twice"),
        ("stability.retention.mean > 0", "retention.*readout"),
        ("stability.fass.mean.raw > 0", "'fass.mean.raw'"),
        ("certificate.rate.chance > 0", "certificate.rate.*chance"),
    ],
)
def test_a_requirement_about_nothing_is_an_error_that_names_the_nearest(run, text, said):
    with pytest.raises(UserError, match=said):
        check(run, [text])


def test_a_run_with_only_controls_must_be_asked_by_name(tmp_path):
    alone = run_of(tmp_path / "controls", synthetic.table({"random": 0.0}))
    with pytest.raises(UserError, match=r"controls.*{explainer="):
        check(alone, ["stability.fass > 0"])
    with pytest.raises(UserError, match="no scores"):
        check(run_of(tmp_path / "empty", synthetic.table()[:0]), ["stability.fass > 0"])


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"samples": 1}, r"2 samples.* 1$"),
        ({"retention": 1.1}, r"retention.*0 to 1.* 1\.1$"),
        ({"undefined": -0.1}, r"undefined.*0 to 1.* -0\.1$"),
    ],
)
def test_limits_that_no_run_could_keep_are_refused(limits, said):
    with pytest.raises(UserError, match=said):
        Limits(**limits)
    Limits(samples=2, retention=1, undefined=0)


def test_what_is_not_a_number_keeps_no_requirement():
    assert not any(
        parse(f"stability.fass {sign} 0").holds(float("nan")) for sign in (">=", "<=", ">", "<")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("require: [", "YAML"),
        ("stability: 1", "list"),
        ("[1, 2]", "quotes"),
        ("forbid: few-samples", "forbid"),
        ("forbidden: [few-samples]", "forbid"),
    ],
)
def test_a_file_of_requirements_that_is_none_is_named(tmp_path, text, said):
    (path := tmp_path / "wishes.yaml").write_text(text)
    with pytest.raises(UserError, match=f"wishes.yaml.*{said}"):
        read_requirements(path)


def test_a_narrow_terminal_gets_the_same_words_in_more_lines(run):
    outcomes = check(run, ["stability.fass >= 0.6", "certificate.rate >= 0.6"])
    wide, narrow = lines(outcomes), lines(outcomes, 60)
    (at,) = (i for i, line in enumerate(narrow) if "hollow(k" in line)
    assert "FAIL" in narrow[at] and ">= 0.6" in narrow[at]
    assert max(map(len, narrow)) <= 60
    assert " ".join(" ".join(narrow[at:]).split()).count("20 of 20") == 1
    assert any("integrated_gradie…" in line for line in narrow), "the name has to make room"
    assert len(lines(outcomes, 10_000)) == len(wide)


def test_an_unfinished_run_is_not_judged(run, tmp_path):
    table = synthetic.table(samples=12)
    unfinished = run_of(tmp_path, table)
    unfinished.directory.remove([PartKey.scores(("photos", "mobilenet", 0), "stability", "lime")])
    with pytest.raises(UserError, match=r"not finished.* 1 "):
        check(unfinished, ["stability.fass{explainer=grad_cam} > 0"])


def test_names_keep_their_commas_and_equal_signs():
    wish = parse(
        "a.b{explainer=lime(samples=32, k=(1, 2)), condition='zero, morf', level=0.5} ≥ -1e-3"
    )
    assert dict(wish.where) == {
        "explainer": "lime(samples=32, k=(1, 2))",
        "condition": "zero, morf",
        "level": "0.5",
    }
    assert wish.sign == ">=" and wish.threshold == -0.001


def call(*arguments):
    app = typer.Typer()
    app.command()(check_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_exits_by_what_it_found_and_says_it_in_aligned_lines(run, tmp_path):
    wishes = tmp_path / "wishes.txt"
    wishes.write_text("# of the release\nstability.retention >= 0.5  # enough pairs\n\n")
    passed = call(
        run.path, "--require", "stability.fass{explainer=grad_cam} >= 0.5", "--file", wishes
    )
    assert passed.exit_code == 0 and passed.output.splitlines()[-1].startswith("4 ")
    more = tmp_path / "wishes.yaml"
    more.write_text("require: ['stability.fass >= 0.7']\n")
    failed = call(run.path, "--file", more)
    assert failed.exit_code == 1 and "2 of 3" in failed.output.splitlines()[-1]
    rows = [line for line in failed.output.splitlines() if line.startswith(("  PASS", "  FAIL"))]
    assert len(rows) == 3 and len({row.index(">= 0.7") for row in rows}) == 1
    for wrong in ([], ["--require", "stability.fas > 0"], ["--file", tmp_path / "none.txt"]):
        assert isinstance(call(run.path, *wrong).exception, UserError)


def test_a_forbidden_rule_fails_the_check_and_names_the_explainers(run, tmp_path):
    forbid = ("--forbid", "undefined-maps", "--forbid", "broken-symmetry")
    failed = call(run.path, *forbid)
    assert failed.exit_code == 1
    words = failed.output.split("FAIL")[1]
    assert "undefined-maps" in words and "lime" in words and "photos" in words
    assert "broken-symmetry" in failed.output.split("PASS")[1].splitlines()[0]
    assert "1 of 2" in failed.output.splitlines()[-1]
    assert call(run.path, "--forbid", "broken-symmetry").exit_code == 0

    (wishes := tmp_path / "wishes.yaml").write_text(
        "require: ['stability.fass{explainer=grad_cam} >= 0.5']\nforbid: [undefined-maps]\n"
    )
    both = call(run.path, "--file", wishes)
    assert both.exit_code == 1 and "1 of 2" in both.output.splitlines()[-1]

    unknown = call(run.path, "--forbid", "undefined-map").exception
    assert isinstance(unknown, UserError) and "'undefined-maps'" in str(unknown)


def test_a_forbidden_rule_is_in_json_junit_and_the_log_of_github(run, tmp_path):
    arguments = (run.path, "--forbid", "undefined-maps", "--junit", tmp_path / "out.xml")
    given = json.loads(call(*arguments, "--format", "json").output)
    (ruling,) = given["forbidden"]
    assert given["passed"] is False and ruling["rule"] == "undefined-maps"
    assert any("lime" in finding["explainers"] for finding in ruling["findings"])
    (case,) = ElementTree.parse(tmp_path / "out.xml").getroot().iter("testcase")
    assert case.get("name") == "undefined-maps" and case.find("failure") is not None
    errors = [
        line
        for line in call(*arguments, "--format", "github").output.splitlines()
        if line.startswith("::error")
    ]
    assert len(errors) == 1 and "undefined-maps" in errors[0]


def test_what_the_study_ignores_can_be_forbidden(tmp_path):
    few = run_of(tmp_path / "run", synthetic.table({"a": 0.5}, samples=12))
    ignoring = few.manifest.model_copy(update={"ignore": ["few-samples"]})
    write_manifest(few.path, ignoring)
    assert "few-samples" in heatproof.read(few.path).manifest.ignore
    assert call(few.path, "--forbid", "few-samples").exit_code == 1
    with pytest.raises(AssertionError, match="few-samples"):
        assert_run_holds(
            heatproof.read(few.path), ["stability.fass >= 0 @ 0.9"], forbid=["few-samples"]
        )


def test_junit_json_and_github_hold_the_same_and_escape_what_they_must(tmp_path):
    nasty = 'evil<script>&"%\n::error::x,y\x01'
    run_of(tmp_path / "run", synthetic.table({nasty: 0.2, "grad_cam": 0.9}))
    arguments = (
        tmp_path / "run",
        "--require",
        "stability.fass >= 0.6",
        "--junit",
        tmp_path / "new" / "out.xml",
    )
    given = json.loads(call(*arguments, "--format", "json").output)
    assert [o["passed"] for o in given["outcomes"]] == [False, True] and given["passed"] is False
    assert given["outcomes"][0]["explainer"] == nasty and given["outcomes"][0]["bound"] < 0.6
    suite = ElementTree.parse(tmp_path / "new" / "out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    cases = suite.findall("testcase")
    assert [case.find("failure") is None for case in cases] == [False, True]
    assert "<script>" in cases[0].get("name") and all(case.get("classname") for case in cases)
    shown = call(*arguments, "--format", "github")
    assert shown.exit_code == 1
    stop, *commands = [line for line in shown.output.splitlines() if line.lstrip().startswith("::")]
    assert commands[0] == f"::{stop.removeprefix('::stop-commands::')}::"
    assert len(commands) == 2 and commands[1].startswith(
        '::error title=evil<script>&"%25�%3A%3Aerror%3A%3Ax%2Cy'
    )
