"""Symmetry: does the explanation respect the symmetries of the model?"""
