"""What may differ between the old side and this one, each with its reason.

After a commit that moves numbers on purpose, OLD becomes that commit: nothing hides behind the reason.
"""

OLD = "ed5e8bfcadbf6096a915173c1234eebcddad1780"
"""The commit of the old side."""

DIFFERENCES: dict[tuple[str, str, str], str] = {
    ("golden sgd, drifting*", "*", ""): "linear outputs under l2 and sgd are trained with their logits, too",
}
"""Reasons by patterns of a case and of an output of it, and the key of a JSON document that alone may differ,
or "" for the whole output.
"""

REMOVED_TRAININGS = {
    "momentum, pruned": "no pruning",
    "adam, tied, pruned": "no pruning",
    "adam, rounded": "no weights in bfloat16",
    "rmsprop, rounded to 8 bits, sampled": "no weights in bfloat16, no state in 8 bits",
    "momentum, tied, compensated": "no weights in bfloat16, no state in 8 bits",
}
"""Golden trainings of the old side that are of removed settings alone."""

REMOVED_FIELDS = {("convolution", "weight_norm"): "filters have no weight limit"}
"""Fields by kind of layer that both sides' documents leave out."""
