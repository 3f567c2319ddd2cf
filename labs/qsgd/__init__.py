"""Gradients of a few bits, by QSGD."""
