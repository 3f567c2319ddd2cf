"""Layers, losses, initializers: a network that knows no rank."""
