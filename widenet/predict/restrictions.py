"""Recommendations for the examples of a dataset, and checks of what callers pass."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from widenet.data.attributes import Attributes
from widenet.data.dataset import Dataset
from widenet.data.manifest import PARTS, Part
from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError, OptionError
from widenet.model.activations import is_signed
from widenet.model.network import Network
from widenet.parallel.exchange import fixed_arithmetic
from widenet.plan.numbers import decimal
from widenet.plan.tiles import RANKED_TOGETHER
from widenet.predict.files import Block
from widenet.predict.top_k import Limit, Only, Rules, joined, top_k
from widenet.regular_files import bounded_lines, check_regular
from widenet.sparse import SparseBatch
from widenet.spec.layers import OutputLayer

Ids: TypeAlias = str | Path | Sequence[str | int]
"""A file with one id a line, or a list of ids."""
Weights: TypeAlias = str | Path | Mapping[str | int, float]
"""A CSV file with the columns item and weight, or a number for each id."""
IdsByUser: TypeAlias = str | Path | Mapping[str | int, Sequence[str | int]]
"""A CSV file with the columns user and item, or a list of ids for each user."""
_FILTERS = ("never", "only", "never_for", "only_for", "weights")
_SHOWN = 3
"""Largest number of unknown ids that a note lists."""
_Row: TypeAlias = tuple[int | None, tuple[Any, ...]]
"""The line of a row in a file, for messages, and its cells."""


LARGEST = torch.finfo(torch.float32).max


def is_list(value: Any) -> bool:
    """Whether a value is a list of entries: no text, table, matrix, array without axes, or iterator."""
    is_other = isinstance(value, str | bytes | Mapping | Iterator) or getattr(value, "ndim", 1) == 0
    return isinstance(value, Iterable) and not is_other and not hasattr(value, "columns")


def check_order(name: str, value: Any) -> None:
    """Raise OptionError for a set where the order of the entries counts, which a set does not keep."""
    OptionError.require(not isinstance(value, set | frozenset), "must be in order; got a set", option=name)


def checked_items(items: Any, name: str = "items") -> list[str | int]:
    """Return a history as a list; raise OptionError unless it is a list of at least one id or title.

    Args:
        items: The history.
        name: What it is, for messages.
    """
    OptionError.require(is_list(items), "must be a list of ids or titles", option=name, value=items)
    named = checked_names(name, items)
    OptionError.require(named, "must name at least one item", option=name)
    return named


def checked_names(option: str, names: Iterable[Any]) -> list[str | int]:
    """Return names as texts and whole numbers; raise OptionError about an option for another one.

    A number such as 7.0 is the whole number 7, as in tables: a column of whole numbers with gaps has such.
    """
    plain = [name.as_py() if hasattr(name, "as_py") else name for name in names]
    return [name if isinstance(name, str) else _whole(option, name) for name in plain]


def _whole(option: str, name: Any) -> int:
    """Return a number as a whole one; raise OptionError for anything else."""
    is_number = isinstance(name, Real) and not isinstance(name, bool)
    if is_number and (isinstance(name, Integral) or float(name).is_integer()):
        return int(name)
    raise OptionError(
        "must be a list of ids or titles, each a text or a whole number", option=option, value=name
    )


def checked_values(values: Any, number: int) -> list[float]:
    """Return the values of `number` items as floats.

    Raises:
        OptionError: There are more or fewer than `number` values, they have no order, or one is not a number.
        DataError: A value is not finite.
    """
    check_order("values", values)
    listed: list[float] = list(values) if is_list(values) else [values]
    rule = f"must be one number for each of {number} items"
    OptionError.require(len(listed) == number, rule, option="values", value=len(listed))
    for value in listed:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        OptionError.require(is_number, "must be numbers", option="values", value=value)
        rule = "must be finite numbers that a float32 can hold"
        DataError.require(abs(value) <= LARGEST, rule, option="values", value=value)
    return [float(value) for value in listed]


def ordered_history(
    indices: Sequence[int], numbers: Sequence[float] | None, is_sequence: bool
) -> tuple[list[int], list[float] | None]:
    """Return a history's units and values as a batch has them.

    A sequence keeps the order of the items. Otherwise each item occurs once, with its last value, in
    ascending order.

    Raises:
        OptionError: There are values for a sequence.
    """
    if numbers is None:
        return list(indices) if is_sequence else sorted(set(indices)), None
    OptionError.require(not is_sequence, "do not go with a network that reads a sequence", option="values")
    value_of = dict(zip(indices, numbers, strict=True))
    distinct = sorted(value_of)
    return distinct, [value_of[index] for index in distinct]


def check_weighable(output: OutputLayer) -> None:
    """Raise FitError if an output's scores may be negative, so that factors make no sense."""
    rule = (
        "need scores of at least 0, such as a sigmoid or softmax;"
        f' output "{output.name}" has "{output.activation.kind}"'
    )
    FitError.require(not is_signed(output.activation), rule, option="weights")


