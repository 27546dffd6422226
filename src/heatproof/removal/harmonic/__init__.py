"""The linear system of ROAD's imputation and its solvers."""
