"""What is recommended to whom: to one basket, to several, to users of a dataset, to all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from widenet.baselines.evaluate import output_name, output_of
from widenet.data.dataset import Dataset
from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError, OptionError, nearest, warn_user
from widenet.knn.neighbours import Measure, Neighbours, Trained, layer_with_vectors
from widenet.late_imports import installed
from widenet.metrics.ranking import checked_k
from widenet.model.network import Network
from widenet.predict.files import Block
from widenet.predict.restrictions import (
    LARGEST,
    PerUser,
    Restrictions,
    check_order,
    checked_items,
    checked_names,
    checked_values,
    is_list,
    ordered_history,
    recommendations,
    rules_of,
)
from widenet.predict.terms import shares
from widenet.runs.run_arguments import PredictArguments, RecommendArguments
from widenet.sparse import SparseBatch, from_rows
from widenet.spec.layers import OutputLayer
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory, WeightsFacts

Inputs: TypeAlias = Mapping[str, SparseBatch | Tensor]
"""What is known of a batch of people, by input field."""

Format: TypeAlias = Literal["pandas", "polars", "arrow"]
_LARGEST_INT64 = 2**63 - 1


@dataclass(frozen=True)
class Recommendation:
    """One recommended item: its id, its title (the id where it has none) and its score.

    The id is a number if the ids of the data were, and a text otherwise.
    """

    item: str | int
    title: str
    score: float


@dataclass(frozen=True)
class Answers:
    """R items for E questions, question by question, best first.

    Attributes:
        asked: Who or what was asked for: E names.
        counts: Number of items of each, int64 [E].
        units: Their units, int64 [R].
        scores: float32 or float64 [R].
        names: Vocabulary of the items.
        whole: Whether ids are shown as numbers.
    """

    asked: Sequence[Any]
    counts: np.ndarray
    units: np.ndarray
    scores: np.ndarray
    names: Vocabulary
    whole: bool = False

    @classmethod
    def of_blocks(
        cls, asked: Sequence[Any], blocks: Sequence[Block], names: Vocabulary, whole: bool
    ) -> "Answers":
        """The items of several blocks of recommendations."""
        return cls(
            asked,
            np.concatenate([np.zeros(0, np.int64), *(block.counts for block in blocks)]),
            np.concatenate([np.zeros(0, np.int64), *(block.units for block in blocks)]),
            np.concatenate([np.zeros(0, np.float32), *(block.scores for block in blocks)]),
            names,
            whole,
        )

    def lists(self) -> list[list[Recommendation]]:
        """A list for each question."""
        ids, titles = self.ids(), self.names.titles(self.units)
        scores: list[float] = self.scores.tolist()
        rows = [Recommendation(*row) for row in zip(ids, titles, scores, strict=True)]
        stops = np.cumsum(self.counts)
        return [rows[stop - count : stop] for stop, count in zip(stops, self.counts, strict=True)]

    def shown(self, form: Format | None, is_one: bool, asked: str = "user", item: str = "item") -> Any:
        """A table if its kind is given, otherwise a list for each question, or for the only one."""
        if form is not None:
            return self.table(form, asked, item)
        return self.lists()[0] if is_one else self.lists()

    def ids(self) -> Sequence[str | int]:
        """The ids of the items, R numbers or texts."""
        texts = self.names.ids(self.units)
        return [int(text) for text in texts] if self.whole else texts

    def table(self, form: Format, asked: str, item: str) -> Any:
        """A row for each item, with its rank from 1, and its title if there are titles.

        Args:
            form: The kind of table.
            asked: Name of the column of questions.
            item: Name of the column of items.
        """
        starts = np.cumsum(self.counts) - self.counts
        ranks = np.arange(1, len(self.units) + 1) - np.repeat(starts, self.counts)
        owners = pa.array(np.repeat(np.arange(len(self.counts)), self.counts))
        columns = {asked: _array(self.asked).take(owners), item: _array(self.ids())}
        if self.names.has_titles:
            columns["title"] = pa.array(self.names.titles(self.units), pa.string())
        columns |= {"score": pa.array(self.scores), "rank": pa.array(ranks, pa.int32())}
        return in_format(pa.table(columns), form)


def in_format(table: pa.Table, form: Format) -> Any:
    """Return an Arrow table as a DataFrame of another library, which must be installed."""
    if form == "arrow":
        return table
    with installed(form):
        return table.to_pandas() if form == "pandas" else import_module(form).from_arrow(table)


def _array(names: Sequence[Any]) -> pa.Array:
    """Names as a column: of numbers, or of texts where there is a text."""
    if any(isinstance(name, str) for name in names):
        return pa.array([str(name) for name in names], pa.string())
    is_large = any(name > _LARGEST_INT64 for name in names)
    return pa.array(names, pa.uint64() if is_large else pa.int64())


def output_layer(run: RunDirectory, output: str | None) -> OutputLayer:
    """Return an output of a run by its name; raises FitError if there is none or no only one."""
    layers = {layer.name: layer for layer in run.network.outputs}
    return layers[output_of(list(layers), output)]


def restrictions_of(
    run: RunDirectory, output: OutputLayer, arguments: RecommendArguments | PredictArguments
) -> Restrictions:
    """Read and check what arguments say of an output's items; warn of unknown ids.

    Raises:
        DataError: A file cannot be read, all ids of a filter are unknown, or a weight is wrong.
        FitError: The scores cannot be weighted, or the items have no attributes.
        OptionError: A rule is wrong.
    """
    names, attributes = run.vocabulary(output.field), run.attributes(output.field)
    width, notes = run.layout.units[output.name], list[str]()
    rules = rules_of(
        output,
        width,
        names,
        attributes,
        notes,
        never=arguments.never,
        only=arguments.only,
        weights=arguments.weights,
        where=arguments.where,
        at_most=arguments.at_most,
    )
    never_for, only_for = (
        None if lists is None else PerUser(lists, names, notes, option)
        for option, lists in (("never_for", arguments.never_for), ("only_for", arguments.only_for))
    )
    for note in notes:
        warn_user(note)
    return Restrictions(rules, never_for, only_for)


def predicted(
    run: RunDirectory, network: Network, dataset: Dataset, arguments: PredictArguments
) -> Iterator[Block]:
    """Check what `Model.predict` gets, and return the blocks that it yields."""
    k, name = checked_k(arguments.k), output_name(network, arguments.output)
    output = network.outputs[name].spec
    if arguments.part is not None:
        dataset.sparse_field(output.field, arguments.part)
    return recommendations(
        network,
        dataset,
        run.vocabulary(output.field),
        name,
        k,
        arguments.exclude_seen,
        restrictions_of(run, output, arguments),
        arguments.say,
        part=arguments.part,
    )


def listed_ids(name: str, ids: Any) -> tuple[list[str | int], bool]:
    """Return ids as a list of texts and whole numbers, and whether there was only one, by itself.

    Raises:
        OptionError: They have no order, or one of them is neither a text nor a whole number.
    """
    check_order(name, ids)
    is_one = isinstance(ids, str | Integral)
    if not (is_one or is_list(ids)):
        raise OptionError("must be an id or a list of ids", option=name, value=ids)
    return checked_names(name, [ids] if is_one else ids), is_one


def answered(
    run: RunDirectory,
    network: Network,
    dataset_of: Callable[[Any], Dataset],
    arguments: RecommendArguments,
) -> tuple[Answers, bool]:
    """Return what `Model.recommend` recommends, and whether to one alone.

    Args:
        run: The run.
        network: Its network; all its processes must call this.
        dataset_of: Opens the dataset of the users.
        arguments: The arguments.
    """
    k, output = checked_k(arguments.k), output_name(network, arguments.output)
    target = network.outputs[output].spec.field
    names = run.vocabulary(target)
    chosen = restrictions_of(run, network.outputs[output].spec, arguments)
    asked: Sequence[Any]
    blocks: Iterator[Block]
    if arguments.users is not None:
        asked, is_one = listed_ids("users", arguments.users)
        _check_unused(arguments, ["items", "values", *([] if is_one else ["fields"])], "users")
        dataset, instead = dataset_of(arguments.data), None
        if arguments.fields:
            instead = batches_of(run, with_items(run, output, (), arguments.fields))
        rows = dataset.rows_of([str(user) for user in asked])
        blocks = recommendations(
            network,
            dataset,
            names,
            output,
            k,
            arguments.exclude_seen,
            chosen,
            chosen=rows,
            instead=instead,
        )
    elif is_list(arguments.items) and any(map(is_list, arguments.items)):
        _check_unused(arguments, ["data", "fields"], "several baskets")
        asked, is_one = range(len(arguments.items)), False
        size = chosen.rows_a_block(k, network.outputs[output].width)
        batches = _baskets(run, output, arguments.items, arguments.values, size)
        blocks = _listed(run, network, output, k, arguments.exclude_seen, chosen, batches)
    else:
        _check_unused(arguments, ["data", "never_for", "only_for"], "one basket")
        asked, is_one = [0], True
        known_fields = with_items(run, output, arguments.items, arguments.fields, arguments.values)
        warn_of_ambiguous(run, known_fields)
        alone = [(asked, batches_of(run, known_fields, arguments.values))]
        blocks = _listed(run, network, output, k, arguments.exclude_seen, chosen, alone)
    return Answers.of_blocks(asked, list(blocks), names, run.fields[target].whole_numbers), is_one


def _check_unused(arguments: RecommendArguments, names: Sequence[str], what: str) -> None:
    """Raise OptionError if an argument is given that does not go with who gets recommendations."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not (isinstance(value, tuple) and not value):
            raise OptionError(f"does not go with {what}", option=name)


