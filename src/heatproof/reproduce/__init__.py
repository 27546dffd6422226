"""Tables and figures of the five papers, run again and set beside the published numbers.

There is a folder for each paper. `table_4.yaml` in `fass/` is the item `fass-table-4`: the published numbers, what is
different here, the studies to run, and the function of `fass/tables.py` that makes our table. docs/reproduce.md shows how
to add one.
"""
