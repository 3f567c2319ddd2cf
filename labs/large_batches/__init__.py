"""Large batches, and ensembles of small networks."""
