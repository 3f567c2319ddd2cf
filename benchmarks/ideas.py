"""Compares ideas with the preset of Gowalla, on a small piece of the latest part, in plain PyTorch."""

import argparse
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from benchmarks.latest import cut_latest
from benchmarks.neighbourhoods import difference, metric_cells
from benchmarks.piece import Piece
from benchmarks.places import presets, workplace
from benchmarks.results import processor
from benchmarks.switches import Autoencoder, Switches, trained
from benchmarks.terms import Term, ease, neighbourhood
from widenet.metrics.ranking import Metrics
from widenet.parallel.exchange import fixed_arithmetic

_SHARE = 0.2
"""Share of each user's items that is held out."""
_PRESET = Switches()
TRAININGS: dict[str, tuple[str, Switches]] = {
    "preset": ("preset, seed 0", _PRESET),
    "seed-1": ("preset, seed 1", Switches(seed=1)),
    "seed-2": ("preset, seed 2", Switches(seed=2)),
    "wider": ("twice the units", Switches(wider=2)),
    "bsl-0.9": ("BSL: exponent 0.9 on the negative sum", Switches(negatives=0.9)),
    "bsl-0.8": ("BSL, 0.8", Switches(negatives=0.8)),
    "bsl-0.6": ("BSL, 0.6", Switches(negatives=0.6)),
    "bsl-1.1": ("BSL, 1.1", Switches(negatives=1.1)),
    "boost-0.8": ('`"delta_boost": {"other": 0.8}`', Switches(others=0.8)),
    "boost-0.6": ('`"delta_boost": {"other": 0.6}`', Switches(others=0.6)),
    "slk-20": ("SL@K, K 20", Switches(top=20)),
    "slk-50": ("SL@K, K 50", Switches(top=50)),
    "adap-tau": ("a temperature by the user's loss, after Adap-tau", Switches(by_loss=0.1)),
    "user-vector": ("a user's own vector, times 0.3", Switches(own=0.3)),
    "two-views": ("two views of a history in a step", Switches(views=2)),
    "near": ("a fifth of the 10 nearest items' vectors added to each item's", Switches(near=0.2)),
    "visible-0.75": ("visible targets count 0.75", Switches(visible=0.75)),
    "visible-0": ("visible targets count nothing", Switches(visible=0.0)),
    "length-0.25": ("targets count n^-0.25 in a history of n", Switches(length=0.25)),
    "length-0.5": ("targets count n^-0.5", Switches(length=0.5)),
}
"""Ideas that change the training, by their names on the command line."""


@dataclass(frozen=True)
class Ranking:
    """How trained networks rank.

    Attributes:
        trainings: The networks; the mean of their logits counts.
        bias: Factor on the biases.
        term: What is added: the neighbourhood term as the preset has it, or with users that count less "by
            user", EASE, or nothing.
    """

    trainings: tuple[Switches, ...]
    bias: float = 1.0
    term: Literal["as preset", "by user", "EASE"] | None = "as preset"


