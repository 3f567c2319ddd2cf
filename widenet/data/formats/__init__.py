"""Formats of files with interactions.

Every start of the command line loads this module, so it imports no library.
"""

FORMATS = ("csv", "parquet", "adjacency", "sessions", "jsonl", "dsstne", "npz")
"""Names of the formats; the module of the same name defines `FORMAT`, a `source.Format`."""
