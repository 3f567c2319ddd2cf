"""Runs: train, resume, load, evaluate, recommend."""

from widenet.runs.model import Model, Recommendation
from widenet.runs.training import train
from widenet.training.reports import Silence

__all__ = ["Model", "Recommendation", "Silence", "train"]
