"""Models whose right map is known, maps that are less true, and which measures can tell the two apart."""

from holdfast.truth.corruptions import GRADES, corrupted
from holdfast.truth.models import Summed, Truth, truths
from holdfast.truth.validate import validate

__all__ = ["GRADES", "Summed", "Truth", "corrupted", "truths", "validate"]
