"""From a study to a run directory and back: plan, engine, table, storage, executors, export."""
