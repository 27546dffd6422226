"""The page's section on certificates and smoothing."""
