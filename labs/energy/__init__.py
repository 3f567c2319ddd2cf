"""Energy of a training step, from published energies of operations."""
