"""Runs beside each other: what differs between them on the same samples, and a leaderboard over many."""

from holdfast.report.comparison.atlas import atlas_text, beside_atlas
from holdfast.report.comparison.compare import Comparison, compare
from holdfast.report.comparison.leaderboard import leaderboard
from holdfast.report.comparison.leaderboard_page import leaderboard_page, write_leaderboard

__all__ = ["Comparison", "atlas_text", "beside_atlas", "compare", "leaderboard", "leaderboard_page"]
__all__ += ["write_leaderboard"]