def alike(
    run: RunDirectory, model: Trained, items: Any, k: int, layer: str | None, measure: Measure
) -> tuple[Answers, bool]:
    """Return the k units of a layer that are most similar to those of some items, and whether of one alone.

    Raises as `Model.similar`.
    """
    asked, is_one = listed_ids("items", items)
    if not asked:
        raise OptionError("must name at least one item", option="items")
    field = layer_with_vectors(model.network, layer).field
    warn_of_ambiguous(run, {field: asked})
    names = run.vocabulary(field)
    collection = Neighbours.of_model(model, layer, measure)
    own = np.array([found[0] for found in names.find_each(asked)], dtype=np.int64)
    scores_EK, units_EK, kept_EK = collection.others(own, k)
    known = _as_ids(asked, names.ids(own))
    kept = kept_EK.sum(axis=1), units_EK[kept_EK], scores_EK[kept_EK]
    return Answers(known, *kept, names, run.fields[field].whole_numbers), is_one


def _as_ids(asked: Sequence[str | int], ids: Sequence[str]) -> list[str | int]:
    """Return what was asked for, with ids in place of titles."""
    return [item if str(item) == name else name for item, name in zip(asked, ids, strict=True)]


def reasons(
    run: RunDirectory,
    network: Network,
    dataset: Dataset | None,
    output: str,
    item: Any,
    user: str | int | None,
    items: Sequence[str | int],
    values: Sequence[float] | None,
) -> Answers:
    """Return what each item of a history adds to the logit of an item; raises as `Model.explain`.

    Args:
        run: The run.
        network: Its network; all its processes must call this.
        dataset: The dataset of the user; None for a basket.
        output: Name of the output.
        item: The item to explain.
        user: The user in the dataset.
        items: The items of a basket.
        values: Their values.
    """
    field = field_to_explain(run, output)
    if dataset is not None:
        example = dataset.sparse(field, dataset.rows_of([str(user)]))
    else:
        batch = batches_of(run, with_items(run, output, items, None, values), values)[field]
        assert isinstance(batch, SparseBatch), "the field is sparse"
        example = batch
    [wanted], _ = listed_ids("item", [item])
    target = network.outputs[output].spec.field
    for each, texts in ((target, [wanted]), (field, items)):
        warn_of_ambiguous(run, {each: texts})
    unit = run.vocabulary(target).find(wanted)[0]
    share_Z = shares(network, example, output, unit).numpy()
    order = np.argsort(-share_Z, kind="stable")
    return Answers(
        _as_ids([wanted], run.vocabulary(target).ids([unit])),
        np.array([len(order)]),
        example.indices.numpy().astype(np.int64)[order],
        share_Z[order],
        run.vocabulary(field),
        run.fields[field].whole_numbers,
    )


