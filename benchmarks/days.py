"""Measures going on with yesterday's model every day, against a training from nothing, over drifting days."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.places import workplace
from widenet import Model, ingest, train
from widenet.predict.top_k import top_k
from widenet.sparse import SparseBatch

USERS, ITEMS, NEW_ITEMS, TOPICS = 20_000, 3_000, 150, 24
FIRST, DAILY, ACTIVE = 20, 4, 0.3
"""Interactions of each user before the first day and of each active one a day; share of active users."""
CHANGED, TREND, HALF_LIFE = 0.05, 0.5, 20.0
"""Share of users who change a topic each day, step of the topics' popularity, days that halve an item's."""
DAYS, K = 5, 20

NETWORK: dict[str, Any] = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.4},
        {
            "name": "taste",
            "units": 64,
            "activation": "linear",
            "bias": False,
            "initializer": {"kind": "gaussian", "deviation": 0.1},
        },
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "loss": {"kind": "cross_entropy", "targets": "sum"},
            "cosine": {"temperature": 0.1},
            "weights": {"layer": "taste", "transposed": True},
        },
    ]
}
WHOLE = {"epochs": 5, "batch_size": 256, "optimizer": {"kind": "adam", "learning_rate": 0.01}, "schedule": "cosine"}  # fmt: skip # noqa: E501
FURTHER = {**WHOLE, "epochs": 2}
"""The training from nothing, and the one that goes on, whose learning rate was chosen on other days."""

Pairs = list[tuple[str, str]]


@dataclass
class World:
    """Users who choose items by topics, which change from day to day.

    Attributes:
        random: Draws everything.
        topics_I: The topic of each item.
        born_I: The day on which each item came.
        appeal_I: How popular each item is within its topic when it comes.
        trend_T: Logarithm of the popularity of each topic.
        liked_UT: How much each user likes each topic.
        seen: The items that each user has.
    """

    random: np.random.Generator
    topics_I: NDArray[np.int64]
    born_I: NDArray[np.int64]
    appeal_I: NDArray[np.float64]
    trend_T: NDArray[np.float64]
    liked_UT: NDArray[np.float64]
    seen: list[list[int]] = field(default_factory=lambda: [[] for _ in range(USERS)])

    @classmethod
    def of(cls, seed: int) -> "World":
        """Return the world before its first day."""
        random = np.random.default_rng(seed)
        none = np.empty(0, np.int64)
        liked = random.dirichlet(np.full(TOPICS, 0.1), USERS)
        world = cls(random, none, none, np.empty(0), random.normal(0, 0.5, TOPICS), liked)
        world.add_items(ITEMS, 0)
        return world

    def add_items(self, number: int, day: int) -> None:
        """Let some items come."""
        self.topics_I = np.append(self.topics_I, self.random.integers(TOPICS, size=number))
        self.born_I = np.append(self.born_I, np.full(number, day))
        self.appeal_I = np.append(self.appeal_I, self.random.pareto(1.2, number) + 0.1)

    def next_day(self, day: int) -> None:
        """Let items come, topics gain and lose, and some users change what they like."""
        self.add_items(NEW_ITEMS, day)
        self.trend_T += self.random.normal(0, TREND, TOPICS)
        changed = np.flatnonzero(self.random.random(USERS) < CHANGED)
        self.liked_UT[changed] = self.random.dirichlet(np.full(TOPICS, 0.1), len(changed))

    def choose(self, users: Sequence[int], number: int, day: int) -> Pairs:
        """Let users choose items that they do not have; return (user, item)."""
        popular_I = self.appeal_I * 0.5 ** ((day - self.born_I) / HALF_LIFE)
        members = [np.flatnonzero(self.topics_I == topic) for topic in range(TOPICS)]
        sums = [np.cumsum(popular_I[own]) for own in members]
        strength_T, pairs = np.exp(self.trend_T), []
        for user in users:
            share_T = np.cumsum(self.liked_UT[user] * strength_T)
            chances = self.random.random((3 * number, 2))
            topics = np.searchsorted(share_T, chances[:, 0] * share_T[-1])
            known = set(self.seen[user])
            for topic, height in zip(topics.tolist(), chances[:, 1].tolist(), strict=True):
                place = int(np.searchsorted(sums[topic], height * sums[topic][-1]))
                item = int(members[topic][place])
                if item not in known and len(known) < len(self.seen[user]) + number:
                    known.add(item)
                    pairs.append((str(user), str(item)))
        for name, chosen in pairs:
            self.seen[int(name)].append(int(chosen))
        return pairs


def run(seed: int = 0) -> None:
    """Print NDCG@20 of the next day's interactions and seconds, day by day."""
    world = World.of(seed)
    days = [world.choose(range(USERS), FIRST, 0)]
    print(
        f"\n{USERS:,} users, {ITEMS:,} items and {NEW_ITEMS} more a day, {len(days[0]):,} interactions before"
        f" the first day, about {round(USERS * ACTIVE * DAILY):,} a day; NDCG@{K} of the next day's\n"
    )
    print("| day | from nothing | s | going on | s | yesterday's model | the first model |\n|---|---|---|---|---|---|---|")  # fmt: skip # noqa: E501
    with workplace() as folder:
        train(NETWORK, WHOLE, ingest(days[0], folder / "data-0"), folder / "run-0")
        sums = np.zeros(6)
        world.next_day(1)
        days.append(_active(world, 1))
        for day in range(1, DAYS + 1):
            histories = _histories(days)
            started = time.perf_counter()
            every = [pair for pairs in days for pair in pairs]
            whole = train(NETWORK, WHOLE, ingest(every, folder / f"all-{day}"), folder / f"whole-{day}")
            between = time.perf_counter()
            before = folder / f"run-{day - 1}"
            data = ingest(days[-1], folder / f"data-{day}", vocabulary=before, grow=True)
            further = train(NETWORK, FURTHER, data, folder / f"run-{day}", start_from=before)
            seconds = between - started, time.perf_counter() - between
            world.next_day(day + 1)
            days.append(_active(world, day + 1))
            models = whole, further, Model.load(before), Model.load(folder / "run-0")
            found = [ndcg(model, histories, days[-1]) for model in models]
            row = [found[0], seconds[0], found[1], seconds[1], *found[2:]]
            sums += row
            _print(str(day), row)
        _print("mean", (sums / DAYS).tolist())


