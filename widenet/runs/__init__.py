"""What a person does with a run: train it, resume it, load it, evaluate it, recommend from it."""

from widenet.runs.model import Model, Recommendation
from widenet.runs.training import train
from widenet.training.reports import Silence

__all__ = ["Model", "Recommendation", "Silence", "train"]
