"""DSSTNE's command `predict`: samples as text in, the best features of each out."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from widenet.durable import appearing
from widenet.errors import DataError, OptionError, did_you_mean
from widenet.interop.dsstne.index_file import read_names
from widenet.interop.dsstne.model import import_model
from widenet.interop.dsstne.shared_folder import joined, shared_folder
from widenet.model.activations import activate
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.parallel.threads import one_thread_an_operation
from widenet.predict.top_k import Filter, top_k
from widenet.runs import Model
from widenet.sparse import SparseBatch

Entries = dict[str, float]


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
    """Write a line a sample, `name<TAB>feature,score:feature,score:`, best first; gives the number of samples.

    data_set: begins the name of the input layer's data set, which goes on with "_input". features: the index files of input and output.
    rows: samples, `name<TAB>feature:feature`; values and unknown features are passed over. filters: features of a sample that are left
    out, or with a value between 0 and 1 whose scores are multiplied by it. layer: write the values of all its units instead, as text.
    Every process that a launcher has started must call it; one of them writes. Raises DataError, OptionError, FitError; the file appears
    whole, or not at all.
    """
    exchange, named = joined(), {f"{data_set}_input": features[0]}
    with shared_folder(exchange, out, "-s") as folder, one_thread_an_operation():
        by_leader(exchange, lambda: import_model(model, folder / "run"), "network")
        found = Model.load(folder / "run")
        inputs, outputs = found.run.network.inputs, found.run.network.outputs
        output = next((each for each in outputs if each.name == "Output"), outputs[0])
        if [each.field for each in inputs] != list(named):
            names = ", ".join(each.field for each in inputs)
            raise OptionError(f"-d must begin the name of the data set of the only input, NAME_input; got {data_set!r} for {names}.")
        index_of, items = {name: index for index, name in enumerate(read_names(features[0]))}, read_names(features[1])
        room = found.network.units[output.name]
        if len(items) > room:
            raise DataError(
                f"{features[1]}: must name at most the {room:,} units of {output.name!r}; got {len(items):,}. Use its own file."
            )
        if (layer is not None and layer not in found.network.units) or layer in [each.name for each in inputs]:
            known = [each.name for each in found.run.network.layers if each not in inputs]
            raise OptionError(f"-l must name a hidden layer or an output; got {layer!r}.{did_you_mean(str(layer), known)}")
        samples = _rows(rows, index_of)
        wanted = None if layer is not None else _filters(filters, {name: index for index, name in enumerate(items)})
        task = _Task(found, inputs[0].field, output.name, items, k, f"%{score_format}")
        if say is not None and exchange.leads:
            say(f"{len(samples):,} samples over {len(items):,} features.")
        lines = task.values(samples, batch_size, layer) if wanted is None else task.best(samples, batch_size, wanted)
        if exchange.leads:
            with appearing(out) as file:
                file.writelines(line.encode() for line in lines)
        else:
            for _ in lines:
                pass
        return len(samples)


class _Task:
    """What every batch is asked for."""

    def __init__(self, model: Model, field: str, output: str, items: Sequence[str], k: int, score_format: str) -> None:
        self.network, self.field, self.output, self.items = model.network, field, output, items
        self.k, self.score_format = min(k, len(items)), score_format
        self.allowed = Filter().within(len(items), self.network.outputs[output])

    def best(self, samples: Mapping[str, "array[int]"], batch_size: int, wanted: Mapping[str, dict[int, float]]) -> Iterator[str]:
        """A line of the best features of each sample."""
        for names, batch in self._batches(samples, batch_size):
            factors = [wanted.get(name, {}) for name in names]
            scores_EK, units_EK = self._ranked(batch, factors)
            for name, scores, units in zip(names, scores_EK.tolist(), units_EK.tolist(), strict=True):
                shown = (f"{self.items[unit]},{self.score_format % score}:" for score, unit in zip(scores, units, strict=True) if unit >= 0)
                yield f"{name}\t{''.join(shown)}\n"

    def values(self, samples: Mapping[str, "array[int]"], batch_size: int, layer: str | None) -> Iterator[str]:
        """A line of the values of a layer's units for each sample."""
        for names, batch in self._batches(samples, batch_size):
            values = layer_values(self.network, {self.field: batch}, layer or self.output)
            for name, row in zip(names, values.tolist(), strict=True):
                yield f"{name}\t{','.join(self.score_format % value for value in row)}\n"

    def _ranked(self, batch: SparseBatch, factors: Sequence[Mapping[int, float]]) -> tuple[Tensor, Tensor]:
        """Scores [E, K] descending and units [E, K]; places that hold nothing hold -1."""
        if all(factor == 0 for row in factors for factor in row.values()):
            hidden = SparseBatch.from_lists([sorted(row) for row in factors]).to(self.network.device)
            return top_k(self.network, {self.field: batch}, self.output, self.k, hidden, self.allowed)
        scores_EL = layer_values(self.network, {self.field: batch}, self.output)[:, : len(self.items)].clone()
        for example, row in enumerate(factors):
            for unit, factor in row.items():
                scores_EL[example, unit] = scores_EL[example, unit] * factor if factor else -torch.inf
        ordered_EL, units_EL = torch.sort(scores_EL, dim=1, descending=True, stable=True)
        units_EL = units_EL.masked_fill(ordered_EL == -torch.inf, -1)
        return ordered_EL[:, : self.k], units_EL[:, : self.k]

    def _batches(self, samples: Mapping[str, "array[int]"], size: int) -> Iterator[tuple[list[str], SparseBatch]]:
        pending = iter(samples.items())
        while some := list(islice(pending, size)):
            batch = SparseBatch.from_lists([sorted(set(row)) for _, row in some])
            yield [name for name, _ in some], batch.to(self.network.device)


