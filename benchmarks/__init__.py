"""Measurements of widenet: `python -m benchmarks NAME`."""
