"""Answers batches of requests with one loaded model; only one thread at a time may call it.

Requests name people, whom the network is fed with, and items, which have titles and attributes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from widenet.baselines.evaluate import output_name
from widenet.data.attributes import Attributes
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.vocabulary import Vocabulary
from widenet.errors import FitError, WidenetError
from widenet.knn.neighbours import Neighbours
from widenet.model.network import Network
from widenet.parallel.exchange import fixed_arithmetic
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.predict.restrictions import (
    check_weighable,
    checked_values,
    existing,
    history,
    known_parts,
    names_none,
    ordered_history,
    rules_of,
    seen_entries,
)
from widenet.predict.terms import shares, why_no_shares
from widenet.predict.top_k import Only, Rules, top_k
from widenet.runs import Model
from widenet.runs.recommending import (
    check_reads_values,
    field_to_explain,
    item_field,
    numbers_of,
    reads_values,
)
from widenet.serve.requests import (
    About,
    Answer,
    Ask,
    AskedField,
    Category,
    Explain,
    FieldValue,
    Found,
    HeldPart,
    Item,
    Measure,
    Person,
    Recommend,
    RefusedError,
    Result,
    Score,
    Similar,
    Unknown,
)
from widenet.sparse import SparseBatch, from_rows, stacked
from widenet.training.run_directory import RunDirectory, WeightsFacts

_SHOWN = 5

Scored = Sequence[tuple[int, float]]
"""Units with their scores."""


@dataclass(frozen=True)
class Names:
    """Places of ids.

    Attributes:
        what: What the ids name, for messages: "item".
        place_of: Place of every id.
    """

    what: str
    place_of: dict[str, int]

    @classmethod
    def of(cls, what: str, ids: Sequence[str]) -> "Names":
        """Index ids; of equal ones the first counts."""
        return cls(what, {name: place for place, name in reversed([*enumerate(ids)])})

    def unit(self, name: str) -> int:
        """Return the place of an id; raises RefusedError if nothing has it."""
        (place,) = self.places([name], "refuse", [], self.what)
        assert place is not None
        return place

    def places(
        self, ids: Sequence[str], unknown: Unknown, skipped: list[str], option: str
    ) -> list[int | None]:
        """Return the place of every id, None for a skipped one.

        Args:
            ids: The ids.
            unknown: What to do with those that nothing has.
            skipped: These, out.
            option: What has the ids, for a refusal.

        Raises:
            RefusedError: An id is unknown, and none may be.
        """
        places = [*map(self.place_of.get, ids)]
        if None not in places:
            return places
        missing = [name for name, place in zip(ids, places, strict=True) if place is None]
        if unknown == "refuse":
            shown = ", ".join(repr(name) for name in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
            rule = f"must be known: no {self.what} has the id {shown}{more}"
            raise RefusedError(422, f"unknown_{self.what}", rule, option=option)
        skipped[:] = dict.fromkeys([*skipped, *missing])
        return places


@dataclass(frozen=True)
class Catalogue:
    """The items of an output.

    Attributes:
        vocabulary: Their ids and titles.
        attributes: Their attributes, if they have any.
    """

    vocabulary: Vocabulary
    attributes: Attributes | None

    def checked(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of attributes that a request asks for, once each; raises WidenetError."""
        distinct = tuple(dict.fromkeys(names or ()))
        for name in distinct:
            existing(self.attributes, "attributes").check(name)
        return distinct

    def items(self, answers: Sequence[Scored], names: Sequence[tuple[str, ...]]) -> list[list[Item]]:
        """Return the items of several answers, which are read together.

        Args:
            answers: Units and scores of each.
            names: The attributes that its items have; see `checked`.
        """
        titles = iter(self.vocabulary.named([unit for scored in answers for unit, _ in scored]))
        found = [
            [Item(*title, score) for title, (_, score) in zip(islice(titles, len(each)), each, strict=True)]
            for each in answers
        ]
        for together in dict.fromkeys(each for each in names if each):
            asked = [place for place, own in enumerate(names) if own == together]
            units = [unit for place in asked for unit, _ in answers[place]]
            items = [item for place in asked for item in found[place]]
            assert self.attributes is not None
            for item, own in zip(items, self.attributes.of(units, together), strict=True):
                item.attributes = own
        return found

    def search(self, text: str, most: int, names: Sequence[str] = ()) -> list[Found]:
        """Return the items that a text finds by id or title, best first; any thread may call it.

        Args:
            text: The text.
            most: Largest number of items.
            names: Attributes to return.

        Raises:
            WidenetError: There is no such attribute.
        """
        distinct = self.checked(names)
        units = self.vocabulary.search(text, most)
        found = self.listed(units)
        if self.attributes is not None and distinct:
            for each, own in zip(found, self.attributes.of(units, distinct), strict=True):
                each.attributes = own
        return found

    def listed(self, units: Sequence[int]) -> list[Found]:
        """Return items without scores."""
        return [Found(*each) for each in self.vocabulary.named(units)]


