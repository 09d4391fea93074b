"""Speed and scaling of the library, measured side by side in one run: `python -m benchmarks` (`--quick` for a try-out)."""
