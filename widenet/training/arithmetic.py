"""The version of the arithmetic of trainings, and what to say where one training had several."""

ARITHMETIC = 2
"""Raised with every change that moves a bit of trained weights; the changelog lists it as *Changed*."""

UNCOUNTED = 0
"""The arithmetic of trainings from before it was counted."""

MIXED = (
    "Its steps were made by versions of widenet that may round in different ways: its fingerprint compares"
    " with no other."
)
"""What to say of a training that went on in another arithmetic than it was begun in, or began with the
weights of such a one.
"""
