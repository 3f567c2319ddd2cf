"""What may differ between the old side and this one, each with its reason.

After a commit that moves numbers on purpose, OLD becomes that commit: nothing hides behind the reason.
"""

OLD = "ce6d7cac13bf1a747ea7598e331ddfe144e3cf2c"
"""The commit of the old side: since it, an output takes one pass over its logits."""

DIFFERENCES: dict[tuple[str, str, str], str] = {}
"""Reasons by patterns of a case and of an output of it, and the key of a JSON document that alone may differ,
or "" for the whole output.
"""

REMOVED_TRAININGS: dict[str, str] = {}
"""Golden trainings of the old side that are of removed settings alone."""

REMOVED_FIELDS: dict[tuple[str, str], str] = {}
"""Fields by kind of layer that both sides' documents leave out."""