def _listed(
    run: RunDirectory,
    network: Network,
    output: str,
    k: int,
    exclude_seen: bool,
    chosen: Restrictions,
    batches: Iterable[tuple[Sequence[Any], Inputs]],
) -> Iterator[Block]:
    """Yield the k best items of an output for every basket of some batches.

    Args:
        run: The run.
        network: Its network; all its processes must call this.
        output: Name of the output.
        k: Number of items for each basket.
        exclude_seen: Whether items of a basket are left out.
        chosen: Which items may be recommended.
        batches: Keys of baskets, with what is known of them; nothing is known of the other input fields.
    """
    target = network.outputs[output].spec.field
    names = run.vocabulary(target)
    for keys, known in batches:
        fields = {
            layer.field: known.get(layer.field, nothing(run, layer.field, len(keys)))
            for layer in run.network.inputs
        }
        network.exchange.at(f"{len(keys):,} baskets")
        own = fields.get(target) if exclude_seen else None
        seen = own if isinstance(own, SparseBatch) else None
        yield chosen.block(network, fields, output, k, [str(key) for key in keys], names, seen)


def _baskets(
    run: RunDirectory, output: str, items: Sequence[Any], values: Any, size: int
) -> Iterator[tuple[Sequence[Any], Inputs]]:
    """Yield the numbers of several baskets, and their items, in batches of a size.

    Args:
        run: The run.
        output: Name of the output.
        items: A list of items for each basket.
        values: None, or a list of numbers for each basket.
        size: Baskets of a batch.

    Raises:
        DataError: An item is unknown.
        FitError: The network reads no items.
        OptionError: A basket or a value is wrong.
    """
    field = field_of_items(run, output)
    vocabulary, is_sequence = run.vocabulary(field), run.fields[field].kind == "sequence"
    for basket in items if is_sequence or values is not None else ():
        check_order("items", basket)
    rows = [checked_items(row, f"items[{place}]") for place, row in enumerate(items)]
    numbers: list[list[float] | None] = [None] * len(rows)
    if values is not None:
        if not is_list(values) or len(values) != len(rows):
            raise OptionError(
                f"must be a list for each of {len(rows)} baskets", option="values", value=values
            )
        numbers = [checked_values(each, len(row)) for each, row in zip(values, rows, strict=True)]
        check_reads_values(run, field, chain.from_iterable(filter(None, numbers)))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        found = iter(vocabulary.find_each([item for row in block for item in row]))
        histories = [
            ordered_history([next(found)[0] for _ in row], own, is_sequence)
            for row, own in zip(block, numbers[start : start + size], strict=True)
        ]
        own_values = None if values is None else [own or [] for _, own in histories]
        batch = from_rows([units for units, _ in histories], own_values)
        yield range(start, start + len(block)), {field: batch}