def _print(name: str, row: Sequence[float]) -> None:
    cells = [f"{each:.1f}" if place in (1, 3) else f"{each:.4f}" for place, each in enumerate(row)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _active(world: World, day: int) -> Pairs:
    users = np.flatnonzero(world.random.random(USERS) < ACTIVE)
    return world.choose(users.tolist(), DAILY, day)


def _histories(days: Sequence[Pairs]) -> dict[str, list[str]]:
    histories: dict[str, list[str]] = {}
    for pairs in days:
        for user, item in pairs:
            histories.setdefault(user, []).append(item)
    return histories


def ndcg(model: Model, histories: Mapping[str, list[str]], later: Pairs) -> float:
    """Return the mean NDCG over users of their later items; items that the model does not know are missed."""
    names = model.run.vocabulary("items").all_ids().to_pylist()
    places = {name: place for place, name in enumerate(names)}
    wanted: dict[str, set[str]] = {}
    for user, item in later:
        wanted.setdefault(user, set()).add(item)
    users = [user for user in wanted if user in histories]
    rows = [sorted(places[item] for item in histories[user] if item in places) for user in users]
    batch = _batch(rows)
    units = top_k(model.network, {"items": batch}, "next", K, excluded=batch, scores=False)[1].numpy()
    gains = 1 / np.log2(np.arange(2, K + 2))
    hits = np.array(
        [[names[unit] in wanted[user] for unit in own] for user, own in zip(users, units, strict=True)]
    )
    ideal = np.array([gains[: len(wanted[user])].sum() for user in users])
    return float(((hits * gains).sum(axis=1) / ideal).mean())


def _batch(rows: Sequence[Sequence[int]]) -> SparseBatch:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return SparseBatch(torch.from_numpy(indptr), torch.from_numpy(indices), None)
