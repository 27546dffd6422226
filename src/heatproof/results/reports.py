"""The report of an axis, loaded by name when it is needed, so that measuring loads no code that writes or draws."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from heatproof.axis import Axis
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding

if TYPE_CHECKING:
    from heatproof.report.components import Component


class Report(Protocol):
    """What the `report` module of an axis has: sentences, components and findings of its results.

    lead(result)        the sentences under the heading of the axis
    components(result)  the charts, tables and galleries of one model and data set, in reading order
    findings(result)    what only this axis can find
    across(results)     optional: components of several models and data sets
    """

    def lead(self, result: AxisResult) -> list[str]: ...

    def components(self, result: AxisResult) -> Iterable[Component]: ...

    def findings(self, result: AxisResult) -> Iterable[Finding]: ...


def report_of(axis: Axis) -> Report | None:
    """Return the module with the report of an axis; None for an axis that has none."""
    if not axis.report:
        return None
    module: Any = importlib.import_module(axis.report)
    return cast(Report, module)


def components_of(result: AxisResult) -> list[Component]:
    """Return the components of one result, in reading order."""
    report = report_of(result.axis)
    return [] if report is None else list(report.components(result))


def components_across(results: Sequence[AxisResult]) -> list[Component]:
    """Return the components of all results of one axis together; most axes have none."""
    report = report_of(results[0].axis) if results else None
    across = getattr(report, "across", None)
    return [] if across is None else list(across(results))


def findings_of(result: AxisResult) -> list[Finding]:
    """Return what an axis finds in its results."""
    report = report_of(result.axis)
    return [] if report is None else list(report.findings(result))
