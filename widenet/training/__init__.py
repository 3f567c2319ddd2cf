"""The loop, the optimizers and the schedules."""
