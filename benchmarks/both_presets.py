"""Trains a preset with a neighbourhood term once, and evaluates it with the term and without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.places import presets
from widenet import Dataset, Model, train
from widenet.metrics.ranking import Metrics
from widenet.runs.neighbourhood import set_terms


def both_presets(
    folder: str, dataset: Dataset, run: Path, ks: tuple[int, ...], **changes: Any
) -> Iterator[tuple[str, Metrics]]:
    """Yield the name and the metrics of "neighbours", then of "best".

    The presets differ in the term, which training does not see, so both have the same weights.

    Args:
        folder: The folder of the presets in examples.
        dataset: The examples.
        run: The run directory to make.
        ks: The list lengths to measure.
        changes: Other values of the training document.
    """
    network, training = presets(folder)["neighbours"]
    document = json.loads(training.read_text("utf-8"))
    model: Model = train(network, {**document, **changes}, dataset, run)
    yield "neighbours", model.evaluate(dataset, ks=ks)
    for output in model.network.outputs.values():
        set_terms(model.network, output.spec.name, neighbourhood=None)
    yield "best", model.evaluate(dataset, ks=ks)
