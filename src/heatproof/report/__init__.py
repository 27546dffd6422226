"""The report: one self-contained HTML page, and the same verdict as text."""

from heatproof.report.page import build_report
from heatproof.report.proof_sheet_drawing import proof_sheet
from heatproof.report.terminal import text_summary

__all__ = ["build_report", "proof_sheet", "text_summary"]
