"""The model wrapper, smoothed models, and how models are loaded and run."""

from heatproof.models.model import Model

__all__ = ["Model"]
