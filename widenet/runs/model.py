"""A trained model: what it knows, measures and recommends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from widenet.arguments import typed
from widenet.checkpoint import Checkpoint, fingerprint
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.errors import FitError
from widenet.evaluate import DEFAULT_KS, check_part, evaluate, output_name
from widenet.metrics import Metrics, checked_k
from widenet.model.activations import definition
from widenet.model.build import build
from widenet.model.network import Network
from widenet.parallel.group import device_for, exchange_for, join
from widenet.parallel.heartbeat import TIMEOUT_SECONDS
from widenet.parallel.threads import one_thread_an_operation
from widenet.pictures.html import tag
from widenet.predict.filters import PerUser, read_banned, read_weights
from widenet.predict.rows import Block, history, recommendations
from widenet.predict.top_k import Filter, top_k
from widenet.runs import person
from widenet.runs.arguments import dataset_of, path_of
from widenet.runs.person import Fields
from widenet.runs.seen_before import seen_before
from widenet.runs.unread import named_without_values, other_values, unread
from widenet.sparse import SparseBatch
from widenet.spec.drawing import drawn
from widenet.spec.training import TrainingSpec
from widenet.training.arithmetic import mixed_arithmetic
from widenet.training.in_common import check_in_common, check_same_dataset, facts_of_checkpoint
from widenet.training.log_curves import log_curves
from widenet.training.optimizers import Optimizer
from widenet.training.outcome import diverged
from widenet.training.run_directory import UNRECORDED, RunDirectory
from widenet.training.saved_facts import TrainingFacts, facts_of
from widenet.training.schedules import rates
from widenet.training.weights import settle


@dataclass(frozen=True)
class Recommendation:
    """One recommended item: its id, its title (the id where it has none) and its score."""

    item: str
    title: str
    score: float


class Model:
    """A trained network with the names of its items, ready to recommend. facts: what was saved beside its
    weights.
    """

    def __init__(self, run: RunDirectory, network: Network, facts: Mapping[str, Any] | None = None) -> None:
        self.run, self.network, self.facts = run, network, facts or {}

    @classmethod
    @typed
    def load(cls, run: str | Path, device: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> "Model":
        """The model of a run directory; raises CheckpointError where there is none, or it is damaged.

        Of a run that was cut short, it is the network as it stood at the newest checkpoint. As with `train`,
        every process of a group must call it, and whatever is then asked of the model. timeout: seconds after
        which a process of the group that gives no sign of life is reported as lost.
        """
        directory = RunDirectory.open(path_of("run", run))
        checkpoint = directory.model()
        chosen = device_for(device)
        join(chosen, timeout)
        check_in_common(
            chosen, [directory.network, directory.training], None, facts_of_checkpoint(checkpoint)
        )
        layout = directory.layout
        network = build(layout, exchange_for(layout.num_shards, chosen), chosen)
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

    def caveats(
        self, data: Dataset | None = None, part: Part = "heldout", output: str | None = None
    ) -> list[str]:
        """What to know before numbers of this model are believed, a sentence each.

        That its training has not ended, or went on in another arithmetic; that nobody can tell whether its
        documents have changed since; that its loss ended far above its start; how much of what a dataset
        holds out for an output was trained on, where it is not the dataset of the training, or of one with
        whose weights this one began.
        """
        found = []
        facts = facts_of(self.facts)
        arithmetic = facts.state.arithmetic if isinstance(facts, TrainingFacts) else facts.arithmetic
        if isinstance(facts, TrainingFacts):
            state = facts.state
            place = (
                f"step {state.step:,} of epoch {state.epoch + 1}" if state.step else f"epoch {state.epoch}"
            )
            found.append(f"{self.run.path} has not ended: this is its checkpoint after {place}.")
        if self.facts and facts.documents is None:
            found.append(f"{self.run.path}: {UNRECORDED}")
        if len(arithmetic) > 1:
            found.append(mixed_arithmetic(self.run.path))
        if (problem := diverged(self.run.training, self.run.records())) is not None:
            found.append(f"{self.run.path}: {problem}")
        if data is not None:
            held = [(self.network.outputs[output_name(self.network, output)].spec.field, part)]
            found += seen_before(self.run, facts.examples, data, held)
        return found

    def _dataset(self, data: Dataset | str | Path) -> Dataset:
        """A dataset that goes with this run, the same in every process."""
        dataset = dataset_of(data)
        self.run.check_dataset(dataset)
        check_same_dataset(self.network.exchange, dataset)
        return dataset

    def ignored(self, data: Dataset | str | Path) -> list[str]:
        """What to know of a dataset before this model is asked about it, a sentence each.

        Which of its fields the network does not read, and whose values either the training or the dataset has
        not.
        """
        dataset = dataset_of(data)
        self.run.check_dataset(dataset)
        return unread(self.run.network, dataset) + other_values(self.run, dataset)

    @typed
    def evaluate(
        self,
        data: Dataset | str | Path,
        part: Part = "heldout",
        ks: Sequence[int] = DEFAULT_KS,
        output: str | None = None,
        exclude_seen: bool = True,
        advance: Callable[[int], None] | None = None,
    ) -> Metrics:
        """Ranking metrics on a set-aside part of a dataset; see `widenet.evaluate.evaluate`."""
        dataset = self._dataset(data)
        with one_thread_an_operation():
            return evaluate(self.network, dataset, part, ks, output, exclude_seen, advance)

    @typed
    def recommend(
        self,
        items: Sequence[str] = (),
        k: int = 10,
        *,
        values: Sequence[float] | None = None,
        fields: Fields | None = None,
        exclude_seen: bool = True,
        output: str | None = None,
    ) -> list[Recommendation]:
        """The k best items for somebody of whom this is known.

        items: ids or titles; a title may be a part of one; an item that is named twice counts once, with its
            last value. For networks that read a sequence: in order, the newest last, and as often as they
            stand in it. They belong to the output's field, or to the only one that the network reads.
        values: one number an item, for networks trained with values.
        fields: what is known beside items, by field: {"country": "NL", "profile": [0.3, 0.5]}, categories by
            id or title, numbers as they were in the dataset. Of a field that is not named nothing is known:
            no category, zeros.
        Warns about a text that matches several items: the most popular one counts. Raises DataError for what
        is not known, FitError where the network reads no items, OptionError.
        """
        k, name = checked_k(k), output_name(self.network, output)
        said = person.with_items(self.run, name, items, fields)
        told = person.told(self.run, said, values)
        person.warn_of_ambiguous(self.run, said)
        inputs = {
            layer.field: told.get(layer.field, person.nothing(self.run, layer.field))
            for layer in self.run.network.inputs
        }
        inputs = {field: batch.to(self.network.device) for field, batch in inputs.items()}
        target = self.network.outputs[name].spec.field
        seen = inputs.get(target) if exclude_seen else None
        names = self.run.vocabulary(target)
        allowed = Filter().within(len(names), self.network.outputs[name])
        with one_thread_an_operation():
            scores_EK, units_EK = top_k(
                self.network, inputs, name, k, seen if isinstance(seen, SparseBatch) else None, allowed
            )
        kept = units_EK[0] >= 0
        units, scores = units_EK[0][kept].cpu().numpy(), scores_EK[0][kept].cpu().tolist()
        return [
            Recommendation(*row) for row in zip(names.ids(units), names.titles(units), scores, strict=True)
        ]

    @typed
    def recommend_for(
        self,
        user: str,
        data: Dataset | str | Path,
        k: int = 10,
        *,
        fields: Fields | None = None,
        exclude_seen: bool = True,
        output: str | None = None,
    ) -> list[Recommendation]:
        """The k best items for one user of a dataset, by what the dataset has of them: as `predict` gives
        them, with titles.

        user: the id. fields: what stands in place of the dataset's, as in `recommend`. exclude_seen: leave
        out what the user is known to have, in whatever part. Raises DataError, FitError, OptionError.
        """
        k, dataset = checked_k(k), self._dataset(data)
        name, row = output_name(self.network, output), dataset.row_of(user)
        instead = person.told(self.run, person.with_items(self.run, name, (), fields)) if fields else {}
        names = self.run.vocabulary(self.network.outputs[name].spec.field)
        rows = range(row, row + 1)
        with one_thread_an_operation():
            [block] = recommendations(
                self.network, dataset, names, name, k, exclude_seen, chosen=rows, instead=instead
            )
        titles = names.titles(names.index_of(block.items))
        return [
            Recommendation(*each) for each in zip(block.items, titles, block.scores.tolist(), strict=True)
        ]

    @typed
    def history_of(self, user: str, data: Dataset | str | Path) -> list[str]:
        """The titles of what `recommend_for` gives the network of a user, of its first field that has
        names; none where none has.
        """
        dataset = dataset_of(data)
        fields = (
            layer.field
            for layer in self.run.network.inputs
            if self.run.fields[layer.field].vocabulary_digest is not None
        )
        if (field := next(fields, None)) is None:
            return []
        rows, parts = np.array([dataset.row_of(user)]), dataset.field(field).parts
        given = history(dataset, field, rows, parts)
        return (
            self.run.vocabulary(field).titles(given.indices.numpy()) if isinstance(given, SparseBatch) else []
        )

    def doubts(
        self, items: Sequence[str] = (), fields: Fields | None = None, output: str | None = None
    ) -> list[str]:
        """Where `recommend` may take something for another than was meant, a sentence each; without
        values.
        """
        said = person.with_items(self.run, output_name(self.network, output), items, fields)
        return person.doubts(self.run, said) + named_without_values(self.run, list(said))

    def understood(
        self, items: Sequence[str] = (), fields: Fields | None = None, output: str | None = None
    ) -> dict[str, list[str]]:
        """By field, the titles of what `recommend` takes some ids or titles for, and its numbers as text."""
        return person.understood(
            self.run, person.with_items(self.run, output_name(self.network, output), items, fields)
        )

    @typed
    def predict(
        self,
        data: Dataset | str | Path,
        k: int = 100,
        *,
        output: str | None = None,
        exclude_seen: bool = True,
        never: str | Path | None = None,
        never_for: str | Path | None = None,
        weights: str | Path | None = None,
        say: Callable[[str], None] | None = None,
        part: Part | None = None,
    ) -> Iterator[Block]:
        """The k best items for every example of a dataset, block by block, in its order.

        exclude_seen: leave out what an example is known to have: its training part, and what was set aside
        for validation or the end.
        part: a part that was set aside, to be compared with what is recommended: the network sees, and
            exclude_seen leaves out, only what `evaluate` has it see and leaves out. None: all that is known
            counts.
        never: a file of item ids, one a line, that nobody is shown. never_for: a CSV file (user, item) of
        what one user is not shown.
        weights: a CSV file (item, weight) of factors of at least 0 on the scores, which must not be below 0
        either; 0: never shown.
        say: told after the last block how many users of never_for the dataset does not have.
        Raises FitError, DataError, OptionError.
        """
        k, dataset = checked_k(k), self._dataset(data)
        name = output_name(self.network, output)
        names = self.run.vocabulary(self.network.outputs[name].spec.field)
        if part is not None:
            check_part(part)
            dataset.sparse_field(self.network.outputs[name].spec.field, part)
        width, device = self.network.outputs[name].width, self.network.device
        activation = self.network.outputs[name].spec.activation
        if weights is not None and definition(activation).signed:
            raise FitError(
                f'weights need scores of at least 0, such as a sigmoid or softmax; output "{name}" has'
                f' "{activation.kind}".'
            )
        allowed = Filter(
            banned_L=None if never is None else read_banned(path_of("never", never), names, width).to(device),
            weight_L=(
                None
                if weights is None
                else read_weights(path_of("weights", weights), names, width).to(device)
            ),
        )
        personal = None if never_for is None else PerUser(path_of("never_for", never_for), names)
        return _one_thread_a_block(
            recommendations(
                self.network, dataset, names, name, k, exclude_seen, allowed, personal, say, part=part
            )
        )


def _one_thread_a_block(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks; between them, whoever takes them has torch's threads back."""
    while True:
        with one_thread_an_operation():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def _load_unfinished(checkpoint: Checkpoint, network: Network, training: TrainingSpec) -> None:
    """Fill a network from a checkpoint within a training, rows that idled brought up to date."""
    rule = Optimizer(network.spec.tuned(training.optimizer), training.l1, training.l2)
    network.prepare_training(rule)
    checkpoint.load_into(network, with_state=True)
    facts = TrainingFacts.of(checkpoint.facts)
    state, steps_per_epoch = facts.state, facts.steps_per_epoch
    settle(
        network, rule, state.brake.braked(rates(training, steps_per_epoch)), state.steps_made(steps_per_epoch)
    )
