"""Trained models: evaluation, recommendations and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.arguments import method_with_fields_of, typed, with_fields_of
from widenet.baselines.evaluate import evaluate, output_name
from widenet.baselines.measure import measured
from widenet.data.dataset import Dataset
from widenet.data.describe import known_before, trained_on
from widenet.data.manifest import Part
from widenet.errors import FitError, OptionError, WidenetError, warn_user
from widenet.knn.neighbours import Measure
from widenet.metrics.comparison import Comparison, compared
from widenet.metrics.further import Propensity
from widenet.metrics.ranking import Metrics, check_ks, checked_k
from widenet.model.build import build
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.group import by_leader, check_agreement, device_for, exchange_for, join
from widenet.pictures.html import tag
from widenet.predict.files import Block
from widenet.predict.restrictions import existing, known_parts
from widenet.runs.cutting import Cut
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.recommending import (
    Fields,
    Format,
    alike,
    answered,
    predicted,
    reasons,
    understood,
    with_items,
)
from widenet.runs.run_arguments import (
    CompareArguments,
    EvaluateArguments,
    LoadArguments,
    PredictArguments,
    RecommendArguments,
)
from widenet.runs.run_log import log_curves
from widenet.spec.network import drawn
from widenet.spec.training import TrainingSpec
from widenet.stores.uri import shown
from widenet.training.checkpoint import Checkpoint, fingerprint
from widenet.training.facts import check_in_common, facts_of_checkpoint, facts_of_dataset
from widenet.training.run_directory import (
    RunDirectory,
    TrainingFacts,
    WeightsFacts,
    with_network_of,
)
from widenet.training.run_path import WHOLE
from widenet.training.schedules import rates
from widenet.training.step import settle


def warn_of_trained(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    dataset: Dataset,
    part: Part,
    output: str | None,
) -> None:
    """Warn, in the leader, of entries of a part that a run, or one it started from, was trained on.

    Nothing is said where the dataset of a training, or such a run, is missing.

    Args:
        run: The run.
        network: Its network.
        facts: The facts beside its weights.
        dataset: The dataset of an evaluation.
        part: The part.
        output: The output; None for the only one.
    """
    field = network.outputs[output_name(network, output)].spec.field
    if not network.exchange.leads or part == "train" or dataset.field(field).kind == "dense":
        return
    seen: set[Path] = set()
    examples = facts.get("examples")
    while True:
        seen.add(run.path.resolve())
        cut, trained = Cut.read(run.path), run.dataset()
        whole = run.machine.get(WHOLE) if cut is None else cut.examples
        if (
            trained is not None
            and trained.digest == examples
            and dataset.digest not in (examples, whole)
            and (number := trained_on(dataset, field, part, trained))
        ):
            total = dataset.field(field).num_entries[part]
            warn_user(
                f"{run.path} was trained on {number:,} of the {total:,} entries of the {part} part of"
                f" {dataset.path}."
            )
        if (start := run.start) is None or start in seen:
            return
        try:
            run = RunDirectory.open(start)
            examples = WeightsFacts.of(Checkpoint.open(start / "model").facts).examples
        except (WidenetError, OSError):
            return


def _inverse_propensities(
    run: RunDirectory, field: str, arguments: EvaluateArguments
) -> NDArray[np.float64] | None:
    """The inverse propensity of each feature in the dataset of the training; None if not asked for."""
    if arguments.propensity is None:
        return None
    propensity, trained = Propensity.of(arguments.propensity), run.dataset()
    if trained is None:
        raise FitError(
            "needs the dataset of the training, which is gone", place=run.path, option="propensity"
        )
    return propensity.inverse(trained.counts(field), trained.num_examples)


def _baselines(
    network: Network, dataset: Dataset, field: str, arguments: EvaluateArguments
) -> dict[str, Metrics]:
    """Return the baselines' metrics, which the leader computes for all processes."""
    found: dict[str, Metrics] = {}

    def measure() -> None:
        with fixed_arithmetic():
            found.update(
                measured(
                    dataset,
                    field,
                    arguments.part,
                    check_ks(arguments.ks),
                    arguments.interval,
                    bool(arguments.exclude_seen),
                    arguments.say,
                )
            )

    by_leader(network.exchange, measure, "baselines")
    by_process: list[dict[str, Metrics]] = network.exchange.collect(found, "baselines")
    return next(filter(None, by_process))


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
        is_small = WeightsFacts.of(checkpoint.facts).in_8_bits
        if is_small and arguments.device not in (None, "cpu"):
            rule = f"must be cpu for {shown(arguments.run)}, whose weights are in 8 bits"
            raise OptionError(rule, option="device", value=arguments.device)
        chosen = device_for("cpu" if is_small else arguments.device)
        join(chosen, arguments.timeout)
        check_in_common(
            chosen, [directory.network, directory.training], None, facts_of_checkpoint(checkpoint)
        )
        directory = with_network_of(directory, checkpoint)
        exchange = exchange_for(directory.layout.num_shards, chosen)
        network = build(directory.layout, exchange, chosen, in_8_bits=is_small)
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
        return tag("div", drawn(network, sizes), log_curves(self.run.records()))

    def fingerprint(self) -> str:
        """SHA-256 of the weights alone: equal for equal weights."""
        return fingerprint(self.network)

    def _dataset(self, data: Dataset | str | Path | None) -> Dataset:
        """A dataset that goes with this run, the same in every process; None: that of the training."""
        dataset = self.run.dataset() if data is None else dataset_of(data)
        if dataset is None:
            raise FitError("the dataset of its training is gone", place=self.run.path)
        self.run.check_dataset(dataset)
        check_agreement(self.network.exchange, facts_of_dataset(dataset))
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
            OptionError: An argument is wrong.
        """
        dataset = self._dataset(arguments.data)
        part, network = arguments.part, self.network
        warn_of_trained(self.run, network, self.facts, dataset, part, arguments.output)
        field = network.outputs[output_name(network, arguments.output)].spec.field
        with fixed_arithmetic():
            metrics = evaluate(
                network,
                dataset,
                part,
                arguments.ks,
                arguments.output,
                arguments.exclude_seen,
                arguments.advance,
                keep_users=arguments.interval is not None,
                beyond=arguments.beyond,
                groups=arguments.groups,
                inverse_propensities=_inverse_propensities(self.run, field, arguments),
            )
        if metrics.users is not None and arguments.interval is not None:
            metrics.intervals = metrics.users.intervals(arguments.interval)
        if arguments.exclude_seen:
            metrics.num_seen = known_before(dataset, field, part, known_parts(dataset, field, part))
        if arguments.baselines:
            metrics.baselines = _baselines(network, dataset, field, arguments)
        return metrics

    @method_with_fields_of(RecommendArguments, Dataset)
    def recommend(self, arguments: RecommendArguments) -> Any:
        """Return the k best items for a basket, for several, or for users of a dataset.

        A basket is a list of ids or titles; numbers are ids. Several baskets are a list of lists. Users have
        the history that the dataset holds, as in `predict`.

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
        if user is not None and (len(items) or values is not None):
            raise OptionError("goes without `items` and `values`", option="user")
        name, dataset = output_name(self.network, output), None if user is None else self._dataset(data)
        with fixed_arithmetic():
            answers = reasons(self.run, self.network, dataset, name, item, user, items, values)
        return answers.shown(format, True, "item", "because")

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
        units = self.run.vocabulary(field).index_of([str(item) for item in items])
        return attributes.of(units, names)

    def understood(
        self, items: Sequence[str] = (), fields: Fields | None = None, output: str | None = None
    ) -> dict[str, list[str]]:
        """Return, by field, what `recommend` takes ids and titles for: titles, and numbers as text."""
        return understood(self.run, with_items(self.run, output_name(self.network, output), items, fields))

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


