"""Amazon DSSTNE's commands, with its flags, and commands for its files."""
