"""The two documents that describe a run, as frozen typed models."""
