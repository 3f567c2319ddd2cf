"""Trained networks of other programs: which format a file has, and the run that it becomes."""
