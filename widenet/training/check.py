"""Checks a training before its first step."""

from pathlib import Path
from typing import TYPE_CHECKING

from widenet.data.manifest import Manifest
from widenet.errors import FitError
from widenet.plan.binding import bind, check_evaluation
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

if TYPE_CHECKING:  # a plan reads a manifest alone, and does not load Arrow
    from widenet.data.dataset import Dataset


def check_training(network: NetworkSpec, training: TrainingSpec, dataset: "Dataset") -> Layout:
    """Bind the documents of a training to its dataset and return the layout.

    Raises:
        FitError: The documents and the dataset do not go together.
    """
    return check_planned(network, training, dataset.path, dataset.manifest)


def check_planned(network: NetworkSpec, training: TrainingSpec, path: Path, manifest: Manifest) -> Layout:
    """As `check_training`, for the manifest of the dataset at a path."""
    layout = bind(network, training, manifest.fields)
    output = check_evaluation(network, training)
    if output is None or training.evaluation is None:
        return layout
    part = training.evaluation.part
    field = manifest.fields[output.field]
    if field.kind == "dense":
        rule = f'needs a sparse field; output "{output.name}" predicts the dense field "{output.field}"'
        raise FitError(rule, place=f"{training.where}: evaluation")
    if part not in field.parts:
        raise FitError(field.without(path, part))
    if not field.num_entries[part]:
        raise FitError(f'the {part} part of field "{output.field}" has no entries', place=path)
    return layout
