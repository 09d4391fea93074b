"""Offline data: states and transitions of every step, and one reader per format."""
