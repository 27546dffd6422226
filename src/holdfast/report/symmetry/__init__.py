"""The page's section on symmetry."""
