"""Amazon DSSTNE: its data, its text and its trained networks."""
