"""Tables, curves, bars and graphs as HTML that needs nothing else."""
