"""Models whose right map is known, maps that are less true, and which measures can tell the two apart."""

from heatproof.truth.corruptions import GRADES, corrupted
from heatproof.truth.models import Summed, Truth, truths
from heatproof.truth.validate import validate

__all__ = ["GRADES", "Summed", "Truth", "corrupted", "truths", "validate"]