RANKINGS: dict[str, tuple[str, Ranking]] = {
    "biases": ("biases times 1.25", Ranking((_PRESET,), bias=1.25)),
    "biases-seed-2": ("biases times 1.25, seed 2", Ranking((Switches(seed=2),), bias=1.25)),
    "biases-wider": ("biases times 1.25, twice the units", Ranking((Switches(wider=2),), bias=1.25)),
    "biases-bsl": ("biases times 1.25, BSL 0.8", Ranking((Switches(negatives=0.8),), bias=1.25)),
    "biases-boost": ("biases times 1.25, factor 0.8", Ranking((Switches(others=0.8),), bias=1.25)),
    "two-seeds": ("mean of the logits of two seeds", Ranking((_PRESET, Switches(seed=1)))),
    "three-seeds": (
        "mean of the logits of three seeds",
        Ranking((_PRESET, Switches(seed=1), Switches(seed=2))),
    ),
    "by-user": (
        "a user of n items counts n^-0.5 in the term",
        Ranking((_PRESET,), term="by user"),
    ),
    "ease": ("logarithm of the scores of EASE in place of the term", Ranking((_PRESET,), term="EASE")),
}
"""Ideas that change no training, by their names on the command line."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    names = [*TRAININGS, *RANKINGS]
    parser.add_argument("--ordered", type=Path, required=True, help="the published train.txt of Gowalla")
    parser.add_argument(
        "--ideas", nargs="+", choices=names, default=names, metavar="NAME", help=f"rows: {', '.join(names)}"
    )
    parser.add_argument("--users", type=int, default=7500, help="users of the piece, the first ones")
    parser.add_argument("--least", type=int, default=8, help="fewest interactions of an item of the piece")
    parser.add_argument("--units", type=int, default=128, help="units of the preset's network")
    parser.add_argument("--epochs", type=int, help="epochs in place of the preset's")


def run(asked: argparse.Namespace) -> None:
    """Print a row for each idea, beside the preset or the network whose ranking it changes."""
    with workplace() as folder:
        piece = Piece.of(cut_latest(asked.ordered, _SHARE, folder), asked.users, asked.least)
    trials = _Trials(piece, asked.units, asked.epochs)
    interactions = f"{piece.histories.num_entries:,} interactions"
    print(f"{asked.users:,} users, {piece.width:,} items, {interactions}, {asked.units} units\n")
    with fixed_arithmetic():
        if chosen := [TRAININGS[name] for name in TRAININGS if name in asked.ideas]:
            _print_trainings(trials, chosen)
        if changed := [RANKINGS[name] for name in RANKINGS if name in asked.ideas]:
            _print_rankings(trials, changed)
    print(f"\nProcessor: {processor()}.")


def _print_trainings(trials: "_Trials", chosen: list[tuple[str, Switches]]) -> None:
    """Print a row for each training, and how far it is from the preset with the term."""
    print("| idea | without the term | Recall@20 | NDCG@20 | difference | 95 % |\n|---|---|---|---|---|---|")
    preset = trials.metrics(Ranking((_PRESET,)))
    for text, switches in chosen:
        without = trials.metrics(Ranking((switches,), term=None))
        found = trials.metrics(Ranking((switches,)))
        compared = "- | -" if switches == _PRESET else difference(preset, found)
        print(f"| {text} | {without['ndcg@20']:.4f} | {metric_cells(found)} | {compared} |", flush=True)


def _print_rankings(trials: "_Trials", chosen: list[tuple[str, Ranking]]) -> None:
    """Print a row for each ranking, and how far it is from the one of its first network with the term."""
    print("\n| idea | Recall@20 | NDCG@20 | difference | 95 % |\n|---|---|---|---|---|")
    for text, ranking in chosen:
        usual, found = trials.metrics(Ranking(ranking.trainings[:1])), trials.metrics(ranking)
        print(f"| {text} | {metric_cells(found)} | {difference(usual, found)} |", flush=True)


class _Trials:
    """Trains each network, counts each term and measures each ranking once.

    Networks are trained as the preset "best" says, and have the neighbourhood term of "neighbours".
    """

    def __init__(self, piece: Piece, units: int, epochs: int | None) -> None:
        network, training = (json.loads(path.read_text("utf-8")) for path in presets("gowalla")["best"])
        [*_, output] = json.loads(presets("gowalla")["neighbours"][0].read_text("utf-8"))["layers"]
        self.piece, self.settings = piece, output["neighbourhood"]
        documents = network, {**training, "epochs": epochs or training["epochs"]}
        self.trained = cache(lambda switches: trained(piece, switches, documents, units))
        self.term = cache(self._term)
        self.metrics = cache(self._metrics)

    def _term(self, name: str) -> Term:
        if name == "EASE":
            return ease(self.piece, l2=50, weight=0.3, floor=0.01)
        return neighbourhood(self.piece, **self.settings, by_user=0.5 if name == "by user" else 0.0)

    def _metrics(self, ranking: Ranking) -> Metrics:
        networks = [self.trained(switches) for switches in ranking.trainings]
        return self.piece.metrics(lambda rows: self._logits(networks, ranking, rows))

    def _logits(self, networks: list[Autoencoder], ranking: Ranking, rows: Tensor) -> Tensor:
        logits_EN = torch.stack([network.logits(rows, ranking.bias) for network in networks]).mean(dim=0)
        if ranking.term is not None:
            logits_EN += self.term(ranking.term).of(self.piece, rows)
        return logits_EN