Fields = Mapping[str, Any]
"""By input field: ids or titles of its features, or the numbers of a dense field; one value or a list."""


def item_field(run: RunDirectory, output: str) -> str | None:
    """The input field of items without a named field: the output's, or else the only one, or None."""
    read = [layer.field for layer in run.network.inputs]
    target = next(layer.field for layer in run.network.outputs if layer.name == output)
    return target if target in read else read[0] if len(set(read)) == 1 else None


def field_of_items(run: RunDirectory, output: str) -> str:
    """As `item_field`; raises FitError if there is none."""
    field = item_field(run, output)
    if field is None:
        read = ", ".join(dict.fromkeys(layer.field for layer in run.network.inputs))
        raise FitError(f"the network reads {read}, and no items of its output")
    return field


def reads_values(run: RunDirectory, field: str) -> bool:
    """Return whether the network was trained with a number for each item of a field.

    Of an imported network nobody knows, so that it counts as trained with them.
    """
    if not any(layer.field == field and layer.values == "use" for layer in run.network.inputs):
        return False
    record = run.fields[field]
    return (record.min_value, record.max_value) != (1.0, 1.0) or _is_imported(run)


def _is_imported(run: RunDirectory) -> bool:
    """Return whether another program trained the weights: the facts of ours name the examples."""
    path = run.path / "model"
    return path.is_dir() and WeightsFacts.of(Checkpoint.open(path).facts).examples is None


def check_reads_values(run: RunDirectory, field: str, values: Iterable[float]) -> None:
    """Raise OptionError unless the network reads these values of a field's items, or all are 1."""
    if run.fields[field].kind == "sequence":
        raise OptionError("do not go with a network that reads a sequence", option="values")
    if not reads_values(run, field) and any(value != 1 for value in values):
        raise OptionError("are for networks that were trained with a number for each item", option="values")


def field_to_explain(run: RunDirectory, output: str) -> str:
    """As `field_of_items`; raises FitError for a field whose items cannot be explained one by one."""
    field = field_of_items(run, output)
    if run.fields[field].kind != "sparse":
        rule = f'reads "{field}" as a {run.fields[field].kind}, whose items it cannot explain one by one'
        raise FitError(rule, place=run.path)
    return field


