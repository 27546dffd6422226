"""Figures and LaTeX tables for papers, from any run that has the rows: `write`, and what it can write."""

from holdfast.figures.writing import ITEMS, Item, Written, write, write_all

__all__ = ["ITEMS", "Item", "Written", "write", "write_all"]
