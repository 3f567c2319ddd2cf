"""What a network is fed with for the people of a batch: baskets, and users of a dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.errors import WidenetError
from widenet.model.network import Network
from widenet.predict.arguments import checked_values, history_of_units
from widenet.predict.rows import history, known_parts, seen_entries
from widenet.runs.person import item_field, nothing, numbers_of
from widenet.serve.messages import FieldValue, HeldPart, Person, RefusedError
from widenet.serve.names import Names
from widenet.sparse import SparseBatch, stacked
from widenet.training.run_directory import RunDirectory


@dataclass
class Inputs:
    """What the network is fed with for one person.

    Attributes:
        row: Row of a user of the dataset; None for a basket.
        inputs: Inputs of a basket, a batch of one example by field.
        skipped: Unknown ids.
    """

    row: int | None = None
    inputs: dict[str, SparseBatch | Tensor] = field(default_factory=dict)
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
    """

    run: RunDirectory
    network: Network
    output: str
    names: Mapping[str, Names]
    dataset: Dataset | None
    users: Names | None

    def known(self, person: Person) -> Inputs:
        """Return what a request says of a person.

        Raises:
            RefusedError: It contradicts itself, or names what nobody has.
        """
        if person.user is not None:
            if person.items is not None or person.values is not None or person.fields is not None:
                raise RefusedError(422, "contradiction", "user goes without items, values and fields.")
            if self.users is None:
                raise RefusedError(422, "no_users", "this service has no users. Start it with a dataset.")
            return Inputs(row=self.users.places([person.user], "refuse", [])[0])
        return self._basket(person)

    def _basket(self, person: Person) -> Inputs:
        known = Inputs()
        given: dict[str, FieldValue] = dict(person.fields or {})
        name = item_field(self.run, self.output)
        if not person.items and not given:
            raise RefusedError(422, "nothing_known", "items must name at least one item, or user a user.")
        if person.items:
            if name is None or name in given:
                raise RefusedError(
                    422, "contradiction", "items go with a network that reads them, and without their field."
                )
            known.inputs[name] = self._features(name, person.items, person.values, person, known)
        elif person.values is not None:
            raise RefusedError(422, "contradiction", "values go with items.")
        fields = {layer.field for layer in self.network.spec.inputs}
        for field_name, value in given.items():
            if field_name not in fields:
                known_fields = ", ".join(sorted(fields))
                raise RefusedError(422, "unknown_field", f"a field must be one of {known_fields}.")
            listed = value if isinstance(value, list) else [value]
            known.inputs[field_name] = self._field(field_name, listed, person, known)
        return known

    def _field(
        self, name: str, values: list[str | float], person: Person, known: Inputs
    ) -> SparseBatch | Tensor:
        record = self.run.fields[name]
        if record.kind == "dense":
            return torch.tensor([numbers_of(name, values, record.width)])
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise RefusedError(422, "wrong_type", f"field {name!r} takes ids, each as text.")
        return self._features(name, texts, None, person, known)

    def _features(
        self,
        name: str,
        ids: Sequence[str],
        values: Sequence[float] | None,
        person: Person,
        known: Inputs,
    ) -> SparseBatch:
        numbers = None if values is None else checked_values(values, len(ids))
        units = self.names[name].places(ids, person.unknown, known.skipped)
        kept = [place for place, unit in enumerate(units) if unit is not None]
        return history_of_units(
            [unit for unit in units if unit is not None],
            None if numbers is None else [numbers[place] for place in kept],
            self.run.fields[name].kind == "sequence",
        )

    def batch(self, people: Sequence[Inputs], part: Part | None = None) -> dict[str, SparseBatch | Tensor]:
        """Return the fields of a batch; users of the dataset must come first.

        Args:
            people: The people.
            part: Users are as they were before this part of the dataset; None: with all parts.
        """
        rows = np.array([known.row for known in people if known.row is not None], dtype=np.int64)
        baskets = [known for known in people if known.row is None]
        fields = dict.fromkeys(layer.field for layer in self.network.spec.inputs)
        return {name: self._together(name, rows, baskets, part) for name in fields}

    def _together(
        self, name: str, rows: np.ndarray, baskets: Sequence[Inputs], part: Part | None
    ) -> SparseBatch | Tensor:
        parts: list[SparseBatch | Tensor] = []
        if len(rows):
            assert self.dataset is not None
            parts.append(history(self.dataset, name, rows, known_parts(self.dataset, name, part)))
        empty = nothing(self.run, name)
        parts += [basket.inputs.get(name, empty) for basket in baskets]
        return torch.cat(parts) if self.run.fields[name].kind == "dense" else stacked(parts)  # type: ignore[arg-type]

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
        own = known.inputs[name]
        assert isinstance(own, SparseBatch)
        return own

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
            own = known.inputs.get(name)
            found.append(own.indices.tolist() if isinstance(own, SparseBatch) else [])
        return found


def as_refusal(error: WidenetError) -> RefusedError:
    """Return the answer to a request that the library refuses."""
    return RefusedError(422, "invalid", str(error))
