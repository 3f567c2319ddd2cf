"""What a network is fed with for the people of a batch: baskets, and users of a dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.model.network import Network
from widenet.predict.dataset_rows import history, known_parts, seen_entries
from widenet.predict.filters import checked_values, ordered_history
from widenet.runs.recommending import check_reads_values, item_field, numbers_of
from widenet.serve.catalogue import Names
from widenet.serve.requests import FieldValue, HeldPart, Person, RefusedError
from widenet.sparse import SparseBatch, from_rows, stacked
from widenet.training.run_directory import RunDirectory


@dataclass(frozen=True)
class History:
    """A person's features of a sparse field, in the network's order.

    Attributes:
        units: The features.
        values: Their values; None: all are 1.
    """

    units: list[int]
    values: list[float] | None = None


_NO_HISTORY = History([])


@dataclass
class Inputs:
    """What the network is fed with for one person.

    Attributes:
        row: Row of a user of the dataset; None for a basket.
        histories: Histories of a basket, by field.
        numbers: Its numbers, by dense field.
        skipped: Unknown ids.
    """

    row: int | None = None
    histories: dict[str, History] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class People:
    """Makes batches of people for one network.

    Attributes:
        run: The run.
        network: Its network.
        output: The output that recommends.
        names: Ids of the features, by field with a vocabulary.
        dataset: Users; None without any.
        users: Their ids.
        unlearnt: Features that the network has learnt nothing of; see `runs.recommending.unlearnt`.
    """

    run: RunDirectory
    network: Network
    output: str
    names: Mapping[str, Names]
    dataset: Dataset | None
    users: Names | None
    unlearnt: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def _item_field(self) -> str | None:
        return item_field(self.run, self.output)

    @cached_property
    def _fields(self) -> dict[str, None]:
        """The fields that the network reads, in the order of its inputs."""
        return dict.fromkeys(layer.field for layer in self.network.spec.inputs)

    def known(self, person: Person) -> Inputs:
        """Return what a request says of a person.

        Raises:
            RefusedError: It contradicts itself, or names what nobody has.
        """
        if person.user is not None:
            if person.items is not None or person.values is not None or person.fields is not None:
                raise RefusedError(
                    422, "contradiction", "goes without items, values and fields", option="user"
                )
            if self.users is None:
                raise RefusedError(422, "no_users", "needs a service with a dataset", option="user")
            return Inputs(row=self.users.places([person.user], "refuse", [])[0])
        return self._basket(person)

    def _basket(self, person: Person) -> Inputs:
        known = Inputs()
        given: dict[str, FieldValue] = dict(person.fields or {})
        if not person.items and not given:
            raise RefusedError(422, "nothing_known", "must name at least one item", option="items")
        if person.items:
            name = self._item_field
            if name is None or name in given:
                rule = "need a network that reads them, and go without their field"
                raise RefusedError(422, "contradiction", rule, option="items")
            known.histories[name] = self._history(name, person.items, person.values, person, known)
        elif person.values is not None:
            raise RefusedError(422, "contradiction", "need items", option="values")
        for field_name, value in given.items():
            if field_name not in self._fields:
                rule = f"must name fields of {', '.join(sorted(self._fields))}"
                raise RefusedError(422, "unknown_field", rule, option="fields", value=field_name)
            listed = value if isinstance(value, list) else [value]
            self._add_field(field_name, listed, person, known)
        return known

    def _add_field(self, name: str, values: list[str | float], person: Person, known: Inputs) -> None:
        record = self.run.fields[name]
        if record.kind == "dense":
            known.numbers[name] = numbers_of(name, values, record.width)
            return
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise RefusedError(422, "wrong_type", f"must hold ids as texts for {name!r}", option="fields")
        known.histories[name] = self._history(name, texts, None, person, known)

    def _history(
        self,
        name: str,
        ids: Sequence[str],
        values: Sequence[float] | None,
        person: Person,
        known: Inputs,
    ) -> History:
        is_sequence = self.run.fields[name].kind == "sequence"
        numbers = None if values is None else checked_values(values, len(ids))
        if numbers is not None:
            check_reads_values(self.run, name, numbers)
        units = self.names[name].places(ids, person.unknown, known.skipped)
        if numbers is not None:
            numbers = [number for number, unit in zip(numbers, units, strict=True) if unit is not None]
        return History(*ordered_history([unit for unit in units if unit is not None], numbers, is_sequence))

    def batch(self, people: Sequence[Inputs], part: Part | None = None) -> dict[str, SparseBatch | Tensor]:
        """Return the fields of a batch; users of the dataset must come first.

        Args:
            people: The people.
            part: Users are as they were before this part of the dataset; None: with all parts.
        """
        rows = np.array([known.row for known in people if known.row is not None], dtype=np.int64)
        baskets = [known for known in people if known.row is None]
        return {name: self._together(name, rows, baskets, part) for name in self._fields}

    def _together(
        self, name: str, rows: np.ndarray, baskets: Sequence[Inputs], part: Part | None
    ) -> SparseBatch | Tensor:
        parts: list[Any] = []  # all sparse, or all dense
        if len(rows):
            assert self.dataset is not None
            parts.append(history(self.dataset, name, rows, known_parts(self.dataset, name, part)))
        record = self.run.fields[name]
        if record.kind == "dense":
            zeros = [0.0] * record.width
            listed = [basket.numbers.get(name, zeros) for basket in baskets]
            numbers = torch.tensor(listed, dtype=torch.float32).view(len(baskets), record.width)
            return torch.cat([*parts, numbers])
        return stacked([*parts, _batch_of([basket.histories.get(name, _NO_HISTORY) for basket in baskets])])

    def are_known(self, people: Sequence[Inputs], fields: Mapping[str, SparseBatch | Tensor]) -> list[bool]:
        """Return whether the network knows anything of each person, from a batch of them."""
        known = np.zeros(len(people), dtype=bool)
        for name, rows in fields.items():
            if isinstance(rows, SparseBatch):
                owners, features = rows.example_of_entry().numpy(), rows.indices.numpy()
                known[owners[~self.unlearnt[name][features]] if name in self.unlearnt else owners] = True
            else:
                known |= [each.row is not None or name in each.numbers for each in people]
        listed: list[bool] = known.tolist()
        return listed

    def parts(self) -> list[HeldPart]:
        """Return the parts of the users' items that were set aside."""
        name = self.network.outputs[self.output].spec.field
        field = None if self.dataset is None else self.dataset.field(name)
        held: tuple[HeldPart, ...] = ("validation", "heldout")
        return [] if field is None else [part for part in held if part in field.parts]

    def held_out(self, row: int, part: HeldPart) -> list[int]:
        """Return the units of a user's items in a part."""
        assert self.dataset is not None
        name = self.network.outputs[self.output].spec.field
        units: list[int] = self.dataset.sparse(name, [row], part).indices.tolist()
        return units

    def example(self, known: Inputs, name: str) -> SparseBatch:
        """Return the history of one person in a sparse field, as `Model.explain` reads it."""
        if known.row is not None:
            assert self.dataset is not None
            return self.dataset.sparse(name, [known.row])
        return _batch_of([known.histories[name]])

    def seen(self, people: Sequence[Inputs], part: Part | None = None) -> list[list[int]]:
        """Return the units of the output's field that each person has; users must come first."""
        name = self.network.outputs[self.output].spec.field
        rows = np.array([known.row for known in people if known.row is not None], dtype=np.int64)
        found: list[list[int]] = []
        if len(rows):
            assert self.dataset is not None
            entries = seen_entries(self.dataset, name, rows, known_parts(self.dataset, name, part))
            ends, units = entries.indptr.tolist(), entries.indices.tolist()
            found = [units[start:stop] for start, stop in pairwise(ends)]
        for known in people[len(rows) :]:
            found.append(known.histories.get(name, _NO_HISTORY).units)
        return found


def _batch_of(histories: Sequence[History]) -> SparseBatch:
    rows = [each.units for each in histories]
    if all(each.values is None for each in histories):
        return from_rows(rows)
    return from_rows(
        rows, [[1.0] * len(each.units) if each.values is None else each.values for each in histories]
    )
