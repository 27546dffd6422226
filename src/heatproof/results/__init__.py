"""From the rows of a run to what they say.

    rows ─► ScoreArrays ─► summary, ranking, paired tests ─► AxisResult ─► Verdict

`arrays` puts the rows of one test into arrays in which every comparison is paired. `summary`, `ranking` and `comparisons`
make tables of them with the methods of `heatproof.statistics`. `AxisResult` holds all of this for one test of one model
and data set; terminal, page, gate, figures and comparison read it. `verdict` alone decides who is best.
"""
