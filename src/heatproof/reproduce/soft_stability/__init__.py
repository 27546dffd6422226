"""Probabilistic stability guarantees for feature attributions (soft stability)."""
