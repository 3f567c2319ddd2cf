"""DSSTNE's command `predict`, which reads samples as text and writes the best features of each."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from widenet.dsstne.model_import import import_model
from widenet.dsstne.netcdf import numbered_lines, read_names
from widenet.dsstne.text import files_of, numbered
from widenet.dsstne.train import joined, shared_folder
from widenet.errors import DataError, OptionError, nearest
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.group import by_leader
from widenet.plan.numbers import decimal
from widenet.predict.restrictions import rows_a_block
from widenet.predict.top_k import Rules, layer_values, top_k
from widenet.regular_files import check_regular
from widenet.runs import Model
from widenet.sparse import SparseBatch
from widenet.stores.durable import appearing

Entries = dict[str, float]
_VALUES_PER_BLOCK = 2**21
"""Maximum of unit values in memory, unless a hidden layer has more for a single sample."""


def predict(
    model: Path,
    data_set: str,
    features: tuple[Path, Path],
    rows: Path,
    filters: Path,
    out: Path,
    *,
    k: int = 100,
    batch_size: int = 1024,
    score_format: str = "4.3f",
    layer: str | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Write the best features of each sample as a line of text, and return the number of samples.

    A line is `name<TAB>feature,score:feature,score:`, best first. Every process that a launcher has started
    must call this; one of them writes. The file appears whole, or not at all.

    Args:
        model: The trained network, NetCDF.
        data_set: Name of the input layer's data set without its ending, "_input".
        features: Index files of the input and of the output.
        rows: Samples, `name<TAB>feature:feature`. Values and unknown features are ignored.
        filters: Features of a sample to leave out; with a value between 0 and 1, to multiply their scores by.
        out: The file to write.
        k: Features a sample.
        batch_size: Samples at a time.
        score_format: Width and precision of a score, as in "4.3f".
        layer: A layer whose units' values are written instead of features.
        say: Receives sentences on the progress.

    Raises:
        DataError, OptionError, FitError: A file or an option is wrong.
    """
    exchange = joined()
    with shared_folder(exchange, out) as folder, fixed_arithmetic():
        by_leader(exchange, lambda: import_model(model, folder / "run"), "network")
        network = Model.load(folder / "run")
        outputs = network.run.network.outputs
        output = next((each for each in outputs if each.name == "Output"), outputs[0])
        field = _input_field(network, data_set)
        items = _items(network, features[1], output.name)
        if layer is not None:
            _check_layer(network, layer)
        samples = _rows(rows, numbered(read_names(features[0])))
        factors = {} if layer is not None else _filters(filters, numbered(items))
        predictor = _Predictor(network, field, output.name, items, k, f"%{score_format}")
        if say is not None and exchange.leads:
            say(f"{len(samples):,} samples over {len(items):,} features.")
        lines = (
            predictor.best(samples, batch_size, factors)
            if layer is None
            else predictor.values(samples, batch_size, layer)
        )
        if exchange.leads:
            with appearing(out) as file:
                file.writelines(line.encode() for line in lines)
        else:
            for _ in lines:
                pass
        return len(samples)


def _input_field(model: Model, data_set: str) -> str:
    """Return the field of a network's only input; raises OptionError unless it is that of -d."""
    names = [layer.field for layer in model.run.network.inputs]
    OptionError.require(
        names == [f"{data_set}_input"],
        f"must be {data_set}_input for the only input; got {', '.join(names)}",
        place=model.run.path,
    )
    return names[0]


def _items(model: Model, path: Path, output: str) -> list[str]:
    """Read the names of an output's units."""
    items, num_units = read_names(path), model.network.layout.units[output]
    DataError.require(
        len(items) <= num_units,
        f"must name at most the {num_units:,} units of {output!r}",
        place=path,
        value=len(items),
    )
    return items


def _check_layer(model: Model, layer: str) -> None:
    spec = model.run.network
    known = [each.name for each in spec.layers if each not in spec.inputs]
    if layer not in known:
        raise OptionError(
            f'has no hidden layer or output "{layer}".{nearest(layer, known)}', place=model.run.path
        )


