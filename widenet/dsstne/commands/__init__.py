"""Amazon DSSTNE's commands with their own flags, and commands for its files."""
