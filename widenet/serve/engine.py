"""Answers batches of requests with one loaded model; only one thread at a time may call it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from widenet.baselines.evaluate import output_name
from widenet.data.dataset import Dataset
from widenet.data.vocabulary import Vocabulary
from widenet.errors import FitError, WidenetError
from widenet.knn.neighbours import Neighbours
from widenet.parallel.exchange import fixed_arithmetic
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.predict.filtered_lists import ListRules, best_lists
from widenet.predict.filters import banned_by, check_weighable, checked_factor, names_none, rules_of
from widenet.predict.shares import shares, why_no_shares
from widenet.predict.top_k import Filter, Only, top_k
from widenet.runs import Model
from widenet.runs.recommending import field_to_explain, item_field, reads_values, unlearnt
from widenet.serve.catalogue import Catalogue, Names, Scored
from widenet.serve.people import Inputs, People
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
    Recommend,
    RefusedError,
    Result,
    Score,
    Similar,
)
from widenet.sparse import SparseBatch, from_rows
from widenet.spec.network import NetworkSpec
from widenet.training.run_directory import FieldRecord, in_8_bits

_MOST_RULES, _RULES_BYTES = 32, 2**28
_MOST_VALUES = 100
"""Values of an attribute that are named."""
_TRIAL_FEATURES = 5
_NO_RULES = (Filter(), ListRules())
_Pairs = list[tuple[int, float]]


@dataclass(frozen=True)
class _Row:
    """A person of a batch: which request, who, what to leave out and to choose from, and how to answer."""

    place: int
    ask: Recommend | Score
    known: Inputs
    never: list[int]
    only: list[int] | None
    candidates: list[int | None]
    rules: tuple[Filter, ListRules]
    names: tuple[str, ...]
    factors: dict[int, float] = field(default_factory=dict)

    @property
    def part(self) -> HeldPart | None:
        return self.ask.part if isinstance(self.ask, Recommend) else None

    @property
    def k(self) -> int:
        return len(self.candidates) if isinstance(self.ask, Score) else self.ask.k


@dataclass(frozen=True)
class _Near:
    """A request of a batch for the items most similar to a unit, and their attributes."""

    place: int
    ask: Similar
    unit: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """A model that is ready to answer.

    Attributes:
        model: The model.
        output: The output that recommends.
        fingerprint: SHA-256 of its weights.
        run_name: Name of its run directory, which a symbolic link may have led to.
        people: Makes batches.
        items: Ids of the output's items.
        catalogue: The same with titles and attributes.
        about: What it says of itself.
    """

    model: Model
    output: str
    fingerprint: str
    run_name: str
    people: People
    items: Names
    catalogue: Catalogue
    about: About
    _similar: dict[str, Neighbours] = field(default_factory=dict)
    _rules: dict[bytes, tuple[Filter, ListRules]] = field(default_factory=dict)

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
        people = People(model.run, model.network, name, names, dataset, users, unlearnt(model.run))
        run_name = Path(run).resolve().name
        catalogue = Catalogue(vocabularies[target], model.run.attributes(target))
        fingerprint = model.fingerprint()
        about = about_model(model, people, fingerprint, run_name, len(vocabularies[target]))
        engine = cls(model, name, fingerprint, run_name, people, names[target], catalogue, about)
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
        for ask in asks_of_each_kind(sample, next(iter(self.items.place_of)), self.about):
            self.answers([ask])
        self._rules.clear()

    def _ranked(self, people: Sequence[Inputs], k: int, factors: SparseBatch | None = None) -> list[_Pairs]:
        fields = self.people.batch(people)
        scores_EK, units_EK = top_k(self.model.network, fields, self.output, k, factors=factors)
        rows = zip(units_EK.tolist(), scores_EK.tolist(), strict=True)
        return [[*zip(*row, strict=True)] for row in rows]

    def answers(self, asks: Sequence[Ask]) -> list[Result]:
        """Return the answer to each request, or its refusal; within `fixed_arithmetic`."""
        results: list[Result | None] = [None] * len(asks)
        rows: list[_Row] = []
        alike: dict[Measure, list[_Near]] = {}
        for place, ask in enumerate(asks):
            try:
                if isinstance(ask, Similar):
                    (unit,) = self.items.places([ask.item], "refuse", [])
                    assert unit is not None
                    names = self.catalogue.checked(ask.attributes)
                    alike.setdefault(ask.measure, []).append(_Near(place, ask, unit, names))
                elif isinstance(ask, Explain):
                    results[place] = self._explained(ask)
                else:
                    rows.append(self._row(place, ask))
            except WidenetError as error:
                results[place] = error
        rows.sort(key=lambda row: row.known.row is None)  # users of the dataset first
        by_rules: dict[tuple[object, ...], list[_Row]] = {}
        for row in rows:
            decisive_k = row.k if row.rules[1].diversity else 0
            by_rules.setdefault((id(row.rules), decisive_k, row.part, bool(row.factors)), []).append(row)
        for together in by_rules.values():
            for row, answer in zip(together, self._recommended(together), strict=True):
                results[row.place] = answer
        for measure, asked in alike.items():
            for near, result in zip(asked, self._nearest(measure, asked), strict=True):
                results[near.place] = result
        return [result for result in results if result is not None]

    def _row(self, place: int, ask: Recommend | Score) -> _Row:
        known, names = self.people.known(ask), self.catalogue.checked(ask.attributes)
        if isinstance(ask, Score):
            candidates = self.items.places(ask.candidates, ask.unknown, known.skipped)
            only = [unit for unit in candidates if unit is not None]
            return _Row(place, ask, known, [], only, candidates, _NO_RULES, names)
        if ask.part is not None and (known.row is None or ask.part not in self.people.parts()):
            raise RefusedError(422, "no_part", f"needs a user with {ask.part} items", option="part")
        never = [unit for unit in self._units("never", ask.never or [], ask, known) if unit is not None]
        rules, factors = self._rules_of(ask), self._factors(ask, known)
        return _Row(place, ask, known, never, self._only(ask, known), [], rules, names, factors)

    def _units(self, name: str, ids: Sequence[str], ask: Recommend, known: Inputs) -> list[int | None]:
        """Return the units of a filter's ids, None for unknown ones, which have no effect, as in the library.

        Raises:
            DataError: All are unknown, and the request does not say that it knows.
        """
        units = self.items.places(ids, "skip", known.skipped)
        if ids and not any(unit is not None for unit in units) and ask.unknown == "refuse":
            raise names_none(name, self.catalogue.vocabulary, ids[0])
        return units

    def _only(self, ask: Recommend, known: Inputs) -> list[int] | None:
        """Return the units to choose from, None for all; raises DataError if no id is known."""
        if ask.only is None:
            return None
        units = [unit for unit in self._units("only", ask.only, ask, known) if unit is not None]
        if not units:
            raise names_none("only", self.catalogue.vocabulary, next(iter(ask.only), None))
        return units

    def _rules_of(self, ask: Recommend) -> tuple[Filter, ListRules]:
        """Return a request's rules, one object for equal rules; raises WidenetError for wrong ones."""
        if not (ask.at_most or ask.where or ask.diversity):
            return _NO_RULES
        key = msgspec.json.encode((ask.at_most, ask.where, ask.diversity))
        if key not in self._rules:
            output = self.model.network.outputs[self.output]
            attributes, device = self.model.run.attributes(output.spec.field), self.model.network.device
            allowed = Filter().without(banned_by(output.width, attributes, ask.where))
            rules = rules_of(output.spec, output.width, attributes, ask.at_most, ask.diversity)
            if len(self._rules) >= max(1, min(_MOST_RULES, _RULES_BYTES // (16 * output.width))):
                self._rules.pop(next(iter(self._rules)))
            self._rules[key] = allowed.to(device), rules
        return self._rules[key]

    def _factors(self, ask: Recommend, known: Inputs) -> dict[int, float]:
        """Return the weights of known units, in order; raises WidenetError for wrong ones."""
        if not ask.weights:
            return {}
        check_weighable(self.model.network.outputs[self.output].spec)
        numbers = [checked_factor(*pair) for pair in ask.weights.items()]
        pairs = zip(self._units("weights", [*ask.weights], ask, known), numbers, strict=True)
        return dict(sorted((unit, number) for unit, number in pairs if unit is not None))

    def _recommended(self, rows: Sequence[_Row]) -> list[Result]:
        people = [row.known for row in rows]
        hides = [isinstance(row.ask, Recommend) and not row.ask.include_seen for row in rows]
        part = rows[0].part
        seen = self.people.seen(people, part) if any(hides) else [[] for _ in rows]
        excluded = [
            [*(own if hidden else []), *row.never] for own, hidden, row in zip(seen, hides, rows, strict=True)
        ]
        only = None
        if any(row.only is not None for row in rows):
            only = Only(
                from_rows([sorted(set(row.only or [])) for row in rows]),
                torch.tensor([row.only is not None for row in rows]),
            )
        factors = [row.factors for row in rows]
        network, fields = self.model.network, self.people.batch(people, part)
        allowed, rules = rows[0].rules
        scores_EK, units_EK = best_lists(
            network,
            fields,
            self.output,
            max(row.k for row in rows),
            from_rows(excluded) if any(excluded) else None,
            allowed.within(len(self.catalogue.vocabulary), network.outputs[self.output]),
            rules,
            only,
            from_rows([[*own] for own in factors], [[*own.values()] for own in factors])
            if any(factors)
            else None,
        )
        found: list[_Pairs | None] = []
        are_finite = ((units_EK < 0) | scores_EK.isfinite()).all(dim=1).tolist()
        lists = zip(rows, units_EK.tolist(), scores_EK.tolist(), are_finite, strict=True)
        for row, units, scores, is_finite in lists:
            if not is_finite:
                found.append(None)
                continue
            pairs = [pair for pair in zip(units, scores, strict=True) if pair[0] >= 0]
            if isinstance(row.ask, Score):
                score_of = dict(pairs)
                pairs = [(unit, score_of[unit]) for unit in row.candidates if unit is not None]
            found.append(pairs[: row.k])
        return self._named(rows, found, self.people.are_known(people, fields))

    def _named(
        self,
        rows: Sequence[_Row],
        found: Sequence[Scored | None],
        are_known: Sequence[bool],
    ) -> list[Result]:
        items = self.catalogue.items([pairs or [] for pairs in found], [row.names for row in rows])
        return [
            RefusedError(422, "overflow", "the scores are not finite")
            if pairs is None
            else Answer(
                self.fingerprint,
                named,
                row.known.skipped,
                self._held_out(row),
                is_known,
            )
            for row, pairs, named, is_known in zip(rows, found, items, are_known, strict=True)
        ]

    def _held_out(self, row: _Row) -> list[Found] | msgspec.UnsetType:
        if row.part is None or row.known.row is None:
            return msgspec.UNSET
        return self.catalogue.listed(self.people.held_out(row.known.row, row.part))

    def _explained(self, ask: Explain) -> Answer:
        """Return what each item of a history adds to a logit, the largest first; raises as `people.known`."""
        run, field = self.model.run, field_to_explain(self.model.run, self.output)
        known = self.people.known(ask)
        (unit,) = self.items.places([ask.item], "refuse", [])
        assert unit is not None
        example = self.people.example(known, field)
        share_Z = shares(self.model.network, example, self.output, unit).numpy()
        order, vocabulary = np.argsort(-share_Z, kind="stable"), run.vocabulary(field)
        features = example.indices.numpy().astype(np.int64)[order]
        names = vocabulary.named(features)
        items = [Item(*each, score=score) for each, score in zip(names, share_Z[order].tolist(), strict=True)]
        return Answer(self.fingerprint, items, known.skipped)

    def _nearest(self, measure: Measure, asked: Sequence[_Near]) -> Sequence[Result]:
        """Return the items nearest to some."""
        try:
            if measure not in self._similar:
                self._similar[measure] = Neighbours.of_model(self.model, self.output, measure)
        except WidenetError as error:
            return [error] * len(asked)
        collection, units = self._similar[measure], np.array([near.unit for near in asked])
        rows = zip(*collection.others(units, max(near.ask.k for near in asked)), strict=True)
        found: list[Scored] = []
        for near, (scores, others, is_kept) in zip(asked, rows, strict=True):
            kept = is_kept.nonzero()[0][: near.ask.k]
            found.append([*zip(others[kept].tolist(), scores[kept].tolist(), strict=True)])
        items = self.catalogue.items(found, [near.names for near in asked])
        return [Answer(self.fingerprint, each) for each in items]


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
    return About(
        fingerprint=fingerprint,
        run=run_name,
        num_items=num_items,
        in_8_bits=in_8_bits(model.facts),
        has_users=people.users is not None,
        parts=[*people.parts()],
        can_explain=is_sparse and why_no_shares(spec) is None,
        attributes=_categories(model, people.output),
        reads_items=items is not None,
        reads_values=items is not None and reads_values(run, items),
        fields=[
            _asked(spec, name, run.fields[name])
            for name in dict.fromkeys(layer.field for layer in spec.inputs)
            if name != items
        ],
    )


def _categories(model: Model, output: str) -> dict[str, Category]:
    attributes = model.run.attributes(model.network.outputs[output].spec.field)
    frequent = {} if attributes is None else attributes.frequent(_MOST_VALUES)
    return {name: Category(kind, values) for name, (kind, values) in frequent.items()}


def _asked(spec: NetworkSpec, name: str, record: FieldRecord) -> AskedField:
    shapes = (layer.shape for layer in spec.inputs if layer.field == name and layer.shape is not None)
    shape = [*next(shapes, ())]
    return AskedField(name, record.kind, record.width, shape, record.min_value, record.max_value)


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


def asks_of_each_kind(fields: dict[str, FieldValue], item: str, about: About) -> list[Ask]:
    """Return a request of each kind; the model may refuse some.

    Args:
        fields: What is known of the person.
        item: Id of an item.
        about: What the model says of itself.
    """
    rules: list[dict[str, Any]] = [{}, {"never": [item]}, {"only": [item]}, {"weights": {item: 0.5}}]
    rules.append({"diversity": 0.5})
    by_kind = {category.kind: (name, category) for name, category in about.attributes.items()}
    for name, category in by_kind.values():
        rules.append({"attributes": [name]})
        if category.values:
            rules += [{"at_most": {name: 1}}, {"where": {name: category.values[:1]}}]
    asks: list[Ask] = [Recommend(fields=fields, **rule) for rule in rules]
    return [*asks, Score(fields=fields, candidates=[item]), Explain(fields=fields, item=item)]
