"""FASS: the Feature Attribution Stability Suite."""
