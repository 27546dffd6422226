"""Precision left to the audit: what it measures, what it chooses, and that the choice is made once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import heatproof
from heatproof.cli import app
from heatproof.errors import UserError
from heatproof.models.precision import Precision
from heatproof.runs import precision_audit as auditing
from heatproof.runs.plan import Plan
from heatproof.runs.precision_audit import audit, compare, lower, settle
from heatproof.runs.study.registry import evaluations, explainers
from support import small
from support.paths import SMALL


@pytest.fixture(autouse=True)
def plain_kernels() -> Iterator[None]:
    """Without oneDNN, whose 16-bit kernels some virtual processors announce and then refuse."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before)


@pytest.fixture
def plan() -> Plan:
    axes = evaluations(
        [
            {
                "stability": {
                    "perturbations": [{"gaussian_noise": {"sigma": 0.02}}, "brightness"],
                    "k": 20,
                }
            }
        ]
    )
    data = heatproof.open_data(small.pictures(12)[0], name="shapes")
    return Plan(
        {"net": small.model()},
        {"shapes": data},
        explainers(["saliency", "input_x_gradient"]),
        axes,
        batch_size=4,
    )


class Coarse(nn.Module):
    """A network whose answer depends on the precision of its weights."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        low = next(self.net.parameters()).dtype != torch.float32
        out: Tensor = self.net(x.flip(-1).roll(5, -2) * x if low else x)
        return out


def test_the_shift_of_every_mean_score_is_that_of_two_separate_runs(
    plan: Plan, tmp_path: Path
) -> None:
    found = audit(plan, ["float32", "bfloat16"], samples=12)
    data = plan.data["shapes"]
    tables = {}
    for name in ("float32", "bfloat16"):
        model = lower(plan.models["net"], "bfloat16") if name == "bfloat16" else plan.models["net"]
        given = (
            {"net": model},
            {"shapes": data},
            plan.explainers,
            plan.evaluations,
            tmp_path / name,
        )
        run = heatproof.evaluate(
            *given, shard_size=6, batch_size=4
        )  # 16 bits round as their batch is cut
        tables[name] = run.table()
    whole = compare(tables["float32"], tables["bfloat16"])
    keys = ["explainer", "measure"]
    a, b = (frame.sort_values(keys, ignore_index=True) for frame in (found.shifts, whole))
    assert list(a["measure"]) == list(b["measure"])
    torch.testing.assert_close(
        torch.tensor(a["shift"]), torch.tensor(b["shift"]), atol=1e-6, rtol=0
    )
    worst = b.loc[b["shift"].abs().idxmax()]
    assert found.trials[1].where == f"{worst['explainer']}, stability.{worst['measure']}"
    assert plan.models["net"].precision == "float32"


def test_the_fastest_that_passes_is_chosen(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, {"float32": (0.0, 12.0), "float16": (1.0, 4.0), "bfloat16": (1.0, 3.0)})
    monkeypatch.setattr(auditing, "TOLERANCE", 1.0)
    monkeypatch.setattr(auditing, "MOST_LOST", 1.0)
    assert audit(plan, ["float16", "bfloat16"], samples=4).chosen == "bfloat16"
    monkeypatch.setattr(auditing, "TOLERANCE", -1.0)
    found = audit(plan, ["float16", "bfloat16"], samples=4)
    assert found.chosen == "float32"


def test_what_building_costs_counts_and_float32_wins_a_short_study(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "TOLERANCE", 1.0)
    monkeypatch.setattr(auditing, "MOST_LOST", 1.0)
    paced(
        monkeypatch, {"float32": (5.0, 2.0), "bfloat16": (20.0, 1.0)}
    )  # 3 times the 4 samples: 6 s against 23 s
    found = audit(plan, ["bfloat16"], samples=4)
    assert found.chosen == "float32" and found.trials[1].speed == pytest.approx(6 / 23)
    paced(monkeypatch, {"float32": (5.0, 20.0), "bfloat16": (20.0, 10.0)})
    assert audit(plan, ["bfloat16"], samples=4).chosen == "bfloat16"


def test_a_study_of_few_samples_is_not_audited(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "audit", lambda plan: pytest.fail("audited"))
    assert settle(plan, None) == ("float32", None)


def paced(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, tuple[float, float]]) -> None:
    """Let a precision take so long to build and to compute, whatever the machine does."""
    scores = auditing._scores

    def timed(plan: Plan, precision: str = "float32") -> object:
        return scores(plan, precision)[0], *seconds[precision]

    monkeypatch.setattr(auditing, "_scores", timed)


def test_the_seconds_of_a_trial_are_those_of_the_clock(plan: Plan) -> None:
    begun = time.perf_counter()
    _, building, rest = auditing._scores(plan)
    assert 0 <= building <= building + rest <= 2 * (time.perf_counter() - begun) and rest > 0


def test_a_precision_that_changes_the_answer_is_not_taken(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    paced(monkeypatch, {"float32": (0.0, 9.0), "bfloat16": (0.0, 1.0)})
    coarse = replace(plan, models={"net": heatproof.Model(Coarse(small.model().module))})
    found = audit(coarse, ["float32", "bfloat16"], samples=8)
    assert found.chosen == "float32"
    assert (
        found.trials[1].shift > auditing.TOLERANCE or found.trials[1].changed > auditing.MOST_LOST
    )


def test_an_audit_starts_from_float32(plan: Plan) -> None:
    with pytest.raises(UserError, match=r"float32.*net.*bfloat16"):
        audit(replace(plan, models={"net": lower(plan.models["net"], "bfloat16")}))


def test_the_choice_is_kept_when_a_run_is_resumed(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: Precision = "bfloat16"
    monkeypatch.setattr(auditing, "WORTH_AUDITING", 1)
    monkeypatch.setattr(
        auditing, "audit", lambda plan: auditing.Audit(chosen, (), auditing.pd.DataFrame())
    )
    given = (small.pictures(3)[0], ["saliency"], plan.evaluations, tmp_path)
    first = heatproof.evaluate(small.model(), *given, precision="auto")
    assert first.manifest.sessions[-1].audit["chosen"] == "bfloat16"
    monkeypatch.setattr(auditing, "audit", lambda plan: pytest.fail("audited twice"))
    again = heatproof.evaluate(small.model(), *given, precision="auto")
    assert again.manifest.study.model("shapes").precision == chosen
    assert settle(plan, tmp_path) == ("bfloat16", None)


def test_a_study_may_leave_it_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "WORTH_AUDITING", 1)
    (tmp_path / "study.yaml").write_text(
        f"model: python:{SMALL}:model\ndata: python:{SMALL}:dataset\n"
        "explainers: [saliency]\nprecision: auto\nlimit: 3\n"
        "evaluations: [{stability: {perturbations: [brightness], k: 20}}]\n"
    )
    command = ["run", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "run"), "--allow-code"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "float32" in result.output
    assert (
        heatproof.read(tmp_path / "run").manifest.sessions[-1].audit["trials"][0]["precision"]
        == "float32"
    )


def test_compiling_is_chosen_by_what_the_whole_study_would_take(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 samples are tried as 12: (building, the rest) in seconds, plain and compiled."""
    times = {False: (50.0, 1000.0), True: (300.0, 600.0)}
    net = plan.models["net"]
    monkeypatch.setattr(auditing, "_scores", lambda few, precision: (None, *times[net.is_compiled]))
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: module)
    assert not auditing.compile_if_it_pays(plan, plan.jobs()) and not net.is_compiled  # a CPU
    monkeypatch.setattr(heatproof.Model, "device", torch.device("cuda"))
    assert auditing.compile_if_it_pays(plan, plan.jobs()) and net.is_compiled
    net.use()
    times[True] = (500.0, 600.0)
    assert not auditing.compile_if_it_pays(plan, plan.jobs()) and not net.is_compiled
    times.update({False: (0.0, 599.0), True: (0.0, 1.0)})
    monkeypatch.setattr(
        torch, "compile", lambda module, dynamic: pytest.fail("tried for a short study")
    )
    assert not auditing.compile_if_it_pays(plan, plan.jobs())


def test_compiling_counts_only_what_is_left(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (plan.models, plan.data, plan.explainers, plan.evaluations, tmp_path)
    first = heatproof.evaluate(*given, shard_size=6, batch_size=4, compile="auto")
    assert first.manifest.sessions[-1].parameters["compiled"] is False
    monkeypatch.setattr(heatproof.Model, "device", torch.device("cuda"))
    monkeypatch.setattr(auditing, "_scores", lambda few, precision: pytest.fail("nothing is left"))
    heatproof.evaluate(*given, shard_size=6, batch_size=4, compile="auto")
    with pytest.raises(UserError, match=r"compile.*'yes'"):
        heatproof.evaluate(*given, compile="yes")  # type: ignore[arg-type]
