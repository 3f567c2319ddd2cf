"""What is recommended to whom: to one basket, to several, or to users of a dataset."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from widenet.data.baskets import Baskets
from widenet.data.dataset import Dataset
from widenet.data.vocabulary import Vocabulary
from widenet.errors import OptionError
from widenet.evaluate import output_name
from widenet.knn.measures import Measure
from widenet.knn.neighbours import Neighbours, Trained, check_layer, field_of
from widenet.metrics.ranking import checked_k
from widenet.model.network import Network
from widenet.predict.arguments import check_order, checked_items, checked_names, checked_values, is_list
from widenet.predict.filters import PerUser, joined
from widenet.predict.list_rules import ListRules
from widenet.predict.lists import best_lists
from widenet.predict.rows import Block, recommendations, rows_a_block
from widenet.predict.shares import shares
from widenet.predict.top_k import Filter
from widenet.runs import person
from widenet.runs.answers import Answers
from widenet.runs.arguments import RecommendArguments
from widenet.runs.rules import Restrictions
from widenet.runs.unread import warn_of_filters, warn_of_strangers, warn_of_unused
from widenet.sparse import SparseBatch
from widenet.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Known:
    """What is known of somebody: the id of a user, or items with their values."""

    user: str | int | None = None
    items: Sequence[str | int] = ()
    values: Sequence[float] | None = None


def is_table_of_baskets(items: Any) -> bool:
    """Whether baskets are a table: a DataFrame, an Arrow table, a dictionary of columns, a matrix."""
    return isinstance(items, Mapping) or hasattr(items, "columns") or hasattr(items, "tocsr")


def are_many(items: Any) -> bool:
    """Whether items are several baskets rather than one."""
    return is_table_of_baskets(items) or (is_list(items) and any(map(is_list, items)))


def read_once(arguments: RecommendArguments) -> RecommendArguments:
    """Return arguments whose items and fields can be read several times, even if they were generators."""
    once = {name: _read_once(value) for name, value in (arguments.fields or {}).items()}
    return replace(
        arguments, items=_read_once(arguments.items), fields=None if arguments.fields is None else once
    )


def _read_once(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def listed_ids(name: str, ids: Any) -> tuple[list[str | int], bool]:
    """Return ids as a list of texts and whole numbers, and whether there was only one, by itself.

    Raises:
        OptionError: They have no order, or one of them is neither a text nor a whole number.
    """
    check_order(name, ids, "the answers come in the same order")
    is_one = isinstance(ids, str | Integral)
    if is_table_of_baskets(ids) or not (is_one or is_list(ids)):
        raise OptionError(f"{name} must be an id or a list of ids; got {type(ids).__name__}.")
    return checked_names(f"{name} must be ids", [ids] if is_one else ids), is_one


def baskets(items: Any, values: Any, columns: Mapping[str, str], is_sequence: bool) -> Baskets:
    """Read several baskets.

    Args:
        items: A table with a row for each item of a basket, or a list of baskets, each a list of items.
        values: For a list of baskets: a list of numbers for each of them, one for each item.
        columns: For a table: the columns of "user", "item" and "value".
        is_sequence: Whether the network reads a sequence.

    Raises:
        DataError: The table is wrong.
        OptionError: A basket is wrong.
    """
    if is_table_of_baskets(items):
        if values is not None:
            raise OptionError("`values` is for lists; a table has a column. Name it in `columns`.")
        from widenet.data.basket_tables import baskets_of  # loads DuckDB

        return baskets_of(items, columns)
    if columns:
        raise OptionError("`columns` is for tables. Leave it out.")
    for basket in items:
        _check_basket(basket, values, is_sequence)
    rows = [checked_items(row, f"items[{place}]") for place, row in enumerate(items)]
    owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    flat = [item for row in rows for item in row]
    if values is None:
        return Baskets(pa.array(range(len(rows))), owners, flat, may_be_titles=True)
    if not is_list(values) or len(listed := list(values)) != len(rows):
        raise OptionError(f"values must be a list for each of {len(rows)} baskets; got {values!r}.")
    pairs = zip(listed, rows, strict=True)
    numbers = [number for each, row in pairs for number in checked_values(each, len(row))]
    return Baskets(pa.array(range(len(rows))), owners, flat, np.array(numbers), may_be_titles=True)


def _check_basket(basket: Any, values: Any, is_sequence: bool) -> None:
    """Raise OptionError for a set where the order of a basket's items counts."""
    if is_sequence:
        check_order("items", basket, person.OF_SEQUENCES)
    if values is not None:
        check_order("items", basket, "each has a value")


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
    chosen = Restrictions.of(run, network.outputs[output], arguments)
    warn_of_filters(chosen.notes)
    allowed, rules = chosen.allowed.to(network.device), chosen.rules
    never_for, only_for = chosen.never_for, chosen.only_for
    blocks: Iterator[Block]
    if arguments.users is not None:
        asked, is_one = listed_ids("users", arguments.users)
        _check_unused(arguments, ["items", "values", "columns", *([] if is_one else ["fields"])], "users")
        dataset, instead = dataset_of(arguments.data), None
        if arguments.fields:
            instead = person.batches_of(run, person.with_items(run, output, (), arguments.fields))
        rows = dataset.rows_of([str(user) for user in asked])
        if not arguments.fields:
            warn_of_strangers(run.network, dataset, rows)
        blocks = recommendations(
            network,
            dataset,
            names,
            output,
            k,
            arguments.exclude_seen,
            allowed,
            never_for,
            chosen=rows,
            instead=instead,
            rules=rules,
            only_for=only_for,
        )
    elif are_many(arguments.items):
        _check_unused(arguments, ["data", "fields"], "several baskets")
        is_sequence = run.fields[person.field_of_items(run, output)].kind == "sequence"
        known = baskets(arguments.items, arguments.values, arguments.columns or {}, is_sequence)
        asked, is_one = known.keys, False
        blocks = for_baskets(
            run, network, output, k, known, arguments.exclude_seen, allowed, rules, never_for, only_for
        )
    else:
        _check_unused(arguments, ["data", "columns", "never_for", "only_for"], "one basket")
        asked, is_one = [0], True
        blocks = iter([_for_one(run, network, output, k, arguments, allowed, rules)])
    found = list(blocks)
    warn_of_unused(never_for=never_for, only_for=only_for)
    return Answers.of_blocks(asked, found, names, run.fields[target].whole_numbers), is_one


