"""Explanations by training examples: influence, TracIn, SimplEx and similar representations."""
