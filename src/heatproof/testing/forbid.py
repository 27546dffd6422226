"""Rules that must not find anything in a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heatproof.report.findings import findings
from heatproof.results.findings import Finding
from heatproof.rules import check_rules
from heatproof.runs.run import Run
from heatproof.runs.verify import missing


@dataclass(frozen=True)
class Ruling:
    """A forbidden rule and what it found."""

    rule: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether the rule found nothing."""
        return not self.findings


def forbidden(run: Run, rules: Iterable[str]) -> list[Ruling]:
    """Return what each of the forbidden rules finds in a run, also if the study ignores it."""
    names = check_rules(rules)
    if not names:
        return []
    ignoring_nothing = run.manifest.model_copy(update={"ignore": []})
    found = findings(run.results(), run.samples(), ignoring_nothing, missing(run.path))
    return [Ruling(name, tuple(f for f in found if f.rule == name)) for name in names]
