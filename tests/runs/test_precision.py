"""Studies that choose their number of samples: which samples they take, when they stop, and what they say of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.evaluation import CLEAN, Condition, Measure, Scores
from heatproof.report.findings import findings
from heatproof.runs import evaluate as running
from heatproof.runs.evaluate import execute
from heatproof.runs.executors import Processes, pickled
from heatproof.runs.merge import merge
from heatproof.runs.plan import Plan, make_plan
from heatproof.runs.run import Run
from heatproof.runs.verify import missing, verify
from support.paths import SMALL
from support.tables import assert_same_table

N = 240
SIDE = 4


def linear() -> Model:
    """A linear classifier of small pictures."""
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE, 3))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in net.parameters():
            weights.copy_(torch.rand(weights.shape, generator=generator) - 0.5)
    return Model(net, name="linear")


def noise(n: int = N) -> Batch:
    """Noise (n, 1, SIDE, SIDE), each sample with a name of its own; those of the second half are brighter."""
    x = torch.rand(n, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    x[n // 2 :] = 0.5 + x[n // 2 :] / 2
    return Batch(tuple(f"picture-{i}" for i in range(n)), x)


def in_order(batch: Batch, order: Any) -> Batch:
    return Batch(tuple(batch.ids[i] for i in order), batch.x[torch.as_tensor(order)])


class Drawn:
    """A test whose score of a sample is drawn by its id, around a mean for each method; no pass is needed."""

    reexplains = False

    def __init__(self, means: dict[str, float], spread: float, span: Any = (0.0, 1.0)) -> None:
        self.means, self.spread = means, spread
        self.measures = (Measure("depth", "Depth", "drawn", "higher", "headline", span),)

    def conditions(self) -> list[Condition]:
        return [CLEAN]

    def __call__(self, subject: Any) -> Any:
        for name in subject.explainers:
            keys = heatproof.rand.keys(0, subject.batch.ids, f"score of {name}")
            draws = heatproof.rand.uniform(keys, (1,))[:, 0] - 0.5
            value = self.means.get(name, 0.5) + self.spread * draws
            yield Scores.column(name, "depth", CLEAN, value, [""] * len(value))


def method(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    return batch.x


METHODS = {"first": method, "second": method}
APART = {"depth": Drawn({"first": 0.7, "second": 0.3}, spread=0.6)}
CLOSE = {"depth": Drawn({"first": 0.505, "second": 0.495}, spread=0.6)}


def evaluated(data: Any = None, evaluations: Any = None, **settings: Any) -> Run:
    data = noise() if data is None else data
    evaluations = APART if evaluations is None else evaluations
    return heatproof.evaluate(linear(), data, METHODS, evaluations, show_progress=False, **settings)


def samples_of(run: Run) -> set[str]:
    """The samples that a run tested."""
    return set(run.samples()["sample"])


def looks(run: Run) -> list[tuple[int, int, str]]:
    (dataset,) = run.manifest.study.datasets
    return [(look.samples, look.next, look.outcome) for look in run.manifest.looks(dataset)]


# ---- which samples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"half_width": 0.04}, {"until": "decided"}])
def test_the_order_of_the_data_and_the_size_of_shards_do_not_matter(settings: Any) -> None:
    evaluations = CLOSE if "until" in settings else APART
    run = evaluated(evaluations=evaluations, **settings)
    assert 64 < len(samples_of(run)) <= N
    backwards = in_order(noise(), range(N - 1, -1, -1))
    for other in (
        evaluated(backwards, evaluations, **settings),
        evaluated(None, evaluations, shard_size=7, **settings),
    ):
        assert samples_of(other) == samples_of(run)
        assert looks(other) == looks(run)
        assert_same_table(other.table(), run.table())
        assert other.manifest.study.datasets["data"].references == (
            run.manifest.study.datasets["data"].references
        )


def test_a_folder_that_is_sorted_by_class_gives_samples_of_all_classes() -> None:
    run = evaluated(half_width=0.08)
    bright = {sample for sample in samples_of(run) if int(sample.split("-")[1]) >= N // 2}
    share = len(bright) / len(samples_of(run))
    assert len(samples_of(run)) < N / 2
    assert 0.3 < share < 0.7


def test_another_seed_takes_other_samples() -> None:
    first, second = (samples_of(evaluated(half_width=0.08, seed=seed)) for seed in (0, 1))
    assert first != second


def test_groups_come_whole_and_count_as_one() -> None:
    names = [f"group {i // 3}" for i in range(N)]
    data = heatproof.open_data(noise()).grouped(names)
    run = evaluated(data, half_width=0.06)
    rows = run.samples()
    assert (rows.groupby("group").size() == 3).all()
    assert looks(run)[0][0] == 64 * 3


def test_a_study_without_these_keys_has_no_trace_of_them() -> None:
    run = evaluated()
    assert samples_of(run) == set(noise().ids)
    study = run.manifest.study.as_mapping()
    assert "sampling" not in study
    assert "pilot" not in study["datasets"]["data"]
    assert not any(session.looks for session in run.manifest.sessions)
    assert "drawn at random" not in run.text()


# ---- who does the work -----------------------------------------------------------------------------------------------


def real_plan(**settings: Any) -> Plan:
    """A plan of real explainers and a real test, which other processes can load."""
    evaluation = heatproof.Stability(perturbations="brightness", k=4)
    data = heatproof.open_data(noise(120), name="noise")
    return make_plan(
        linear(), data, ["saliency", "input_x_gradient"], evaluation, shard_size=16, **settings
    )


@pytest.mark.slow
def test_workers_and_shares_take_the_samples_of_one_process(tmp_path: Path) -> None:
    alone = execute(real_plan(half_width=0.02), tmp_path / "alone", "test")
    assert looks(alone)[0][2] == "goes on"

    plan = real_plan(half_width=0.02)
    with pickled(plan) as recipe:
        together = execute(plan, tmp_path / "workers", "test", executor=Processes(recipe, 2))
    assert looks(together) == looks(alone)
    assert_same_table(together.table(), alone.table())
    (session,) = together.manifest.sessions
    assert session.passes["linear"] >= alone.manifest.sessions[0].passes["linear"]

    out = tmp_path / "shares"
    for share in ((1, 2), (2, 2)):
        shared = execute(real_plan(half_width=0.02), out, "test", share=share)
    assert missing(out), "the first share has looked at nothing yet"
    for share in ((1, 2), (2, 2)):
        shared = execute(real_plan(half_width=0.02), out, "test", share=share)
    assert not missing(out)
    assert looks(shared) == looks(alone)
    assert_same_table(shared.table(), alone.table())


STUDY = f"""\
model: python:{SMALL}:model
data: python:{{folder}}/made.py:drawings
explainers: [saliency, random]
evaluations: [{{{{stability: {{{{perturbations: [brightness], k: 50}}}}}}}}]
device: cpu
shard_size: 16
half_width: 0.05
"""
MADE = f"""\
import sys
sys.path.insert(0, {str(SMALL.parents[1])!r})
from support.small import pictures
def drawings():
    return pictures(130)
