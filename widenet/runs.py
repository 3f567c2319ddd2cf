"""What a person does with a run: train it, resume it, load it, evaluate it, recommend from it."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from widenet.checkpoint import Checkpoint, fingerprint
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.stream import Stream
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.evaluate import DEFAULT_KS, evaluate, output_name
from widenet.metrics import check_metric
from widenet.model.binding import bind
from widenet.model.build import build
from widenet.model.exchange import Exchange
from widenet.model.network import Network
from widenet.parallel.group import by_leader, device_for, exchange_for, joined
from widenet.parallel.threads import one_thread_an_operation
from widenet.predict.filters import PerUser, read_banned, read_weights
from widenet.predict.rows import Block, recommendations
from widenet.predict.top_k import Filter, top_k
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.loop import Evaluate, LoopState, Report, Training, settle
from widenet.training.optimizers import Optimizer
from widenet.training.run_directory import RunDirectory
from widenet.training.schedules import rates


@dataclass(frozen=True)
class Recommendation:
    """One recommended item: its id, its title (the id where it has none) and its score."""

    item: str
    title: str
    score: float


class Silence:
    """A report that nobody reads."""

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        """Nothing."""

    def advance(self, num_examples: int, loss: float) -> None:
        """Nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


def train(
    network: NetworkSpec | Mapping[str, Any] | str | Path,
    training: TrainingSpec | Mapping[str, Any] | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    device: str | None = None,
    report: Report | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> "Model":
    """Train a network on a dataset; the run directory `out` holds documents, checkpoints, log and finished model.

    network, training: documents, plain values, or paths of JSON files. data: a dataset, or its directory.
    resume: go on from the newest checkpoint of `out`, to the bits that an undisturbed training would have had.
    device: cpu or cuda; None: cuda where there is one. interrupted: asked after every step; true ends the training with a
    checkpoint and raises KeyboardInterrupt. Without it, Ctrl-C and SIGTERM do so.
    Raises DocumentError, DataError, FitError, CheckpointError, NumericsError.
    """
    network_spec = network if isinstance(network, NetworkSpec) else _document(NetworkSpec, network)
    training_spec = training if isinstance(training, TrainingSpec) else _document(TrainingSpec, training)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    chosen = device_for(device)
    metric_k = check_training(network_spec, training_spec, dataset)
    with joined(chosen), one_thread_an_operation():
        exchange = exchange_for(training_spec.shards, chosen)
        run = _run_directory(Path(out), network_spec, training_spec, dataset, resume, exchange)
        counts = {layer.field: dataset.counts(layer.field) for layer in network_spec.inputs if layer.popularity_damping}
        net = build(network_spec, training_spec, dataset.fields, exchange, chosen, counts)
        rule = Optimizer(training_spec.optimizer, training_spec.l1, training_spec.l2)
        net.prepare_training(rule)
        with ExitStack() as stack, _signals(interrupted) as stop:
            by_leader(exchange, lambda: stack.enter_context(run.locked()))
            state = _state(run, net, dataset)
            stream = Stream(dataset, network_spec.fields, training_spec.batch_size, training_spec.seed, training_spec.shuffle)
            evaluation = _evaluation(training_spec, dataset, metric_k)
            teller = report if report is not None and exchange.leads else Silence()
            if not Training(run, net, rule, stream, evaluation, teller, state).loop(stop):
                raise KeyboardInterrupt
            if training_spec.keep == "best" and (run.path / "best").exists():
                Checkpoint.open(run.path / "best").load_into(net, with_state=False)
            run.save_model("model", net, {"epochs": state.epoch, "best": state.best, "best_epoch": state.best_epoch})
    return Model(run, net)


class Model:
    """A trained network with the names of its items, ready to recommend."""

    def __init__(self, run: RunDirectory, network: Network) -> None:
        self.run, self.network = run, network

    @classmethod
    def load(cls, run: str | Path, device: str | None = None) -> "Model":
        """The model of a run directory; raises CheckpointError where there is none, or it is damaged.

        Of a run that was cut short, it is the network as it stood at the newest checkpoint.
        """
        directory = RunDirectory.open(Path(run))
        chosen = device_for(device)
        network = build(directory.network, directory.training, directory.fields, exchange_for(directory.training.shards, chosen), chosen)
        checkpoint = directory.model()
        if "state" in checkpoint.facts:
            _load_unfinished(checkpoint, network, directory.training)
        else:
            checkpoint.load_into(network, with_state=False)
        return cls(directory, network)

    def __repr__(self) -> str:
        layers = ", ".join(f"{layer.name} {self.network.units[layer.name]:,}" for layer in self.run.network.layers)
        return f"Model({str(self.run.path)!r}, {layers})"

    def fingerprint(self) -> str:
        """SHA-256 of the weights alone: equal for equal weights."""
        return fingerprint(self.network)

    def evaluate(
        self,
        data: Dataset | str | Path,
        part: Part = "heldout",
        ks: Sequence[int] = DEFAULT_KS,
        output: str | None = None,
        exclude_seen: bool = True,
        advance: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Ranking metrics on a set-aside part of a dataset; see `widenet.evaluate.evaluate`."""
        dataset = data if isinstance(data, Dataset) else Dataset.open(data)
        self.run.check_dataset(dataset)
        with one_thread_an_operation():
            return evaluate(self.network, dataset, part, ks, output, exclude_seen, advance)

    def recommend(
        self,
        items: Sequence[str],
        k: int = 10,
        *,
        values: Sequence[float] | None = None,
        exclude_seen: bool = True,
        output: str | None = None,
    ) -> list[Recommendation]:
        """The k best items for somebody with this history.

        items: ids or titles; a title may be a part of one; an item that is named twice counts once, with its last value.
        values: one number an item, for networks trained with values.
        Raises DataError for an item that is not known, FitError where the network takes more than one field.
        """
        _check_k(k)
        if values is not None and len(values) != len(items):
            raise OptionError(f"values must be one number for each of {len(items)} items; got {len(values)}.")
        name = output_name(self.network, output)
        fields = {layer.field for layer in self.run.network.inputs}
        if len(fields) != 1:
            raise FitError(f"recommend needs a network of one input field; this one has {', '.join(sorted(fields))}. Use predict.")
        vocabulary = self.run.vocabulary(fields.pop())
        found = {vocabulary.find(item)[0]: position for position, item in enumerate(items)}
        rows = sorted(found)
        batch = SparseBatch.from_lists([rows], None if values is None else [[float(values[found[row]]) for row in rows]])
        inputs = {layer.field: batch.to(self.network.device) for layer in self.run.network.inputs}
        target = self.network.outputs[name].spec.field
        seen = inputs.get(target) if exclude_seen else None
        names = self.run.vocabulary(target)
        allowed = Filter().within(len(names), self.network.outputs[name])
        with one_thread_an_operation():
            scores_EK, units_EK = top_k(self.network, inputs, name, k, excluded=seen, allowed=allowed)
        kept = units_EK[0] >= 0
        units, scores = units_EK[0][kept].cpu().numpy(), scores_EK[0][kept].cpu().tolist()
        return [Recommendation(*row) for row in zip(names.ids(units), names.titles(units), scores, strict=True)]

    def understood(self, items: Sequence[str]) -> list[str]:
        """The titles of the items that `recommend` takes some ids or titles for."""
        vocabulary = self.run.vocabulary(self.run.network.inputs[0].field)
        return vocabulary.titles([vocabulary.find(item)[0] for item in items])

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
    ) -> Iterator[Block]:
        """The k best items for every example of a dataset, block by block, in its order.

        never: a file of item ids, one a line, that nobody is shown. never_for: a CSV file (user, item) of what one user is not shown.
        weights: a CSV file (item, weight) of factors on the scores. Raises FitError, DataError, OptionError.
        """
        _check_k(k)
        dataset = data if isinstance(data, Dataset) else Dataset.open(data)
        self.run.check_dataset(dataset)
        name = output_name(self.network, output)
        names = self.run.vocabulary(self.network.outputs[name].spec.field)
        width, device = self.network.outputs[name].width, self.network.device
        allowed = Filter(
            banned_L=None if never is None else read_banned(Path(never), names, width).to(device),
            weight_L=None if weights is None else read_weights(Path(weights), names, width).to(device),
        )
        personal = None if never_for is None else PerUser(Path(never_for), names)
        return _one_thread_a_block(recommendations(self.network, dataset, names, name, k, exclude_seen, allowed, personal))


def _one_thread_a_block(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks; between them, whoever takes them has torch's threads back."""
    while True:
        with one_thread_an_operation():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def _check_k(k: int) -> None:
    if k < 1:
        raise OptionError(f"k must be at least 1; got {k}.")


def _document(kind: Any, given: Any) -> Any:
    return kind.read(given) if isinstance(given, str | Path) else kind.of(dict(given))


def check_training(network: NetworkSpec, training: TrainingSpec, data: Dataset | str | Path) -> int:
    """Raise what would end a training before its first step; the k of its evaluation's metric, or 0 without an evaluation."""
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    bind(network, dataset.fields)
    evaluation = training.evaluation
    if evaluation is None:
        return 0
    names = [layer.name for layer in network.outputs]
    if evaluation.output is None and len(names) > 1:
        raise FitError(f"training.json: evaluation.output must name one of the outputs: {', '.join(names)}.")
    name = evaluation.output or names[0]
    if name not in names:
        raise FitError(f'training.json: evaluation.output must be one of {", ".join(names)}; got "{name}".')
    field = next(layer.field for layer in network.outputs if layer.name == name)
    if field in dataset.fields:
        if dataset.field(field).kind == "dense":
            raise FitError(f'training.json: evaluation needs a sparse field; output "{name}" asks for the dense "{field}". Remove it.')
        dataset.entry_counts(field, slice(0), evaluation.part)
        if not dataset.field(field).num_entries[evaluation.part]:
            where = f'{dataset.path}: the {evaluation.part} part of field "{field}"'
            raise FitError(f"{where} has no entries. Split again, with a larger share.")
    try:
        return check_metric(evaluation.metric)
    except OptionError as error:
        raise DocumentError(f"training.json: evaluation.metric: {error}") from None


def _evaluation(training: TrainingSpec, dataset: Dataset, metric_k: int) -> Evaluate | None:
    evaluation = training.evaluation
    if evaluation is None:
        return None
    return lambda network: evaluate(network, dataset, evaluation.part, sorted({metric_k, 20}), evaluation.output)


def _state(run: RunDirectory, network: Network, dataset: Dataset) -> LoopState:
    """Where the training of a run stands; the network and the log are brought there."""
    state = LoopState()
    checkpoint = run.latest()
    if checkpoint is not None:
        if checkpoint.facts["examples"] != dataset.digest:
            raise FitError(f"{dataset.path} does not hold the examples that {run.path} was begun with. Resume with that dataset.")
        checkpoint.load_into(network, with_state=True)
        state = LoopState(**checkpoint.facts["state"])
    by_leader(network.exchange, lambda: run.rewind_log(state.epoch))
    return state


def _load_unfinished(checkpoint: Checkpoint, network: Network, training: TrainingSpec) -> None:
    """Fill a network from a checkpoint within a training, rows that idled brought up to date."""
    rule = Optimizer(training.optimizer, training.l1, training.l2)
    network.prepare_training(rule)
    checkpoint.load_into(network, with_state=True)
    state, steps_per_epoch = LoopState(**checkpoint.facts["state"]), checkpoint.facts["steps_per_epoch"]
    settle(network, rule, rates(training, steps_per_epoch), state.epoch * steps_per_epoch + state.step)


def _run_directory(
    path: Path, network: NetworkSpec, training: TrainingSpec, dataset: Dataset, resume: bool, exchange: Exchange
) -> RunDirectory:
    if not resume:
        by_leader(exchange, lambda: RunDirectory.create(path, network, training, dataset))
    run = RunDirectory.open(path)
    for name, before, now in (("network", run.network, network), ("training", run.training, training)):
        if before != now:
            changed = [key for key in type(now).model_fields if getattr(before, key) != getattr(now, key)]
            raise CheckpointError(f'{path} was begun with another {name}.json: "{changed[0]}" differs. Resume with {path / name}.json.')
    run.check_dataset(dataset)
    return run


@contextmanager
def _signals(interrupted: Callable[[], bool] | None) -> Iterator[Callable[[], bool]]:
    """What tells whether to stop: the caller's function, or Ctrl-C and SIGTERM. A second signal stops at once."""
    if interrupted is not None or threading.current_thread() is not threading.main_thread():
        yield interrupted or (lambda: False)
        return
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if asked.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
