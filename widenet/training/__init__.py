"""Trains a network: the loop, one step of it, optimizers, schedules, the run directory and its checkpoints.

`loop.py` is the place to start reading: it takes batches from `data`, makes each step (`step.py`),
and saves into a `RunDirectory`. This room knows nothing of the command line.
"""