History = tuple[list[int], list[float] | None]
"""A person's features of a sparse field in the network's order, and their values; None: all are 1."""
_NO_HISTORY: History = ([], None)


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
    """

    run: RunDirectory
    network: Network
    output: str
    names: Mapping[str, Names]
    dataset: Dataset | None
    users: Names | None

    @cached_property
    def _item_field(self) -> str | None:
        return item_field(self.run, self.output)

    @cached_property
    def _fields(self) -> dict[str, None]:
        """The fields that the network reads, in the order of its inputs."""
        return dict.fromkeys(layer.field for layer in self.network.spec.inputs)

    @cached_property
    def _unlearnt(self) -> dict[str, np.ndarray]:
        """Which features, bool [width], by field, had no interactions in training and are not described."""
        run, found = self.run, {}
        for name in self._fields if run.start is None else ():
            if run.fields[name].kind != "dense" and run.fields[name].vocabulary_digest is not None:
                counts = run.vocabulary(name).counts
                if counts.any():
                    found[name] = counts == 0
        for weight in run.layout.described.values() if found else ():
            if weight.input is not None:
                found.pop(run.layout.rows_field(weight), None)
        return found

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
            return Inputs(row=self.users.unit(person.user))
        return self._basket(person)

    def _basket(self, person: Person) -> Inputs:
        known, given = Inputs(), dict(person.fields or {})
        if not person.items and not given:
            raise RefusedError(422, "nothing_known", "must name at least one item", option="items")
        own = self._item_field if person.items else None
        if person.items:
            if own is None or own in given:
                rule = "need a network that reads them, and go without their field"
                raise RefusedError(422, "contradiction", rule, option="items")
            given = {own: [*person.items], **given}
        elif person.values is not None:
            raise RefusedError(422, "contradiction", "need items", option="values")
        for name, value in given.items():
            if name not in self._fields:
                rule = f"must name fields of {', '.join(sorted(self._fields))}"
                raise RefusedError(422, "unknown_field", rule, option="fields", value=name)
            listed, record = value if isinstance(value, list) else [value], self.run.fields[name]
            if record.kind == "dense":
                known.numbers[name] = numbers_of(name, listed, record.width)
                continue
            ids = [each for each in listed if isinstance(each, str)]
            if len(ids) < len(listed):
                raise RefusedError(422, "wrong_type", f"must hold ids as texts for {name!r}", option="fields")
            option, numbers = "items" if name == own else "fields", None
            places = self.names[name].places(ids, person.unknown, known.skipped, option)
            units = [place for place in places if place is not None]
            if name == own and person.values is not None:
                values = checked_values(person.values, len(ids))
                check_reads_values(self.run, name, values)
                numbers = [each for each, place in zip(values, places, strict=True) if place is not None]
            known.histories[name] = ordered_history(units, numbers, record.kind == "sequence")
        return known

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
                known[owners[~self._unlearnt[name][features]] if name in self._unlearnt else owners] = True
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
            found.append(known.histories.get(name, _NO_HISTORY)[0])
        return found


def _batch_of(histories: Sequence[History]) -> SparseBatch:
    rows = [units for units, _ in histories]
    if all(values is None for _, values in histories):
        return from_rows(rows)
    return from_rows(rows, [values or [1.0] * len(units) for units, values in histories])


_MOST_RULES, _RULES_BYTES = 32, 2**28
_MOST_VALUES = 100
"""Values of an attribute that are named."""
_TRIAL_FEATURES = 5
_NO_RULES = Rules()
_Pairs = list[tuple[int, float]]


@dataclass(frozen=True)
class _Row:
    """A person of a batch: which request, who, and what to rank and how.

    A request for scores is one for its candidates alone, in their order.
    """

    place: int
    known: Inputs
    k: int
    names: tuple[str, ...]
    shows_seen: bool = True
    part: HeldPart | None = None
    never: Sequence[int] = ()
    only: Sequence[int] | None = None
    is_scored: bool = False
    rules: Rules = _NO_RULES
    factors: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """A model that is ready to answer.

    Attributes:
        model: The model.
        output: The output that recommends.
        fingerprint: SHA-256 of its weights.
        people: Makes batches.
        items: Ids of the output's items.
        catalogue: The same with titles and attributes.
        about: What it says of itself.
    """

    model: Model
    output: str
    fingerprint: str
    people: People
    items: Names
    catalogue: Catalogue
    about: About
    _similar: dict[str, Neighbours] = field(default_factory=dict)
    _rules: dict[bytes, Rules] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        run: str | Path,
        data: str | Path | Dataset | None,
        device: str | None,
        output: str | None,
        before: "Engine | None" = None,
    ) -> "Engine":
        """Load a run's model and check that it answers.

        Args:
            run: The run.
            data: The dataset of users; None without any.
            device: cpu or cuda; None: cuda if there is a device.
            output: The output that recommends, if the network has several.
            before: The engine that answers so far; ids that are the same are not indexed again.

        Raises:
            WidenetError: The run has no model, does not go with the dataset, or gives no finite scores.
        """
        model = Model.load(run, device)
        name = output_name(model.network, output)
        dataset = Dataset.open(data) if isinstance(data, str | Path) else data
        if dataset is not None:
            model.run.check_dataset(dataset)
        target = model.network.outputs[name].spec.field
        fields = {target, *(layer.field for layer in model.network.spec.inputs)}
        vocabularies = {
            each: model.run.vocabulary(each) for each in fields if model.run.fields[each].kind != "dense"
        }
        names = {
            each: _names(model, before, each, "item" if each == target else "feature", own)
            for each, own in vocabularies.items()
        }
        if before is not None and before.people.dataset is dataset:
            users = before.people.users
        else:
            users = None if dataset is None else Names.of("user", dataset.ids(slice(None)))
        people = People(model.run, model.network, name, names, dataset, users)
        catalogue = Catalogue(vocabularies[target], model.run.attributes(target))
        fingerprint = model.fingerprint()
        about = about_model(model, people, fingerprint, Path(run).resolve().name, len(vocabularies[target]))
        engine = cls(model, name, fingerprint, people, names[target], catalogue, about)
        with fixed_arithmetic():
            engine._check()
        return engine

    def _check(self) -> None:
        """Raise FitError unless a full block gives finite scores, the same at every place, and both ways."""
        rows = PREDICTED_ROWS[self.model.network.device.type]
        sample = sample_of(self.people)
        one = self.people.known(Recommend(fields=sample))
        (alone,) = self._ranked([one], 10)
        others = self._ranked([one] * rows, 10)
        others += self._ranked([one] * rows, 10, from_rows([[0]] * rows, [[1.0]] * rows))
        if not all(math.isfinite(score) for _, score in alone):
            raise FitError("the model's scores are not finite", place=self.model.run.path)
        if any(each != alone for each in others):
            raise FitError(
                "this device's products give a row other bits at other places of a block",
                place=self.model.run.path,
            )

    def _ranked(self, people: Sequence[Inputs], k: int, factors: SparseBatch | None = None) -> list[_Pairs]:
        fields = self.people.batch(people)
        scores_EK, units_EK = top_k(self.model.network, fields, self.output, k, factors=factors)
        rows = zip(units_EK.tolist(), scores_EK.tolist(), strict=True)
        return [[*zip(*row, strict=True)] for row in rows]

    def answers(self, asks: Sequence[Ask]) -> list[Result]:
        """Return the answer to each request, or its refusal; within `fixed_arithmetic`."""
        results: dict[int, Result] = {}
        by_rules: dict[tuple[object, ...], list[_Row]] = {}
        alike: dict[Measure, dict[int, Similar]] = {}
        for place, ask in enumerate(asks):
            try:
                if isinstance(ask, Similar):
                    self.items.unit(ask.item)
                    self.catalogue.checked(ask.attributes)
                    alike.setdefault(ask.measure, {})[place] = ask
                elif isinstance(ask, Explain):
                    results[place] = self._explained(ask)
                else:
                    row = self._row(place, ask)
                    together = id(row.rules), row.part, bool(row.factors)
                    by_rules.setdefault(together, []).append(row)
            except WidenetError as error:
                results[place] = error
        for rows in by_rules.values():
            rows.sort(key=lambda row: row.known.row is None)  # users of the dataset first
            results |= self._recommended(rows)
        for measure, asked in alike.items():
            results |= self._nearest(measure, asked)
        return [results[place] for place in range(len(asks))]

    def _row(self, place: int, ask: Recommend | Score) -> _Row:
        known, names = self.people.known(ask), self.catalogue.checked(ask.attributes)
        if isinstance(ask, Score):
            places = self.items.places(ask.candidates, ask.unknown, known.skipped, "candidates")
            only = [unit for unit in places if unit is not None]
            return _Row(place, known, len(ask.candidates), names, only=only, is_scored=True)
        if ask.part is not None and (known.row is None or ask.part not in self.people.parts()):
            raise RefusedError(422, "no_part", f"needs a user with {ask.part} items", option="part")
        if ask.weights:
            check_weighable(self.model.network.outputs[self.output].spec)
        return _Row(
            place,
            known,
            ask.k,
            names,
            ask.include_seen,
            ask.part,
            [*self._units("never", ask, known)] if ask.never else (),
            None if ask.only is None else [*self._units("only", ask, known)],
            rules=self._rules_of(ask),
            factors=dict(sorted(self._units("weights", ask, known).items())) if ask.weights else {},
        )

    def _units(self, name: str, ask: Recommend, known: Inputs) -> dict[int, float]:
        """Return the known units of a filter, and their weights; unknown ids have no effect.

        Raises:
            DataError: All are unknown, and the request does not say that it knows, or may have nothing else.
        """
        ids: Sequence[str] | Mapping[str, float] = getattr(ask, name) or {}
        weights = ids.values() if isinstance(ids, Mapping) else [1.0] * len(ids)
        places = self.items.places([*ids], "skip", known.skipped, name)
        units = {unit: weight for unit, weight in zip(places, weights, strict=True) if unit is not None}
        if not units and (name == "only" or ask.unknown == "refuse"):
            raise names_none(name, self.catalogue.vocabulary, next(iter(ids), None))
        return units

    def _rules_of(self, ask: Recommend) -> Rules:
        """Return a request's rules, one object for equal ones; raises WidenetError for wrong ones."""
        if not (ask.at_most or ask.where):
            return _NO_RULES
        key = msgspec.json.encode((ask.at_most, ask.where))
        if key not in self._rules:
            output = self.model.network.outputs[self.output]
            rules = rules_of(
                output.spec,
                output.width,
                self.catalogue.vocabulary,
                self.catalogue.attributes,
                [],
                where=ask.where,
                at_most=ask.at_most,
            )
            if len(self._rules) >= max(1, min(_MOST_RULES, _RULES_BYTES // (16 * output.width))):
                self._rules.pop(next(iter(self._rules)))
            self._rules[key] = rules.to(self.model.network.device)
        return self._rules[key]

    def _recommended(self, rows: Sequence[_Row]) -> dict[int, Result]:
        """Return the answers to rows with the same rules, by place; users of the dataset must come first."""
        people, part, width = [row.known for row in rows], rows[0].part, max(row.k for row in rows)
        shows_all = all(row.shows_seen for row in rows)
        seen = [[] for _ in rows] if shows_all else self.people.seen(people, part)
        excluded = [
            [*([] if row.shows_seen else own), *row.never] for own, row in zip(seen, rows, strict=True)
        ]
        only = None
        if any(row.only is not None for row in rows):
            units = from_rows([sorted(set(row.only or ())) for row in rows])
            only = Only(units, torch.tensor([row.only is not None for row in rows]))
        factors = [row.factors for row in rows]
        network, fields = self.model.network, self.people.batch(people, part)
        scores_EK, units_EK = top_k(
            network,
            fields,
            self.output,
            width,
            from_rows(excluded) if any(excluded) else None,
            rows[0].rules.within(len(self.catalogue.vocabulary), network.outputs[self.output]),
            factors=from_rows([[*own] for own in factors], [[*own.values()] for own in factors])
            if any(factors)
            else None,
            only=only,
        )
        are_finite = ((units_EK < 0) | scores_EK.isfinite()).all(dim=1).tolist()
        found: list[_Pairs] = []
        lists = zip(rows, units_EK.tolist(), scores_EK.tolist(), are_finite, strict=True)
        for row, units, scores, is_finite in lists:
            pairs = [pair for pair in zip(units, scores, strict=True) if pair[0] >= 0]
            if row.is_scored and is_finite:
                score_of = dict(pairs)
                pairs = [(unit, score_of[unit]) for unit in row.only or ()]
            found.append(pairs[: row.k])
        results: dict[int, Result] = {}
        items = self.catalogue.items(found, [row.names for row in rows])
        are_known = self.people.are_known(people, fields)
        for row, named, is_finite, is_known in zip(rows, items, are_finite, are_known, strict=True):
            if not is_finite:
                results[row.place] = RefusedError(422, "overflow", "the scores are not finite")
                continue
            answer = Answer(self.fingerprint, named, row.known.skipped, is_personal=is_known)
            if row.part is not None and row.known.row is not None:
                answer.held_out = self.catalogue.listed(self.people.held_out(row.known.row, row.part))
            results[row.place] = answer
        return results

    def _explained(self, ask: Explain) -> Answer:
        """Return what each item of a history adds to a logit, the largest first; raises as `people.known`."""
        run, field = self.model.run, field_to_explain(self.model.run, self.output)
        known = self.people.known(ask)
        example, unit = self.people.example(known, field), self.items.unit(ask.item)
        share_Z = shares(self.model.network, example, self.output, unit).numpy()
        order, vocabulary = np.argsort(-share_Z, kind="stable"), run.vocabulary(field)
        features = example.indices.numpy().astype(np.int64)[order]
        names = vocabulary.named(features)
        items = [Item(*each, score=score) for each, score in zip(names, share_Z[order].tolist(), strict=True)]
        return Answer(self.fingerprint, items, known.skipped)

    def _nearest(self, measure: Measure, asked: Mapping[int, Similar]) -> dict[int, Result]:
        """Return the items nearest to some, by place."""
        try:
            if measure not in self._similar:
                self._similar[measure] = Neighbours.of_model(self.model, self.output, measure)
        except WidenetError as error:
            return dict.fromkeys(asked, error)
        asks, found = asked.values(), list[Scored]()
        units = np.array([self.items.unit(ask.item) for ask in asks])
        nearest = self._similar[measure].others(units, max(ask.k for ask in asks))
        for ask, scores, others, is_kept in zip(asks, *nearest, strict=True):
            kept = is_kept.nonzero()[0][: ask.k]
            found.append([*zip(others[kept].tolist(), scores[kept].tolist(), strict=True)])
        items = self.catalogue.items(found, [self.catalogue.checked(ask.attributes) for ask in asks])
        return {place: Answer(self.fingerprint, each) for place, each in zip(asked, items, strict=True)}


def _names(model: Model, before: Engine | None, name: str, what: str, vocabulary: Vocabulary) -> Names:
    """Return the names of a field: those of the engine before if they are the same: indexing is slow."""
    known = None if before is None else before.people.names.get(name)
    if before is not None and known is not None and known.what == what:
        digest = model.run.fields[name].vocabulary_digest
        if digest is not None and digest == before.model.run.fields[name].vocabulary_digest:
            return known
    return Names.of(what, vocabulary.all_ids().to_pylist())


def about_model(model: Model, people: People, fingerprint: str, run_name: str, num_items: int) -> About:
    """Return what a model says of itself."""
    run, spec = model.run, model.run.network
    items = item_field(run, people.output)
    if items is not None and run.fields[items].kind == "dense":
        items = None
    is_sparse = items is not None and run.fields[items].kind == "sparse"
    attributes = run.attributes(model.network.outputs[people.output].spec.field)
    frequent = {} if attributes is None else attributes.frequent(_MOST_VALUES)
    shapes = {layer.field: [*layer.shape] for layer in reversed(spec.inputs) if layer.shape is not None}
    read = {layer.field: run.fields[layer.field] for layer in spec.inputs if layer.field != items}
    return About(
        fingerprint=fingerprint,
        run=run_name,
        num_items=num_items,
        in_8_bits=WeightsFacts.of(model.facts).in_8_bits,
        has_users=people.users is not None,
        parts=[*people.parts()],
        can_explain=is_sparse and why_no_shares(spec) is None,
        attributes={name: Category(kind, values) for name, (kind, values) in frequent.items()},
        reads_items=items is not None,
        reads_values=items is not None and reads_values(run, items),
        fields=[
            AskedField(name, own.kind, own.width, shapes.get(name, []), own.min_value, own.max_value)
            for name, own in read.items()
        ],
    )


def sample_of(people: People) -> dict[str, FieldValue]:
    """Return a small input: a few features of each field, or numbers between 0 and 1."""
    sample: dict[str, FieldValue] = {}
    for layer in people.network.spec.inputs:
        record = people.run.fields[layer.field]
        if record.kind == "dense":
            sample[layer.field] = torch.linspace(0, 1, record.width).tolist()
        else:
            known = people.names[layer.field].place_of
            sample[layer.field] = [*islice(known, 0, None, max(1, len(known) // _TRIAL_FEATURES))]
    return sample