def _check_unused(arguments: RecommendArguments, names: Sequence[str], what: str) -> None:
    """Raise OptionError if an argument is given that does not go with who gets recommendations."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not (isinstance(value, tuple) and not value):
            raise OptionError(f"`{name}` does not go with {what}. Leave it out.")


def _for_one(
    run: RunDirectory,
    network: Network,
    output: str,
    k: int,
    arguments: RecommendArguments,
    allowed: Filter,
    rules: ListRules,
) -> Block:
    """The k best items of an output for one basket, and for what else is known."""
    for items in (arguments.items, *(arguments.fields or {}).values()):
        _check_basket(items, arguments.values, is_sequence=False)  # `with_items` knows of sequences
    known = person.with_items(run, output, arguments.items, arguments.fields)
    batches = person.batches_of(run, known, arguments.values)
    inputs = {
        layer.field: batches.get(layer.field, person.nothing(run, layer.field))
        for layer in run.network.inputs
    }
    target = network.outputs[output].spec.field
    seen = inputs.get(target) if arguments.exclude_seen else None
    names = run.vocabulary(target)
    allowed = allowed.within(len(names), network.outputs[output])
    seen = seen if isinstance(seen, SparseBatch) else None
    return Block.of([], names, *best_lists(network, inputs, output, k, seen, allowed, rules))


def alike(
    run: RunDirectory, model: Trained, items: Any, k: int, layer: str | None, measure: Measure
) -> tuple[Answers, bool]:
    """Return the k units of a layer that are most similar to those of some items, and whether of one alone.

    Raises as `Model.similar`.
    """
    asked, is_one = listed_ids("items", items)
    if not asked:
        raise OptionError("items must name at least one item; got none.")
    field = field_of(model.network, check_layer(model.network, layer))
    person.warn_of_ambiguous(run, {field: asked})
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
    run: RunDirectory, network: Network, dataset: Dataset | None, output: str, item: Any, known: Known
) -> Answers:
    """Return what each item of a history adds to the logit of an item; raises as `Model.explain`.

    Args:
        run: The run.
        network: Its network; all its processes must call this.
        dataset: The dataset of the user; None for a basket.
        output: Name of the output.
        item: The item to explain.
        known: The user, or the items and their values.
    """
    field = person.field_to_explain(run, output)
    if dataset is not None:
        example = dataset.sparse(field, dataset.rows_of([str(known.user)]))
    else:
        _check_basket(known.items, known.values, is_sequence=False)
        inputs = person.with_items(run, output, known.items, None)
        batch = person.batches_of(run, inputs, known.values)[field]
        assert isinstance(batch, SparseBatch), "the field is sparse"
        example = batch
    [wanted], _ = listed_ids("item", [item])
    target = network.outputs[output].spec.field
    for each, texts in ((target, [wanted]), (field, known.items)):
        person.warn_of_ambiguous(run, {each: texts})
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


def for_baskets(
    run: RunDirectory,
    network: Network,
    output: str,
    k: int,
    known: Baskets,
    exclude_seen: bool,
    allowed: Filter,
    rules: ListRules | None = None,
    never_for: PerUser | None = None,
    only_for: PerUser | None = None,
) -> Iterator[Block]:
    """Yield the k best items of an output for every basket, block by block.

    Args:
        run: The run.
        network: Its network; all its processes must call this.
        output: Name of the output.
        k: Number of items for each basket.
        known: The baskets.
        exclude_seen: Whether to leave out the items of the basket.
        allowed: Filter for all baskets.
        rules: Rules for each basket's list.
        never_for: Items that single baskets must not be shown, by their keys.
        only_for: The only items that single baskets may be shown, by their keys.

    Raises:
        DataError: An item is unknown.
        FitError: The network reads no items.
    """
    field = person.field_of_items(run, output)
    rows, values = _rows(run, field, known)
    target = network.outputs[output].spec.field
    names = run.vocabulary(target)
    allowed = allowed.within(len(names), network.outputs[output])
    step = rows_a_block(min((rules or ListRules()).pool(k), network.outputs[output].width))
    for start in range(0, len(rows), step):
        batch = SparseBatch.from_lists(
            rows[start : start + step], None if values is None else values[start : start + step]
        )
        fields: dict[str, SparseBatch | Tensor] = {
            layer.field: person.nothing(run, layer.field, batch.num_examples) for layer in run.network.inputs
        }
        fields[field] = batch
        network.exchange.at(f"baskets {start:,} to {start + batch.num_examples - 1:,}")
        owners = [str(key) for key in known.keys[start : start + step].to_pylist()]
        seen = batch if exclude_seen and target == field else None
        if never_for is not None:
            never = never_for.of(owners)
            seen = never if seen is None else joined(seen, never)
        only = None if only_for is None else only_for.only(owners)
        yield Block.of([], names, *best_lists(network, fields, output, k, seen, allowed, rules, only))


def _rows(run: RunDirectory, field: str, known: Baskets) -> tuple[list[list[int]], list[list[float]] | None]:
    """The features of every basket, and their values if there are any.

    A sequence keeps its order. Otherwise each feature of a basket occurs once, with its last value.

    Raises:
        DataError: An item is unknown.
        OptionError: There are values for a sequence.
    """
    is_sequence = run.fields[field].kind == "sequence"
    if known.values is not None:
        person.check_reads_values(run, field, known.values)
    features = _features(run.vocabulary(field), known)
    if is_sequence:
        rows: list[list[int]] = [[] for _ in range(len(known.keys))]
        for owner, feature in zip(known.owners.tolist(), features.tolist(), strict=True):
            rows[owner].append(feature)
        return rows, None
    numbers = np.ones(len(features)) if known.values is None else known.values
    value_of: list[dict[int, float]] = [{} for _ in range(len(known.keys))]
    entries = zip(known.owners.tolist(), features.tolist(), numbers.tolist(), strict=True)
    for owner, feature, number in entries:
        value_of[owner][feature] = number
    rows = [sorted(each) for each in value_of]
    if known.values is None:
        return rows, None
    return rows, [[each[feature] for feature in row] for each, row in zip(value_of, rows, strict=True)]


def _features(vocabulary: Vocabulary, known: Baskets) -> np.ndarray:
    """The features of all items, int64 [Z]; raises DataError for an unknown one."""
    if not known.may_be_titles:
        return vocabulary.index_of([str(item) for item in known.items])
    return np.array([found[0] for found in vocabulary.find_each(known.items)], dtype=np.int64)