def with_items(
    run: RunDirectory, output: str, items: Sequence[str | int], fields: Fields | None, values: Any = None
) -> dict[str, list[Any]]:
    """Return the inputs by field, items first, which may have values; raises OptionError, FitError."""
    inputs = {name: list(value) if is_list(value) else [value] for name, value in (fields or {}).items()}
    known = list(dict.fromkeys(layer.field for layer in run.network.inputs))
    if unknown := next((name for name in inputs if name not in known), None):
        raise OptionError(
            f'have no "{unknown}": the network reads {", ".join(known)}.{nearest(unknown, known)}',
            option="fields",
        )
    for name, value in (fields or {}).items():
        if run.fields[name].kind != "sparse" or values is not None:
            check_order(name, value)
    if inputs and isinstance(items, list | tuple) and not items:
        return inputs
    named, field = checked_items(items), field_of_items(run, output)
    if run.fields[field].kind == "sequence" or values is not None:
        check_order("items", items)
    return {field: [*named, *inputs.pop(field, [])], **inputs}


def batches_of(
    run: RunDirectory, inputs: Mapping[str, Sequence[Any]], item_values: Sequence[Any] | None = None
) -> dict[str, SparseBatch | Tensor]:
    """Convert inputs to batches of one example, by field.

    Args:
        run: The run.
        inputs: The inputs by field.
        item_values: A number for each feature of the first field.

    Raises:
        DataError, FitError, OptionError: An input is unknown or of a wrong kind.
    """
    by_field: dict[str, SparseBatch | Tensor] = {}
    for position, (name, values) in enumerate(inputs.items()):
        record = run.fields[name]
        if record.kind == "dense":
            if item_values is not None and not position:
                raise OptionError(f'must be numbers of items, not of the field "{name}"', option="values")
            by_field[name] = torch.tensor([numbers_of(name, values, record.width)])
            continue
        numbers = None if item_values is None or position else checked_values(item_values, len(values))
        if numbers is not None:
            check_reads_values(run, name, numbers)
        found = run.vocabulary(name).find_each(checked_names(name, values))
        units, own = ordered_history([first for first, *_ in found], numbers, record.kind == "sequence")
        by_field[name] = from_rows([units], None if own is None else [own])
    return by_field


def nothing(run: RunDirectory, field: str, num_examples: int = 1) -> SparseBatch | Tensor:
    """An empty input: a batch of examples without features, or with zeros."""
    record = run.fields[field]
    if record.kind == "dense":
        return torch.zeros(num_examples, record.width)
    return SparseBatch.from_lists([[]] * num_examples)


def understood(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return the titles of the features that inputs refer to, or numbers as text, by field."""
    by_field = {}
    for name, values in inputs.items():
        record = run.fields[name]
        if record.kind == "dense":
            by_field[name] = [f"{value:g}" for value in numbers_of(name, values, record.width)]
        else:
            vocabulary = run.vocabulary(name)
            found = vocabulary.find_each(checked_names(name, values))
            by_field[name] = vocabulary.titles([first for first, *_ in found])
    return by_field


def warn_of_ambiguous(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> None:
    """Warn about each text that matches several features."""
    for name, values in inputs.items():
        if run.fields[name].kind != "dense":
            vocabulary, texts = run.vocabulary(name), checked_names(name, values)
            for text, found in zip(texts, vocabulary.find_each(texts), strict=True):
                if len(found) > 1:
                    [first] = vocabulary.shown(found[:1])
                    warn_user(
                        f'"{text}" is taken for {first}, the most popular of {len(found):,} that match.'
                    )


def numbers_of(field: str, values: Sequence[Any], width: int) -> list[float]:
    """Return the numbers of a dense field; raises OptionError, DataError for anything else."""
    if len(values) != width:
        rule = f"must be {width:,} number{'s' * (width != 1)}"
        raise OptionError(rule, place=f'field "{field}"', option="fields", value=values)
    for value in values:
        is_number = isinstance(value, Real)
        if not is_number or not abs(value) <= LARGEST:
            rule = "must be finite numbers of float32"
            raise DataError(rule, place=f'field "{field}"', option="fields", value=value)
    return [float(value) for value in values]
