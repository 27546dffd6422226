"""The model wrapper, smoothed models, and how models are loaded and run."""

from holdfast.models.model import Model

__all__ = ["Model"]
