"""The gate: requirements such as `stability.fass >= 0.6 @ 0.95`, judged by a confidence bound and not by the mean.

`requirement` reads them, `checking` holds a run against them, `bounding` has the statistics, `wording` says it.
"""
