"""Baselines to measure a network against, computed from the training part without tuning."""
