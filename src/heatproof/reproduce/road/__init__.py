"""A consistent and efficient evaluation strategy for attribution methods (ROAD)."""
