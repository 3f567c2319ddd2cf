"""Sources of interactions. Every start of the command line reads this module: it imports no library."""

FORMATS = ("csv", "parquet", "adjacency", "sessions", "jsonl", "dsstne", "npz")
"""The formats of files, each with a module of its name, whose `FORMAT` is a `source.Format`."""
