"""Experiments about the ideas of the field. The package widenet imports none of them."""
