"""DSSTNE's command `train`: its network and data sets in, a run and its trained network out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.manifest import Manifest
from widenet.errors import DocumentError, OptionError
from widenet.interop.dsstne.data import FACTS, import_data, is_listed_only
from widenet.interop.dsstne.model_export import export_model
from widenet.runs import Model
from widenet.runs import train as train_run
from widenet.spec.dsstne.network import is_dsstne, translation
from widenet.spec.dsstne.settings import lowered
from widenet.spec.network import NetworkSpec
from widenet.training.loop import Report

SEED = 12134
"""DSSTNE's own, which no flag changes."""


def train(config: Path, data: Sequence[Path], out: Path, settings: Mapping[str, Any], report: Report) -> Model:
    """Train DSSTNE's network on its data sets, and write the trained network as it would be.

    data: NetCDF files, whose data sets the layers name. settings: values of a training document. The run stays in `out`.run, from which
    a training that was cut short goes on. Raises DocumentError, DataError, OptionError, and what a training raises.
    """
    if out.exists():
        raise OptionError(f"-n must be a new file; {out} exists. Name another, or move it away.")
    values = NetworkSpec.read_values(config)
    if not is_dsstne(values):
        raise DocumentError(f'{config} must be a DSSTNE network, of which a layer has a "DataSet"; use `widenet train` for others.')
    run = out.with_name(f"{out.name}.run")
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        targets = [layer["field"] for layer in translation(values, str(config)).network["layers"] if layer.get("kind") == "output"]
        manifest = import_data(list(dict.fromkeys(data)), Path(folder) / "data", targets=targets)
        found = translation(_with_dimensions(values, manifest), str(config))
        for note in found.notes:
            report.say(note)
        for layer in found.network["layers"]:
            if layer.get("kind") == "output" and is_listed_only(manifest, layer["field"]):
                layer["others"] = "ignore"
        network = NetworkSpec.of(found.network, f"{config}, in widenet's words")
        training = {"seed": SEED, "brake": True, "checkpoints": {"every_epochs": 10}, **found.training, **settings}
        if run.exists():
            report.say(f"{run} holds a training that was cut short; going on.")
        model = train_run(network, training, Dataset.open(Path(folder) / "data"), run, resume=run.exists(), report=report)
    export_model(model, out)
    return model


def _with_dimensions(values: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The same network, its inputs of "auto" units given the dimensions of their data sets where those have several."""
    sets: Any = manifest.source.get(FACTS) or {}
    found = lowered(values, "network")
    layers = found["layers"] if isinstance(found["layers"], list) else [found["layers"]]
    spelled = []
    for position, layer in enumerate(layers):
        given = lowered(layer, "layer")
        dimensions = sets.get(given.get("dataset"), {}).get("dimensions", [])
        if str(given.get("kind", "Hidden" if position else "Input")).lower() == "input" and len(dimensions) > 1:
            given["n"] = dimensions
        spelled.append(given)
    return {**found, "layers": spelled}
