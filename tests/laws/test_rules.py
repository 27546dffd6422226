"""Every finding belongs to a registered rule, and every rule has a section in the docs and something that triggers it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import heatproof
from heatproof.report.findings import findings
from heatproof.report.sections import change_yaml
from heatproof.results.findings import Finding
from heatproof.rules import RULES, SEVERITIES, sections
from heatproof.runs.results import axis_results
from heatproof.runs.study.file import parse
from support import made_up_findings as made_up
from support import runs_with_findings as real
from support.paths import ROOT
from support.small import pictures, untrained

PACKAGE = Path(heatproof.__file__).parent
COMPARING = {"lost-samples", "other-predictions", "controls-differ"}
"""Rules about two runs."""


def rules_in_the_code() -> Iterator[tuple[str, str]]:
    """The place and the rule of every finding that the code makes."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("finding_template", "Finding"):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", ast.unparse(node.args[0])


def test_every_finding_in_the_code_names_a_registered_rule() -> None:
    by_variable = {
        "results/findings.py": "rule",  # `finding_template` looks its rule up in the registry
    }
    for place, rule in rules_in_the_code():
        if by_variable.get(place.split(":")[0]) == rule:
            continue
        assert ast.literal_eval(rule) in RULES, f"{place}: {rule} is not registered"


def test_every_registered_rule_is_used() -> None:
    used = {rule.strip("'") for _, rule in rules_in_the_code()}
    assert set(RULES) <= used


def test_names_are_kebab_case_and_summaries_are_sentences() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert name.replace("-", "").isalpha()
        assert name.islower()
        assert rule.summary.endswith(".")
        assert rule.severity in SEVERITIES


def test_every_rule_has_a_section_with_its_severity_and_what_to_do() -> None:
    assert list(sections()) == list(RULES)
    for name, text in sections().items():
        first, *others = text.split("\n\n")
        assert first == f"**{RULES[name].severity.title()}.** {RULES[name].summary}"
        assert any(paragraph.startswith("*What to do.* ") for paragraph in others)
        assert any(paragraph.startswith("*Example.* ") for paragraph in others)


def test_the_page_of_the_docs_is_the_file_in_the_package() -> None:
    page = ROOT / "docs" / "rules.md"
    assert page.read_text(encoding="utf-8") == (PACKAGE / "rules.md").read_text(encoding="utf-8")


def assert_a_study_can_have(change: Mapping[str, Any], folder: Path) -> None:
    """A study file is read with the change in it, as the page writes it."""
    (folder / "photos").mkdir(exist_ok=True)
    study = {
        "model": "bundled:efficientnet-lite0",
        "data": "photos",
        "explainers": ["saliency"],
        **(yaml.safe_load(change_yaml(change)) or {}),
    }
    parse(study, folder)


TRIGGERED_BY = {rule: name for name, (_, rules) in real.RUNS.items() for rule in rules}


@pytest.mark.parametrize("rule", sorted(set(RULES) - COMPARING))
def test_a_real_run_triggers_the_rule(rule: str, tmp_path: Path) -> None:
    listed = [f for f in real.findings_of_run(TRIGGERED_BY[rule]) if f.rule == rule]
    assert listed
    for finding in listed:
        assert_a_study_can_have(finding.change, tmp_path)


@pytest.mark.parametrize("name", sorted(real.RUNS))
def test_findings_call_methods_as_the_page_does(name: str) -> None:
    display_names: dict[str, str] = {}
    for result in real.run_of(name).results():
        display_names |= result.unmarked_names
    for finding in real.findings_of_run(name):
        if finding.rule == "unfinished-run":
            continue  # its items are parts of the run directory
        text = "\n".join((finding.title, finding.seen, finding.do, *finding.items))
        for explainer, display_name in display_names.items():
            # Names without an underscore or brackets may be words of the sentence.
            if explainer != display_name and re.search(r"[_(]", explainer):
                assert explainer not in text
        assert set(finding.explainers) <= set(display_names)


def test_two_real_runs_trigger_the_rules_about_comparisons() -> None:
    assert set(real.compared_runs()) >= COMPARING


def test_a_run_can_be_resumed_with_other_rules_ignored(tmp_path: Path) -> None:
    images, _ = pictures(8)
    agreement = heatproof.Agreement(k=9)
    asked = (untrained(), images, ["saliency", "input_x_gradient"], agreement, tmp_path / "run")
    first = heatproof.evaluate(*asked, ignore=["few-samples"], show_progress=False)
    shown, _, ignored = first.text().partition("Ignored rules")
    assert "few-samples" not in shown
    assert "few-samples" in ignored
    again = heatproof.evaluate(*asked, show_progress=False)
    assert "few-samples" in again.text()
    assert "Ignored rules" not in again.text()
    with pytest.raises(heatproof.UserError, match=r"'few-sample'.*'few-samples'"):
        heatproof.evaluate(*asked, ignore=["few-sample"], show_progress=False)


def found_in_table(rule: str) -> list[Finding]:
    """What the rule finds in its made-up table."""
    case = made_up.TABLES[rule]()
    results = axis_results(case.table, case.samples, (), case.manifest, case.references)
    given = findings(results, case.samples, case.manifest, case.missing)
    return [finding for finding in given if finding.rule == rule]


@pytest.mark.parametrize("rule", made_up.TABLES)
def test_a_made_up_table_triggers_the_rule(rule: str, tmp_path: Path) -> None:
    """What only a model, data or scores of a special kind would show."""
    given = found_in_table(rule)
    severities = [finding.severity for finding in given]
    assert severities
    for finding in given:
        assert_a_study_can_have(finding.change, tmp_path)
    as_severe = SEVERITIES.index(RULES[rule].severity)
    assert all(SEVERITIES.index(severity) <= as_severe for severity in severities)
