"""The report: one self-contained HTML page, and the same verdict as text."""

from holdfast.report.hold_paper import hold_sheet
from holdfast.report.page import build_report
from holdfast.report.terminal import text_summary

__all__ = ["build_report", "hold_sheet", "text_summary"]
