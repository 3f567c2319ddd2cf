"""The version of the arithmetic of trainings, and the warning for a training that used several."""

from pathlib import Path

ARITHMETIC = 7
"""Raised with every change that moves a bit of trained weights; the changelog lists it as *Changed*."""


def mixed_arithmetic(run: Path | str) -> str:
    """Return the warning for a run whose steps, or first weights, come from several versions."""
    return (
        f"{run} was trained by versions of widenet that may round differently: its fingerprint compares with"
        " no other."
    )
