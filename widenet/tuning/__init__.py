"""Searches for documents: trials stop at rungs, and the best go on from their checkpoints."""
