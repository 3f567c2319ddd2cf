"""Checks a training before its first step."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from widenet.data.manifest import FILE_NAME, Field, Manifest, Part
from widenet.errors import FitError, WidenetError
from widenet.plan.binding import bind, check_evaluation
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.existing_run import CUT, DATA

if TYPE_CHECKING:  # a plan reads a manifest alone, and does not load Arrow
    from widenet.data.dataset import Dataset


def check_training(network: NetworkSpec, training: TrainingSpec, dataset: "Dataset") -> Layout:
    """Bind the documents of a training to its dataset and return the layout.

    Raises:
        DocumentError: The evaluation's metric is unknown.
        FitError: The documents and the dataset do not go together.
    """
    return check_planned(network, training, dataset.path, dataset.manifest)


def check_planned(network: NetworkSpec, training: TrainingSpec, path: Path, manifest: Manifest) -> Layout:
    """As `check_training`, for the manifest of the dataset at a path."""
    layout = bind(network, training, manifest.fields)
    ranked = check_evaluation(network, training)
    if ranked is None or training.evaluation is None:
        return layout
    (output, _), part = ranked, training.evaluation.part
    field = manifest.fields[output.field]
    if field.kind == "dense":
        place = f"{training.where}: evaluation"
        raise FitError(
            f'{place} needs a sparse field; output "{output.name}" predicts the dense field'
            f' "{output.field}". Remove it.'
        )
    if part not in field.parts:
        raise FitError(f"{field.without(path, part)}. {_remedy(training, path, field, part)}")
    if not field.num_entries[part]:
        where = f'{path}: the {part} part of field "{output.field}"'
        raise FitError(f"{where} has no entries. Split again, with a larger share.")
    return layout


def _remedy(training: TrainingSpec, path: Path, field: Field, part: Part) -> str:
    """Say how to train without a part that an evaluation reads.

    If the document lies in a run that has cut the part off its dataset, it names the result.
    """
    cut = Path(training.where).parent / DATA
    first = (
        f"Use {cut}, which has one"
        if _has_part(cut, field.name, part)
        else f"Set one aside with `{field.split_call(path, part)}`"
    )
    kept = ' and write "keep": "last"' if training.keep == "best" else ""
    return f'{first}, or remove "evaluation" from {training.where}{kept}.'


def _has_part(path: Path, field: str, part: Part) -> bool:
    """Return whether there is a dataset that a training has cut, with this part of a field."""
    if not (path.with_name(CUT).is_file() and (path / FILE_NAME).is_file()):
        return False
    with suppress(WidenetError):
        fields = Manifest.read(path).fields
        return field in fields and part in fields[field].parts
    return False
