"""Translation of DSSTNE's network documents to widenet's, from plain values to plain values."""
