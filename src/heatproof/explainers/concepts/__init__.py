"""Explanations by concepts: CAV and CAR."""
