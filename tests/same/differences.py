"""What may differ between the old side and this one, each with its reason.

After a commit that moves numbers on purpose, OLD becomes that commit: nothing hides behind the reason.
"""

OLD = "1b7c381e5d06a6dd4ac4e70e64cb8bcc814bd79f"
"""The commit of the old side: since it, torch takes one pass over the logits of a softmax, a pair may be in
two parts, and each example of a convolution is multiplied alone outside training."""

DIFFERENCES: dict[tuple[str, str, str], str] = {}
"""Reasons by patterns of a case and of an output of it, and the key of a JSON document that alone may differ,
or "" for the whole output.
"""

REMOVED_TRAININGS: dict[str, str] = {}
"""Golden trainings of the old side that are of removed settings alone."""

REMOVED_FIELDS: dict[tuple[str, str], str] = {}
"""Fields by kind of layer that both sides' documents leave out."""