def read_ids(option: str, ids: Ids, vocabulary: Vocabulary, width: int, notes: list[str]) -> Tensor:
    """Read items that are recommended to no one, or that alone are; returns bool [width].

    Args:
        option: "never" or "only"; the latter must name at least one item.
        ids: A file with one id a line, or a list of ids.
        vocabulary: The names of the items.
        width: Number of units.
        notes: A sentence about unknown ids, out.

    Raises:
        DataError: The file cannot be read, or all ids are unknown.
    """
    place, rows = _rows(option, ids, "item")
    if option == "only" and not rows:
        raise names_none(place, vocabulary)
    units = _units(place, [item for _, (item,) in rows], vocabulary, notes)
    marked = torch.zeros(width, dtype=torch.bool)
    marked[units[units >= 0]] = True
    return marked


def names_none(place: str, vocabulary: Vocabulary, first: str | None = None) -> DataError:
    """Return the error for a filter at a place whose ids are all unknown.

    Args:
        place: The file or the argument.
        vocabulary: The names of the items.
        first: The first of its ids; None: it has none.
    """
    rule = f"must name at least one of the {len(vocabulary):,} items, such as {vocabulary.ids([0])[0]!r}"
    is_file = place not in _FILTERS
    return DataError(rule, place=place if is_file else None, option=None if is_file else place, value=first)


def read_weights(weights: Weights, vocabulary: Vocabulary, width: int, notes: list[str]) -> Tensor:
    """Read factors on the scores; returns float32 [width]. Items without a factor have the factor 1.

    Args:
        weights: A CSV file with the columns item and weight, or a number for each id.
        vocabulary: The names of the items.
        width: Number of units.
        notes: A sentence about unknown ids, out.

    Raises:
        DataError: The file cannot be read, all ids are unknown, or a weight is not a number from 0 on.
    """
    place, rows = _rows("weights", weights, "item", "weight")
    numbers = [_factor(item, weight, place, line) for line, (item, weight) in rows]
    units = _units(place, [item for _, (item, _) in rows], vocabulary, notes)
    known = np.flatnonzero(units >= 0)
    repeated = np.setdiff1d(known, known[np.unique(units[known], return_index=True)[1]])
    if len(repeated):
        line, (item, _) = rows[repeated[0]]
        raise DataError(f"the item {item!r} must have one weight; it has one before", place=place, line=line)
    factors = torch.ones(width)
    factors[units[known]] = torch.tensor(numbers, dtype=torch.float32)[known]
    return factors


class PerUser:
    """Items for single users: those that they must not be shown, or the only ones that they may be shown.

    They come from a CSV file with the columns user and item, or from a list of ids for each user. Ids that
    the vocabulary lacks have no effect.

    Args:
        by_user: The file, or the lists.
        vocabulary: The names of the items.
        notes: A sentence about unknown ids, out.
        option: The argument that they are from, for messages.

    Raises:
        DataError: The file cannot be read, or all ids are unknown.
    """

    def __init__(
        self, by_user: IdsByUser, vocabulary: Vocabulary, notes: list[str], option: str = "never_for"
    ) -> None:
        self.units: dict[str, list[int]] = {}
        self._name, rows = _rows(option, by_user, "user", "item")
        if isinstance(by_user, Mapping):
            self.units.update((str(user), []) for user in by_user)
        units = _units(self._name, [item for _, (_, item) in rows], vocabulary, notes)
        for (_, (user, _)), unit in zip(rows, units.tolist(), strict=True):
            self.units.setdefault(user, []).extend([unit] if unit >= 0 else [])
        self._unused = set(self.units)

    def only(self, users: Sequence[str]) -> Only:
        """The items of some users as the only ones that they may be shown; others may be shown all."""
        return Only(self.of(users), torch.tensor([user in self.units for user in users], dtype=torch.bool))

    def of(self, users: Sequence[str]) -> SparseBatch:
        """The items of some users, one row for each."""
        self._unused.difference_update(users)
        return SparseBatch.from_lists([sorted(set(self.units.get(user, []))) for user in users])

    def warning(self) -> str:
        """A sentence about users in the file that were never passed to `of`; empty if there are none."""
        if not self._unused:
            return ""
        number = f"{len(self._unused):,} of {len(self.units):,}"
        return (
            f'{self._name}: no effect for users who are not in the dataset: {number}, "{min(self._unused)}".'
        )


