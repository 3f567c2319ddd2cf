"""Training steps: the same bits however many threads, memory that does not grow with the width, and a
known answer learned.
"""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.scripts import Script
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates
from widenet.training.step import train_step

TIED = {"weights": {"layer": "taste", "transposed": True}}


def network(hidden=(), output=(), entry=()):
    return {
        "layers": [
            {"name": "history", "kind": "input", "field": "items", **dict(entry)},
            {"name": "taste", "units": 3, "activation": "tanh", **dict(hidden)},
            {"name": "next", "kind": "output", "field": "items", **dict(output)},
        ]
    }


class Training:
    """A network over one sparse field "items", and its steps."""

    def __init__(self, document, training, width, num_threads=1):
        self.spec = TrainingSpec.of({"epochs": 1, **training})
        fields = {"items": SimpleNamespace(kind="sparse", width=width, min_value=1.0, max_value=1.0)}
        counts = {"items": np.arange(width) + 1}
        exchange = Exchange(self.spec.shards, num_threads)
        self.network = build(bind(NetworkSpec.of(document), self.spec, fields), exchange, counts=counts)
        self.rule = Optimizer(self.spec.optimizer, self.spec.l1, self.spec.l2)
        self.network.prepare_training(self.rule)
        self.rates, self.number = rates(self.spec, 1000), 0

    def step(self, items):
        self.number += 1
        prepared = self.network.prepare({"items": items}, (0, self.number))
        return train_step(self.network, self.rule, prepared, StepNumbers(self.number, self.rates))

    def fingerprint(self):
        """A hash over every weight and every optimizer state."""
        digest = hashlib.sha256()
        for weight in self.network.wide.values():
            weight.catch_up_all(self.rule, StepNumbers(self.number + 1, self.rates))
            for part in weight.parts.values():
                for tensor in part.tensors().values():
                    digest.update(tensor.numpy().tobytes())
        for trunk in self.network.trunk.values():
            for tensor in (trunk.tensor.detach(), *trunk.state.values()):
                digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def logits(self, items):
        """Logits [E, width], by the network's own forward pass."""
        with torch.no_grad():
            output = self.network.outputs["next"]
            activity = self.network.forward(self.network.prepare({"items": items}))
            direct_EH, shards = self.network.direct(output, activity), output.weight.shards
            logits_EL = torch.empty(len(direct_EH), shards.width)
            for shard in range(shards.count):
                own_ER = output.tile(shard, 0, shards.size(shard)).logits(direct_EH)
                logits_EL[:, shard :: shards.count] = own_ER
            return logits_EL


def batches(num, num_examples, width, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(num):
        yield SparseBatch.from_lists(
            [
                sorted(rng.choice(width, int(rng.integers(0, 9)), replace=False).tolist())
                for _ in range(num_examples)
            ]
        )


SAME_BITS = {
    "softmax": (network(), {}),
    "sigmoid": (network(output={"activation": "sigmoid"}), {}),
    "tied softmax": (network(output=TIED), {}),
    "tied sigmoid": (network(output={"activation": "sigmoid", **TIED}), {"optimizer": "adagrad"}),
    "clipped": (network(), {"gradient_norm_limit": 0.1}),
    "tied and clipped": (network(output=TIED), {"gradient_norm_limit": 0.1, "optimizer": "momentum"}),
    "cosine, hinge": (
        network(output={"cosine": {"temperature": 1}, "loss": "l2_hinge", "activation": "linear"}),
        {"optimizer": "rmsprop"},
    ),
    "denoise, dropout, limits": (
        network(
            {"dropout": 0.3, "weight_norm": 1.0},
            {"predict": "hidden", "weight_norm": 1.0},
            {"denoise": 0.3, "popularity_damping": 0.5},
        ),
        {"optimizer": "nesterov", "l2": 0.01},
    ),
    "sparseness, relu_max": (
        network({"activation": "sigmoid", "sparseness": {}}, {"activation": "relu_max", "loss": "l2"}),
        {"optimizer": "adadelta"},
    ),
    "idle rows under sgd": (network(), {"optimizer": "sgd", "l2": 0.1}),
}


@pytest.mark.parametrize(("document", "training"), SAME_BITS.values(), ids=SAME_BITS)
def test_one_and_two_threads_and_a_second_run_give_the_same_bits(document, training):
    found = []
    for threads in (1, 2, 2):
        run = Training(document, {"shards": 5, **training}, 997, threads)
        found.append(([run.step(batch) for batch in batches(4, 64, 997)], run.fingerprint()))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0][0])) == 4


def test_the_loss_is_that_before_the_step_and_falls():
    run = Training(network({"units": 12}), {"optimizer": {"kind": "adam", "learning_rate": 0.05}}, 60)
    batch = next(batches(1, 32, 60))
    losses = [run.step(batch) for _ in range(30)]
    share = sum(1 for count in batch.counts().tolist() if count) / 32
    assert losses[0] == pytest.approx(share * np.log(60), rel=0.1)
    assert losses[-1] < 0.7 * losses[0]


CHECKERBOARD = {
    "softmax": network(),
    "tied": network({"activation": "linear"}, TIED),
    "denoise, hidden asked for": network(
        entry={"denoise": 0.4, "scale": "rsqrt"}, output={"predict": "hidden"}
    ),
}


@pytest.mark.parametrize("document", CHECKERBOARD.values(), ids=CHECKERBOARD)
def test_on_a_checkerboard_every_user_is_offered_items_of_the_right_parity(document):
    num_users, width = 40, 31
    rng = np.random.default_rng(3)
    seen = [
        sorted(rng.choice(np.arange(user % 2, width, 2), 9, replace=False).tolist())
        for user in range(num_users)
    ]
    items = SparseBatch.from_lists(seen)
    run = Training(document, {"shards": 3, "optimizer": {"kind": "adam", "learning_rate": 0.05}}, width)
    for _ in range(80):
        run.step(items)
    logits_UL = run.logits(items)
    for user, own in enumerate(seen):
        logits_UL[user, own] = -torch.inf
    assert (logits_UL.argmax(dim=1) % 2).tolist() == [user % 2 for user in range(num_users)]


A_TRAINING = """
import sys, torch
from pathlib import Path
from widenet import Network, Training, dataset_from_lists, train

width = int(sys.argv[2])
rows = [[example * 97 % width] for example in range(1024)]
data = dataset_from_lists(Path(sys.argv[1]) / "data", rows, width=width)
layers = [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 2}]
output = {"name": "next", "kind": "output", "field": "items"}
layers += [output | {"activation": "softmax", "loss": "cross_entropy"}]
training = Training.of({"epochs": 1, "batch_size": 1024, "optimizer": "sgd", "shards": 1})
model = train(Network.of({"layers": layers}), training, data, Path(sys.argv[1]) / "run", device="cpu")
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1000)
"""


def test_a_step_over_ten_times_as_many_units_takes_hardly_more(tmp_path):
    """Each tile has 1 MB of logits: kept, or left unused between what outlives their tile, those of
    300,000 units take 1.2 GB.
    """

    def peak_megabytes(width):
        folder = tmp_path / str(width)
        folder.mkdir()
        script = Script(A_TRAINING, folder / "said", words=[str(folder), str(width)])
        out, err = script.communicate()
        assert script.returncode == 0, err
        return int(out.split()[-1])

    assert peak_megabytes(300_000) - peak_megabytes(30_000) < 200
