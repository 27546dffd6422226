"""The report: one self-contained HTML page, and the same verdict as text.

Nothing is imported here: the axes import `heatproof.report.components`, which must load neither pages nor drawing.
"""
