"""The report of an axis, loaded by name when it is needed, so that measuring loads no code that writes or draws."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from heatproof.axis import Axis
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding

if TYPE_CHECKING:
    from heatproof.drawing.charts import Chart, Panel
    from heatproof.drawing.pieces import Item
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


@dataclass(frozen=True)
class Page:
    """What an axis puts on the page: its sentences, its charts and panels, and charts of several models at once."""

    lead: Callable[[AxisResult], list[str]]
    parts: Callable[[AxisResult], list[Chart | Panel]]
    across: Callable[[Sequence[AxisResult]], list[Chart]] = lambda results: []


def page_of(axis: Axis) -> Page | None:
    """What an axis draws; None for one that draws nothing of its own."""
    return importlib.import_module(axis.page).PAGE if axis.page else None


def findings_of(result: AxisResult) -> list[Finding]:
    """What an axis finds in its results."""
    report = report_of(result.axis)
    if report is not None:
        return list(report.findings(result))
    module = result.axis.findings
    return list(importlib.import_module(module).findings(result)) if module else []


def figures_of(axis: Axis) -> tuple[Item, ...]:
    """The figures and tables for papers that an axis can make."""
    return tuple(importlib.import_module(axis.figures).ITEMS) if axis.figures else ()
