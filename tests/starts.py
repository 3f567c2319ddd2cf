"""Networks that begin with the weights of another run, and what they hold."""

import torch

from tests.trainings import WIDTH, books
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.begin import load_start
from widenet.training.run_directory import RunDirectory

OLD = [str(index) for index in range(WIDTH)]
CATALOGUES = {
    "the same": OLD,
    "grown": [*OLD, "a", "b", "c", "d"],
    "grown, smaller and in another order": ["a", *reversed(OLD[3:]), "b", "c", "d", "e", "f", "g"],
}


def grown(path, ids):
    return books(path, seed=1, width=len(ids), item_ids=ids, titles=None)


def made(network, training, data):
    """A network as a training of a dataset begins, with room for the optimizer's state."""
    specs = NetworkSpec.of(network, "network"), TrainingSpec.of(training, "training")
    net = build(
        bind(*specs, data.fields),
        Exchange(specs[1].shards),
        "cpu",
        {"items": data.counts("items")},
    )
    net.prepare_training(Optimizer(specs[1].optimizer, specs[1].l1, specs[1].l2))
    return net


def begun(folder, network, training, data, start):
    """A network that a run begins with, and what was said."""
    specs, said = (NetworkSpec.of(network, "network"), TrainingSpec.of(training, "training")), []
    with RunDirectory.begin(folder / "run", bind(*specs, data.fields), data, start) as run:
        net = made(network, training, data)
        load_start(run.start, net, data, said.append)
    return net, said


def rows(net):
    """Every wide weight and its state, in order of units, but for the numbers of steps."""
    found = {}
    for name, wide in net.wide.items():
        for shard, part in wide.parts.items():
            for key, tensor in part.tensors().items():
                if not key.endswith("moved"):
                    whole = found.setdefault((name, key), torch.empty(wide.shards.width, *tensor.shape[1:]))
                    whole[shard :: wide.shards.count] = tensor
    return found
