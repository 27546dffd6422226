"""How far a run is: the time left is weighted by what each step costs, and what runs is named."""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter

import pytest

import heatproof
from heatproof.runs import progress as progressing
from heatproof.runs.evaluate import execute
from heatproof.runs.plan import make_plan
from heatproof.runs.progress import Clock, progress
from heatproof.text import number
from support.small import model, pictures

COSTS = {"lime": 20.0, "saliency": 0.1, "rise": 7.0}


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("seed", range(5))
def test_the_time_left_is_that_of_what_is_left(seed: int) -> None:
    """Shard after shard, each step at its own cost: from the second shard on the estimate is exact."""
    shards, axes, time_ = 5, ("stability", "faithfulness"), Time()
    steps = [
        (f"{axis} of {name}", cost * (1 + i))
        for i, axis in enumerate(axes)
        for name, cost in COSTS.items()
    ]
    random.Random(seed).shuffle(steps)
    clock = Clock({step: 3 * shards for step, _ in steps}, time_)
    total = shards * 3 * sum(cost for _, cost in steps)
    for shard in range(shards):
        for step, cost in steps:
            clock.tick(step, 0)
            assert clock.running == step and step in clock.text()
            for _ in range(3):
                time_.now += cost
                clock.tick(step, 1)
                if shard:
                    assert clock.left() == pytest.approx(total - time_.now, abs=1e-6)
    assert clock.left() == pytest.approx(0, abs=1e-6) and clock.share() == pytest.approx(1)


def test_within_a_step_time_goes_by_and_a_new_axis_is_guessed_by_explainer() -> None:
    time_ = Time()
    clock = Clock({"a of lime": 1, "a of saliency": 1, "b of lime": 1, "b of saliency": 1}, time_)
    assert clock.left() is None and "left" not in clock.text()
    for step, seconds in (("a of lime", 90.0), ("a of saliency", 10.0)):
        clock.tick(step, 0)
        time_.now += seconds
        clock.tick(step, 1)
    assert clock.left() == 100.0
    clock.tick("b of lime", 0)
    time_.now += 30
    assert clock.left() == 70.0
    share, words = clock.share(), clock.text()
    assert share == pytest.approx(100 / 170)
    assert all(fact in words for fact in ("59", "70 s", "b of lime"))


@pytest.mark.parametrize("slowness", [0.25, 1.0, 6.0])
def test_with_an_estimate_the_time_left_is_right_within_a_factor_of_two(slowness: float) -> None:
    """One shard, so each step is seen once: its estimate is off by half, and the machine by another factor."""
    time_, draw = Time(), random.Random(0)
    cost = {f"{axis} of {name}": draw.uniform(0.1, 20) for axis in "abcd" for name in COSTS}
    estimated = {step: seconds * draw.uniform(0.67, 1.5) for step, seconds in cost.items()}
    clock = Clock(dict.fromkeys(cost, 4), time_, seconds_per_amount=estimated)
    assert clock.left() == pytest.approx(4 * sum(estimated.values()))
    total = slowness * 4 * sum(cost.values())
    for step, seconds in cost.items():
        clock.tick(step, 0)
        for _ in range(4):
            time_.now += slowness * seconds
            clock.tick(step, 1)
            left = total - time_.now
            assert left / 2 - 1e-6 < clock.left() < 2 * left + 1e-6


def test_what_earlier_sessions_did_counts_as_done() -> None:
    time_ = Time()
    clock = Clock({"a of lime": 2, "b of lime": 4}, time_, finished={"a of lime": 6})
    assert clock.share() == pytest.approx(0.5), "by amount, before anything is timed"
    time_.now += 5
    clock.tick("a of lime", 1)
    assert clock.left() == pytest.approx(25)
    assert clock.share() == pytest.approx(7 / 12)


def test_a_run_ticks_exactly_what_it_planned() -> None:
    """The sum of all ticks is the work, step by step, whatever the axes."""
    axes = {
        "stability": {"stability": {"perturbations": "jpeg", "k": 50}},
        "agreement": {"agreement": {"k": 50}},
        "dependence": {"dependence": {"draws": 1, "k": 50}},
    }
    plan = make_plan(
        model(), pictures(4)[0], ["saliency", "random"], axes, shard_size=2, keep_maps=True
    )
    seen: Counter[str] = Counter()

    class Told(Clock):
        def tick(self, what: str, amount: int) -> None:
            seen[what] += amount
            super().tick(what, amount)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progressing, "Clock", Told)
        run = execute(plan, None, "test", True)
    (study,) = plan.configured.values()
    expected = {
        f"{axis} of {name}": 4 * study.condition_count(axis)
        for axis in axes
        for name in ("saliency", "random")
    }
    expected |= {f"maps of {name}": 4 for name in ("saliency", "random")}
    assert {step: n for step, n in seen.items() if n} == expected
    assert plan.work(run.directory, plan.jobs()) == {}


@pytest.mark.parametrize(("samples", "is_known"), [(24, True), (4, False)])
def test_the_bar_of_evaluate_knows_the_time_left_before_the_first_step_ends(
    samples: int, is_known: bool
) -> None:
    """Where it pays: a few samples are done before they are estimated."""
    left_at_start: list[float | None] = []

    class Watched(Clock):
        def tick(self, step: str, amount: int) -> None:
            if not self.done:
                left_at_start.append(self.left())
            super().tick(step, amount)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progressing, "Clock", Watched)
        heatproof.evaluate(
            model(),
            pictures(samples)[0],
            ["saliency", "random"],
            {"stability": {"stability": {"perturbations": "jpeg", "k": 50}}},
            show_progress=True,
        )
    assert (left_at_start[0] is not None) == is_known


def test_off_a_terminal_there_is_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sys.stderr.isatty() and progressing.MINUTE == 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progressing, "MINUTE", 0.02)
        with progress({"stability of lime": 4}, "explaining") as tick:
            tick("stability of lime", 1)
            until = time.monotonic() + 20
            said = ""
            while said.count("\n") < 2 and time.monotonic() < until:
                time.sleep(0.01)
                said += capsys.readouterr().err
    first = said.splitlines()[0]
    assert re.search(r"explaining.*\d+ %.*\d+ s.*stability of lime", first), first
    with progress({"a of b": 1}, "explaining", show=False) as tick:
        tick("a of b", 1)
    assert capsys.readouterr().err == ""


def test_a_run_shows_itself_in_a_notebook() -> None:
    run = heatproof.evaluate(
        model(),
        pictures(6)[0],
        ["saliency", "random"],
        {"s": {"stability": {"perturbations": "jpeg", "k": 50}}},
    )
    shown = run._repr_html_()
    best = run.ranking().iloc[0]
    assert ">Saliency<" in shown
    assert number(best["score"]) in shown
    assert shown.count("<tr") == 1 + len(run.ranking())


def test_a_notebook_bar_ends() -> None:
    at = iter([0.0, 3.0, 5.0]).__next__
    clock = Clock({"stability of lime": 2}, at)
    clock.tick("stability of lime", 1)
    clock.tick("stability of lime", 1)
    clock.end()
    assert clock.share() == 1
    assert "left" not in clock.text() and "5 s" in clock.text()


def test_a_run_that_fails_does_not_say_that_it_is_done() -> None:
    clock = Clock({"stability of lime": 2}, iter([0.0, 3.0, 3.0, 3.0]).__next__)
    clock.tick("stability of lime", 1)
    clock.end()
    assert clock.share() < 1 and "done" not in clock.text()
