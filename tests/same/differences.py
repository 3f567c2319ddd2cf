"""What may differ between the old side and this one, each with its reason.

After a commit that moves numbers on purpose, OLD becomes that commit: nothing hides behind the reason.
"""

OLD = "af259f34d56ee300c15706012211277eab38acad"
"""The commit of the old side: since it, sequences of about one length are attended together."""

DIFFERENCES: dict[tuple[str, str, str], str] = {
    ("*AlexNet", "predict", ""): "outside training, each example of a convolution is multiplied alone",
}
"""Reasons by patterns of a case and of an output of it, and the key of a JSON document that alone may differ,
or "" for the whole output.
"""

REMOVED_TRAININGS: dict[str, str] = {}
"""Golden trainings of the old side that are of removed settings alone."""

REMOVED_FIELDS = {("output", "bias_l2"): "nobody penalized biases"}
"""Fields by kind of layer that both sides' documents leave out."""