class _Predictor:
    """Turns batches of samples into lines of text."""

    def __init__(
        self, model: Model, field: str, output: str, items: Sequence[str], k: int, score_format: str
    ) -> None:
        self.network, self.field, self.output, self.items = model.network, field, output, items
        self.k, self.score_format = min(k, len(items)), score_format
        self.rules = Rules().within(len(items), self.network.outputs[output])

    def best(
        self, samples: Mapping[str, "array[int]"], batch_size: int, factors: Mapping[str, dict[int, float]]
    ) -> Iterator[str]:
        """Yield a line with the best features of each sample.

        Args:
            samples: Features of each sample.
            batch_size: Samples at a time.
            factors: Factors of scores by sample and unit; 0 leaves the unit out.
        """
        has_factors = any(factor > 0 for row in factors.values() for factor in row.values())
        for names, batch in self._batches(samples, min(batch_size, rows_a_block(self.k))):
            rows = [sorted(factors.get(name, {}).items()) for name in names]
            hidden = SparseBatch.from_lists([[unit for unit, factor in row if not factor] for row in rows])
            multipliers = _multipliers(rows) if has_factors else None
            fields = {self.field: batch}
            scores_EK, units_EK = top_k(
                self.network, fields, self.output, self.k, hidden, self.rules, factors=multipliers
            )
            for name, scores, units in zip(names, scores_EK.tolist(), units_EK.tolist(), strict=True):
                entries = (
                    f"{self.items[unit]},{self.score_format % score}:"
                    for score, unit in zip(scores, units, strict=True)
                    if unit >= 0
                )
                yield f"{name}\t{''.join(entries)}\n"

    def values(self, samples: Mapping[str, "array[int]"], batch_size: int, layer: str) -> Iterator[str]:
        """Yield the values of a layer's units for each sample, as pieces of its line."""
        block_size = max(1, min(batch_size, _VALUES_PER_BLOCK // self.network.layout.units[layer]))
        for names, batch in self._batches(samples, block_size):
            pieces: Iterable[Tensor] = layer_values(self.network, {self.field: batch}, layer)
            if len(names) > 1:
                pieces = [torch.cat(list(pieces), dim=1)]
            for place, name in enumerate(names):
                for number, piece in enumerate(pieces):
                    yield "," if number else f"{name}\t"
                    yield ",".join(self.score_format % value for value in piece[place].tolist())
                yield "\n"

    def _batches(
        self, samples: Mapping[str, "array[int]"], size: int
    ) -> Iterator[tuple[list[str], SparseBatch]]:
        pending = iter(samples.items())
        while block := list(islice(pending, size)):
            batch = SparseBatch.from_lists([sorted(set(row)) for _, row in block])
            yield [name for name, _ in block], batch


def _multipliers(rows: Sequence[Sequence[tuple[int, float]]]) -> SparseBatch:
    """Return the factors other than 0 of units' scores as a batch."""
    kept = [[(unit, factor) for unit, factor in row if factor] for row in rows]
    return SparseBatch.from_lists(
        [[unit for unit, _ in row] for row in kept], [[factor for _, factor in row] for row in kept]
    )


def _rows(path: Path, index_of: Mapping[str, int]) -> dict[str, "array[int]"]:
    """Read the known features of every sample, in the order of the text.

    If a sample is repeated, its last line counts.
    """
    rows = {
        sample: array("I", (index_of[name] for name in entries if name in index_of))
        for sample, entries in _lines(path)
    }
    DataError.require(
        rows, "must hold at least one sample, `name<TAB>feature:feature`; it holds none", place=path
    )
    return rows


def _filters(path: Path, index_of: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """Read the factors of each sample's listed features; 0 leaves a feature out."""
    return {
        sample: {index_of[name]: factor for name, factor in entries.items() if name in index_of}
        for sample, entries in _lines(path)
    }


def _lines(source: Path) -> Iterator[tuple[str, Entries]]:
    """Yield sample and factors by feature of every line of a file, or of all files in a folder."""
    check_regular(source)
    for path in files_of(source):
        for _, line in numbered_lines(path):
            sample, tab, rest = line.partition("\t")
            entries = (each.partition(",") for each in rest.split(":"))
            if tab:
                yield sample, {name: _factor(value) for name, _, value in entries if name}


def _factor(text: str) -> float:
    """Return the factor in a filter's value: a number between 0 and 1, exclusive.

    Any other value, such as a rating, a count or a time, gives 0.
    """
    factor = decimal(text.partition(",")[0])
    return factor if factor is not None and 0 < factor < 1 else 0.0
