"""Asynchronous training with a parameter server, simulated by events."""