def layer_values(network: Network, fields: Mapping[str, SparseBatch], layer: str) -> Tensor:
    """The values float32 [E, units] of a layer outside training; every process must ask."""
    with torch.no_grad():
        activity = network.forward(network.prepare(fields, None), None)
        if layer not in network.outputs:
            return activity.values[layer]
        output = network.met(layer, activity)
        direct_EH, shards = network.direct(output, activity), output.weight.shards
        sizes = [shards.size(shard) for shard in range(shards.count)]

        def logits(shard: int) -> Tensor:
            own_ES = output.tile(shard, 0, sizes[shard]).logits(direct_EH)
            return torch.nn.functional.pad(own_ES, (0, max(sizes) - sizes[shard]))

        found = output.exchange.gather(output.exchange.each(logits), output.where)
        return activate(output.spec.activation, torch.cat([own_ES[:, :size] for own_ES, size in zip(found, sizes, strict=True)], dim=1))


def _rows(path: Path, index_of: Mapping[str, int]) -> dict[str, "array[int]"]:
    """The known features of every sample, in the order of the text; of a repeated sample those of its last line."""
    found = {sample: array("I", (index_of[name] for name in entries if name in index_of)) for sample, entries in _lines(path)}
    if not found:
        raise DataError(f"{path}: must hold at least one sample, `name<TAB>feature:feature`; it holds none. Check -r.")
    return found


def _filters(path: Path, index_of: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """Of every sample the factors of its listed features; 0: left out."""
    return {sample: {index_of[name]: factor for name, factor in entries.items() if name in index_of} for sample, entries in _lines(path)}


def _lines(source: Path) -> Iterator[tuple[str, Entries]]:
    """Sample, and by feature the factor that its value stands for, of every line of a file or of all files in a folder."""
    if not source.exists():
        raise DataError(f"{source}: must be a file or a folder of text; it does not exist. Check the path.")
    paths = sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]
    for path in paths:
        with path.open(encoding="utf-8") as file:
            try:
                for line in file:
                    sample, tab, rest = line.rstrip("\r\n").partition("\t")
                    if tab:
                        yield sample, {name: _factor(value) for name, _, value in (each.partition(",") for each in rest.split(":")) if name}
            except UnicodeDecodeError as error:
                raise DataError(f"{path}: must be UTF-8 text; {error.reason}. Convert the file.") from error


def _factor(text: str) -> float:
    """What a filter's value multiplies a score by; 0 of what can be no such factor but a rating, a count or a time."""
    try:
        factor = float(text.partition(",")[0] or 0)
    except ValueError:
        return 0.0
    return factor if 0 < factor < 1 else 0.0
