"""The forward pass: match the offline states at every step (FAIL)."""
