"""A network that another program trained, and the run that it becomes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from widenet.arguments import check_local
from widenet.data.dataset import Dataset
from widenet.data.messages import ignore_message
from widenet.data.rules import FieldLayout
from widenet.data.writer import vocabulary_rows, write_dataset
from widenet.errors import DataError, FitError, OptionError, nearest, reason_of
from widenet.interop.formats import ImportOptions, format_of
from widenet.model.build import build
from widenet.model.network import Network
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.plan.layout import FieldFacts, Width
from widenet.plan.tiles import as_slice
from widenet.runs import Model
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import check

_KINDS: tuple[Literal["dense", "sparse", "sequence"], ...] = ("dense", "sparse", "sequence")
"""Kinds of fields. If two fields have one name, the later kind holds for both."""
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that missing or wrong values of a damaged file raise; HDF5 raises RuntimeError."""


def import_network(
    path: str | Path,
    out: str | Path,
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    features: Mapping[str, Path] | Path | None = None,
    fields: Mapping[str, str] | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
) -> Model:
    """Import a trained network as a run: it predicts at once, and trainings may begin with its weights.

    Args:
        path: A file of a known format.
        out: The run directory to make.
        weights: A second file with the weights, if the format has them there: a .caffemodel for a .prototxt.
        data: A dataset with the network's fields. Without it, dense inputs stay dense, and features are named
            as the file does, or by their index.
        features: Index files of features, for DSSTNE's networks.
        fields: Other names for the network's inputs and outputs, as the dataset calls them.
        overwrite: Whether to replace an earlier run at `out`.
        say: Called with what the file is, and what is not what it seems.

    Returns:
        The model of the run.

    Raises:
        DataError: The file is damaged, or has layers without a counterpart, which are named.
        OptionError, FitError, CheckpointError: The options do not fit the file.
    """
    for name, place in (("path", path), ("out", out), ("weights", weights)):
        check_local(name, place)
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError("no such file", place=path)
    found = format_of(path)
    if weights is not None and "weights" not in found.TAKES:
        raise OptionError(f"belongs to a .prototxt; this is {found.NAME}", place=path, option="weights")
    if features is not None and "features" not in found.TAKES:
        raise OptionError(
            f"belongs to DSSTNE's networks; this is {found.NAME}", place=path, option="features"
        )
    tell = say or ignore_message
    model: Model = found.import_model(
        path,
        out,
        ImportOptions(
            None if weights is None else Path(weights),
            None if data is None else Path(data),
            features,
            fields or {},
            tell,
            overwrite,
        ),
    )
    tell(f"{path}: {found.NAME}.")
    return model


@dataclass
class Imported:
    """A network as its file describes it.

    layers: as in a network document. fields: what its inputs and outputs are, by name.
    weights: float32, by the names of `Layout.weights`; matrices are [units, inputs], biases [units].
    settings: what the network document says beside its layers.
    """

    name: str
    layers: list[dict[str, Any]]
    fields: dict[str, Width]
    weights: dict[str, np.ndarray]
    training: TrainingSpec = field(default_factory=TrainingSpec)
    settings: dict[str, Any] = field(default_factory=dict)

    def with_fields(self, names: Mapping[str, str]) -> "Imported":
        """Return the network with renamed fields; raises OptionError for an unknown field."""
        for name in names:
            if name not in self.fields:
                rule = f'has no field "{name}".{nearest(name, self.fields)}'
                raise OptionError(rule, place=self.name)
        fields: dict[str, Width] = {}
        for name, facts in self.fields.items():
            chosen = names.get(name, name)
            if fields.get(chosen, facts).width != facts.width:
                widths = f"{fields[chosen].width:,} and {facts.width:,} wide"
                raise OptionError(f'field "{chosen}" must be of one width; got {widths}', place=self.name)
            fields[chosen] = max(facts, fields.get(chosen, facts), key=lambda each: _KINDS.index(each.kind))
        layers = [
            {**layer, "field": names.get(layer["field"], layer["field"])} if "field" in layer else layer
            for layer in self.layers
        ]
        for layer in layers:
            if layer.get("kind") == "output" and fields[layer["field"]].kind == "sequence":
                layer["predict"] = "next"
        return replace(self, fields=fields, layers=layers)


