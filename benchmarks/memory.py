"""Peak memory of training a network of 1,000,000 units in and out."""

import multiprocessing
import resource
import time

import numpy as np

from benchmarks.places import workplace
from widenet import dataset_from_lists, train

WIDTH, HIDDEN, BATCH, EXAMPLES, HISTORY = 1_000_000, 128, 1024, 4096, 30
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": HIDDEN, "activation": "tanh", "initializer": "gaussian"},
        {"name": "next", "kind": "output", "field": "items", "initializer": "gaussian"},
    ]
}
TRAINING = {"epochs": 1, "batch_size": BATCH, "optimizer": "adam"}


def run() -> None:
    """Print weights, optimizer state and the peak of resident memory beyond them."""
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    worker = multiprocessing.get_context("spawn").Process(target=_train, args=(queue,))
    worker.start()
    before, peak, seconds = queue.get()
    worker.join()
    weights = 2 * WIDTH * HIDDEN * 4 + WIDTH * 4
    steps = f"{EXAMPLES // BATCH} steps, a checkpoint and the model in {seconds:.1f} s"
    print(f"\n{WIDTH:,} x {HIDDEN} in and out, softmax, adam, batch {BATCH}: {steps}\n")
    print("| what | GB |\n|---|---|")
    print(f"| weights | {weights / 1e9:.2f} |\n| optimizer state | {2 * weights / 1e9:.2f} |")
    print(f"| peak resident memory | {peak / 1e9:.2f} |\n| of which Python, torch and the data set, before training | {before / 1e9:.2f} |")
    print(f"| peak beyond weights and state | {(peak - 3 * weights) / 1e9:.2f} |")


def _train(queue: "multiprocessing.queues.SimpleQueue[tuple[int, int, float]]") -> None:
    draw = np.random.default_rng(0)
    rows = [np.unique((WIDTH * draw.random(HISTORY) ** 3).astype(np.int64)).tolist() for _ in range(EXAMPLES)]
    with workplace() as folder:
        data = dataset_from_lists(folder / "data", rows, width=WIDTH)
        before = _peak_bytes()
        start = time.monotonic()
        train(NETWORK, TRAINING, data, folder / "run", device="cpu")
        queue.put((before, _peak_bytes(), time.monotonic() - start))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
