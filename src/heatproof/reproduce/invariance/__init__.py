"""Evaluating the robustness of interpretability methods through explanation invariance and equivariance."""