def _rows(option: str, given: Any, *columns: str) -> tuple[str, list[_Row]]:
    """Return the place of a filter, for messages, and its rows: of a CSV file, a list of ids or a dictionary.

    Raises:
        DataError: The file cannot be read.
        OptionError: There is something else than a list of ids.
    """
    if isinstance(given, str | PathLike):
        return str(given), [*_rows_of_file(Path(given), columns)]
    if columns != ("item",) and not isinstance(given, Mapping):
        raise OptionError("must be a dictionary", option=option, value=given)
    if "user" in columns:
        rows = [(str(user), item) for user, ids in given.items() for item in _listed(option, ids)]
    else:
        others = [given.values()] if "weight" in columns else []
        ids = list(given) if isinstance(given, Mapping) else given
        rows = [*zip(_listed(option, ids), *others, strict=True)]
    return option, [(None, row) for row in rows]


def _listed(option: str, ids: Any) -> list[str]:
    """Return the ids of a list; raises OptionError for anything else."""
    OptionError.require(is_list(ids), "must have a list of ids", option=option, value=ids)
    return [str(item) for item in checked_names(option, ids)]


def _rows_of_file(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """Yield the line and the named columns of each row of a CSV file; of ids alone, each line is one."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if columns == ("item",):
                for number, line in enumerate(bounded_lines(file, path), start=1):
                    if item := line.rstrip("\r\n"):
                        yield number, (item,)
                return
            reader = csv.DictReader(bounded_lines(file, path))
            present = reader.fieldnames or []
            for name in columns:
                DataError.require(name in present, "is missing", place=path, column=name)
            for row in reader:
                rule = f"must have {len(present)} columns"
                is_whole = None not in row and None not in row.values()
                DataError.require(is_whole, rule, place=path, line=reader.line_num)
                yield reader.line_num, tuple(row[name] for name in columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {reason}", place=path) from None


def _factor(item: object, weight: Any, place: str, line: int | None) -> float:
    """Return a factor on scores; raises DataError unless it is a number from 0 on, or in a file its text."""
    given: Any = weight.as_py() if hasattr(weight, "as_py") else weight
    number: Any = given if line is None else decimal(given.strip())
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= LARGEST:
        rule = f"must be numbers from 0 to {LARGEST:.2g}; got {given!r} for {item!r}"
        where = {"option": place} if line is None else {"place": place, "line": line, "column": "weight"}
        raise DataError(rule, **where)
    return float(number)


def _units(place: str, items: Sequence[str], vocabulary: Vocabulary, notes: list[str]) -> np.ndarray:
    """The units of the items of a filter, int64; -1 for those that the vocabulary lacks.

    Raises:
        DataError: There are items, but the vocabulary has none of them.
    """
    units = vocabulary.places_of(items)
    unknown = [*dict.fromkeys(item for item, unit in zip(items, units.tolist(), strict=True) if unit < 0)]
    if not unknown:
        return units
    if not (units >= 0).any():
        raise names_none(place, vocabulary, unknown[0])
    number, listed = f"{len(unknown):,} of {len(set(items)):,}", ", ".join(map(repr, unknown[:_SHOWN]))
    notes.append(f"{place}: no effect of ids that are none of the items: {number}, such as {listed}.")
    return units


def rules_of(
    output: OutputLayer,
    width: int,
    vocabulary: Vocabulary,
    attributes: Attributes | None,
    notes: list[str],
    *,
    never: Ids | None = None,
    only: Ids | None = None,
    weights: Weights | None = None,
    where: Mapping[str, Any] | None = None,
    at_most: Mapping[str, int] | None = None,
) -> Rules:
    """Make the rules of an output for everybody; its tensors lie in the host's memory.

    Ids that the vocabulary lacks have no effect.

    Args:
        output: The output.
        width: Number of its units.
        vocabulary: The names of its items.
        attributes: Their attributes, if they have any.
        notes: Sentences about unknown ids, out.
        never: Items that are recommended to no one.
        only: The only items that are recommended.
        weights: Factors on scores.
        where: Conditions on the attributes of items that are recommended.
        at_most: The largest number of items of one category, by attribute.

    Raises:
        DataError: A file cannot be read, all ids of one are unknown, or a weight is wrong.
        FitError: The scores may be negative, so that factors make no sense, or the items have no attributes.
        OptionError: A rule is wrong, or names an unknown attribute.
    """
    rules = Rules()
    if weights is not None:
        check_weighable(output)
        rules = replace(rules, weight_L=read_weights(weights, vocabulary, width, notes))
    if never is not None:
        rules = rules.without(read_ids("never", never, vocabulary, width, notes))
    if only is not None:
        rules = rules.without(~read_ids("only", only, vocabulary, width, notes))
    if where:
        fulfilled = existing(attributes, "where").matching(where)
        rules = rules.without(torch.from_numpy(~np.pad(fulfilled, (0, width - len(fulfilled)))))
    limits: list[Limit] = []
    for name, most in (at_most or {}).items():
        is_number = isinstance(most, Integral) and not isinstance(most, bool) and most >= 1
        rule = f'must give a whole number from 1 on for "{name}"'
        OptionError.require(is_number, rule, option="at_most", value=most)
        categories, number = existing(attributes, "at_most").categories(name)
        category_LM = np.pad(categories, ((0, width - len(categories)), (0, 0)), constant_values=number - 1)
        limits.append(Limit(category_LM, number, most))
    return replace(rules, limits=limits)


def existing(attributes: Attributes | None, option: str) -> Attributes:
    """Return the attributes; raises FitError that names an option which needs them if there are none."""
    if attributes is None:
        raise FitError("needs attributes of the items, and the run has none", option=option)
    return attributes


_RECOMMENDATIONS_A_BLOCK = 2**21


def rows_a_block(k: int) -> int:
    """Number of examples to rank together, so that k units for each fit in memory."""
    return max(1, min(RANKED_TOGETHER, _RECOMMENDATIONS_A_BLOCK // k))


def seen_entries(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch:
    """The entries of some examples in some parts of a field; values may be missing."""
    return reduce(joined, (dataset.sparse(field, rows, part) for part in parts))


def known_parts(dataset: Dataset, field: str, part: Part | None) -> Sequence[Part]:
    """The parts of a field that come before `part`; all parts for None."""
    before = PARTS if part is None else PARTS[: PARTS.index(part)]
    return [known for known in before if known in dataset.field(field).parts]


def history(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch | Tensor:
    """A network's input from a field: its training part; for a sequence, all of `parts` in order of time."""
    if dataset.field(field).kind == "sequence":
        return seen_entries(dataset, field, rows, parts)
    return dataset.rows(field, rows)


@dataclass(frozen=True)
class Histories:
    """Feeds a network with examples of a dataset.

    Attributes:
        network: The network.
        dataset: The examples.
        part: Neither this part nor later ones are known; None: all parts are.
        instead: Values of one example by field, to use in place of those of the dataset.
    """

    network: Network
    dataset: Dataset
    part: Part | None = None
    instead: Mapping[str, SparseBatch | Tensor] | None = None

    def fields(self, rows: np.ndarray) -> dict[str, SparseBatch | Tensor]:
        """Return the fields that the network reads, for the examples in some rows, int64 [E]."""
        names = dict.fromkeys(layer.field for layer in self.network.spec.inputs)
        found = {
            name: history(self.dataset, name, rows, known_parts(self.dataset, name, self.part))
            for name in names
        }
        return {**found, **(self.instead or {})}

    def seen(self, output: str, rows: np.ndarray) -> SparseBatch:
        """Return the units that some examples are known to have, from the dataset and from `instead`."""
        name = self.network.outputs[output].spec.field
        seen = seen_entries(self.dataset, name, rows, known_parts(self.dataset, name, self.part))
        more = (self.instead or {}).get(name)
        return joined(seen, more) if isinstance(more, SparseBatch) else seen

    def best(
        self,
        output: str,
        rows: np.ndarray,
        k: int,
        *,
        exclude_seen: bool = True,
        rules: Rules | None = None,
        scores: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Return scores and units [E, K] of the k best for some examples; see `top_k`.

        Args:
            output: Name of the output.
            rows: The examples' rows in the dataset, int64 [E].
            k: Number of units.
            exclude_seen: Whether to leave out the units that an example is known to have.
            rules: Rules for all examples.
            scores: As for `top_k`.
        """
        seen, wide = self.seen(output, rows) if exclude_seen else None, self.network.outputs[output]
        rules = (rules or Rules()).within(self.dataset.field(wide.spec.field).width, wide)
        return top_k(self.network, self.fields(rows), output, k, seen, rules, scores)


@dataclass(frozen=True)
class Restrictions:
    """Which items of an output may be recommended, in the host's memory.

    Attributes:
        rules: Rules for everybody.
        never_for: Items that single users must not be shown.
        only_for: The only items that single users may be shown.
    """

    rules: Rules = field(default_factory=Rules)
    never_for: PerUser | None = None
    only_for: PerUser | None = None

    def rows_a_block(self, k: int, width: int) -> int:
        """Return how many lists of k of so many units to make together."""
        return rows_a_block(min(self.rules.pool(k), width))

    def block(
        self,
        network: Network,
        fields: Mapping[str, SparseBatch | Tensor],
        output: str,
        k: int,
        users: list[str],
        names: Vocabulary,
        seen: SparseBatch | None,
    ) -> Block:
        """Return the k best items of an output for some users.

        Args:
            network: The network; all its processes must call this.
            fields: What it reads of the users.
            output: Name of the output.
            k: Number of items for each user.
            users: Their names.
            names: Vocabulary of the output's items.
            seen: Units to leave out, user by user.
        """
        if self.never_for is not None:
            never = self.never_for.of(users)
            seen = never if seen is None else joined(seen, never)
        only = None if self.only_for is None else self.only_for.only(users)
        rules = self.rules.to(network.device).within(len(names), network.outputs[output])
        scores_EK, units_EK = top_k(network, fields, output, k, seen, rules, only=only)
        kept_EK = units_EK >= 0
        units, scores = units_EK[kept_EK].cpu().numpy(), scores_EK[kept_EK].cpu().to(torch.float32).numpy()
        return Block(users, kept_EK.sum(dim=1).cpu().numpy(), names.ids(units), scores, units)


def recommendations(
    network: Network,
    dataset: Dataset,
    names: Vocabulary,
    output: str,
    k: int,
    exclude_seen: bool = True,
    restrictions: Restrictions | None = None,
    say: Callable[[str], None] | None = None,
    chosen: Sequence[int] | np.ndarray | None = None,
    instead: Mapping[str, SparseBatch | Tensor] | None = None,
    part: Part | None = None,
) -> Iterator[Block]:
    """Yield the k best items of an output for every example, block by block, in the dataset's order.

    Args:
        network: The network; all its processes must call this.
        dataset: The examples.
        names: Vocabulary of the output's items.
        output: Name of the output.
        k: Number of items for each example.
        exclude_seen: Whether to leave out the items that an example is known to have.
        restrictions: Which items may be recommended; None: all.
        say: Called after the last block with a warning about users of `restrictions` who are not in the
            dataset.
        chosen: Rows of the examples; None for all.
        instead: Values by field, to use in place of those of the dataset; for a single chosen row.
        part: Recommend as an evaluation of this part does: neither it nor later parts are known. None: all
            parts are known.
    """
    histories = Histories(network, dataset, part, instead)
    restrictions = restrictions or Restrictions()
    step = restrictions.rows_a_block(k, network.outputs[output].width)
    chosen = range(dataset.num_examples) if chosen is None else chosen
    for start in range(0, len(chosen), step):
        rows = np.asarray(chosen[start : start + step], dtype=np.int64)
        with fixed_arithmetic():  # the caller has torch's threads between two blocks
            network.exchange.at(f"users {start:,} to {start + len(rows) - 1:,}")
            seen, users = histories.seen(output, rows) if exclude_seen else None, dataset.ids(rows)
            block = restrictions.block(network, histories.fields(rows), output, k, users, names, seen)
        yield block
    for personal in (restrictions.never_for, restrictions.only_for):
        if personal is not None and say is not None and (warning := personal.warning()):
            say(warning)
