"""Compares quantized runs with those they are made of: bytes, NDCG on Gowalla, and the time of a ranking."""

import argparse
import json
from collections.abc import Callable
from typing import Any

from benchmarks.alternately import THREADS, Program, measure
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import Table, processor, publish

ITEMS, COLUMNS, K = 1_000_000, 128, 100
USERS = (512, 1)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--units", type=int, nargs="*", default=[64, 512], help="units of Gowalla's vectors")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn, at least one step")
    parser.add_argument("--items", type=int, default=ITEMS, help="how many are ranked")


def run(asked: argparse.Namespace) -> None:
    """Print a table of losses, and one of times."""
    if asked.units:
        _print_losses(asked.units)
    if asked.rounds:
        tables = [_times(num, asked) for num in USERS]
        print(*tables, sep="\n", flush=True)
        publish("smaller", tables, asked.out)


def _print_losses(widths: list[int]) -> None:
    from widenet import ingest, quantize, train
    from widenet.runs.quantizing import num_bytes

    network, training = presets("gowalla")["best"]
    print("| units | run | bytes of weights | of float32 | NDCG@20 | of float32 |\n|---|---|---|---|---|---|")
    with workplace() as folder:
        ingest(
            [DATA / "gowalla" / "train.txt"],
            folder / "data",
            heldout=DATA / "gowalla" / "test.txt",
            format="adjacency",
        )
        for units in widths:
            document = json.loads(network.read_text("utf-8"))
            document["layers"][1]["units"] = units
            whole, small = folder / f"{units}", folder / f"{units} in 8 bits"
            trained = train(document, training, folder / "data", whole)
            first = num_bytes(whole), trained.evaluate(folder / "data", ks=(20,))["ndcg@20"]
            for name, path, model in (("float32", whole, trained), ("8 bits", small, quantize(whole, small))):
                size, gain = num_bytes(path), model.evaluate(folder / "data", ks=(20,))["ndcg@20"]
                shares = f"{size / first[0]:.4f}", f"{gain / first[1]:.5f}"
                print(f"| {units} | {name} | {size:,} | {shares[0]} | {gain:.6f} | {shares[1]} |", flush=True)
    print(f"\nProcessor: {processor()}, {THREADS} threads.\n")


def _times(num: int, asked: argparse.Namespace) -> Table:
    words = {"num": num, "items": asked.items}
    programs = [
        Program("float32", "benchmarks.smaller:ranking", {**words, "small": False}, ["widenet", "torch"]),
        Program("8 bits", "benchmarks.smaller:ranking", {**words, "small": True}),
    ]
    found = measure(programs, asked.rounds, asked.seconds)
    who = f"{num} users at once" if num > 1 else "1 user"
    title = f"The best {K} of {asked.items:,} items by product of {COLUMNS} numbers, for {who}"
    table = Table(title, ["run", "time / float32's", "ms"])
    for measured in found:
        table.add(measured, found[0])
    return table


def ranking(num: int, items: int, small: bool) -> Callable[[int], dict[str, Any]]:
    """Return steps of `widenet.predict.top_k` for drawn vectors, in float32 or in 8 bits."""
    from widenet.runs.quantizing import put_in_8_bits

    network = drawn_network(max(USERS), items, COLUMNS)
    if small:
        put_in_8_bits(network)
    return rankings(network, num, K)


def drawn_network(users: int, items: int, columns: int) -> Any:
    """Return a network of drawn vectors, which scores items by products with a user's vector."""
    import torch

    from widenet.model.build import build
    from widenet.parallel.group import exchange_for
    from widenet.plan.binding import bind
    from widenet.plan.layout import Width
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    plain = {"activation": "linear", "bias": False}
    layers = [
        {"name": "user", "kind": "input", "field": "users"},
        {"name": "vector", "units": columns, **plain},
        {"name": "score", "kind": "output", "field": "items", "loss": "l2", **plain},
    ]
    fields, training = {"users": Width(users), "items": Width(items)}, TrainingSpec.of({})
    exchange = exchange_for(training.shards, torch.device("cpu"))
    network = build(bind(NetworkSpec.of({"layers": layers}), training, fields), exchange)
    for number, wide in enumerate(network.wide.values()):
        for shard, part in wide.parts.items():
            part.weight.normal_(generator=torch.Generator().manual_seed(1000 * number + shard))
    return network


def rankings(network: Any, num: int, k: int) -> Callable[[int], dict[str, Any]]:
    """Return steps that rank the items of a drawn network for some users."""
    from widenet.parallel.exchange import one_thread_an_operation
    from widenet.predict.top_k import top_k
    from widenet.sparse import SparseBatch

    batch = {"users": SparseBatch.from_lists([[user] for user in range(num)])}

    def steps(number: int) -> dict[str, Any]:
        with one_thread_an_operation():
            for _ in range(number):
                top_k(network, batch, "score", k)
        return {}

    return steps
