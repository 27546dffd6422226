"""Pencils that know no axis: charts, pictures, prose, figure styles and LaTeX tables."""
