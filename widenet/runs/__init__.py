"""Runs: train, resume, load, evaluate, recommend."""

from typing import TYPE_CHECKING

from widenet.late_imports import late_names

if TYPE_CHECKING:
    from widenet.runs.model import Model
    from widenet.runs.recommending import Recommendation
    from widenet.runs.training import train
    from widenet.training.state import Silence

_HOME = {
    "Model": "widenet.runs.model:Model",
    "Recommendation": "widenet.runs.recommending:Recommendation",
    "Silence": "widenet.training.state:Silence",
    "train": "widenet.runs.training:train",
}

__all__ = ["Model", "Recommendation", "Silence", "train"]

__getattr__ = late_names(__name__, _HOME)
