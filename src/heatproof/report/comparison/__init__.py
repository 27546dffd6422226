"""Runs beside each other: what differs between them on the same samples, and a leaderboard over many."""

from heatproof.report.comparison.compare import Comparison, compare
from heatproof.report.comparison.leaderboard import leaderboard
from heatproof.report.comparison.leaderboard_page import leaderboard_page, write_leaderboard

__all__ = ["Comparison", "compare", "leaderboard", "leaderboard_page"]
__all__ += ["write_leaderboard"]