def write_run(
    imported: Imported,
    out: Path,
    data: Dataset | None = None,
    overwrite: bool = False,
    names: Mapping[str, Sequence[str]] | None = None,
) -> Model:
    """Write an imported network as a finished run, and return it.

    It predicts at once, and trainings may begin with its weights.

    Args:
        imported: The network.
        out: The run directory to make.
        data: Dataset with the network's fields and names of features. Without it, features are named by
            `names`, or by their indices.
        overwrite: Whether to replace an earlier run at `out`.
        names: Names of features, by field.

    Raises:
        DataError, FitError, CheckpointError: Nothing is left at `out`, or the earlier run.
    """
    check(out, [] if data is None else [data.path], overwrite)
    with TemporaryDirectory() as folder:
        dataset = data or _empty_dataset(Path(folder) / "data", imported, names or {})
        layers = [_with_ignored_values(layer, dataset.fields) for layer in imported.layers]
        spec = NetworkSpec.of({**imported.settings, "layers": layers}, imported.name)
        for name, facts in imported.fields.items():
            found = dataset.fields.get(name)
            if found is not None and found.width != facts.width:
                rule = f"must have {facts.width:,} features, as in {imported.name}"
                raise FitError(rule, place=f'{dataset.path}: field "{name}"', value=found.width)
        layout = bind(spec, imported.training, dataset.fields)
        network = build(layout, Exchange(layout.num_shards))
        fill(network, imported)
        with RunDirectory.begin(out, layout, dataset, overwrite=overwrite, is_whole=True) as run:
            run.save_model("model", network, {"imported": imported.name})
    return Model(run, network)


def write_imported(imported: Imported, out: Path, options: ImportOptions) -> Model:
    """Write the run of an imported network under the names, and of the dataset, that the options say."""
    data = None if options.data is None else Dataset.open(options.data)
    return write_run(imported.with_fields(options.fields), out, data, options.overwrite)


def _with_ignored_values(layer: dict[str, Any], fields: Mapping[str, FieldFacts]) -> dict[str, Any]:
    """Let an output ignore the values of its field if they are no probabilities, such as counts."""
    facts = fields.get(layer.get("field", ""))
    if (
        layer.get("kind") != "output"
        or layer.get("loss") != "cross_entropy"
        or facts is None
        or facts.kind == "dense"
    ):
        return layer
    return layer if 0 <= facts.min_value <= facts.max_value <= 1 else {**layer, "values": "ignore"}


def fill(network: Network, imported: Imported) -> None:
    """Fill a network with imported weights.

    Raises:
        DataError: A weight is missing, has another shape, or holds a number that is not finite.
    """
    for name, weight in network.layout.weights.items():
        wanted = (weight.rows,) if weight.columns is None else (weight.rows, weight.columns)
        rows = _checked(
            imported, imported.weights.get(name), name, wanted[::-1] if weight.rows_are_features else wanted
        )
        rows = rows.T if weight.rows_are_features else rows
        if not weight.wide:
            network.trunk[name].tensor.copy_(rows)
            continue
        wide = network.wide[name]
        for shard, part in wide.parts.items():
            part.weight.copy_(rows[as_slice(wide.shards.units(shard))])


def _checked(imported: Imported, array: np.ndarray | None, name: str, shape: tuple[int, ...]) -> Tensor:
    place = f'{imported.name}: weights "{name}"'
    if array is None:
        raise DataError("is missing", place=place)
    if array.shape != shape:
        raise DataError(f"must have the shape {list(shape)}", place=place, value=list(array.shape))
    if not np.isfinite(array).all():
        raise DataError("must be finite numbers", place=place)
    return torch.from_numpy(np.require(array, np.float32, ["C", "W"]))


def _empty_dataset(path: Path, imported: Imported, names: Mapping[str, Sequence[str]]) -> Dataset:
    """Write a dataset without examples; features without names have their indices as names."""
    fields = imported.fields
    layouts = [
        FieldLayout(name, facts.width, _KINDS[_KINDS.index(facts.kind)]) for name, facts in fields.items()
    ]
    vocabularies = {
        layout.name: vocabulary_rows(layout.width, names.get(layout.name))
        for layout in layouts
        if layout.kind != "dense"
    }
    write_dataset(path, layouts=layouts, batches=[], vocabularies=vocabularies)
    return Dataset.open(path)


@contextmanager
def reading(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Raise DataError, which says that a file is no whole one of a kind, for what its values raise within.

    more: exceptions of the format's library. Numbers that become infinite or undefined pass; who takes them
    as weights refuses them.
    """
    damage: tuple[type[Exception], ...] = (*_DAMAGE, *more)
    try:
        with np.errstate(all="ignore"):
            yield
    except damage as error:
        raise DataError(f"must be a whole {kind}: {reason_of(error)}", place=path) from None
