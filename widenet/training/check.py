"""Checks a training before its first step."""

from pathlib import Path

from widenet.data.manifest import Manifest
from widenet.errors import FitError
from widenet.plan.binding import bind, check_evaluation
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_training(network: NetworkSpec, training: TrainingSpec, path: Path, manifest: Manifest) -> Layout:
    """Bind the documents of a training to its dataset, by the manifest at a path, and return the layout.

    Raises:
        FitError: The documents and the dataset do not go together.
    """
    layout = bind(network, training, manifest.fields)
    output = check_evaluation(network, training)
    if output is None or training.evaluation is None:
        return layout
    part = training.evaluation.part
    field = manifest.fields[output.field]
    rule = f'needs a sparse field; output "{output.name}" predicts the dense field "{output.field}"'
    FitError.require(field.kind != "dense", rule, place=f"{training.where}: evaluation")
    FitError.require(part in field.parts, field.without(path, part))
    rule = f'the {part} part of field "{output.field}" has no entries'
    FitError.require(field.num_entries[part], rule, place=path)
    return layout
