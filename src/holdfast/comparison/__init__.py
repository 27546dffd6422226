"""Runs beside each other: what differs between them on the same samples, and a leaderboard over many."""

from holdfast.comparison.board_page import leaderboard_page, write_leaderboard
from holdfast.comparison.comparing import Comparison, compare
from holdfast.comparison.standings import leaderboard

__all__ = ["Comparison", "compare", "leaderboard", "leaderboard_page", "write_leaderboard"]
