"""Offline data: per-step states, transitions, and one reader per format."""
