"""Stability (FASS): does the map survive a perturbation that leaves the prediction unchanged?"""
