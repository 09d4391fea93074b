"""A fuzzer of every file that hyrlo reads: `make fuzz`, or `python -m tests.fuzz`."""
