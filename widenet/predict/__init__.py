"""Predictions: the k best units of an output for every example, and the values of any layer.

Scores are computed tile by tile, so the scores of all units are never in memory at once. Filters leave units
out or weight them; recommendations for a whole dataset go to files block by block.
"""