"""
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
"""Recent releases of Ray ask for a token that a home may hold or lack."""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_study_file_takes_the_same_samples_by_shares_and_on_ray(
    main: Any, tmp_path: Path
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(folder=tmp_path))
    (tmp_path / "made.py").write_text(MADE)
    run = ("run", study, "--allow-code", "--out")
    code, text, error = main(*run, tmp_path / "alone")
    assert code == 0, error
    assert "0.05" in text
    for share in ("1/2", "2/2"):
        code, text, error = main(*run, tmp_path / "shares", "--shard", share)
        assert code == 0, error
        if share == "1/2":
            assert "rerun this command" in text
    main(*run, tmp_path / "shares")

    command = [sys.executable, "-m", "heatproof", *map(str, run), str(tmp_path / "ray"), "--ray"]
    environment = {**os.environ, **TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    alone, *others = (heatproof.read(tmp_path / name) for name in ("alone", "shares", "ray"))
    assert 64 < len(samples_of(alone)) < 130
    for other in others:
        assert samples_of(other) == samples_of(alone)
        assert_same_table(other.table(), alone.table())


def test_shares_in_directories_of_their_own_are_joined_and_finished(tmp_path: Path) -> None:
    alone = execute(real_plan(half_width=0.02), tmp_path / "alone", "test")
    folders = [tmp_path / "first", tmp_path / "second"]
    for i, folder in enumerate(folders):
        part = execute(real_plan(half_width=0.02), folder, "test", share=(i + 1, 2))
        assert looks(part) == []
    joined = merge(tmp_path / "joined", folders)
    assert looks(joined) == []
    assert missing(joined.path)
    assert "not decided yet" in joined.text()
    finished = execute(real_plan(half_width=0.02), joined.path, "test")
    assert looks(finished) == looks(alone)
    assert_same_table(finished.table(), alone.table())


# ---- interruption ----------------------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def test_a_run_that_was_stopped_anywhere_resumes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluated(half_width=0.04, out=tmp_path / "whole", shard_size=16)
    write = running.RunDirectory.write
    stops = 0
    for left in (1, 5, 11, 19):
        writes = iter(range(left))

        def write_some(self: Any, key: Any, rows: Any, writes: Any = writes) -> None:
            if next(writes, None) is None:
                raise Stop
            write(self, key, rows)

        monkeypatch.setattr(running.RunDirectory, "write", write_some)
        try:
            evaluated(half_width=0.04, out=tmp_path / "run", shard_size=16)
        except Stop:
            stops += 1
        monkeypatch.setattr(running.RunDirectory, "write", write)
    assert stops >= 3
    run = evaluated(half_width=0.04, out=tmp_path / "run", shard_size=16)
    assert looks(run) == looks(whole)
    assert_same_table(run.table(), whole.table())
    assert {verdict.state for verdict in verify(run.path)} == {"intact"}


def test_a_look_is_made_again_from_its_own_rows_if_its_record_is_lost(tmp_path: Path) -> None:
    whole = evaluated(half_width=0.04, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "sessions")
    forgotten = heatproof.read(tmp_path / "run")
    assert looks(forgotten) == []
    again = evaluated(half_width=0.04, out=tmp_path / "run")
    assert looks(again) == looks(whole)
    assert looks(again)[0] == (64, looks(whole)[0][1], "goes on")


def test_a_finished_run_computes_nothing_more(tmp_path: Path) -> None:
    first = evaluated(half_width=0.04, out=tmp_path / "run")
    before = sorted(path.name for path in first.path.rglob("*.parquet"))
    again = evaluated(half_width=0.04, out=tmp_path / "run")
    assert sorted(path.name for path in again.path.rglob("*.parquet")) == before
    assert looks(again) == looks(first)
    assert again.manifest.sessions[-1].looks == []


# ---- when it stops ---------------------------------------------------------------------------------------------------


def test_the_scores_are_as_certain_as_requested() -> None:
    run = evaluated(half_width=0.04)
    ranking = run.ranking()
    assert ((ranking["high"] - ranking["low"]) / 2 <= 1.1 * 0.04).all()
    assert looks(run)[-1][2] == "reached"
    assert "0.04" in run.text()
    assert "precision-not-reached" not in {finding.rule for finding in found(run)}


def found(run: Run) -> list[Any]:
    return findings(run.results(), run.samples(), run.manifest, missing(run.path))


def test_the_cap_is_kept_and_the_report_says_so() -> None:
    run = evaluated(half_width=0.02, at_most=100)
    assert len(samples_of(run)) == 100
    assert looks(run)[-1][2] == "at_most"
    (finding,) = (f for f in found(run) if f.rule == "precision-not-reached")
    assert "100" in finding.seen
    assert len(finding.items) == 2
    (pilot, _) = run.manifest.looks("data")
    assert pilot.needed > N, "how many are needed is known, though there are fewer"


def test_all_samples_are_taken_where_there_are_too_few() -> None:
    run = evaluated(half_width=0.01)
    assert samples_of(run) == set(noise().ids)
    assert looks(run)[-1][2] == "all samples"
    assert f"All {N}" in run.text()


def test_clear_differences_are_decided_at_the_first_look() -> None:
    run = evaluated(until="decided")
    assert looks(run) == [(64, 64, "reached")]
    assert run.tests()["significant"].all()


def test_looks_double_and_the_report_prints_the_tests_of_the_last_one() -> None:
    run = evaluated(evaluations=CLOSE, until="decided")
    assert [samples for samples, *_ in looks(run)] == [64, 128, N]
    assert looks(run)[-1][2] == "all samples"
    (test,) = run.tests().itertuples()
    assert not test.significant
    (pair,) = run.manifest.looks("data")[-1].pairs
    assert pair.state == "open"
    # The interval is the simultaneous one at 99 %: wider than at 95 % by the quotient of the quantiles of Student's t.
    values = run.table().pivot_table(index="sample", columns="explainer", values="value")
    error = (values["first"] - values["second"]).std() / N**0.5
    assert (test.high - test.low) / 2 / error == pytest.approx(2.6, abs=0.15)


def test_a_margin_ends_it_when_methods_are_known_to_be_alike() -> None:
    run = evaluated(evaluations=CLOSE, until="decided", margin=0.2)
    assert looks(run) == [(64, 64, "reached")]
    (pair,) = run.manifest.looks("data")[-1].pairs
    assert pair.state == "equal"
    (test,) = run.tests().itertuples()
    assert -0.2 < test.low < test.high < 0.2


def test_five_looks_end_at_the_cap() -> None:
    data = noise(1500)
    run = evaluated(data, CLOSE, until="decided", at_most=1200, shard_size=500)
    assert [samples for samples, *_ in looks(run)] == [75, 150, 300, 600, 1200]
    assert looks(run)[-1][2] == "at_most"


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"half_width": 0}, "half_width.*0"),
        ({"half_width": -0.1}, "half_width.*-0.1"),
        ({"half_width": 2}, "half_width.*below 1.*2"),
        ({"half_width": True}, "half_width.*True"),
        ({"until": "decide"}, "until.*'decide'.*did you mean 'decided'"),
        ({"half_width": 0.1, "until": "decided"}, "half_width or until"),
        ({"margin": 0.1}, "margin.*until"),
        ({"half_width": 0.1, "margin": 0.1}, "margin.*until"),
        ({"until": "decided", "margin": 0}, "margin.*0"),
        ({"at_most": 100}, "at_most.*half_width"),
        ({"half_width": 0.1, "at_most": 20}, "at_most.*59.*20"),
        ({"half_width": 0.1, "limit": 100}, "limit.*at_most"),
    ],
)
def test_bad_settings_are_refused_before_any_pass(settings: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        evaluated(**settings)


def test_scores_without_a_scale_have_no_half_width() -> None:
    boundless = {"depth": Drawn({}, 1.0, span=None)}
    for settings in ({"half_width": 0.1}, {"until": "decided", "margin": 0.1}):
        with pytest.raises(UserError, match="depth of depth"):
            evaluated(evaluations=boundless, **settings)
    logits = {"faithfulness": heatproof.Faithfulness(readout="logit", metrics=("road",))}
    with pytest.raises(UserError, match="road of faithfulness"):
        evaluated(evaluations=logits, half_width=0.1)


def test_a_study_file_names_the_line(tmp_path: Path, main: Any) -> None:
    study = tmp_path / "study.yaml"
    (tmp_path / "photos").mkdir()
    study.write_text(
        "model: bundled:efficientnet-lite0\ndata: photos\nexplainers: [saliency]\nhalf_width: -1\n"
    )
    code, _, error = main("run", study)
    assert code != 0
    assert "line 4" in error
    assert "half_width" in error


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(UserError, match="two methods"):
        heatproof.evaluate(linear(), noise(), {"first": method}, APART, until="decided")
    with pytest.raises(UserError, match="agreement"):
        evaluated(evaluations={"agreement": heatproof.Agreement(k=4)}, half_width=0.1)


def test_the_methods_and_the_rule_are_frozen_at_the_start(tmp_path: Path) -> None:
    settings = {"until": "decided", "out": tmp_path / "run", "show_progress": False}
    heatproof.evaluate(linear(), noise(), METHODS, APART, **settings)
    with pytest.raises(UserError, match="third"):
        heatproof.evaluate(linear(), noise(), {**METHODS, "third": method}, APART, **settings)
    with pytest.raises(UserError, match="second"):
        heatproof.evaluate(linear(), noise(), {"first": method, "third": method}, APART, **settings)
    with pytest.raises(UserError, match=r"half_width: 0\.1"):
        evaluated(half_width=0.1, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"margin.*0\.1"):
        evaluated(until="decided", margin=0.1, out=tmp_path / "run")
    with pytest.raises(UserError, match="all samples"):
        evaluated(out=tmp_path / "run")


# ---- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"half_width": 0.04}, {"until": "decided"}])
def test_page_terminal_and_notebook_say_how_many_and_why(settings: Any) -> None:
    run = evaluated(evaluations=CLOSE if "until" in settings else APART, **settings)
    count = str(len(samples_of(run)))
    page = run.report().read_text()
    for text in (run.text(), run.markdown(), page, run._repr_html_()):
        assert count in text
        assert ("0.04" if "half_width" in settings else "decided") in text


def test_a_table_of_two_models_and_data_sets_decides_for_each_data_set(tmp_path: Path) -> None:
    other = linear()
    other.name = "other"
    data = {"some": noise(), "few": noise(70)}
    run = heatproof.evaluate(
        {"linear": linear(), "other": other}, data, METHODS, APART, half_width=0.04
    )
    tested_by = run.samples().groupby(["dataset", "model"])["sample"].nunique()
    assert tested_by["some", "linear"] == tested_by["some", "other"] > 64
    assert tested_by["few", "linear"] == 70
    assert isinstance(tested_by, pd.Series)
    assert np.isfinite(run.ranking()["score"]).all()
