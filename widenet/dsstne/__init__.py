"""Amazon DSSTNE: its documents, data, trained networks and commands."""
