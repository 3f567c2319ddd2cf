"""Times the 100 best of a million items: widenet, torch, two libraries, and the product that all need."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish

ITEMS, UNITS, USERS, K = 1_000_000, 128, 512, 100
_BLOCK, _SEARCHED_BLOCK = 2**18, 2**16
"""Items of a product alone, and of one before `torch.topk`, which is fastest with about so many."""
_AGREEMENT = 0.999


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn, at least one step")
    parser.add_argument("--items", type=int, default=ITEMS, help="how many are ranked")


def run(asked: argparse.Namespace) -> None:
    """Print a table; all programs rank by the same vectors, and must find the same items."""
    with workplace() as folder:
        draw = np.random.default_rng(0)
        np.save(folder / "users.npy", draw.standard_normal((USERS, UNITS), dtype=np.float32))
        np.save(folder / "items.npy", draw.standard_normal((asked.items, UNITS), dtype=np.float32))
        programs = [
            Program("widenet", "benchmarks.topk:widenet", {"folder": str(folder)}, ["widenet", "torch"]),
            Program("one matrix product", "benchmarks.topk:product", {"folder": str(folder)}),
            Program("torch, products and topk", "benchmarks.topk:torch_topk", {"folder": str(folder)}),
            Program("implicit, recommend", "benchmarks.topk:implicit", {"folder": str(folder)}, ["implicit"]),
            Program("faiss, IndexFlatIP", "benchmarks.topk:faiss", {"folder": str(folder)}, ["faiss-cpu"]),
        ]
        found = measure(programs, asked.rounds, asked.seconds)
        table = _table(found, folder, asked.items)
    print(table, flush=True)
    publish("topk", [table], asked.out)


def _table(found: list[Measured], folder: Path, items: int) -> Table:
    title = f"The best {K} of {items:,} items by product of {UNITS} numbers, for {USERS} users at once"
    table = Table(
        title, ["program", "time / widenet's", "ms a block", "time / one matrix product", "users a second"]
    )
    ours, bound = found[:2]
    for measured in found:
        if measured.problem is None and ours.problem is None and bound.problem is None:
            _check_answers(folder, measured, ours)
            middle = measured.median / bound.median
            table.add(measured, ours, f"{middle:.2f}", f"{USERS / measured.median:,.0f}")
        else:
            table.add(measured, ours)
    table.notes.append(f"{THREADS} threads. All programs found the same items.")
    return table


def _check_answers(folder: Path, measured: Measured, ours: Measured) -> None:
    """Check that results differ at most in the order of items with nearly equal scores, due to rounding."""
    place = measured.first.get("answers")
    if place is None:
        return
    theirs, mine = np.load(folder / place), np.load(folder / ours.first["answers"])
    agreement = float((np.sort(theirs, axis=1) == np.sort(mine, axis=1)).mean())
    if agreement < _AGREEMENT:
        raise AssertionError(f"{measured.program.name}: only {agreement:.2%} of the best items are widenet's")


def _repeated(folder: str, name: str, block: Callable[[], Any]) -> Callable[[int], dict[str, Any]]:
    """Return steps of one block each, which write their results to a file."""

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            found = block()
        np.save(f"{folder}/{name}-answers.npy", np.asarray(found))
        return {"answers": f"{name}-answers.npy"}

    return steps


def _vectors(folder: str) -> tuple[np.ndarray, np.ndarray]:
    return np.load(f"{folder}/users.npy"), np.load(f"{folder}/items.npy")


def widenet(folder: str) -> Callable[[int], dict[str, Any]]:
    """Steps of `widenet.predict.top_k` for a network made of the users' and the items' vectors."""
    import torch

    from widenet.model.build import build
    from widenet.parallel.exchange import one_thread_an_operation
    from widenet.parallel.group import exchange_for
    from widenet.plan.binding import bind
    from widenet.plan.layout import Width
    from widenet.plan.tiles import as_slice
    from widenet.predict.top_k import top_k
    from widenet.sparse import SparseBatch
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    users, items = (torch.from_numpy(vectors) for vectors in _vectors(folder))
    plain = {"activation": "linear", "bias": False}
    layers = [
        {"name": "user", "kind": "input", "field": "users"},
        {"name": "vector", "units": UNITS, **plain},
        {"name": "score", "kind": "output", "field": "items", "loss": "l2", **plain},
    ]
    fields = {"users": Width(len(users)), "items": Width(len(items))}
    training = TrainingSpec.of({})
    network = build(
        bind(NetworkSpec.of({"layers": layers}), training, fields),
        exchange_for(training.shards, torch.device("cpu")),
    )
    for link, vectors in ((("vector", "user"), users), (("score", ""), items)):
        wide = network.wide[network.layout.links[link].weight]
        for shard, part in wide.parts.items():
            part.weight.copy_(vectors[as_slice(wide.shards.units(shard))])
    batch = {"users": SparseBatch.from_lists([[user] for user in range(len(users))])}

    def block() -> Any:
        with one_thread_an_operation():
            return top_k(network, batch, "score", K)[1]

    return _repeated(folder, "widenet", block)


def product(folder: str) -> Callable[[int], dict[str, Any]]:
    """Return steps that compute all scores in blocks of items, and discard them."""
    import torch

    torch.set_num_threads(THREADS)
    users, items = (torch.from_numpy(vectors) for vectors in _vectors(folder))
    scores = torch.empty(len(users) * min(_BLOCK, len(items)))

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            for block in torch.split(items, _BLOCK):
                torch.mm(users, block.T, out=scores[: len(users) * len(block)].view(len(users), len(block)))
        return {}

    return steps


def torch_topk(folder: str) -> Callable[[int], dict[str, Any]]:
    """Products with blocks of items, the best of each block, and the best of all of these."""
    import torch

    torch.set_num_threads(THREADS)
    users, items = (torch.from_numpy(vectors) for vectors in _vectors(folder))
    block = min(_SEARCHED_BLOCK, len(items))
    scores = torch.empty(len(users) * block)

    def best() -> Any:
        values, indices = [], []
        for start in range(0, len(items), block):
            part = items[start : start + block]
            product = scores[: len(users) * len(part)].view(len(users), len(part))
            found = torch.topk(torch.mm(users, part.T, out=product), min(K, len(part)))
            values.append(found.values)
            indices.append(found.indices + start)
        places = torch.topk(torch.cat(values, dim=1), K).indices
        return torch.cat(indices, dim=1).gather(1, places)

    return _repeated(folder, "torch", best)


def implicit(folder: str) -> Callable[[int], dict[str, Any]]:
    """Steps of `recommend` for a factorization with these factors; no user has items to filter."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    users, items = _vectors(folder)
    model = AlternatingLeastSquares(factors=UNITS, use_gpu=False, num_threads=THREADS)
    model.user_factors, model.item_factors = users, items
    everybody, nothing = np.arange(len(users)), csr_matrix((len(users), len(items)), dtype=np.float32)
    return _repeated(
        folder,
        "implicit",
        lambda: model.recommend(everybody, nothing, N=K, filter_already_liked_items=False)[0],
    )


def faiss(folder: str) -> Callable[[int], dict[str, Any]]:
    """Exact search by inner product."""
    import faiss as library

    library.omp_set_num_threads(THREADS)
    users, items = _vectors(folder)
    index = library.IndexFlatIP(UNITS)
    index.add(items)
    return _repeated(folder, "faiss", lambda: index.search(users, K)[1])
