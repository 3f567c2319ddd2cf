"""Training in a logarithmic number system."""
