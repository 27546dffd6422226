"""Standard statistics of paired scores, as functions of arrays.

`estimates` keeps every score with what each sample adds to its error. From that come the intervals and bounds
(`intervals`), the paired tests of all pairs of methods (`sign_flips`) and the bets of the gate (`bounds_of_means`).
Samples are the independent unit, or groups of samples where the data names them. `heatproof.results` applies these
functions to the rows of a run.
"""
