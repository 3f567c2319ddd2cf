"""Trained models: evaluation, recommendations and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from widenet.arguments import method_with_fields_of, typed
from widenet.baselines.evaluate import output_name
from widenet.data.dataset import Dataset
from widenet.errors import FitError, OptionError
from widenet.knn.measures import Measure
from widenet.metrics.ranking import Metrics, checked_k
from widenet.model.build import build
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer
from widenet.parallel.group import device_for, exchange_for, join
from widenet.parallel.threads import fixed_arithmetic
from widenet.pictures.html import tag
from widenet.predict.dataset_rows import Block, history
from widenet.predict.filters import existing
from widenet.runs import person
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.evaluating import check_keeps, evaluated, warn_of_trained
from widenet.runs.person import Fields
from widenet.runs.place_of_weights import device_of
from widenet.runs.recommending import (
    Format,
    alike,
    answered,
    are_many,
    check_format,
    predicted,
    read_once,
    reasons,
)
from widenet.runs.run_arguments import EvaluateArguments, LoadArguments, PredictArguments, RecommendArguments
from widenet.sparse import SparseBatch
from widenet.spec.drawing import drawn
from widenet.spec.training import TrainingSpec
from widenet.training.all_weights import settle
from widenet.training.checkpoint import Checkpoint, fingerprint
from widenet.training.in_common import check_in_common, check_same_dataset, facts_of_checkpoint
from widenet.training.run_directory import RunDirectory, with_network_of
from widenet.training.run_log import log_curves
from widenet.training.saved_facts import TrainingFacts, in_8_bits
from widenet.training.schedules import rates


class Model:
    """A trained network with the names of its items.

    Attributes:
        run: The run directory.
        network: The network.
        facts: The facts that were saved beside the weights.
    """

    def __init__(self, run: RunDirectory, network: Network, facts: Mapping[str, Any] | None = None) -> None:
        self.run, self.network, self.facts = run, network, facts or {}

    @classmethod
    @method_with_fields_of(LoadArguments)
    def load(cls, arguments: LoadArguments) -> "Model":
        """Open the model of a run directory.

        The model of an unfinished run is the network as it stood at the newest checkpoint. As with `train`,
        every process of a group must call this method, and all methods of the result.

        Returns:
            The model.

        Raises:
            CheckpointError: The run directory does not exist, has no model, or is damaged.
        """
        directory = RunDirectory.open(path_of("run", arguments.run))
        checkpoint = directory.model()
        chosen = device_for(device_of(arguments, checkpoint.facts))
        join(chosen, arguments.timeout)
        check_in_common(
            chosen, [directory.network, directory.training], None, facts_of_checkpoint(checkpoint)
        )
        directory, facts = with_network_of(directory, checkpoint), checkpoint.facts
        exchange = exchange_for(directory.layout.num_shards, chosen)
        network = build(directory.layout, exchange, chosen, in_8_bits=in_8_bits(facts))
        if "state" in checkpoint.facts:
            _load_unfinished(checkpoint, network, directory.training)
        else:
            checkpoint.load_into(network, with_state=False)
        return cls(directory, network, checkpoint.facts)

    def __repr__(self) -> str:
        layers = ", ".join(
            f"{layer.name} {self.network.layout.units[layer.name]:,}" for layer in self.run.network.layers
        )
        return f"Model({str(self.run.path)!r}, {layers}, {self.network.layout.num_shards} shards)"

    def _repr_html_(self) -> str:
        """The layers and the curves of the training, for notebooks."""
        sizes = {name: f"{units:,} units" for name, units in self.network.layout.units.items()}
        network = self.run.network
        return tag("div", drawn(network.name, network.layers, sizes), log_curves(self.run.records()))

    def fingerprint(self) -> str:
        """SHA-256 of the weights alone: equal for equal weights."""
        return fingerprint(self.network)

    def _dataset(self, data: Dataset | str | Path | None) -> Dataset:
        """A dataset that goes with this run, the same in every process; None: that of the training."""
        dataset = self.run.dataset() if data is None else dataset_of(data)
        if dataset is None:
            raise FitError("the dataset of its training is gone", place=self.run.path)
        self.run.check_dataset(dataset)
        check_same_dataset(self.network.exchange, dataset)
        return dataset

    @method_with_fields_of(EvaluateArguments, Dataset)
    def evaluate(self, arguments: EvaluateArguments) -> Metrics:
        """Compute ranking metrics on a set-aside part of a dataset; see `baselines.evaluate.evaluate`.

        Returns:
            The metrics by name, such as "ndcg@10", and with `interval` their confidence intervals in
            `Metrics.intervals`, and with `baselines` theirs in `Metrics.baselines`.

        Warns:
            UserWarning: The run, or one it started from, was trained on entries of the part.

        Raises:
            FitError: The dataset does not fit the run, or does not have the part.
            OptionError: An argument is wrong, or `keep` is set for a run that has not ended or is in a store.
        """
        dataset = self._dataset(arguments.data)
        if arguments.keep:
            check_keeps(self.run, self.facts)
        warn_of_trained(self.run, self.network, self.facts, dataset, arguments.part, arguments.output)
        return evaluated(self.run, self.network, self.facts, dataset, arguments)

    @method_with_fields_of(RecommendArguments, Dataset)
    def recommend(self, arguments: RecommendArguments) -> Any:
        """Return the k best items for a basket, for several, or for users of a dataset.

        A basket is a list of ids or titles; numbers are ids. Several baskets are a list of lists, or a table
        (pandas, Polars, Arrow, a dictionary of columns, a SciPy matrix) with a row for each item of somebody.
        Users have the history that the dataset holds, as in `predict`.

        The items belong to the output's field, or to the only field that the network reads. An item that is
        named twice counts once, with its last value. For networks that read a sequence, give the items in
        order, the newest last; there, each naming counts. Numbers of dense fields are as in the dataset:
        `fields={"country": "NL", "profile": [0.3, 0.5]}`, for one basket, or in place of one user's fields.

        Returns:
            The recommendations, best first: a list for one basket or user, a list of lists for several. With
            `format`, a table with the columns user, item, title (if there are titles), score and rank.

        Warns:
            UserWarning: A text matches several items; the most popular one counts.

        Raises:
            DataError: A user, an item or a category is unknown, or a text is part of more than five titles.
            FitError: The network reads no items, or the dataset does not fit or is gone.
            OptionError: An argument is wrong.
        """
        check_format(arguments.format)
        arguments = read_once(arguments)
        if arguments.users is None and not are_many(arguments.items):
            name = output_name(self.network, arguments.output)
            said = person.with_items(self.run, name, arguments.items, arguments.fields)
            person.warn_of_ambiguous(self.run, said)
        with fixed_arithmetic():
            answers, is_one = answered(self.run, self.network, self._dataset, arguments)
        return answers.shown(arguments.format, is_one)

    @typed
    def similar(
        self,
        items: Any,
        k: int = 10,
        *,
        layer: str | None = None,
        measure: Measure = "cosine",
        format: Format | None = None,  # noqa: A002 (a table's kind has this name everywhere)
    ) -> Any:
        """Return the k items whose vectors are most similar to an item's, most similar first.

        Args:
            items: An id or a title, or a list of them; numbers are ids.
            k: Number of similar items for each.
            layer: The sparse input or the output whose units to compare. Default: the only output.
            measure: "cosine", "dot" or "l2".
            format: "pandas", "polars" or "arrow": return a table with the columns item, similar, title (if
                there are titles), score and rank.

        Returns:
            A list for one item, a list of lists for several, or a table.

        Warns:
            UserWarning: A text matches several items; the most popular one counts.

        Raises:
            DataError: An item is unknown.
            FitError: The layer does not exist, or has no such vectors.
            OptionError: An argument is wrong.
        """
        check_format(format)
        answers, is_one = alike(self.run, self, items, checked_k(k), layer, measure)
        return answers.shown(format, is_one, "item", "similar")

    @typed
    def explain(
        self,
        item: str | int,
        items: Sequence[str | int] = (),
        *,
        user: str | int | None = None,
        data: Dataset | str | Path | None = None,
        values: Sequence[float] | None = None,
        output: str | None = None,
        format: Format | None = None,  # noqa: A002 (a table's kind has this name everywhere)
    ) -> Any:
        """Return what each item of a history adds to the logit of an item, the largest first.

        The numbers add up to the logit without biases, for networks that read one field and whose hidden
        layers are linear, such as the default network of a set; others are refused. With "cosine", the length
        of the history's vector divides them. A neighbourhood term is divided by the similarities.

        Args:
            item: An id or a title; a number is an id.
            items: The history: ids or titles.
            user: The id of a user with this history, instead of `items`.
            data: The dataset of `user`. Default: that of the training.
            values: One number for each of `items`, for networks trained with values.
            output: The output layer, if the network has several.
            format: "pandas", "polars" or "arrow": return a table with the columns item, because, title (if
                there are titles), score and rank.

        Returns:
            A `Recommendation` for each item of the history, whose score is the number, or a table.

        Warns:
            UserWarning: A text matches several items; the most popular one counts.

        Raises:
            DataError: An item or the user is unknown.
            FitError: The network is not linear, or the dataset does not fit or is gone.
            OptionError: An argument is wrong.
        """
        check_format(format)
        items = list(items) if isinstance(items, Iterator) else items
        if user is not None and (len(items) or values is not None):
            raise OptionError("goes without items and values", option="user")
        name, dataset = output_name(self.network, output), None if user is None else self._dataset(data)
        with fixed_arithmetic():
            answers = reasons(self.run, self.network, dataset, name, item, user, items, values)
        return answers.shown(format, True, "item", "because")

    @typed
    def history_of(self, user: str, data: Dataset | str | Path | None = None) -> list[str]:
        """Return the titles of the user's features that `recommend` feeds to the network.

        They are those of its first field with names; without such a field, the list is empty.
        By default, the dataset is that of the training.
        """
        dataset = self._dataset(data)
        fields = (
            layer.field
            for layer in self.run.network.inputs
            if self.run.fields[layer.field].vocabulary_digest is not None
        )
        if (field := next(fields, None)) is None:
            return []
        rows, parts = np.array([dataset.row_of(user)]), dataset.field(field).parts
        batch = history(dataset, field, rows, parts)
        if not isinstance(batch, SparseBatch):
            return []
        return self.run.vocabulary(field).titles(batch.indices.numpy())

    @typed
    def attributes_of(
        self, items: Sequence[str | int], names: Sequence[str] | None = None, output: str | None = None
    ) -> list[dict[str, Any]]:
        """Return attributes of items by name, those that an item has, as values of Python.

        Args:
            items: Ids of items.
            names: The attributes. Default: all.
            output: The output whose items these are, if the network has several.

        Raises:
            DataError: An item is unknown.
            FitError: The run has no attributes.
            OptionError: There is no such attribute.
        """
        field = self.network.outputs[output_name(self.network, output)].spec.field
        attributes = existing(self.run.attributes(field), "attributes_of")
        units = person.units_of_ids(self.run.vocabulary(field), items)
        return attributes.of(units, names)

    def understood(
        self, items: Sequence[str] = (), fields: Fields | None = None, output: str | None = None
    ) -> dict[str, list[str]]:
        """Return, by field, what `recommend` takes ids and titles for: titles, and numbers as text."""
        return person.understood(
            self.run, person.with_items(self.run, output_name(self.network, output), items, fields)
        )

    @method_with_fields_of(PredictArguments, Dataset)
    def predict(self, arguments: PredictArguments) -> Iterator[Block]:
        """Yield the k best items for every example of a dataset, block by block, in its order.

        By default, everything that the dataset holds about an example counts as known: its training part, and
        the parts that were set aside. With `part`, the network sees, and `exclude_seen` leaves out, only what
        `evaluate` uses for this part.

        Returns:
            The blocks.

        Raises:
            DataError: A file or the dataset cannot be read.
            FitError: The dataset does not fit the run, or the scores cannot be weighted.
            OptionError: An argument is wrong.
        """
        return predicted(self.run, self.network, self._dataset(arguments.data), arguments)


def _load_unfinished(checkpoint: Checkpoint, network: Network, training: TrainingSpec) -> None:
    """Fill a network from a checkpoint within a training, rows that idled brought up to date."""
    rule = Optimizer(network.spec.tuned(training.optimizer), training.l1, training.l2)
    network.prepare_training(rule)
    checkpoint.load_into(network, with_state=True)
    facts = TrainingFacts.of(checkpoint.facts)
    state, steps_per_epoch = facts.state, facts.steps_per_epoch
    settle(network, rule, rates(training, steps_per_epoch), state.steps_made(steps_per_epoch))
