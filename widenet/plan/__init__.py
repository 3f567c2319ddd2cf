"""What is known before a run begins, by arithmetic alone."""
