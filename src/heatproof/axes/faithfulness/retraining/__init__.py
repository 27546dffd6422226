"""Retraining (ROAR, KAR) and leakage: what networks learn from images with features removed."""