@with_fields_of(CompareArguments, Dataset)
def compare(arguments: CompareArguments) -> Comparison:
    """Compare the rankings of two runs for the same users, metric by metric.

    Each run ranks for every user who has entries in the part. The differences of the users give the interval
    of the mean difference, by a paired bootstrap, and the p-value, by a sign-flip permutation test. As with
    `Model.evaluate`, every process of a group must call this, and all get the same bits.

    Returns:
        Both means, their difference, its interval and its p-value for each metric.

    Warns:
        UserWarning: A run was trained on entries of the part.

    Raises:
        CheckpointError: A run does not exist, has no model, or is damaged.
        FitError: The dataset does not fit a run, or the runs predict other users' items.
        OptionError: An argument is wrong.
    """
    check_ks(arguments.ks)
    dataset = dataset_of(arguments.data)
    for run in (arguments.first, arguments.second):
        RunDirectory.open(path_of("run", run)).check_dataset(dataset)
    first, second = (_metrics(str(run), dataset, arguments) for run in (arguments.first, arguments.second))
    return compared(first, second, arguments.level)


def _metrics(run: str, dataset: Dataset, arguments: CompareArguments) -> Metrics:
    """Evaluate one of the runs, with the metrics of each user."""
    part, output = arguments.part, arguments.output
    model = Model.load(run, arguments.device, timeout=arguments.timeout)
    network = model.network
    check_agreement(network.exchange, facts_of_dataset(dataset))
    warn_of_trained(model.run, network, model.facts, dataset, part, output)
    with fixed_arithmetic():
        return evaluate(
            network,
            dataset,
            part,
            arguments.ks,
            output,
            arguments.exclude_seen,
            arguments.advance,
            keep_users=True,
        )
